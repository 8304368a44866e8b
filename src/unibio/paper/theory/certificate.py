"""From numbers that can be computed, a bound on numbers that cannot: how far y is from y*, and ĥ from ∇Φ."""

import dataclasses
import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from unibio.core import checks, coordinates, oracle, tree
from unibio.core.problem import Problem, check_functions, prepare
from unibio.core.status import Status
from unibio.core.tree import PyTree
from unibio.hypergradients.implicit import CG
from unibio.hypergradients.singular import regular_point
from unibio.paper.theory.constants import Constants
from unibio.run.between import View
from unibio.run.stopping import Rule

_ROUNDING = 16  # units in the last place that a gradient may be off, as if its arguments were


class Certificate(NamedTuple):
    """‖y − y*‖ ≤ lower_error and ‖ĥ − ∇Φ(x)‖ ≤ gradient_error, so ‖∇Φ(x)‖ ≤ gradient_norm + gradient_error.

    `value` is ĥ; `residual` is ‖∇_y g‖ with its rounding, `linear_residual` ‖D(∇_y f − H v)‖, both at the point `y`:
    the given one, or that with its singular coordinates moved by δ (`lower_error` holds for either).
    """

    value: PyTree
    y: PyTree
    residual: jax.Array
    linear_residual: jax.Array
    lower_error: jax.Array
    gradient_norm: jax.Array
    gradient_error: jax.Array

    @property
    def bound(self) -> jax.Array:
        """The certified bound on ‖∇Φ(x)‖."""
        return self.gradient_norm + self.gradient_error


def certificate(problem: Problem, x: PyTree, y: PyTree, constants: Constants, method: CG | None = None) -> Certificate:
    """What can be said for certain at (x, y), if the constants are right where it matters.

        ‖y − y*‖ ≤ ((‖∇_y g‖ + ρ)/m)^{1/(p−1)}
        ‖ĥ − ∇Φ‖ ≤ L_φ2‖y − y*‖ + l_g1‖D(∇_y f − H v)‖/μ_J

    On all data, in the precision of x. ρ is for the rounding of ∇_y g, taken to be that of its arguments:
    16·eps·(l_g1‖x‖ + (L0 + L1‖∇_y g‖)‖y‖) and the smallest normal number. Its root matters: at p = 20 even float64
    cannot place a degenerate y* better than 0.1. The residual of the linear system counts in the coordinate z, whatever
    CG's preconditioner saw. For p ≥ 4 expect the bound to be loose by a factor of 100 and more. That the constants
    belong to this problem, its dimension included, is yours to know.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem(f, g, p); got {problem!r}.")
    if not isinstance(constants, Constants):
        raise TypeError(f"constants must be theory.Constants(…); got {constants!r}.")
    stated = problem.p
    if stated is None or (not checks.is_traced(stated) and abs(float(stated) - constants.p) > 1e-6 * constants.p):
        raise ValueError(f"the constants are for p = {constants.p}, the problem states p = {stated}; make them agree.")
    problem, x, y = prepare(problem, x, y)
    c = constants
    numbers = (c.p, math.log(c.m), c.L_phi2, c.l_g1, c.mu_J, c.L0, c.L1)  # type: ignore[arg-type]
    method = CG() if method is None else method
    if not isinstance(method, CG):
        raise TypeError(f"method must be CG(), whose residual is known; got {method!r}.")
    return _certify(problem, x, y, tree.cast(method, tree.dtype(x)), tree.cast(numbers, tree.dtype(x)))


@jax.jit
def _certify(problem: Problem, x: PyTree, y: PyTree, method: CG, numbers: PyTree) -> Certificate:
    check_functions(problem, x, y)
    p, log_m, L_phi2, l_g1, mu_J, L0, L1 = numbers
    limits = jnp.finfo(tree.dtype(x))
    f_batch, g_batch = problem.f_batches.whole(), problem.g_batches.whole()
    point = regular_point(problem, x, y, g_batch, lambda y: oracle.grads_f(problem, x, y, f_batch)[1])
    given, y = y, point.y
    slope = tree.norm(oracle.grad_g(problem, x, y, g_batch))
    rounding = _ROUNDING * limits.eps * (l_g1 * tree.norm(x) + (L0 + L1 * slope) * tree.norm(y))
    residual = slope + rounding + limits.tiny
    grad_x, grad_y = oracle.grads_f(problem, x, y, f_batch)
    v = method.solve(problem, x, y, grad_y, method.prepare(problem, x, y, None), None).v
    gap = tree.sub(grad_y, oracle.hvp_g(problem, x, y, v, g_batch))
    linear_residual = tree.norm(tree.mul(coordinates.scaling(y, problem.p, problem.shift), gap))
    value = tree.sub(grad_x, oracle.cross_g(problem, x, y, v, g_batch))
    distance = jnp.exp((jnp.log(residual) - log_m) / (p - 1))
    size = tree.norm(grad_x) + l_g1 * tree.norm(v)
    gradient_error = L_phi2 * distance + l_g1 * linear_residual / mu_J + _ROUNDING * limits.eps * size
    lower_error = distance + tree.norm(tree.sub(y, given))
    return Certificate(value, y, residual, linear_residual, lower_error, tree.norm(value), gradient_error)


@dataclasses.dataclass(frozen=True)
class Certified(Rule):
    """Stop when ‖∇Φ(x)‖ ≤ epsilon is certified: `solve(…, stop=Certified(0.1, constants))`. Asked between stretches
    of steps, so give `chunk` or metrics with `every` to be asked often."""

    epsilon: float
    constants: Constants
    status: ClassVar[Status] = Status.ok

    def __post_init__(self) -> None:
        checks.number("epsilon", self.epsilon, low=0.0, strict=True)
        if not isinstance(self.constants, Constants):
            raise TypeError(f"constants must be theory.Constants(…); got {self.constants!r}.")

    def met(self, view: View) -> bool:
        return bool(certificate(view.problem, view.state.x, view.state.y, self.constants).bound <= self.epsilon)
