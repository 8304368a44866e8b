"""What products B·s have told of a positive matrix B: the last pairs (s, B s), the inverse of B that they make, and
conjugate gradients that use and extend them.

The inverse is that of L-BFGS (Nocedal 1980), in a compact form: two products with the matrix of the s, two with that of
the B s, and two triangular solves with the small matrix of their inner products. Nothing loops over the pairs, so that
one product costs a few microseconds for small vectors, and is bound by memory for large ones.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

_FLOOR = 1e-8  # curvature below this share of ‖B s‖/‖s‖ is rounding, and not remembered


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


def add(pairs: Pairs, s: jax.Array, t: jax.Array) -> Pairs:
    """With one more pair, if its curvature ⟨s, t⟩/‖s‖² is more than rounding and large enough to divide by."""
    length = norm(s)
    per_length = 1 / jnp.where(length > 0, length, 1.0)
    unit, t = per_length * s, per_length * t
    curvature = jnp.dot(unit, t)
    fine = jnp.isfinite(curvature) & (curvature > _FLOOR * norm(t))
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


class Solution(NamedTuple):
    """Conjugate gradients on the way: `total` is the decrease of the quadratic model so far, p the last direction, and
    rz = ⟨r, M r⟩ before it was taken."""

    steps: jax.Array
    u: jax.Array
    r: jax.Array
    p: jax.Array
    rz: jax.Array
    total: jax.Array
    pairs: Pairs
    steepest: jax.Array  # the largest ‖B q‖ for unit vectors q
    concave: jax.Array  # the curvature was negative somewhere
    going: jax.Array


def solution(
    product: Callable[[jax.Array], jax.Array], b: jax.Array, pairs: Pairs, tightness: jax.Array, radius: jax.Array,
    most: jax.Array,
) -> Solution:  # fmt: skip
    """About B⁻¹b, no longer than `radius`, by at most `most` products, each of which becomes a pair; the pairs so far
    precondition.

    It ends when steps·(last gain) ≤ tightness·(sum of gains), a gain being the decrease of the quadratic model, or at
    the boundary, and goes to the boundary where the curvature is not positive.
    """
    eps = float(jnp.finfo(b.dtype).eps)
    noise = max(_FLOOR, 8 * eps)  # below this share of ‖B q‖ a curvature is rounding
    size, zero = norm(b), jnp.zeros((), b.dtype)

    def body(at: Solution) -> Solution:
        z = inverse_product(pairs, at.r)
        rz = jnp.dot(at.r, z)
        p = z + jnp.where(at.steps > 0, rz / at.rz, 0.0) * at.p
        q = p / norm(p)
        bq = product(q)
        c, slope = jnp.dot(q, bq), jnp.dot(at.r, q)
        steepest = jnp.maximum(at.steepest, norm(bq))
        length = jnp.where(c > 0, slope / jnp.where(c > 0, c, 1.0), jnp.inf)
        inside = jnp.isfinite(length) & (norm(at.u + length * q) <= radius)
        toward = q * jnp.sign(slope)
        middle = jnp.dot(at.u, toward)
        reach = jnp.sqrt(jnp.maximum(middle**2 + radius**2 - jnp.dot(at.u, at.u), 0.0)) - middle
        bounded = jnp.isfinite(radius) & jnp.isfinite(slope)
        edge = jnp.where(bounded, at.u + reach * toward, at.u)
        gain = length * slope
        steps, total = at.steps + 1, jnp.where(inside, at.total + gain, at.total)
        r = jnp.where(inside, at.r - length * bq, at.r)
        going = inside & (steps.astype(gain.dtype) * gain > tightness * total) & (steps < most)
        return Solution(
            steps, jnp.where(inside, at.u + length * q, edge), r, p, rz, total, add(at.pairs, q, bq), steepest,
            at.concave | (c < -noise * steepest), going & (norm(r) > 4 * eps * size),
        )  # fmt: skip

    first = Solution(
        jnp.int32(0), jnp.zeros_like(b), b, jnp.zeros_like(b), zero, zero, pairs,
        jnp.max(jnp.linalg.norm(pairs.t, axis=1)), jnp.asarray(False), (size > 0) & jnp.isfinite(size) & (most > 0),
    )  # fmt: skip
    return jax.lax.while_loop(lambda at: at.going, body, first)
