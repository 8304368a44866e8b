"""Symmetric linear systems on pytrees: conjugate gradients that notice negative curvature, the
diagonal of an operator that is only known by its products, and its largest eigenvalue."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from unibio.core import tree
from unibio.core.tree import PyTree

Operator = Callable[[PyTree], PyTree]


class CGResult(NamedTuple):
    """v ≈ H⁻¹b, the larger of ‖r‖/‖b‖ and ‖Mr‖/‖Mb‖, steps, whether pᵀHp ≤ 0 was met, decrease of ½vᵀHv − bᵀv."""

    value: PyTree
    residual: jax.Array
    steps: jax.Array
    indefinite: jax.Array
    decrease: jax.Array


def conjugate_gradients(operator: Operator, b: PyTree, m: PyTree, rtol: Any, max_steps: int) -> CGResult:
    """Preconditioned CG for H v = b from v = 0, with the positive diagonal `m` ≈ 1/diag(H).

    It stops when both ‖r‖ ≤ rtol·‖b‖ and ‖m∘r‖ ≤ rtol·‖m∘b‖. In the first norm, as in rᵀMr, a coordinate with
    H_ii = 1e-24 counts for nothing, although its v_i is of order one; in the second it counts fully, but
    there an m that is far too large in one coordinate hides the others. On pᵀHp ≤ 0 (up to rounding) it
    keeps the iterate it has and says so.
    """
    eps = jnp.finfo(tree.dtype(b)).eps
    z0 = tree.mul(m, b)
    b_norm, z_norm = tree.norm(b), tree.norm(z0)

    def relative_residual(r: PyTree, z: PyTree) -> jax.Array:
        return jnp.where(b_norm == 0, 0.0, jnp.maximum(tree.norm(r) / b_norm, tree.norm(z) / z_norm))  # NaN stays NaN

    def unfinished(state: Any) -> jax.Array:
        _, r, z, _, _, steps, indefinite, _ = state
        return (relative_residual(r, z) > rtol) & (steps < max_steps) & ~indefinite

    def step(state: Any) -> Any:
        v, r, z, p, rho, steps, _, decrease = state
        hp = operator(p)
        curvature = tree.dot(p, hp)
        # Both norms in the coordinate M^(-1/2)p, where entries of very different size compare.
        p_size = tree.dot(p, jax.tree.map(jnp.divide, p, m))
        hp_size = tree.dot(hp, tree.mul(m, hp))
        indefinite = curvature <= 4 * eps * jnp.sqrt(p_size) * jnp.sqrt(hp_size)
        alpha = jnp.where(indefinite, jnp.zeros_like(rho), rho / jnp.where(indefinite, 1.0, curvature))
        v, r = tree.axpy(alpha, p, v), tree.axpy(-alpha, hp, r)
        z = tree.mul(m, r)
        rho_next = tree.dot(r, z)
        beta = jnp.where(indefinite, jnp.zeros_like(rho), rho_next / rho)
        return v, r, z, tree.axpy(beta, p, z), rho_next, steps + 1, indefinite, decrease + alpha * rho / 2

    start = (tree.zeros_like(b), b, z0, z0, tree.dot(b, z0), jnp.int32(0), jnp.asarray(False), jnp.zeros_like(b_norm))
    v, r, z, _, _, steps, indefinite, decrease = jax.lax.while_loop(unfinished, step, start)
    return CGResult(v, relative_residual(r, z), steps, indefinite, decrease)


def solve_spd(
    operator: Operator, b: PyTree, m: PyTree, rtol: Any, max_steps: int, nan_on_failure: bool = False
) -> CGResult:
    """`conjugate_gradients`, differentiable in both modes by what the operator closes over and by b.

    A derivative rule must be linear in b, so it cannot look at the residual itself: `nan_on_failure` does so
    inside the solver.
    """
    m = jax.lax.stop_gradient(m)

    def solve(operator: Operator, b: PyTree) -> tuple[PyTree, CGResult]:
        result = conjugate_gradients(operator, b, m, rtol, max_steps)
        value = result.value
        if nan_on_failure:
            solved = (result.residual <= rtol) & ~result.indefinite
            value = tree.or_nan(solved, value)
        return value, result._replace(value=None)

    value, result = jax.lax.custom_linear_solve(operator, b, solve, symmetric=True, has_aux=True)
    return result._replace(value=value)


def probes(like: PyTree, count: int) -> PyTree:
    """`count` fixed vectors of ±1 like `like`, stacked: Walsh functions times one irregular sign pattern.

    Fixed, so that a full-batch result is the same every time; Walsh, so that of `count` = 2^k probes the
    off-diagonal entries (i, j) cancel unless i ≡ j modulo `count`: exact up to `count` unknowns.
    """
    flat, unravel = tree.ravel(like)
    i = jnp.arange(flat.size, dtype=jnp.uint32)
    mixed = (i ^ (i >> 15)) * jnp.uint32(0x2C1B3C6D)
    mixed = (mixed ^ (mixed >> 12)) * jnp.uint32(0x297A2D39)
    k = jnp.arange(count, dtype=jnp.uint32)
    parity = jax.lax.population_count(i[None, :] & k[:, None]) + (mixed >> 31)[None, :]
    signs = jnp.where(parity % 2 == 0, 1.0, -1.0).astype(flat.dtype)
    return jax.vmap(unravel)(signs)


def estimate_diagonal(operator: Operator, like: PyTree, count: int, rough: Operator) -> tuple[PyTree, jax.Array]:
    """diag(H) > 0 from one block of `count` products with `rough` ≈ H, and one with H where that is needed.

    Bekas' estimator, the mean of z∘Hz, is exact for at most `count` unknowns. Else small rows are spoilt by
    large columns: the second block runs on S H S with S = 1/√(first estimate), whose diagonal is nearly
    constant. If the first is already nearly constant its noise would do more harm than good, and a
    constant is returned, with False. An entry below a quarter of its row's norm is mostly noise and is
    replaced by that.
    """
    z = probes(like, count)
    tiny = jnp.finfo(tree.dtype(like)).tiny

    def estimate(operator: Operator) -> PyTree:
        products = jax.vmap(operator)(z)
        row_norm = jax.tree.map(lambda h: jnp.sqrt(jnp.mean(h * h, axis=0)), products)
        mean = jax.tree.map(lambda z, h: jnp.mean(z * h, axis=0), z, products)
        return jax.tree.map(lambda d, r: jnp.maximum(jnp.maximum(d, r / 4), tiny), mean, row_norm)

    first = estimate(rough)
    if tree.size(like) <= count and rough is operator:
        return first, jnp.asarray(False)
    logarithms = jnp.log(tree.ravel(first)[0])
    uneven = jnp.std(logarithms) > 0.5
    even = jax.tree.map(lambda d: jnp.full_like(d, jnp.exp(jnp.mean(logarithms))), first)
    s = jax.tree.map(jax.lax.rsqrt, first)

    def second() -> PyTree:
        return tree.mul(first, estimate(lambda v: tree.mul(s, operator(tree.mul(s, v)))))

    return tree.lazily(uneven, second, even), uneven


def exact_diagonal(operator: Operator, like: PyTree) -> PyTree:
    """diag(H) by as many products as there are unknowns, 64 at a time."""
    flat, unravel = tree.ravel(like)

    def entry(i: jax.Array) -> jax.Array:
        unit = jnp.zeros_like(flat).at[i].set(1.0)
        return tree.ravel(operator(unravel(unit)))[0][i]

    return unravel(jax.lax.map(entry, jnp.arange(flat.size), batch_size=64))


def dense(operator: Operator, like: PyTree) -> jax.Array:
    """The matrix of the operator on raveled trees."""
    flat, unravel = tree.ravel(like)
    identity = jnp.eye(flat.size, dtype=flat.dtype)
    return jax.vmap(lambda column: tree.ravel(operator(unravel(column)))[0], out_axes=1)(identity)


def largest_eigenvalue(operator: Operator, m: PyTree, steps: int) -> jax.Array:
    """λ_max(M H) from below, by `steps` power iterations on M^½ H M^½ from a fixed vector."""
    root = jax.tree.map(jnp.sqrt, m)
    u = jax.tree.map(lambda leaf: leaf[0], probes(m, 1))

    def step(carry: Any, _: None) -> Any:
        u, _ = carry
        u = tree.scale(1 / jnp.maximum(tree.norm(u), jnp.finfo(tree.dtype(m)).tiny), u)
        hu = tree.mul(root, operator(tree.mul(root, u)))
        return (hu, tree.norm(hu)), None

    (_, value), _ = jax.lax.scan(step, (u, jnp.zeros((), tree.dtype(m))), None, length=steps)
    return value
