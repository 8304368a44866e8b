"""∇Φ(x) = ∇_x f − A v with (D H) v = D ∇_y f: implicit differentiation in the coordinate z.

The order matters: D multiplies H from the left. Where H is nonsingular D cancels, so any positive diagonal
preconditioner of H v = ∇_y f gives the same v; where it is singular everything is evaluated at a point a
distance δ away (`regular_point`), and v is the limit.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, coordinates, linear, oracle, tree
from unibio.core.noise import Noise
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, Evaluation, HyperInfo, add_counts, count
from unibio.core.status import Status
from unibio.core.streams import Site
from unibio.core.tree import PyTree
from unibio.hypergradients.preconditioners import Auto, Preconditioner
from unibio.hypergradients.singular import Place, RegularPoint, regular_point


class LinearSolution(NamedTuple):
    """v, the relative residual, iterations, calls, status."""

    v: PyTree
    residual: jax.Array
    iterations: jax.Array
    calls: Calls
    status: Status


class Implicit(eqx.Module):
    """The base of every method that solves H v = ∇_y f: ∇Φ = ∇_x f − A v. A method is its way to solve that system."""

    def solve(
        self, problem: Problem, x: PyTree, y: PyTree, b: PyTree, weight: PyTree, key: jax.Array | None
    ) -> LinearSolution:
        """v with H(x, y) v = b. `weight` ≈ 1/diag(H) is a diagonal in which to judge the residual, so that every
        coordinate counts."""
        raise TypeError(f"{type(self).__name__} does not say how it solves the linear system: write solve(…).")

    def __call__(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array | None) -> tuple[PyTree, HyperInfo]:
        """∇Φ at y, moved where H is singular; f, the Hessian and A see independent batches."""
        return self.evaluate(problem, x, y, key, regular_point)

    def evaluate(
        self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array | None, place: Place
    ) -> tuple[PyTree, HyperInfo]:
        """∇Φ at the point that `place` makes of y."""
        key_f, key_hess, key_cross = (None, None, None) if key is None else jax.random.split(key, 3)
        f_batch = problem.f_batch(key_f, x, y, Site.upper)
        g_batch = problem.g_batch(key_cross, x, y, Site.cross)
        point = place(problem, x, y, g_batch, lambda y: oracle.grads_f(problem, x, y, f_batch)[1])
        # Differentiating the hypergradient must see y, not the constant that replaced it.
        y = jax.tree.map(lambda leaf, moved: leaf + jax.lax.stop_gradient(moved - leaf), y, point.y)
        grad_x, grad_y = oracle.grads_f(problem, x, y, f_batch)
        solution = self.solve(problem, x, y, grad_y, judging_weight(point), key_hess)
        value = tree.sub(grad_x, tree.linearly(lambda v: oracle.cross_g(problem, x, y, v, g_batch), solution.v))
        told = solution.status != Status.ok
        status = Status.where(tree.all_finite(value) | told, solution.status, Status.not_finite)
        slopes = count(1 + point.slopes, oracle.samples(f_batch))
        calls = Calls(grad_f=slopes, cross=oracle.samples(g_batch))
        calls = calls.plus(point.calls).plus(solution.calls)
        floored = tree.count_true(point.singular)
        at = Evaluation(point.y, point.distance, solution.v)
        return value, HyperInfo(
            solution.residual, solution.iterations, calls, status, floored, at, *not_assessed(value)
        )


def judging_weight(point: RegularPoint) -> PyTree:
    """About 1/diag(H): in this diagonal every coordinate of a residual counts, whatever the preconditioner."""
    least = coordinates.safe(tree.dtype(point.y))
    return jax.tree.map(lambda row: 1 / jnp.maximum(jnp.abs(row), least), point.rows)


def not_assessed(value: PyTree) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`lower_residual`, `condition` and `error` of an estimate that nobody has looked at."""
    nan = jnp.full((), jnp.nan, tree.dtype(value))
    return nan, nan, nan


class Exact(Implicit):
    """Builds H and solves densely: for at most a few thousand unknowns in y.

    S H S u = S ∇_y f,  v = S u,  S = |diag H|^(−1/2)
    """

    def solve(
        self, problem: Problem, x: PyTree, y: PyTree, b: PyTree, weight: PyTree, key: jax.Array | None
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
        w = tree.ravel(weight)[0] / s
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
        return LinearSolution(unravel(sigma * (s * u)), residual, jnp.int32(1), calls, status)


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
        checks.instance("preconditioner", self.preconditioner, "Auto(), Jacobi(), Power() or Identity()")

    def solve(
        self, problem: Problem, x: PyTree, y: PyTree, b: PyTree, weight: PyTree, key: jax.Array | None
    ) -> LinearSolution:
        if _noisy_hessian(problem, key):
            raise ValueError(
                "CG needs a symmetric Hessian, but Noise(hess_z=…) disturbs D·H, which is not. Use Neumann or Exact."
            )
        batch = problem.g_batch(key, x, y, Site.hessian)
        operator = oracle.hessian_g(problem, x, y, batch)
        m, hvp = self.preconditioner(*jax.lax.stop_gradient((problem, x, y)), batch)
        rtol = jnp.maximum(self.rtol, 50 * jnp.finfo(tree.dtype(y)).eps)
        result = linear.solve_spd(operator, b, m, rtol, self.max_steps, weight)
        status = Status.where(result.residual <= rtol, Status.ok, Status.budget)
        status = Status.where(result.curvature == linear.FLAT, Status.ill_conditioned, status)
        status = Status.where(result.curvature == linear.NEGATIVE, Status.not_convex, status)
        status = Status.where(jnp.isfinite(result.residual), status, Status.not_finite)
        calls = Calls(hvp=add_counts(hvp, count(result.steps, oracle.samples(batch))))
        return LinearSolution(result.value, result.residual, result.steps, calls, status)


def _noisy_hessian(problem: Problem, key: jax.Array | None) -> bool:
    """Whether products with the Hessian are disturbed: D·H + E is not symmetric."""
    return key is not None and isinstance(problem.g_batches, Noise) and problem.g_batches.hess_z is not None
