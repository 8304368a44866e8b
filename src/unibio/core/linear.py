"""Symmetric linear systems on pytrees: conjugate gradients that notice negative curvature, the
diagonal of an operator that is only known by its products, and its largest eigenvalue."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import tree
from unibio.core.tree import Number, PyTree

Operator = Callable[[PyTree], PyTree]


class CGResult(NamedTuple):
    """What `conjugate_gradients` found.

    `value` is v ≈ H⁻¹b and `residual` the larger of its two relative residuals. `curvature` tells why it stopped early,
    if it did: `POSITIVE` (it did not), `FLAT` or `NEGATIVE`. `condition` (NaN unless asked for)
    estimates λ_max/λ_min of M^½HM^½ within a factor of two, as far as b has made the iteration see its spectrum.
    """

    value: PyTree
    residual: jax.Array
    steps: jax.Array
    curvature: jax.Array
    condition: jax.Array


POSITIVE, FLAT, NEGATIVE = 0, 1, 2


class _Iteration(NamedTuple):
    """The state of CG in the coordinate u = M^(−½)v, where b has a largest entry of 1."""

    u: PyTree
    r: PyTree
    p: PyTree
    rho: jax.Array
    residual: jax.Array
    steps: jax.Array
    curvature: jax.Array
    steepest: jax.Array
    spectrum: "_Spectrum | None"


def conjugate_gradients(
    operator: Operator,
    b: PyTree,
    m: PyTree,
    rtol: Number,
    max_steps: int,
    weight: PyTree = None,
    estimate_condition: bool = False,
    min_steps: int = 0,
) -> CGResult:
    """Preconditioned CG for H v = b from v = 0, with the positive diagonal `m` ≈ 1/diag(H).

    It runs in the coordinate u = M^(−½)v, on M^½HM^½ u = M^½b/σ with σ = max|M^½b|: there numbers are of order one,
    so nothing underflows although the entries of H and b may be 1e-30.

    It stops when both ‖M^½r‖ ≤ rtol·‖M^½b‖ and ‖w∘r‖ ≤ rtol·‖w∘b‖, r = b − Hv. In the first norm a coordinate with
    H_ii = 1e-24 counts for nothing, although its v_i is of order one. In the second, with w ≈ 1/diag(H), it counts
    fully, but there a w that is far too large in one coordinate hides the others. w is `weight`, or m if left out.

    It takes at least `min_steps` steps, as long as a residual is left: a few eigenvalues that are much smaller than the
    others hardly show in the residual, but in the next directions.

    A direction with pᵀHp ≤ 0 (up to rounding) ends it with the iterate it has. The curvature is called NEGATIVE if it
    is below zero by more than the rounding of H's largest entries, else FLAT.
    """
    limits = jnp.finfo(tree.dtype(b))
    root = jax.tree.map(jnp.sqrt, m)
    c = tree.mul(root, b)
    largest = tree.largest(c)
    sigma = jnp.where(largest > 0, largest, 1.0)  # NaN stays NaN
    c = jax.tree.map(lambda leaf: leaf / sigma, c)
    first = tree.dot(c, c)
    w = tree.divide(m if weight is None else weight, root)
    w_norm = tree.norm(tree.mul(w, c))
    w = jax.tree.map(lambda leaf: jnp.minimum(leaf / w_norm, limits.max), w)
    most = jnp.sqrt(limits.max / tree.size(b))  # of an entry of w∘r: the sum of their squares is finite

    def unfinished(now: _Iteration) -> jax.Array:
        more = (now.residual > rtol) | ((now.steps < min_steps) & (now.rho > 0))
        return more & (now.steps < max_steps) & (now.curvature == POSITIVE)

    def step(now: _Iteration) -> _Iteration:
        hp = tree.mul(root, operator(tree.mul(root, now.p)))
        curvature, length = tree.dot(now.p, hp), tree.dot(now.p, now.p)
        steepest = jnp.maximum(now.steepest, curvature / length)
        ended = curvature <= 4 * limits.eps * jnp.sqrt(length) * jnp.sqrt(tree.dot(hp, hp))
        negative = curvature < -64 * limits.eps * steepest * length
        kind = jnp.where(ended, jnp.where(negative, NEGATIVE, FLAT), POSITIVE).astype(jnp.int32)
        alpha = jnp.where(ended, jnp.zeros_like(now.rho), now.rho / jnp.where(ended, 1.0, curvature))
        u, r = tree.axpy(alpha, now.p, now.u), tree.axpy(-alpha, hp, now.r)
        rho = tree.dot(r, r)
        weighted = jax.tree.map(lambda w, r: jnp.clip(w * r, -most, most), w, r)
        beta = jnp.where(ended, jnp.zeros_like(rho), rho / now.rho)
        p = tree.axpy(beta, now.p, r)
        residual = jnp.sqrt(jnp.maximum(rho / first, tree.dot(weighted, weighted)))
        spectrum = None if now.spectrum is None else now.spectrum.seen(alpha, beta)
        return _Iteration(u, r, p, rho, residual, now.steps + 1, kind, steepest, spectrum)

    none, kind, steepest = jnp.int32(0), jnp.int32(POSITIVE), jnp.zeros_like(first)
    residual = jnp.where(first == 0, jnp.zeros_like(first), first / first)  # NaN stays NaN
    spectrum = _unseen(tree.dtype(b)) if estimate_condition else None
    start = _Iteration(tree.zeros_like(c), c, c, first, residual, none, kind, steepest, spectrum)
    end = jax.lax.while_loop(unfinished, step, start)
    value = jax.tree.map(lambda s, u: sigma * (s * u), root, end.u)
    condition = jnp.full_like(first, jnp.nan) if end.spectrum is None else end.spectrum.condition()
    return CGResult(value, end.residual, end.steps, end.curvature, condition)


def solve_by_eigenvalues(operator: Operator, b: PyTree) -> CGResult:
    """H v = b for few unknowns: H is built, scaled to a unit diagonal, and taken apart into eigenvalues and vectors.

    It reports as `conjugate_gradients` does, with the exact condition number of the scaled H. Eigenvalues are not taken
    to be smaller than their rounding, so that v is large, not arbitrary, along a direction that H leaves open.
    """
    flat, unravel = tree.ravel(b)
    limits = jnp.finfo(flat.dtype)
    matrix = dense(operator, b)
    diagonal = jnp.abs(jnp.diag(matrix))
    empty = ~(diagonal >= limits.tiny)  # the equation of such a coordinate is v_i = b_i
    s = jax.lax.rsqrt(jnp.where(empty, 1.0, diagonal))
    values, vectors = jnp.linalg.eigh(s[:, None] * matrix * s[None, :] + jnp.diag(empty.astype(flat.dtype)))
    most = values[-1]
    c = s * flat
    sigma = jnp.max(jnp.abs(c))
    sigma = jnp.where(sigma > 0, sigma, 1.0)
    u = vectors @ ((vectors.T @ (c / sigma)) / jnp.maximum(values, limits.eps * most))
    kind = jnp.where(values[0] < -64 * limits.eps * most, NEGATIVE, POSITIVE).astype(jnp.int32)
    condition = most / jnp.maximum(values[0], limits.tiny)
    return CGResult(unravel(sigma * (s * u)), jnp.zeros_like(most), jnp.int32(flat.size), kind, condition)


_SHIFTS = 2.0 ** (np.arange(-80, 41) + 0.5)


class _Spectrum(NamedTuple):
    """Which of the shifts 2^(k+½) lie below, and which above, every eigenvalue of CG's tridiagonal matrix T.

    By Sturm: shift s lies below all eigenvalues if every q_k > 0, above all if every q_k < 0, where q_1 = T_11 − s and
    q_{k+1} = T_{k+1,k+1} − s − T_{k,k+1}²/q_k. The entries of T are the coefficients of CG: T_{k,k+1}² = β_k/α_k² and
    T_kk = 1/α_k + β_{k−1}/α_{k−1}. T has numbers of order one, because the diagonal of M^½HM^½ has.
    """

    q: jax.Array
    below: jax.Array
    above: jax.Array
    diagonal: jax.Array
    coupling: jax.Array

    def seen(self, alpha: jax.Array, beta: jax.Array) -> "_Spectrum":
        """Takes in one more row of T. A step of length 0, which can only be the last, adds no row."""
        ended, inverse = alpha == 0, 1 / alpha
        q = inverse + self.diagonal - jnp.asarray(_SHIFTS, alpha.dtype) - self.coupling / self.q
        below, above = self.below & (ended | (q > 0)), self.above & (ended | (q < 0))
        return _Spectrum(q, below, above, beta * inverse, beta * inverse * inverse)

    def condition(self) -> jax.Array:
        """λ_max/λ_min within a factor of two; infinite where an end lies beyond the shifts, NaN if no row was seen."""
        shifts = jnp.asarray(_SHIFTS, self.q.dtype)
        least = jnp.max(jnp.where(self.below, shifts, 0))
        most = jnp.min(jnp.where(self.above, shifts, jnp.inf))
        return jnp.where(jnp.all(self.below & self.above), jnp.nan, most / least / 2)


def _unseen(dtype: jnp.dtype) -> _Spectrum:
    zero, every = jnp.zeros((), dtype), jnp.ones(_SHIFTS.shape, bool)
    return _Spectrum(jnp.ones(_SHIFTS.shape, dtype), every, every, zero, zero)


def solve_spd(
    operator: Operator,
    b: PyTree,
    m: PyTree,
    rtol: Number,
    max_steps: int,
    weight: PyTree = None,
    nan_on_failure: bool = False,
) -> CGResult:
    """`conjugate_gradients`, differentiable in both modes by what the operator closes over and by b.

    A derivative rule must be linear in b, so it cannot look at the residual itself: `nan_on_failure` does so
    inside the solver; a residual that is not finite makes the value NaN in any case.

    The system is handed to `custom_linear_solve` as one vector: leaf by leaf, a leaf on which the tangent of b does not
    depend would be no linear input. What else CG found travels at the end of that vector, as unknowns of which the
    operator is the identity: as auxiliary output it would come back batched from every `vmap`, which `jax.jacfwd`
    refuses.
    """
    flat, unravel = tree.ravel(b)
    n = flat.size
    flat_m = jax.lax.stop_gradient(tree.ravel(m)[0])
    flat_weight = None if weight is None else jax.lax.stop_gradient(tree.ravel(weight)[0])

    def product(u: jax.Array) -> jax.Array:
        return tree.ravel(operator(unravel(u)))[0]

    def extended(u: jax.Array) -> jax.Array:
        return jnp.concatenate([product(u[:n]), u[n:]])

    def solve(_: Operator, b: jax.Array) -> jax.Array:
        result = conjugate_gradients(product, b[:n], flat_m, rtol, max_steps, flat_weight)
        good = jnp.isfinite(result.residual)
        if nan_on_failure:
            good = good & (result.residual <= rtol) & (result.curvature == POSITIVE)
        found = [jnp.asarray(number, b.dtype) for number in result[1:4]]
        return jnp.concatenate([tree.or_nan(good, result.value), jnp.stack(found)])

    right = jnp.concatenate([flat, jnp.zeros(3, flat.dtype)])
    solution = jax.lax.custom_linear_solve(extended, right, solve, symmetric=True)
    residual, steps, curvature = jax.lax.stop_gradient(solution[n:])
    steps, curvature = steps.astype(jnp.int32), curvature.astype(jnp.int32)
    return CGResult(unravel(solution[:n]), residual, steps, curvature, jnp.full_like(residual, jnp.nan))


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


def irregular(like: PyTree, start: float = 0.37) -> PyTree:
    """A fixed vector of irregular signs and unequal magnitudes in [1, 2): hardly any structure is orthogonal to it."""
    return tree.mul(jax.tree.map(lambda leaf: leaf[0], probes(like, 1)), uneven(like, start))


def uneven(like: PyTree, start: float) -> PyTree:
    """Numbers in [1, 2), all different."""
    flat, unravel = tree.ravel(like)
    return unravel(1 + (0.618034 * jnp.arange(flat.size, dtype=flat.dtype) + start) % 1)


FEW = 32  # up to this number of unknowns one product for each costs no more than the blocks of probes would


def block(like: PyTree, count: int) -> int:
    """How many products `rough_diagonal` makes: `count`, or one for each unknown if these are few."""
    return tree.size(like) if tree.size(like) <= FEW else count


def rough_diagonal(operator: Operator, like: PyTree, count: int) -> tuple[PyTree, PyTree, jax.Array]:
    """Estimates the diagonal of H from one block of products H z with fixed vectors z, the probes.

    Returns (diagonal, sizes, negative). `diagonal` is positive: for few unknowns it is exact, else Bekas' estimator,
    the mean of z∘Hz over `count` probes. `sizes` has the largest |(Hz)_i| over the probes, which is 0 only if row i of
    H is. `negative` says whether an entry of the diagonal is negative beyond doubt.

    The diagonal is exact, up to the rounding of its row, for at most `FEW` or `count` unknowns. Else small rows are
    spoilt by large columns, and an entry below a quarter of its row's norm is replaced by that; a negative entry can be
    told only if it is exact.
    """
    number, exact = block(like, count), tree.size(like) <= max(FEW, count)
    z = (
        probes(like, count)
        if number == count
        else jax.vmap(tree.ravel(like)[1])(jnp.eye(number, dtype=tree.dtype(like)))
    )
    limits = jnp.finfo(tree.dtype(like))
    noise, share = 8 * float(limits.eps) if exact else 0.25, 1 / count if number == count else 1.0
    # The barrier keeps XLA from turning (a/c)/unit into a/(c·unit), where the product may underflow.
    products = jax.lax.optimization_barrier(jax.vmap(operator)(z))
    unit = jax.tree.map(lambda h: jnp.maximum(jnp.max(jnp.abs(h), axis=0), limits.tiny), products)
    relative = jax.tree.map(lambda h, u: h / u[None], products, unit)  # whose squares do not underflow
    row_norm = jax.tree.map(lambda h: jnp.sqrt(share * jnp.sum(h * h, axis=0)), relative)
    mean = jax.tree.map(lambda z, h: share * jnp.sum(z * h, axis=0), z, relative)
    least = jax.tree.map(lambda d, r: jnp.maximum(d, noise * r), mean, row_norm)
    diagonal = jax.tree.map(lambda s, u: jnp.maximum(s * u, limits.tiny), least, unit)
    negative = jax.tree.map(lambda d, r: (d < -noise * r) & exact, mean, row_norm)
    return diagonal, unit, tree.any_true(negative)


def estimate_diagonal(
    operator: Operator, like: PyTree, count: int, rough: Operator
) -> tuple[PyTree, PyTree, jax.Array]:
    """Estimates the diagonal of H from one block of products with `rough` ≈ H, and one with H where that is needed.

    Returns (diagonal, sizes, second): the positive diagonal, the sizes of the rows of `rough` (see `rough_diagonal`),
    and whether the second block was needed.

    The second block runs on S H S with S = 1/√(first estimate), whose diagonal is nearly constant. If the first is
    already nearly constant its noise would do more harm than good, and a constant is returned.
    """
    first, rows, _ = rough_diagonal(rough, like, count)
    if tree.size(like) <= max(FEW, count) and rough is operator:
        return first, rows, jnp.asarray(False)
    logarithms = jnp.log(tree.ravel(first)[0])
    uneven = jnp.std(logarithms) > 0.5
    even = jax.tree.map(lambda d: jnp.full_like(d, jnp.exp(jnp.mean(logarithms))), first)
    s = jax.tree.map(jax.lax.rsqrt, first)

    def second(first: PyTree, s: PyTree) -> PyTree:
        scaled, _, _ = rough_diagonal(lambda v: tree.mul(s, operator(tree.mul(s, v))), like, count)
        return tree.mul(first, scaled)

    return tree.compute_if_any(uneven, second, even, first, s), rows, uneven


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


def as_matrix(operator: Operator, like: PyTree) -> Operator:
    """The same operator as a product with its matrix, which is computed here, once for all later products."""
    return product_with(dense(operator, like), like)


def product_with(matrix: jax.Array, like: PyTree) -> Operator:
    """The operator of a matrix on raveled trees."""
    unravel = tree.ravel(like)[1]
    return lambda u: unravel(matrix @ tree.ravel(u)[0])


def largest_eigenvalue(operator: Operator, m: PyTree, steps: int) -> jax.Array:
    """λ_max(M H) from below, by `steps` power iterations on M^½ H M^½ from a fixed vector."""
    root = jax.tree.map(jnp.sqrt, m)
    u = jax.tree.map(lambda leaf: leaf[0], probes(m, 1))

    def step(carry: PyTree, _: None) -> Any:
        u = tree.direction(carry[0])[0]
        hu = tree.mul(root, operator(tree.mul(root, u)))
        return (hu, tree.norm(hu)), None

    (_, value), _ = jax.lax.scan(step, (u, jnp.zeros((), tree.dtype(m))), None, length=steps)
    return value
