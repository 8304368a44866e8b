"""∇Φ(x) = ∇_x f − A v with (D H) v = D ∇_y f: implicit differentiation in the coordinate z.

The order matters: D multiplies H from the left. Where H is nonsingular D cancels, so any positive diagonal
preconditioner of H v = ∇_y f gives the same v; where it is singular everything is evaluated at a point a
distance δ away (`regular_point`), and v is the limit.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, coordinates, kinds, linear, oracle, tree
from unibio.core.noise import AnyBatch, Noise
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, Evaluation, HyperInfo, add_counts, count
from unibio.core.status import Status
from unibio.core.streams import Site
from unibio.core.tree import PyTree
from unibio.hypergradients.preconditioners import Auto, Diagonal, Preconditioner, rough_part
from unibio.hypergradients.singular import RegularPoint, moved_away, row_probe, unmoved, vanishing


class LinearSolution(NamedTuple):
    """v, the relative residual, iterations, calls, status, and H as a matrix if it was built."""

    v: PyTree
    residual: jax.Array
    iterations: jax.Array
    calls: Calls
    status: Status
    matrix: jax.Array | None = None


class Prepared(NamedTuple):
    """What a method works out at a point before it solves H v = ∇_y f there: the diagonal `m` to precondition with, the
    estimated `scale` of a series (else 1), the size of each row of H, 0 only where the row is 0, and the samples shown
    to the Hessian."""

    m: PyTree
    scale: jax.Array
    rows: PyTree
    hvp: jax.Array

    @property
    def weight(self) -> PyTree:
        """About 1/diag(H): in this diagonal every coordinate of a residual counts, whatever the preconditioner."""
        least = coordinates.safe(tree.dtype(self.rows))
        return jax.tree.map(lambda row: 1 / jnp.maximum(jnp.abs(row), least), self.rows)


class Implicit(eqx.Module):
    """The base of every method that solves H v = ∇_y f: ∇Φ = ∇_x f − A v. A method is its way to solve that system."""

    def prepare(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array | None) -> Prepared:
        """What `solve` needs at y; it also tells whether a row of H vanishes there. Nothing differentiates through it.
        By default one product looks at the rows, and m = 1."""
        batch = problem.g_batch(key, x, y, Site.hessian)
        m, one = jax.tree.map(jnp.ones_like, y), jnp.ones((), tree.dtype(y))
        return Prepared(m, one, row_probe(problem, x, y, batch), count(1, oracle.samples(batch)))

    def solve(
        self, problem: Problem, x: PyTree, y: PyTree, b: PyTree, prepared: Prepared, key: jax.Array | None
    ) -> LinearSolution:
        """Solves H(x, y) v = b. Its calls do not include those that `prepare` made."""
        raise TypeError(f"{type(self).__name__} does not say how it solves the linear system: write solve(…).")

    def __call__(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array | None) -> tuple[PyTree, HyperInfo]:
        """∇Φ at y, moved where H is singular; f, the Hessian and A see independent batches."""
        return self.evaluate(problem, x, y, key, search=True)

    def evaluate(
        self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array | None, search: bool
    ) -> tuple[PyTree, HyperInfo]:
        """∇Φ at y; with `search`, away from it in the coordinates in which H is singular there."""
        key_f, key_hess, key_cross = (None, None, None) if key is None else jax.random.split(key, 3)
        f_batch = problem.f_batch(key_f, x, y, Site.upper)
        g_batch = problem.g_batch(key_cross, x, y, Site.cross)
        place = self._regular_point if search else self._given_point
        point, prepared = place(*jax.lax.stop_gradient((problem, x, y)), f_batch, g_batch, key_hess)
        # Differentiating the hypergradient must see y, not the constant that replaced it.
        y = jax.tree.map(lambda leaf, moved: leaf + jax.lax.stop_gradient(moved - leaf), y, point.y)
        grad_x, grad_y = oracle.grads_f(problem, x, y, f_batch)
        solution = self.solve(problem, x, y, grad_y, prepared, key_hess)
        value = tree.sub(grad_x, tree.linearly(lambda v: oracle.cross_g(problem, x, y, v, g_batch), solution.v))
        told = solution.status != Status.ok
        status = Status.where(tree.all_finite(value) | told, solution.status, Status.not_finite)
        slopes = count(1 + point.slopes, oracle.samples(f_batch))
        calls = Calls(grad_f=slopes, cross=oracle.samples(g_batch))
        calls = calls.plus(point.calls).plus(solution.calls)
        floored = tree.count_true(point.singular)
        at = Evaluation(point.y, point.distance, solution.v, solution.matrix)
        return value, HyperInfo(
            solution.residual, solution.iterations, calls, status, floored, at, *not_assessed(value)
        )

    def _given_point(
        self, problem: Problem, x: PyTree, y: PyTree, f_batch: AnyBatch, g_batch: AnyBatch, key: jax.Array | None
    ) -> tuple[RegularPoint, Prepared]:
        prepared = self.prepare(problem, x, y, key)
        return unmoved(y, prepared.rows, prepared.hvp), prepared

    def _regular_point(
        self, problem: Problem, x: PyTree, y: PyTree, f_batch: AnyBatch, g_batch: AnyBatch, key: jax.Array | None
    ) -> tuple[RegularPoint, Prepared]:
        """The preparation tells which rows of H vanish. If some do, y is moved and everything prepared again, in a
        second round of the same loop, so that a program contains the preparation once."""

        def slope(y: PyTree) -> PyTree:
            return oracle.grads_f(problem, x, y, f_batch)[1]

        def prepare(state: tuple[jax.Array, RegularPoint, Prepared]) -> tuple[jax.Array, RegularPoint, Prepared]:
            k, point, _ = state
            point = tree.compute_if_any(
                k == 1, lambda point: moved_away(problem, x, point, g_batch, slope), point, point
            )
            prepared = self.prepare(problem, x, point.y, key)
            found = unmoved(point.y, prepared.rows, prepared.hvp)
            later = point._replace(calls=point.calls.plus(found.calls))
            return k + 1, tree.where(k == 0, found, later), prepared

        def unfinished(state: tuple[jax.Array, RegularPoint, Prepared]) -> jax.Array:
            k, point, _ = state
            return (k == 0) | ((k == 1) & tree.any_true(point.singular))

        zeros, none = tree.zeros_like(y), jnp.int32(0)
        unknown = Prepared(zeros, jnp.zeros((), tree.dtype(y)), zeros, none)
        _, point, prepared = jax.lax.while_loop(unfinished, prepare, (none, unmoved(y, zeros, none), unknown))
        return point, prepared


def not_assessed(value: PyTree) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`lower_residual`, `condition` and `error` of an estimate that has not been assessed: NaN."""
    nan = jnp.full((), jnp.nan, tree.dtype(value))
    return nan, nan, nan


