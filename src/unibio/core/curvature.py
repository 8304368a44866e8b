"""What products B·s have told of a positive matrix B: the last pairs (s, B s), and the inverse of B that they make.

It is the L-BFGS inverse (Nocedal 1980), in a compact form: two products with the matrix of the s, two with that of the
B s, and two triangular solves with the small matrix of their inner products. Nothing loops over the pairs, so that one
product costs a few microseconds for small vectors, and is bound by memory for large ones.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Pairs(NamedTuple):
    """The last pairs, in the rows of a ring: number i of all lies in row i mod size. Unused rows are 0."""

    s: jax.Array  # unit vectors
    t: jax.Array  # B s
    inner: jax.Array  # inner[i, j] = ⟨s_i, t_j⟩ where pair j is not older than pair i
    number: jax.Array  # pairs so far, int32


def norm(vector: jax.Array) -> jax.Array:
    """‖vector‖, measured in its largest entry: `tree.norm` without the branch, which takes long to compile."""
    most = jnp.max(jnp.abs(vector))
    unit = jnp.where((most > 0) & jnp.isfinite(most), most, 1.0)
    scaled = vector / unit
    return unit * jnp.sqrt(jnp.dot(scaled, scaled))


def empty(size: int, dimension: int, dtype: jnp.dtype) -> Pairs:
    """No pairs, with room for `size` of vectors of this dimension."""
    rows = jnp.zeros((size, dimension), dtype)
    return Pairs(rows, rows, jnp.zeros((size, size), dtype), jnp.int32(0))


def add(pairs: Pairs, s: jax.Array, t: jax.Array, floor: float) -> Pairs:
    """With one more pair, if its curvature ⟨s, t⟩/‖s‖² is more than `floor`·‖t‖/‖s‖ and large enough to divide by."""
    length = norm(s)
    per_length = 1 / jnp.where(length > 0, length, 1.0)
    unit, t = per_length * s, per_length * t
    curvature = jnp.dot(unit, t)
    fine = jnp.isfinite(curvature) & (curvature > floor * norm(t))
    fine &= curvature > jnp.finfo(t.dtype).tiny ** 0.5
    row = pairs.number % pairs.s.shape[0]

    def written(rows: jax.Array, new: jax.Array) -> jax.Array:
        return rows.at[row].set(jnp.where(fine, new, rows[row]))

    s_rows = written(pairs.s, unit)
    column = jnp.where(fine, s_rows @ t, pairs.inner[:, row])
    return Pairs(s_rows, written(pairs.t, t), pairs.inner.at[:, row].set(column), pairs.number + jnp.int32(fine))


def inverse_product(pairs: Pairs, q: jax.Array) -> jax.Array:
    """B⁻¹q as the pairs have it; q itself if there are none."""
    age = -pairs.number % pairs.s.shape[0]  # rolled by it, the oldest pair comes first
    inner = jnp.triu(jnp.roll(jnp.roll(pairs.inner, age, 0), age, 1))
    curvature = jnp.diagonal(inner)
    upper = inner + jnp.diag(jnp.where(curvature > 0, 0.0, 1.0).astype(q.dtype))

    def solved(k: jax.Array, transposed: bool) -> jax.Array:
        return jax.scipy.linalg.solve_triangular(upper, k, trans=int(transposed))

    alpha = solved(jnp.roll(pairs.s @ q, age), False)
    rest = scale(pairs) * (q - jnp.roll(alpha, -age) @ pairs.t)
    beta = solved(curvature * alpha - jnp.roll(pairs.t @ rest, age), True)
    return rest + jnp.roll(beta, -age) @ pairs.s


def product(pairs: Pairs) -> Callable[[jax.Array], jax.Array]:
    """v ↦ B v as the pairs have it: the inverse of `inverse_product` (Byrd, Nocedal and Schnabel 1994)."""
    size, sigma = pairs.s.shape[0], 1 / scale(pairs)
    by_age = (pairs.number + jnp.arange(size, dtype=jnp.int32)) % size
    s, t = pairs.s[by_age], pairs.t[by_age]
    inner, unused = s @ t.T, jnp.diag((by_age >= pairs.number).astype(s.dtype))
    lower = jnp.tril(inner, -1)
    own = jnp.diag(jnp.diagonal(inner)) + unused
    middle = jnp.block([[sigma * (s @ s.T) + unused, lower], [lower.T, -own]])
    rows = jnp.concatenate([sigma * s, t])
    factors = jax.scipy.linalg.lu_factor(middle)
    return lambda v: sigma * v - jax.scipy.linalg.lu_solve(factors, rows @ v) @ rows


def scale(pairs: Pairs) -> jax.Array:
    """The size of B⁻¹ as the last pair has it, 1 if there is none."""
    row = (pairs.number - 1) % pairs.s.shape[0]
    square = jnp.dot(pairs.t[row], pairs.t[row])
    known = (pairs.number > 0) & (square > 0)
    return jnp.asarray(jnp.where(known, pairs.inner[row, row] / jnp.where(known, square, 1.0), 1.0))
