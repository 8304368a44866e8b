"""What is proved about unknown p: the bounds of docs/without_p.md as code, and the schedule of UniBiO that uses no p.

The paper leaves open how to run its algorithm when the order p of uniform convexity is not known. The schedule here
depends on the number T of upper steps alone: with N = √T, the lower level is refreshed every N steps by `StagedSGD`
with N gradients, and the momentum and the step size are powers of N. It is stated for a budget T and not for an
accuracy ε, because how large T must be for a given ε does depend on p.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import numpy as np

from unibio.core import checks, tree
from unibio.core.problem import Problem, prepare
from unibio.core.protocols import Calls, Hypergradient
from unibio.core.tree import PyTree
from unibio.hypergradients.neumann import Neumann
from unibio.hypergradients.preconditioners import Jacobi
from unibio.lower.staged_sgd import StagedSGD
from unibio.paper.theory.constants import Constants
from unibio.paper.theory.moduli import log, log_sum
from unibio.paper.theory.schedule import gradient_bound
from unibio.run.solve import solve
from unibio.solvers.lower_level import refresh
from unibio.solvers.unibio import UniBiO

_KAPPA = "κ scales the upper step size κ·N^{−3/2}: about the distance that x should be able to move in N refreshes."
_RADIUS = "The radius bounds the distance of y from its minimiser at every refresh; the lower solver starts from it."
_CONDITION = "The condition is C/μ_J, the largest over the smallest eigenvalue of the preconditioned lower Hessian."


@dataclasses.dataclass(frozen=True)
class ScheduleWithoutP:
    """The numbers of UniBiO for T upper steps and a period N, without p.

    | symbol | field or property |
    |---|---|
    | T, N = I | `steps`, `period`: upper steps, and steps and gradients between two refreshes |
    | η = κN^{−3/2}, 1 − β = 1/N | `step_size`, `momentum` |
    | Q = ⌈(C/2μ_J)·ln N⌉ | `terms` of the Neumann series |
    | R_0 | `radius` of the first stage of `StagedSGD(N, R_0)` |
    """

    steps: int
    period: int
    kappa: float
    radius: float
    condition: float

    @property
    def step_size(self) -> float:
        return self.kappa * self.period**-1.5

    @property
    def momentum(self) -> float:
        return 1 - 1 / self.period

    @property
    def terms(self) -> int:
        return max(1, math.ceil(self.condition / 2 * math.log(self.period)))

    @property
    def calls(self) -> int:
        """T(Q + 3) + N: the most oracle calls that a run takes with an estimator of at most Q + 2 calls. The default of
        `as_solver` takes more, because it estimates the Hessian's diagonal and largest eigenvalue in every step."""
        return self.steps * (self.terms + 3) + self.period

    def as_solver(self, hypergradient: Hypergradient | None = None) -> UniBiO:
        """UniBiO with these numbers. The default estimator is a Neumann series of Q terms with the Hessian's diagonal;
        Theorem 3 asks of an estimator a bias of order N^{−½} and a bounded variance."""
        series = Neumann(terms=self.terms, preconditioner=Jacobi())
        return UniBiO(
            self.step_size,
            momentum=self.momentum,
            period=self.period,
            lower=StagedSGD(self.period, self.radius),
            hypergradient=series if hypergradient is None else hypergradient,
        )


def schedule_without_p(
    steps: int, *, kappa: float | None = None, radius: float | None = None, condition: float | None = None
) -> ScheduleWithoutP:
    """The schedule for T = `steps` upper steps with N = ⌊√T⌋. It takes Õ(ε^{−4(p−1)}) oracle calls to a mean ‖∇Φ‖ of ε,
    for every p at once.

    Arguments:
        kappa: κ > 0 in the step size κN^{−3/2}. Any κ is right asymptotically.
        radius: R_0, a bound on ‖y − y*(x)‖ at the start and at every refresh.
        condition: C/μ_J ≥ 1.
    """
    return _schedules(steps, kappa, radius, condition)[0]


