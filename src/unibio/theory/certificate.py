"""From numbers that can be computed, a bound on numbers that cannot: how far y is from y*, and ĥ from ∇Φ."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from unibio.core import checks, coordinates, oracle, tree
from unibio.core.problem import Problem, check_functions, prepare
from unibio.core.tree import PyTree
from unibio.hypergradients.implicit import CG
from unibio.hypergradients.singular import regular_point
from unibio.theory.constants import Constants


class Certificate(NamedTuple):
    """‖y − y*‖ ≤ lower_error and ‖ĥ − ∇Φ(x)‖ ≤ gradient_error, so ‖∇Φ(x)‖ ≤ gradient_norm + gradient_error.

    `residual` is ‖∇_y g(x, y)‖, `linear_residual` ‖D(∇_y f − H v)‖, both at the point `y` (y itself, or y with its
    singular coordinates moved by δ).
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

        ‖y − y*‖ ≤ (‖∇_y g‖/m)^{1/(p−1)}
        ‖ĥ − ∇Φ‖ ≤ L_φ2‖y − y*‖ + l_g1‖D(∇_y f − H v)‖/μ_J

    On all data, in the precision of x. The residual of the linear system counts in the coordinate z, whatever CG's
    preconditioner saw. For p ≥ 4 expect it to be loose by a factor of 100 and more.
    """
    if not isinstance(constants, Constants):
        raise TypeError(f"constants must be theory.Constants(…); got {constants!r}.")
    stated = problem.p
    if stated is None or (not checks.is_traced(stated) and float(stated) != constants.p):
        raise ValueError(f"the constants are for p = {constants.p}, the problem states p = {stated}; make them agree.")
    problem, x, y = prepare(problem, x, y)
    numbers = (constants.p, constants.m, constants.L_phi2, constants.l_g1, constants.mu_J)
    method = CG() if method is None else method
    checks.instance("method", method, "CG()")
    return _certify(problem, x, y, tree.cast(method, tree.dtype(x)), tree.cast(numbers, tree.dtype(x)))


@jax.jit
def _certify(problem: Problem, x: PyTree, y: PyTree, method: CG, numbers: Any) -> Certificate:
    check_functions(problem, x, y)
    p, m, L_phi2, l_g1, mu_J = numbers
    f_batch, g_batch = problem.f_batches.whole(), problem.g_batches.whole()
    y = regular_point(problem, x, y, g_batch).y
    residual = tree.norm(oracle.grad_g(problem, x, y, g_batch))
    grad_x, grad_y = oracle.grads_f(problem, x, y, f_batch)
    v = method.solve(problem, x, y, grad_y, None).v
    gap = tree.sub(grad_y, oracle.hvp_g(problem, x, y, v, g_batch))
    linear_residual = tree.norm(tree.mul(coordinates.scaling(y, problem.p, problem.shift), gap))
    value = tree.sub(grad_x, oracle.cross_g(problem, x, y, v, g_batch))
    lower_error = (residual / m) ** (1 / (p - 1))
    gradient_error = L_phi2 * lower_error + l_g1 * linear_residual / mu_J
    return Certificate(value, y, residual, linear_residual, lower_error, tree.norm(value), gradient_error)


@dataclasses.dataclass(frozen=True)
class Certified:
    """Stop when ‖∇Φ(x)‖ ≤ epsilon is certified: `solve(…, stop=Certified(0.1, constants))`. Asked between stretches
    of steps, so give `chunk` or metrics with `every` to be asked often."""

    epsilon: float
    constants: Constants

    def __post_init__(self) -> None:
        checks.number("epsilon", self.epsilon, low=0.0, strict=True)

    def __call__(self, problem: Problem, state: Any, row: Mapping[str, Any]) -> bool:
        return bool(jnp.isfinite(found := certificate(problem, state.x, state.y, self.constants).bound)) and bool(
            found <= self.epsilon
        )