def with_rows(diagonal: Diagonal, problem: Problem, x: PyTree, y: PyTree, batch: AnyBatch) -> Prepared:
    """A preconditioner and the rows of H: those that its own products have shown, if none of them vanishes, else those
    that one more product shows. (It may have looked at a part of the data only; g is convex on each, so a row that is
    not 0 there is not 0 on all of them.)"""
    one = jnp.ones((), tree.dtype(y))
    if diagonal.rows is None:
        hvp = add_counts(diagonal.hvp, oracle.samples(batch))
        return Prepared(diagonal.m, one, row_probe(problem, x, y, batch), hvp)
    if rough_part(batch) is batch:
        return Prepared(diagonal.m, one, diagonal.rows, diagonal.hvp)
    doubtful = tree.any_true(vanishing(diagonal.rows))
    rows = tree.compute_if_any(doubtful, lambda y: row_probe(problem, x, y, batch), diagonal.rows, y)
    looked = count(doubtful.astype(jnp.int32), oracle.samples(batch))
    return Prepared(diagonal.m, one, rows, add_counts(diagonal.hvp, looked))


class Exact(Implicit):
    """Builds H and solves densely: for at most a few thousand unknowns in y.

    S H S u = S ∇_y f,  v = S u,  S = |diag H|^(−1/2)
    """

    def solve(
        self, problem: Problem, x: PyTree, y: PyTree, b: PyTree, prepared: Prepared, key: jax.Array | None
    ) -> LinearSolution:
        batch = problem.g_batch(key, x, y, Site.hessian)
        hessian = linear.dense(oracle.hessian_g(problem, x, y, batch), y)
        flat, unravel = tree.ravel(b)
        limits = jnp.finfo(flat.dtype)
        diagonal = jnp.abs(jnp.diag(hessian))
        empty = ~(diagonal >= limits.tiny)  # the equation of such a coordinate is v_i = b_i: right where b_i = 0
        s = jax.lax.stop_gradient(jax.lax.rsqrt(jnp.where(empty, 1.0, diagonal)))
        scaled = s[:, None] * hessian * s[None, :] + jnp.diag(empty.astype(flat.dtype))
        sigma = jnp.max(jnp.abs(s * flat))
        sigma = jax.lax.stop_gradient(jnp.where(sigma > 0, sigma, 1.0))
        right = s * flat / sigma
        u = jnp.linalg.solve(scaled, right)
        w = tree.ravel(prepared.weight)[0] / s
        gap = s * (hessian @ (s * u)) - right
        residual = jnp.maximum(_relative(gap, right), _relative(w * gap, w * right))
        accurate = residual <= jnp.sqrt(limits.eps)
        status = Status.where(accurate, Status.ok, Status.ill_conditioned)
        if not _noisy_hessian(problem, key):
            lifted = scaled + 8 * flat.size * limits.eps * jnp.eye(flat.size, dtype=flat.dtype)
            positive = jnp.all(jnp.isfinite(jnp.linalg.cholesky(jax.lax.stop_gradient(lifted))))
            status = Status.where(positive, status, Status.not_convex)
        status = Status.where(tree.all_finite((hessian, flat)), status, Status.not_finite)
        calls = Calls(hvp=count(tree.size(y), oracle.samples(batch)))
        return LinearSolution(unravel(sigma * (s * u)), residual, jnp.int32(1), calls, status, hessian)