def grid_without_p(
    steps: int, *, kappa: float | None = None, radius: float | None = None, condition: float | None = None
) -> tuple[ScheduleWithoutP, ...]:
    """Schedules with N = 2^j√T, j = 0, …, ⌈log₂T/6⌉, for `validated`: together they cover the best N for every p ≥ 2,
    and take Õ(ε^{−(3p−2)}) oracle calls. The arguments are those of `schedule_without_p`."""
    return _schedules(steps, kappa, radius, condition)


def _schedules(
    steps: int, kappa: float | None, radius: float | None, condition: float | None
) -> tuple[ScheduleWithoutP, ...]:
    checks.whole_number(
        "steps", steps, low=4, high=10**400, remedy="N = √T must be at least 2, because a stage has two steps."
    )
    checks.number("kappa", kappa, low=0.0, strict=True, remedy=_KAPPA)
    checks.number("radius", radius, low=0.0, strict=True, remedy=_RADIUS)
    checks.number("condition", condition, low=1.0, remedy=_CONDITION)
    numbers = (float(kappa or 0), float(radius or 0), float(condition or 0))  # None was refused above
    last = math.ceil(math.log2(steps) / 6)
    periods = [min(steps, math.isqrt(4**j * steps)) for j in range(last + 1)]
    return tuple(ScheduleWithoutP(steps, n, *numbers) for n in periods)


class Validated(NamedTuple):
    """The best of several runs: its x and y, which plan it was, the norm of each averaged estimate, and the calls of
    all runs and validations."""

    x: PyTree
    y: PyTree
    best: int
    norms: np.ndarray
    calls: Calls


def validated(
    problem: Problem,
    plans: tuple[ScheduleWithoutP, ...],
    x: PyTree,
    y: PyTree,
    key: jax.Array,
    hypergradient: Hypergradient | None = None,
) -> Validated:
    """Runs each plan from (x, y) to a uniformly random one of its T iterates, refreshes y there with T gradients,
    averages T estimates of ∇Φ, and returns the iterate where that average is smallest. The choice needs no p."""
    problem, x, y = prepare(problem, x, y)
    ends, norms, calls = [], [], Calls()
    for j, plan in enumerate(plans):
        key_length, key_run, key_lower, key_hyper = jax.random.split(jax.random.fold_in(key, j), 4)
        length = int(jax.random.randint(key_length, (), 0, plan.steps))
        solver = plan.as_solver(hypergradient)
        result = solve(problem, solver, x, y, steps=length, key=key_run)
        lower, method = StagedSGD(plan.steps, plan.radius), solver.hypergradient
        end, mean, more = _estimate(problem, lower, method, result.x, result.y, key_lower, key_hyper, plan.steps)
        ends.append((result.x, end))
        norms.append(float(tree.norm(mean)))
        calls = Calls(*(int(a) + int(b) + int(c) for a, b, c in zip(calls, result.calls, more, strict=True)))
    best = int(np.argmin(norms))
    return Validated(*ends[best], best, np.asarray(norms), calls)


@jax.jit(static_argnames="count")
def _estimate(
    problem: Problem,
    lower: StagedSGD,
    method: Hypergradient,
    x: PyTree,
    y: PyTree,
    key_lower: jax.Array,
    key: jax.Array,
    count: int,
) -> tuple[PyTree, PyTree, Calls]:
    """y after a refresh, the mean of `count` estimates there, and the calls."""
    y, calls = refresh(lower, problem, x, y, key_lower)

    def add(t: jax.Array, carry: tuple[PyTree, Calls]) -> tuple[PyTree, Calls]:
        estimate, info = method(problem, x, y, jax.random.fold_in(key, t))
        return tree.axpy(1 / count, estimate, carry[0]), carry[1].plus(info.calls)

    mean, calls = jax.lax.fori_loop(0, count, add, (tree.zeros_like(x), calls.plus(Calls())))
    return y, mean, calls


