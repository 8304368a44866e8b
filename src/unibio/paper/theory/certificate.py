"""Bounds on two errors that cannot be computed: the distance of y from the lower solution y*(x), and the distance of
the estimate ĥ from the hypergradient ∇Φ(x). They follow from residuals that can be computed and the paper's
constants."""

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

# The rounding of a gradient is taken to be its change when its arguments change by this many units in the last place.
_ROUNDING = 16


class Certificate(NamedTuple):
    """What `certificate` returns: an estimate ĥ of ∇Φ(x), and bounds on its error and on that of y.

    ‖y − y*‖ ≤ lower_error and ‖ĥ − ∇Φ(x)‖ ≤ gradient_error, so that ‖∇Φ(x)‖ ≤ gradient_norm + gradient_error = `bound`.

    `value` is ĥ and `gradient_norm` its norm. `y` is the point at which ĥ was computed: the given one, or that with its
    singular coordinates moved a tiny distance away; `lower_error` holds for both. There `residual` is ‖∇_y g‖ plus its
    rounding, and `linear_residual` is ‖D(∇_y f − H v)‖.
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
    """Computes ĥ ≈ ∇Φ(x) at (x, y) on all data, and proven bounds on its error and on the distance of y from y*(x).

        ‖y − y*‖ ≤ ((‖∇_y g‖ + ρ)/m)^{1/(p−1)}
        ‖ĥ − ∇Φ‖ ≤ L_φ2‖y − y*‖ + l_g1‖D(∇_y f − H v)‖/μ_J

    Here H = ∇²_yy g, D = diag(dy/dz), and v ≈ H⁻¹∇_y f comes from `method`; docs/theory.md has the proof. The bounds
    hold if `constants` are those of this problem, its dimension included, in the region that contains y and y*; this
    cannot be checked here.

    ρ stands for the rounding of ∇_y g in the precision of x. It is 16·eps·(l_g1‖x‖ + (L0 + L1‖∇_y g‖)‖y‖) plus the
    smallest normal number. Because its (p−1)-th root is taken, it limits what can be certified: at p = 20 even float64
    cannot place a degenerate y* better than 0.1. For p ≥ 4 expect the bound on ∇Φ to be loose by a factor of 100 and
    more; docs/theory.md has measurements.
    """
    problem, x, y = prepare(problem, x, y)
    if not isinstance(constants, Constants):
        raise TypeError(f"constants must be theory.Constants(…); got {constants!r}.")
    stated = problem.p
    if stated is None or (not checks.is_traced(stated) and abs(float(stated) - constants.p) > 1e-6 * constants.p):
        raise ValueError(f"the constants are for p = {constants.p}, the problem states p = {stated}: make them agree.")
    c = constants
    numbers = (c.p, math.log(c.m), c.L_phi2, c.l_g1, c.mu_J, c.L0, c.L1)  # type: ignore[arg-type]
    method = CG() if method is None else method
    if not isinstance(method, CG):
        raise TypeError(f"method must be CG(…), because only its residual enters the bound; got {method!r}.")
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
    """Ends a run when `certificate` proves ‖∇Φ(x)‖ ≤ epsilon: `solve(…, stop=Certified(0.1, constants))`.

    It is checked between stretches of steps. To have it checked often, give `solve` a `chunk`, or metrics with `every`.
    """

    epsilon: float
    constants: Constants
    status: ClassVar[Status] = Status.ok

    def __post_init__(self) -> None:
        checks.number("epsilon", self.epsilon, low=0.0, strict=True)
        if not isinstance(self.constants, Constants):
            raise TypeError(f"constants must be theory.Constants(…); got {self.constants!r}.")

    def met(self, view: View) -> bool:
        return bool(certificate(view.problem, view.state.x, view.state.y, self.constants).bound <= self.epsilon)