def _relative(gap: jax.Array, whole: jax.Array) -> jax.Array:
    """‖gap‖/‖whole‖, 0 where both are 0."""
    length = tree.norm(whole)
    return jnp.where(length > 0, tree.norm(gap) / jnp.where(length > 0, length, 1.0), tree.norm(gap))


class CG(Implicit):
    """Preconditioned conjugate gradients on H v = ∇_y f, one batch for all products.

    Arguments:
        rtol: stops when r = ∇_y f − H v is at most rtol of ∇_y f in two norms, ‖M^½ ·‖ and ‖w∘·‖ with w ≈ 1/diag(H); no
            rtol below 50 units of rounding is asked for.
        max_steps: at most so many products, besides the preconditioner's own.
        preconditioner: `Auto()`, `Jacobi()`, `Power()` or `Identity()`.
    """

    rtol: float = eqx.field(default=1e-10, converter=checks.as_real)
    max_steps: int = eqx.field(static=True, default=1000)
    preconditioner: Preconditioner = Auto()

    def __check_init__(self) -> None:
        checks.number("rtol", self.rtol, low=0.0)
        checks.whole_number("max_steps", self.max_steps, low=1)
        choices = "Auto(), Jacobi(), Power() or Identity()"
        kinds.is_a("preconditioner", self.preconditioner, Preconditioner, choices)

    def prepare(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array | None) -> Prepared:
        batch = problem.g_batch(key, x, y, Site.hessian)
        return with_rows(self.preconditioner(problem, x, y, batch), problem, x, y, batch)

    def solve(
        self, problem: Problem, x: PyTree, y: PyTree, b: PyTree, prepared: Prepared, key: jax.Array | None
    ) -> LinearSolution:
        if _noisy_hessian(problem, key):
            raise ValueError(
                "CG needs a symmetric Hessian, but Noise(hess_z=…) disturbs D·H, which is not. Use Neumann or Exact."
            )
        batch = problem.g_batch(key, x, y, Site.hessian)
        operator = oracle.hessian_g(problem, x, y, batch)
        rtol = jnp.maximum(self.rtol, 50 * jnp.finfo(tree.dtype(y)).eps)
        result = linear.solve_spd(operator, b, prepared.m, rtol, self.max_steps, prepared.weight)
        status = Status.where(result.residual <= rtol, Status.ok, Status.budget)
        status = Status.where(result.curvature == linear.FLAT, Status.ill_conditioned, status)
        status = Status.where(result.curvature == linear.NEGATIVE, Status.not_convex, status)
        status = Status.where(jnp.isfinite(result.residual), status, Status.not_finite)
        calls = Calls(hvp=count(result.steps, oracle.samples(batch)))
        return LinearSolution(result.value, result.residual, result.steps, calls, status)


def _noisy_hessian(problem: Problem, key: jax.Array | None) -> bool:
    """Whether products with the Hessian are disturbed: D·H + E is not symmetric."""
    return key is not None and isinstance(problem.g_batches, Noise) and problem.g_batches.hess_z is not None