def log_distance(
    p: float, mu: float, G: float, sigma: float, radius: float, log_steps: float, log_events: float
) -> float:
    """log of Theorem 1's bound on ‖y_K − y*‖ after N = e^log_steps gradients in at most K = ½log₂N + 2 stages.

    `G` is log sup‖∇g‖ on B(y_0, 2R_0), `log_events` is log(1/δ) for the failure probability δ.
    """
    log_K = math.log(log_steps / (2 * math.log(2)) + 2)
    # The steps of a stage are a whole number, ⌊N/K⌋ ≥ N/K − 1.
    share = math.exp(min(log_steps - log_K, 50.0))
    log_stage = log_steps - log_K if share > 1e15 else log(math.floor(share))
    level = math.log(3) + log_K + log_events
    noise = log(sigma)
    tail = math.log1p(level * math.exp(-log_stage)) / 2
    log_A = log_sum(1.5 * math.log(2) + log_sum(G, noise + tail), math.log(2) + noise + math.log(3 * level) / 2)
    growth = (math.log(13 / 8) / p) + (math.log(2 * p / mu) + log_A - log_stage / 2) / (p - 1)
    return max(math.log(radius / 2) - log_steps / 2, growth)


def log_mean_gradient(
    c: Constants, log_T: float, log_N: float, *, delta: float = 0.1, kappa: float = 1.0, radius: float = 2.0
) -> float:
    """log of Theorem 3's bound on the mean of ‖∇Φ(x_t)‖ over T steps with a period of N, the step size κN^{−3/2} and
    stages from the radius R_0. Infinite where R_0 is less than what the theorem asks for."""
    p, log_eta = c.p, math.log(kappa) - 1.5 * log_N
    terms = max(1, math.ceil(c.C / c.mu_J / 2 * log_N))
    log_sigma, log_lipschitz = c.log_sigma_1(terms), math.log(c.L_phi2)
    events = log_sum(log_T - log_N, 0.0) - math.log(delta)
    lower = log_distance(p, c.mu, gradient_bound(c, 1.5 * radius), c.sigma_g1, radius, log_N, events)
    drift = log(c.l_p) + (log_N + log_eta) / (p - 1)
    if log_sum(lower, drift) > math.log(radius):
        return math.inf
    bias = log(c.l_g1) + log(c.l_f0) - math.log(c.mu_J) - log_N / 2 if c.mu_J < c.C else -math.inf
    return log_sum(
        math.log(c.delta_phi) - log_T - log_eta,
        math.log(2) + log_sigma + log_sum(log_N - log_T, -log_N / 2),
        math.log(2) + bias,
        math.log(2) + log_lipschitz + lower,
        math.log(5) + log_lipschitz + drift,
        math.log(2.5) + log_lipschitz + log_N + log_eta,
    )


def complexity_without_p(
    c: Constants, epsilon: float, delta: float = 0.1, *, grid: bool = False, kappa: float = 1.0, radius: float = 2.0
) -> tuple[float, float]:
    """(log T, log of all oracle calls) at which Theorem 3's bound is ε: with N = √T, or with the grid, whose best N is
    T^{2(p−1)/(3p−2)} and which makes every run and validation, each counted with the Q of the best N, and the error of
    the choice among them left out: an order of magnitude. It needs p and tells what not knowing p costs; the
    schedule itself does not use it. Both are infinite where the variance of the Neumann series outgrows its bias."""
    checks.number("epsilon", epsilon, low=0.0, strict=True)
    share = 2 * (c.p - 1) / (3 * c.p - 2) if grid else 0.5

    def enough(log_N: float) -> bool:
        bound = log_mean_gradient(c, log_N / share, log_N, delta=delta, kappa=kappa, radius=radius)
        return bound <= math.log(epsilon)

    low, high = math.log(4), math.log(8)
    while not enough(high):
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf, math.inf
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    log_T, terms = high / share, max(1, math.ceil(c.C / c.mu_J / 2 * high))
    log_total = log_sum(log_T + math.log(terms + 3), high)
    if grid:  # every run is followed by a refresh of T gradients and T estimates
        runs = math.ceil(log_T / math.log(2) / 6) + 1
        log_total = math.log(runs) + log_sum(log_total, log_T, log_T + math.log(terms + 1))
    return log_T, log_total
