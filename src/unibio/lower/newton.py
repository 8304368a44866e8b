"""The deterministic reference for the lower level: a Newton method that survives a singular Hessian."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, linear, oracle, tree
from unibio.core.batches import Batch, Whole
from unibio.core.problem import Problem, check_functions, prepare
from unibio.core.protocols import Calls, LowerInfo, Status, count, describe
from unibio.core.tree import PyTree

_PROBES = 8
_CG_STEPS = 2000
_DENSE = 128  # up to so many unknowns the Hessian is built and factorised: exact steps for any condition number


class _State(NamedTuple):
    y: PyTree
    value: jax.Array
    gradient: PyTree
    radius: jax.Array
    steps: jax.Array
    failures: jax.Array
    products: jax.Array


class Newton(eqx.Module):
    """Newton's method with the gradient's norm as regulariser, on all data.

        (H + λI) d = −∇_y g,  λ = ‖∇_y g‖ / R

    H ≥ 0 gives ‖d‖ ≤ R, so R is a trust radius that needs no second solve: where |y|^(p−2) → 0 the step
    is a gradient step of length R, and λ → 0 with the gradient, so that near a nondegenerate minimiser
    it is Newton's. R follows the longest step that lowered g as Armijo asks, and falls to a quarter of one
    that did not. Up to 128 unknowns d comes from a Cholesky factor, beyond from CG. Once the differences of g
    drown in rounding, a step must lower ‖∇_y g‖ instead.

    It goes on until rounding stops it; the status is `ok` if then ‖∇_y g‖ ≤ 1e-12·max(1, mean norm of
    the per-sample gradients) in float64, 5e-4·max(1, …) in float32, or if it is down to the rounding of H y.
    """

    max_steps: int = eqx.field(static=True, default=500)

    def __check_init__(self) -> None:
        checks.whole_number("max_steps", self.max_steps, low=1)

    def __call__(self, problem: Problem, x: PyTree, y: PyTree) -> tuple[PyTree, LowerInfo]:
        """y ≈ y*(x) from y, and how it went."""
        batch = problem.g_batches.whole()
        samples = oracle.samples(batch)
        dtype = tree.dtype(y)
        eps = float(jnp.finfo(dtype).eps)

        def value_and_grad(y: PyTree) -> tuple[jax.Array, PyTree]:
            return oracle.value_g(problem, x, y, batch), oracle.grad_g(problem, x, y, batch)

        value, gradient = value_and_grad(y)
        radius = jnp.maximum(1.0, tree.norm(y))
        smallest = 4 * eps * jnp.minimum(1.0, tree.norm(gradient))
        zero = jnp.int32(0)
        start = _State(y, value, gradient, radius, zero, zero, zero)

        def unfinished(state: _State) -> jax.Array:
            moving = (tree.norm(state.gradient) > smallest) & (state.failures < 12)
            return moving & (state.steps < self.max_steps)

        def step(state: _State) -> _State:
            return _newton_step(state, value_and_grad, lambda y: oracle.hessian_g(problem, x, y, batch), eps)

        end = jax.lax.while_loop(unfinished, step, start)
        residual = tree.norm(end.gradient)
        tolerance = 4503.6 * eps * jnp.maximum(1.0, sample_gradient_norm(problem, x, end.y))
        ones = jax.tree.map(jnp.ones_like, y)
        curvature = linear.largest_eigenvalue(oracle.hessian_g(problem, x, end.y, batch), ones, _PROBES)
        rounding = 50 * eps * curvature * tree.norm(end.y)  # the size of the terms that cancel in H y
        stopped = end.steps < self.max_steps
        status = Status.where(stopped, Status.stagnated, Status.max_steps)
        reached = (residual <= tolerance) | (stopped & (residual <= rounding))
        status = Status.where(reached, Status.ok, status)
        status = Status.where(jnp.isfinite(residual), status, Status.not_finite)
        calls = Calls(grad_g=count(end.steps + 1, samples), hvp=count(end.products + _PROBES, samples))
        return end.y, LowerInfo(residual, end.steps, calls, status)


def _newton_step(
    state: _State,
    value_and_grad: Callable[[PyTree], tuple[jax.Array, PyTree]],
    hessian: Callable[[PyTree], linear.Operator],
    eps: float,
) -> _State:
    grad_norm = tree.norm(state.gradient)
    damping = grad_norm / state.radius
    operator = hessian(state.y)

    def damped(v: PyTree) -> PyTree:
        return tree.axpy(damping, v, operator(v))

    step, step_products = (_dense_step if tree.size(state.y) <= _DENSE else _cg_step)(damped, state.gradient)
    trial = tree.add(state.y, step)
    value, gradient = value_and_grad(trial)
    length = jnp.where(tree.all_finite(step), tree.norm(step), state.radius)
    slope = tree.dot(state.gradient, step)
    drowned = jnp.abs(slope) <= 100 * eps * jnp.abs(state.value)
    lower_value = value <= state.value + 1e-4 * slope
    better = jnp.where(drowned, tree.norm(gradient) < grad_norm, lower_value)
    better = better & jnp.isfinite(value) & tree.all_finite(gradient)
    return _State(
        tree.where(better, trial, state.y),
        jnp.where(better, value, state.value),
        tree.where(better, gradient, state.gradient),
        jnp.where(better, jnp.maximum(state.radius, 4 * length), length / 4),
        state.steps + 1,
        # In the rounding regime a second refusal means that the end is reached.
        jnp.where(better, 0, state.failures + jnp.where(drowned, 6, 1)),
        state.products + step_products,
    )


def _cg_step(damped: linear.Operator, gradient: PyTree) -> tuple[PyTree, jax.Array]:
    """d with (H + λI) d ≈ −∇_y g by CG, to a relative residual of min(0.1, ‖∇_y g‖), and the products it took."""
    diagonal, refined = linear.estimate_diagonal(damped, gradient, _PROBES, damped)
    m = jax.tree.map(lambda d: 1 / d, diagonal)
    rtol = jnp.minimum(0.1, tree.norm(gradient))
    cg = linear.conjugate_gradients(damped, tree.scale(-1.0, gradient), m, rtol, _CG_STEPS)
    return cg.value, cg.steps + _PROBES * (1 + refined.astype(jnp.int32))


def _dense_step(damped: linear.Operator, gradient: PyTree) -> tuple[PyTree, jax.Array]:
    """The same by Cholesky, scaled to a unit diagonal; NaN, so that the radius shrinks, where it fails."""
    flat, unravel = tree.ravel(gradient)
    matrix = linear.dense(damped, gradient)
    s = jax.lax.rsqrt(jnp.maximum(jnp.diag(matrix), jnp.finfo(flat.dtype).tiny))
    factor = jax.scipy.linalg.cho_factor(s[:, None] * matrix * s[None, :])
    return unravel(-s * jax.scipy.linalg.cho_solve(factor, s * flat)), jnp.int32(flat.size)


def sample_gradient_norm(problem: Problem, x: PyTree, y: PyTree) -> jax.Array:
    """Mean over the samples of ‖∇_y g_i(x, y)‖: the size of what cancels in ∇_y g at a minimiser."""
    whole = problem.g_batches.whole()
    if not isinstance(whole, Whole):
        return tree.norm(oracle.grad_g(problem, x, y, whole))

    def mean_norm(chunk: Batch, weight: float) -> jax.Array:
        def one(index: jax.Array, value: PyTree) -> jax.Array:
            single = Batch(index[None], jax.tree.map(lambda a: a[None], value), chunk.slot)
            return tree.norm(oracle.grad_g(problem, x, y, single))

        return weight * jnp.mean(jax.vmap(one)(chunk.index, chunk.value))

    return whole.total(mean_norm)


@jax.jit
def _solve(problem: Problem, x: PyTree, y: PyTree) -> tuple[PyTree, LowerInfo]:
    check_functions(problem, x, y)
    return Newton()(problem, x, y)


@eqx.filter_custom_jvp
def _not_differentiable(problem: Problem, x: PyTree, y: PyTree) -> tuple[PyTree, LowerInfo]:
    return _solve(problem, x, y)


@_not_differentiable.def_jvp
def _refuse_derivative(primals: Any, tangents: Any) -> Any:
    raise TypeError("lower_solution has no derivative: use unibio.argmin(problem)(x, y0), which does.")


def lower_solution(problem: Problem, x: PyTree, y0: PyTree) -> PyTree:
    """y*(x) = argmin_y g(x, y) on all data, to the last digits, starting from y0. Not differentiable: see `argmin`.

    Raises RuntimeError if the tolerance of `Newton` is not met; inside jit or vmap the result is NaN then.

    Example:
        >>> problem = Problem(lambda x, y, batch: y, lambda x, y, batch: (y - x) ** 4, p=4.0)
        >>> bool(abs(lower_solution(problem, 2.0, 0.0) - 2.0) < 1e-2)
        True
    """
    problem, x, y0 = prepare(problem, x, y0)
    y, info = _not_differentiable(problem, x, y0)
    reached = info.status == Status.ok
    if checks.is_traced(reached):
        return tree.or_nan(reached, y)
    if not bool(reached):
        raise RuntimeError(
            f"lower_solution ended with ‖∇_y g‖ = {float(info.residual):.3g} after {int(info.iterations)} steps: "
            f"{describe(info.status)}."
        )
    return y
