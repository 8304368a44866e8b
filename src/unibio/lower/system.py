"""The linear systems of Newton's method: solved by a Cholesky factor where y is small, else by conjugate gradients."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from unibio.core import linear, tree
from unibio.core.tree import Number, PyTree

PROBES = 8
DENSE = 128  # up to this many unknowns the Hessian is built and factorised: exact steps for any condition number
_CG_STEPS = 2000


class System(NamedTuple):
    """The linear system (H + λ) d = b, prepared for many right-hand sides b.

    `solve(b, rtol)` returns d and the number of Hessian-vector products that it took. `inverse` is 1/diag(H + λ),
    `empty` says which rows are too small to have correct digits (there d_i = b_i), and `products` is the number of
    products that the preparation took.
    """

    solve: Callable[[PyTree, Any], tuple[PyTree, jax.Array]]
    inverse: PyTree
    empty: PyTree
    products: jax.Array


def system(operator: linear.Operator, like: PyTree) -> System:
    """Prepares the system. Up to 128 unknowns are solved for by a Cholesky factor of H + λ, scaled to a unit diagonal;
    d is NaN if there is none. More unknowns are solved for by CG to the relative residual `rtol`; d is NaN if the
    curvature is negative."""
    flat, unravel = tree.ravel(like)
    if flat.size > DENSE:
        empty = vanishing(operator(linear.irregular(like)))

        def filled(v: PyTree) -> PyTree:
            return jax.tree.map(lambda e, h, a: jnp.where(e, a, h), empty, operator(v), v)

        diagonal, _, refined = linear.estimate_diagonal(filled, like, PROBES, filled)
        inverse = jax.tree.map(lambda d: 1 / d, diagonal)

        def by_cg(b: PyTree, rtol: Number) -> tuple[PyTree, jax.Array]:
            cg = linear.conjugate_gradients(filled, b, inverse, rtol, _CG_STEPS)
            return tree.or_nan(cg.curvature != linear.NEGATIVE, cg.value), cg.steps

        return System(by_cg, inverse, empty, 1 + PROBES * (1 + refined.astype(jnp.int32)))
    matrix = linear.dense(operator, like)
    none = vanishing(jnp.diag(matrix))
    empty = jax.tree.map(lambda e: e > 0, unravel(none.astype(flat.dtype)))
    diagonal = jnp.where(none, 1.0, jnp.abs(jnp.diag(matrix)))
    s = jax.lax.rsqrt(diagonal)
    factor = jax.scipy.linalg.cho_factor(s[:, None] * matrix * s[None, :] + jnp.diag(none.astype(flat.dtype)))

    def by_cholesky(b: PyTree, rtol: Number) -> tuple[PyTree, jax.Array]:
        return unravel(s * jax.scipy.linalg.cho_solve(factor, s * tree.ravel(b)[0])), jnp.int32(0)

    return System(by_cholesky, unravel(1 / diagonal), empty, jnp.int32(flat.size))


def vanishing(rows: PyTree) -> PyTree:
    """Marks the numbers that are too small to divide by."""
    return jax.tree.map(lambda row: jnp.abs(row) < 16 * jnp.finfo(row.dtype).tiny, rows)
