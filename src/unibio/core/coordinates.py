"""The coordinate z = spow(y − a0, p−1) in which a uniformly convex lower level looks strongly convex.

D = diag(dy/dz) = diag(1 / ((p−1)|y−a0|^(p−2))) is infinite where y_i = a0_i. Nothing here divides by
zero: |y−a0|^(p−2) is at least `safe(dtype)` in D, and the way back from z to y stays δ(p, dtype) away from a0.
"""

import jax
import jax.numpy as jnp

from unibio.core import tree
from unibio.core.tree import Number, PyTree


@jax.custom_jvp
def abs_pow(y: jax.Array, a: Number) -> jax.Array:
    """|y|^a entry by entry, with derivative a·sign(y)|y|^(a−1) that is right at y = 0 too."""
    return jnp.abs(y) ** a


@jax.custom_jvp
def spow(y: jax.Array, a: Number) -> jax.Array:
    """sign(y)·|y|^a entry by entry, with derivative a·|y|^(a−1): also at y = 0, also for a = 1.

    Example:
        >>> spow(jnp.array([-2.0, 0.0, 3.0]), 2.0).tolist()
        [-4.0, 0.0, 9.0]
    """
    return jnp.sign(y) * jnp.abs(y) ** a


def _by_exponent(y: jax.Array, power: jax.Array, a_dot: Number) -> jax.Array:
    """The change of a power of |y| with its exponent, whose limit at 0 is 0 for a > 0."""
    if getattr(a_dot, "dtype", None) == jax.dtypes.float0:  # a is an integer
        return jnp.zeros_like(power)
    positive = jnp.where(y == 0, jnp.ones_like(y), jnp.abs(y))
    return power * jnp.log(positive) * a_dot


@abs_pow.defjvp
def _abs_pow_jvp(primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
    (y, a), (y_dot, a_dot) = primals, tangents
    out = abs_pow(y, a)
    return out, a * spow(y, a - 1) * y_dot + _by_exponent(y, out, a_dot)


@spow.defjvp
def _spow_jvp(primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
    (y, a), (y_dot, a_dot) = primals, tangents
    out = spow(y, a)
    return out, a * abs_pow(y, a - 1) * y_dot + _by_exponent(y, out, a_dot)


def order(p: Number | None) -> Number:
    """p, if the problem states one."""
    if p is None:
        raise ValueError(
            "This method works in the coordinate z = spow(y − shift, p−1), but the problem states no p. Write "
            "Problem(…, p=…), or use what needs none: CG(preconditioner=Jacobi()), UniBiO.without_p(…)."
        )
    return p


def floor(p: Number | None, dtype: jnp.dtype) -> jax.Array:
    """δ = max(1e-12, 4·tiny^(1/(p−2))): below it |y−a0|^(p−2) is not a normal number of `dtype`.

    Without a stated p it is that of p = 8: safe up to there, and 1.9e-6 at most.
    """
    p = jnp.asarray(8.0 if p is None else p, dtype)
    tiny = jnp.asarray(jnp.finfo(dtype).tiny, dtype)
    exponent = 1 / jnp.maximum(p - 2, jnp.finfo(dtype).eps)
    return jnp.maximum(jnp.asarray(1e-12, dtype), 4 * tiny**exponent)


def shifts(shift: PyTree, y: PyTree) -> PyTree:
    """a0 as a tree of y's structure: it is one number for all coordinates, or such a tree already."""
    return shift if tree.same_structure(shift, y) else jax.tree.map(lambda _: shift, y)


def floors(y: PyTree, p: Number | None, shift: PyTree) -> PyTree:
    """δ of each leaf of y, large enough that a0 + δ differs from a0 in rounding."""
    dtype = tree.dtype(y)
    delta, eps = floor(p, dtype), jnp.finfo(dtype).eps
    return jax.tree.map(lambda a0: jnp.maximum(delta, 8 * eps * jnp.abs(a0)), shifts(shift, y))


def offset(y: PyTree, shift: PyTree) -> PyTree:
    """y − a0."""
    return tree.sub(y, shifts(shift, y))


def inverse_scaling(y: PyTree, p: Number | None, shift: PyTree) -> PyTree:
    """D⁻¹ = dz/dy = (p−1)|y−a0|^(p−2), as a tree like y; it may be 0."""
    p = order(p)
    return jax.tree.map(lambda t: (p - 1) * abs_pow(t, p - 2), offset(y, shift))


def safe(dtype: jnp.dtype) -> float:
    """The smallest second derivative that is trusted, tiny^(5/6): 4.7e-32 in float32, 1.5e-256 in float64.

    A number below it has lost digits to underflow, or will when it is multiplied by another. Where a row of the lower
    Hessian is smaller, y is moved until it is not (`hypergradients.singular`), and D is bounded by its reciprocal.
    """
    return float(jnp.finfo(dtype).tiny) ** (5 / 6)


def scaling(y: PyTree, p: Number | None, shift: PyTree) -> PyTree:
    """D = dy/dz = 1/((p−1)·max(|y−a0|^(p−2), safe)), as a tree like y; always finite."""
    p, least = order(p), safe(tree.dtype(y))
    return jax.tree.map(lambda t: 1 / ((p - 1) * jnp.maximum(abs_pow(t, p - 2), least)), offset(y, shift))


def to_z(y: PyTree, p: Number | None, shift: PyTree) -> PyTree:
    """z = spow(y − a0, p−1)."""
    p = order(p)
    return jax.tree.map(lambda t: spow(t, p - 1), offset(y, shift))


def from_z(z: PyTree, p: Number | None, shift: PyTree) -> PyTree:
    """y_δ(z) = a0 + s·max(|z|^(1/(p−1)), δ), s = +1 at 0, with derivative D(y_δ): finite at z = 0."""
    distance = jax.tree.map(lambda t, d: _floored_root(t, p, d), z, floors(z, p, shift))
    return tree.add(distance, shifts(shift, z))


@jax.custom_jvp
def _floored_root(z: jax.Array, p: Number, delta: jax.Array) -> jax.Array:
    magnitude = jnp.maximum(jnp.abs(z) ** (1 / (p - 1)), delta)
    return jnp.where(z < 0, -magnitude, magnitude)


@_floored_root.defjvp
def _floored_root_jvp(primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
    # Only z moves: nobody differentiates an iteration by the order of its coordinate or by its floor.
    (z, p, delta), (z_dot, _, _) = primals, tangents
    y = _floored_root(z, p, delta)
    return y, z_dot / ((p - 1) * abs_pow(y, p - 2))
