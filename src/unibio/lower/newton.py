"""The deterministic reference for the lower level: a Newton method that survives a singular Hessian, and says whether
what it found is a minimiser and how far it may be from it."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, coordinates, oracle, tree
from unibio.core.problem import Problem, check_functions, prepare
from unibio.core.programs import computed
from unibio.core.protocols import Calls, LowerInfo, count
from unibio.core.status import Status
from unibio.core.tree import PyTree
from unibio.lower.system import PROBES, system
from unibio.lower.verdict import Point, judge, rounding, sizes

_FAILURES = 48  # this many quarterings of R reach any unit of y
_RAN = 1000.0  # times as far as the start is from 0, or 1


class _State(NamedTuple):
    """`radius` is R, `noise` the rounding of ∇_y g (0 until it matters), `length` the largest entry of the last full
    step that was taken (infinite after one that was not), `shrinks` its ratio to the one before, `failures` how many in
    a row were not taken, `settled` whether a step has become as small as the rounding of y."""

    at: Point
    radius: jax.Array
    noise: PyTree
    length: jax.Array
    shrinks: jax.Array
    steps: jax.Array
    failures: jax.Array
    gradients: jax.Array
    products: jax.Array
    settled: jax.Array


class Newton(eqx.Module):
    """Newton's method with the gradient as regulariser, on all data.

        (H + Λ) d = −∇_y g,  Λ = diag(|∂_i g|) / R,  y ← y + α d

    H ≥ 0 gives |d_i| ≤ R in a mean, so R is a trust radius that needs no second solve: where |y|^(p−2) → 0 the step
    is one of length R against the gradient's signs, and Λ → 0 with the gradient, so that near a nondegenerate minimiser
    it is Newton's. It does not depend on the units of g, nor on how unevenly H is scaled. R follows the longest step
    that lowered g as Armijo asks, and falls to a quarter of one that did not. At a degenerate minimiser steps shrink by
    a constant factor ρ = (p−2)/(p−1) only, and the way that is left is α = 1/(1 − ρ) of them; ρ is taken from the last
    three, if they agree. Up to 128 unknowns d comes from a Cholesky factor, beyond from CG. Once the differences of g
    drown in rounding, a step must lower ∇_y g instead, as far as it exceeds its own rounding, each entry measured by
    the step in y that it stands for.

    It goes on until rounding stops it. Then ∇_y g is looked at on both sides of y (`verdict.judge`). The status is `ok`
    if it pushes back on both, so that there is a minimiser in between, and vanishes at y up to rounding;
    `info.error` says how far apart the two sides are, that is, how far y may be from the minimiser.
    """

    max_steps: int = eqx.field(static=True, default=500)

    def __check_init__(self) -> None:
        checks.whole_number("max_steps", self.max_steps, low=1)

    def __call__(self, problem: Problem, x: PyTree, y: PyTree) -> tuple[PyTree, LowerInfo]:
        """Returns y ≈ y*(x), searched for from the given y, and a `LowerInfo` that says how the search went."""
        samples = oracle.samples(problem.g_batches.whole())
        at = Point(y, *_value_and_gradient(problem, x, y), jax.tree.map(jnp.abs, y))
        zero, radius = jnp.int32(0), _first_radius(at)
        far, safe = jnp.full_like(radius, jnp.inf), coordinates.safe(tree.dtype(y))
        start = _State(
            at, radius, tree.zeros_like(y), far, 0 * radius, zero, zero, jnp.int32(1), zero, jnp.asarray(False)
        )

        def unfinished(state: _State) -> jax.Array:
            moving = (tree.largest(state.at.gradient) > safe) & (state.failures < _FAILURES) & ~state.settled
            return moving & (state.steps < self.max_steps)

        end = jax.lax.while_loop(unfinished, lambda state: _newton_step(problem, x, y, state), start)
        status, error, gradients, products = judge(problem, x, end.at)
        stopped = Status.where(end.steps < self.max_steps, Status.stagnated, Status.budget)
        status = Status.where(status == Status.stagnated, stopped, status)
        # What looks flat on both sides only because y has run so far that ∇_y g underflows.
        ran = ~jnp.isfinite(error) & (tree.largest(end.at.path) > _RAN * jnp.maximum(1.0, tree.largest(y)))
        status = Status.where((status == Status.ill_conditioned) & ran, Status.no_minimiser, status)
        gradients, products = end.gradients + gradients, end.products + products
        calls = Calls(grad_g=count(gradients, samples), hvp=count(products, samples))
        return end.at.y, LowerInfo(tree.norm(end.at.gradient), end.steps, calls, status, error)


def _value_and_gradient(problem: Problem, x: PyTree, y: PyTree) -> tuple[jax.Array, PyTree]:
    batch = problem.g_batches.whole()
    return oracle.value_g(problem, x, y, batch), oracle.grad_g(problem, x, y, batch)


def _first_radius(at: Point) -> jax.Array:
    """The trust radius to begin with: the largest entry of y, or the shortest step whose change of g exceeds rounding
    if that is longer; 1 if both are 0."""
    eps, slope = jnp.finfo(tree.dtype(at.y)).eps, tree.dot(at.gradient, jax.tree.map(jnp.sign, at.gradient))
    radius = jnp.maximum(tree.largest(at.y), 1000 * eps * jnp.abs(at.value) / slope)
    return jnp.where((radius > 0) & jnp.isfinite(radius), radius, 1.0)


def _newton_step(problem: Problem, x: PyTree, begin: PyTree, state: _State) -> _State:
    at, eps = state.at, jnp.finfo(tree.dtype(begin)).eps
    operator = oracle.hessian_g(problem, x, at.y, problem.g_batches.whole())
    damping = jax.tree.map(lambda r: jnp.abs(r) / state.radius, at.gradient)

    def damped(v: PyTree) -> PyTree:
        return tree.add(operator(v), tree.mul(damping, v))

    rtol = jnp.clip(state.length / tree.largest(at.path), 16 * eps, 0.1)
    solver = system(damped, at.y)
    step, products = solver.solve(tree.scale(-1.0, at.gradient), rtol)
    shrinks = tree.largest(step) / state.length
    steadily = (shrinks > 0.2) & (shrinks < 0.99) & (jnp.abs(shrinks - state.shrinks) < 0.1 * (1 - shrinks))
    lengthened = 1 / (1 - jnp.where(steadily, shrinks, 0.0))
    step = tree.scale(lengthened, step)
    length = jnp.where(tree.all_finite(step), tree.largest(step), state.radius)
    trial = tree.add(at.y, step)
    value, gradient = _value_and_gradient(problem, x, trial)

    def excess(gradient: PyTree) -> jax.Array:
        """By how much the gradient exceeds its rounding, expressed as a step in y relative to the path."""
        unit = tree.divide(solver.inverse, sizes(at.path))
        return tree.norm(jax.tree.map(lambda r, n, u: jnp.maximum(jnp.abs(r) - n, 0) * u, gradient, state.noise, unit))

    slope = tree.dot(at.gradient, step)
    # g is a sum of terms as large as h_ii y_i², of which little may be left: the rounding of g is theirs.
    terms = tree.dot(at.path, tree.divide(at.path, solver.inverse))
    drowned = jnp.abs(slope) <= eps * (100 * jnp.abs(at.value) + 4 * terms)
    better = jnp.where(drowned, excess(gradient) < excess(at.gradient), value <= at.value + 1e-4 * slope)
    better = better & jnp.isfinite(value) & tree.all_finite(gradient)
    y = tree.where(better, trial, at.y)
    path = jax.tree.map(lambda a, b, c: jnp.maximum(a, jnp.maximum(jnp.abs(b), jnp.abs(b - c))), at.path, y, begin)
    new = Point(y, jnp.where(better, value, at.value), tree.where(better, gradient, at.gradient), path)
    ending = drowned & ~better & (lengthened == 1)
    return _State(
        new,
        jnp.where(better, jnp.maximum(state.radius, 4 * length), length / 4),
        tree.compute_if_any(ending, lambda new: rounding(problem, x, new)[0], state.noise, new),
        jnp.where(better, length / lengthened, jnp.inf),
        jnp.where(better & (lengthened == 1), shrinks, 0.0),
        state.steps + 1,
        # In the rounding regime a second refusal means that the end is reached; a lengthened step may be refused.
        jnp.where(better, 0, state.failures + jnp.where(ending, _FAILURES // 2, 1)),
        state.gradients + jnp.where(ending, PROBES + 3, 1),
        state.products + solver.products + products,
        ~tree.any_true(jax.tree.map(lambda s, a: ~(jnp.abs(s) <= 4 * eps * a), step, at.path)),
    )


def solved(problem: Problem, x: PyTree, y: PyTree) -> tuple[PyTree, LowerInfo]:
    """`Newton()` as a compiled program, which all that ask for y*(x) share."""
    return computed(_solve, problem, x, y)


@eqx.filter_custom_jvp
def _solve(problem: Problem, x: PyTree, y: PyTree) -> tuple[PyTree, LowerInfo]:
    check_functions(problem, x, y)
    return Newton()(problem, x, y)


@_solve.def_jvp
def _refuse_derivative(primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]) -> Any:
    raise TypeError("lower_solution has no derivative: use unibio.argmin(problem)(x, y0), which does.")


def lower_solution(problem: Problem, x: PyTree, y0: PyTree) -> PyTree:
    """y*(x) = argmin_y g(x, y) on all data, to the last digits, starting from y0. Not differentiable: see `argmin`.

    Raises RuntimeError if that is no minimiser of g(x, ·), or if there is none, and says which; inside jit or vmap
    the result is NaN then. How far y*(x) may be from the result is `info.error` of
    `y, info = Newton()(problem, x, y0)`: where g is as flat as y²⁰ at its minimiser, the last digits of y*(x) cannot be
    known.

    Example:
        >>> problem = Problem(lambda x, y, batch: y, lambda x, y, batch: (y - x) ** 4, p=4.0)
        >>> bool(abs(lower_solution(problem, 2.0, 0.0) - 2.0) < 1e-2)
        True
    """
    problem, x, y0 = prepare(problem, x, y0)
    y, info = solved(problem, x, y0)
    reached = info.status == Status.ok
    if checks.is_traced(reached):
        return tree.or_nan(reached, y)
    if not bool(reached):
        raise RuntimeError(
            f"lower_solution ended with ‖∇_y g‖ = {float(info.residual):.3g} after {int(info.iterations)} steps: "
            f"{info.status.message}."
        )
    return y
