"""∇Φ(x) = ∇_x f − A v with (D H) v = D ∇_y f: implicit differentiation in the coordinate z.

The order matters: D multiplies H from the left. Where H is nonsingular D cancels, so any positive diagonal
preconditioner of H v = ∇_y f gives the same v; where it is singular everything is evaluated at a point a
distance δ away (`regular_point`), and v is the limit.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, linear, oracle, tree
from unibio.core.noise import Noise
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, HyperInfo, Status, add_counts, count
from unibio.core.tree import PyTree
from unibio.hypergradients.preconditioners import Auto, Preconditioner
from unibio.hypergradients.singular import limit_exists, regular_point


class LinearSolution(NamedTuple):
    """v, the relative residual, iterations, calls, status."""

    v: PyTree
    residual: jax.Array
    iterations: jax.Array
    calls: Calls
    status: Status


Solve = Callable[[PyTree, PyTree, jax.Array | None], LinearSolution]


def implicit(problem: Problem, x: PyTree, y: PyTree, key: jax.Array | None, solve: Solve) -> tuple[PyTree, HyperInfo]:
    """∇_x f − A v, where `solve(y, ∇_y f, key)` gives v; f, the Hessian and A see independent batches."""
    key_f, key_hess, key_cross = (None, None, None) if key is None else jax.random.split(key, 3)
    f_batch, g_batch = problem.f_batch(key_f, x, y), problem.g_batch(key_cross, x, y)
    point = regular_point(problem, x, y, g_batch)
    has_limit, limit_calls = limit_exists(problem, x, y, point, f_batch, g_batch)
    # Differentiating the hypergradient must see y, not the constant that replaced it.
    y = jax.tree.map(lambda leaf, moved: leaf + jax.lax.stop_gradient(moved - leaf), y, point.y)
    grad_x, grad_y = oracle.grads_f(problem, x, y, f_batch)
    solution = solve(y, grad_y, key_hess)
    value = tree.sub(grad_x, oracle.cross_g(problem, x, y, solution.v, g_batch))
    calls = Calls(grad_f=oracle.samples(f_batch), cross=oracle.samples(g_batch))
    status = Status.where(has_limit, solution.status, Status.no_limit)
    refused = solution.status == Status.diverging
    status = Status.where(tree.all_finite(value) | refused, status, Status.not_finite)
    return value, HyperInfo(
        solution.residual,
        solution.iterations,
        calls.plus(point.calls).plus(limit_calls).plus(solution.calls),
        status,
        tree.count_true(point.singular),
    )


class Exact(eqx.Module):
    """Builds H and solves densely: for at most a few thousand unknowns in y.

    S H S u = S ∇_y f,  v = S u,  S = |diag H|^(−1/2)
    """

    def __call__(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array | None) -> tuple[PyTree, HyperInfo]:
        def solve(y: PyTree, b: PyTree, key: jax.Array | None) -> LinearSolution:
            batch = problem.g_batch(key, x, y)
            hessian = linear.dense(oracle.hessian_g(problem, x, y, batch), y)
            flat, unravel = tree.ravel(b)
            diagonal = jnp.abs(jnp.diag(hessian))
            safe = jnp.where(diagonal >= jnp.finfo(flat.dtype).tiny, diagonal, 1.0)
            s = jax.lax.stop_gradient(jax.lax.rsqrt(safe))
            scaled = s[:, None] * hessian * s[None, :]
            v = s * jnp.linalg.solve(scaled, s * flat)
            largest = jnp.linalg.norm(s * flat)
            residual = jnp.linalg.norm(s * (hessian @ v - flat)) / jnp.where(largest > 0, largest, 1.0)
            accurate = residual <= jnp.sqrt(jnp.finfo(flat.dtype).eps)
            status = Status.where(accurate, Status.ok, Status.stagnated)
            if not _noisy_hessian(problem, key):
                positive = jnp.all(jnp.isfinite(jnp.linalg.cholesky(jax.lax.stop_gradient(scaled))))
                status = Status.where(positive, status, Status.indefinite)
            calls = Calls(hvp=count(tree.size(y), oracle.samples(batch)))
            return LinearSolution(unravel(v), residual, jnp.int32(1), calls, status)

        return implicit(problem, x, y, key, solve)


class CG(eqx.Module):
    """Preconditioned conjugate gradients on H v = ∇_y f, one batch for all products.

    Arguments:
        rtol: stops when r = ∇_y f − H v has ‖r‖ ≤ rtol·‖∇_y f‖ and ‖Mr‖ ≤ rtol·‖M∇_y f‖; no rtol below
            50 units of rounding is asked for.
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

    def __call__(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array | None) -> tuple[PyTree, HyperInfo]:
        if _noisy_hessian(problem, key):
            raise ValueError(
                "CG needs a symmetric Hessian, but Noise(hess_z=…) disturbs D·H, which is not. Use Neumann or Exact."
            )
        return implicit(problem, x, y, key, lambda y, b, key: self.solve(problem, x, y, b, key))

    def solve(self, problem: Problem, x: PyTree, y: PyTree, b: PyTree, key: jax.Array | None) -> LinearSolution:
        """v with H v = b."""
        batch = problem.g_batch(key, x, y)
        operator = oracle.hessian_g(problem, x, y, batch)
        m, hvp = self.preconditioner(*jax.lax.stop_gradient((problem, x, y)), batch)
        rtol = jnp.maximum(self.rtol, 50 * jnp.finfo(tree.dtype(y)).eps)
        result = linear.solve_spd(operator, b, m, rtol, self.max_steps)
        status = Status.where(result.residual <= rtol, Status.ok, Status.max_steps)
        status = Status.where(result.indefinite, Status.indefinite, status)
        finite = jnp.isfinite(result.residual)
        status = Status.where(finite, status, Status.not_finite)
        calls = Calls(hvp=add_counts(hvp, count(result.steps, oracle.samples(batch))))
        return LinearSolution(tree.or_nan(finite, result.value), result.residual, result.steps, calls, status)


def _noisy_hessian(problem: Problem, key: jax.Array | None) -> bool:
    """Whether products with the Hessian are disturbed: D·H + E is not symmetric."""
    return key is not None and isinstance(problem.g_batches, Noise) and problem.g_batches.hess_z is not None
