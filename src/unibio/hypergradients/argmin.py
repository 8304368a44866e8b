"""y*(x) as a function that jax can differentiate, also where the lower Hessian is singular."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import linear, oracle, tree
from unibio.core.problem import Problem, check_functions, prepare
from unibio.core.programs import kept_jit
from unibio.core.status import Status
from unibio.core.tree import PyTree
from unibio.hypergradients.preconditioners import Auto
from unibio.hypergradients.singular import regular_point
from unibio.lower.newton import Newton

_CG_STEPS = 1000


def argmin(problem: Problem) -> Callable[[PyTree, PyTree], PyTree]:
    """`argmin(problem)(x, y0)` is y*(x), with derivatives in forward and reverse mode.

        ẏ = −H⁻¹ d/dε ∇_y g(x + εẋ, y*)   (any floating leaf of the problem may carry a tangent too)

    So `jax.grad(lambda x: loss(x, argmin(problem)(x, y0)))` works for a loss of your own. Where H is
    singular the returned y lies a tiny distance δ off the minimiser in those coordinates: dy/dx
    is infinite in the limit, loss'(y) is 0, and their product at y_δ is the derivative; second derivatives at such a
    point mean nothing. If g has no minimiser, or it cannot be found, the result and its derivatives are NaN;
    `lower_solution` raises then, and says why. If the linear system cannot be solved, the derivatives are. y0 is only
    where the search starts; its derivative is 0.

    Example:
        >>> problem = Problem(lambda x, y, batch: y, lambda x, y, batch: y**4 / 4 - y * jnp.sin(x), p=4.0)
        >>> slope = jax.grad(lambda x: argmin(problem)(x, 0.5) ** 3)(0.0)  # y*³ = sin x
        >>> bool(abs(slope - 1) < 1e-4)
        True
    """

    def solution(x: PyTree, y0: PyTree) -> PyTree:
        ready, x_, y_ = prepare(problem, x, y0)
        return _argmin(ready, x_, jax.lax.stop_gradient(y_))

    return solution


@eqx.filter_custom_jvp
def _argmin(problem: Problem, x: PyTree, y0: PyTree) -> PyTree:
    return _solve(problem, x, y0)


@_argmin.def_jvp
def _argmin_jvp(primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...]) -> tuple[PyTree, PyTree]:
    problem, x, y0 = primals
    problem_dot, x_dot, _ = tangents
    y = _argmin(problem, x, y0)
    return y, _tangent(problem, x, y, problem_dot, x_dot)


@kept_jit
def _solve(problem: Problem, x: PyTree, y0: PyTree) -> PyTree:
    check_functions(problem, x, y0)
    y, info = Newton()(problem, x, y0)
    # Whether f has a limit is not asked: the loss is the user's.
    point = regular_point(problem, x, y, problem.g_batches.whole())
    return tree.or_nan(info.status == Status.ok, point.y)


@kept_jit
def _tangent(problem: Problem, x: PyTree, y: PyTree, problem_dot: PyTree, x_dot: PyTree) -> PyTree:
    """−H⁻¹ of the change of ∇_y g along (problem_dot, x_dot); None stands for no change."""

    def moved(differentiable: PyTree, fixed: PyTree) -> PyTree:
        p, x = eqx.combine(differentiable, fixed)
        return oracle.grad_g(p, x, y, p.g_batches.whole())

    carries = jax.tree.map(lambda t: t is not None, (problem_dot, x_dot), is_leaf=lambda t: t is None)
    differentiable, fixed = eqx.partition((problem, x), carries)
    _, change = jax.jvp(lambda d: moved(d, fixed), (differentiable,), ((problem_dot, x_dot),))
    operator = oracle.hessian_g(problem, x, y, problem.g_batches.whole())
    m = Auto()(*jax.lax.stop_gradient((problem, x, y)), problem.g_batches.whole()).m
    rtol = max(1e-10, 50 * float(jnp.finfo(tree.dtype(y)).eps))
    tangent = linear.solve_spd(operator, tree.scale(-1.0, change), m, rtol, _CG_STEPS, nan_on_failure=True).value
    # Where there is no y there is no derivative, even by what g does not depend on: 0 or NaN times every tangent.
    nothing = jnp.where(tree.all_finite(y), 0.0, jnp.nan).astype(tree.dtype(y))
    every = sum(jnp.sum(leaf.astype(nothing.dtype)) for leaf in jax.tree.leaves((problem_dot, x_dot)))
    return jax.tree.map(lambda leaf: leaf + nothing * every, tangent)
