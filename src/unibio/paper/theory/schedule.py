"""The parameters that the paper's main theorem prescribes for an accuracy ε: step sizes, periods and numbers of steps.

Everything is computed in logarithms, because totals such as 1e1000 oracle calls are larger than any float.

There are two analyses, both with the corrected constants. They differ in two bounds: that on the lag of the momentum,
which is an average of past hypergradients, behind ∇Φ(x_t), and that on the drift of y* over a period of I upper steps.
η is the upper step size and β the momentum:

    paper   lag ≤ (L_φ1 η^{1/(p−1)} + L_φ2 η)/(1−β)              drift over a period ≤ I·l_p·η^{1/(p−1)}
    sharp   lag ≤ L_φ1(η/(1−β))^{1/(p−1)} + L_φ2 η/(1−β)          drift over a period ≤ l_p·(Iη)^{1/(p−1)}

The sharp analysis, whose proof is in docs/theory.md, allows η ~ ε^{p+1} instead of the paper's ε^{3p−3}.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from unibio.core import checks
from unibio.core.protocols import BilevelSolver
from unibio.hypergradients.neumann import Neumann
from unibio.lower.epoch_sgd import EpochSGD
from unibio.paper.theory.constants import Constants
from unibio.paper.theory.moduli import log, log_sum

_c1, _C1 = 6.25e-4, 20.0  # the theorem's constants c_1 and C_1; a table in docs/theory.md adds up their shares of ε


@dataclasses.dataclass(frozen=True)
class LowerPlan:
    """The parameters of one call of Epoch-SGD, as natural logarithms. The first symbol in each comment is that of the
    theorem, the second, if it differs, that of the paper's Algorithm 1."""

    log_G: float  # G, the bound on ‖∇_y g‖ within the ball
    log_step: float  # α_1 = γ_1, the step size of the first epoch
    log_first: float  # K_1 = T_1, the steps of the first epoch
    log_steps: float  # K = T, the steps of all epochs
    log_radius: float  # D_1, the radius of the first epoch's ball, as corrected
    log_largest: float  # R, the known bound on the distance from y* at the start


@dataclasses.dataclass(frozen=True)
class Schedule:
    """What the theorem prescribes for an ε-stationary point with probability 1 − δ.

    It is a worst-case bound and not a recommendation. Names with log_ are natural logarithms; `rows()` is a readable
    table of all quantities with their meanings.
    """

    constants: Constants
    epsilon: float
    delta: float
    analysis: str
    log_eta: float
    log_one_minus_beta: float
    log_period: float
    terms: int
    log_sigma_1: float
    log_T: float
    log_iota: float
    epochs: float  # k†
    warm_start: LowerPlan
    refresh: LowerPlan
    log_total: float

    @property
    def sigma_1(self) -> float:
        """The standard deviation of the hypergradient estimate, infinite where it is larger than any float."""
        return self.constants.sigma_1(self.terms)

    def rows(self) -> list[tuple[str, str, str]]:
        """(symbol, meaning, value) for every quantity."""
        c, iota = self.constants, f"{math.exp(self.log_iota):.4g}, {self.epochs:.0f}"
        plain = [
            ("ε, δ", "accuracy, failure probability", f"{self.epsilon:g}, {self.delta:g}"),
            ("L_φ1, L_φ2", "Hölder and Lipschitz constants of ∇Φ", f"{c.L_phi1:.4g}, {c.L_phi2:.4g}"),
            ("σ_1", "standard deviation of the hypergradient estimate", power_of_ten(self.log_sigma_1)),
            ("Q", "terms of the Neumann series", str(self.terms)),
            ("1 − β", "1 − momentum", power_of_ten(self.log_one_minus_beta)),
            ("η", "upper step", power_of_ten(self.log_eta)),
            ("I", "upper steps between refreshes of y", power_of_ten(self.log_period)),
            ("T", "upper steps", power_of_ten(self.log_T)),
            ("ι, k†", "log(2/δ̃) and epochs of a refresh, at their fixed point", iota),
        ]
        for name, plan in (("warm start", self.warm_start), ("refresh", self.refresh)):
            ball = f"{power_of_ten(plan.log_G)}, {power_of_ten(plan.log_largest)}"
            steps = ", ".join(power_of_ten(v) for v in (plan.log_step, plan.log_first, plan.log_steps))
            plain.append(("G, R", f"{name}: bound on ‖∇_y g‖, radius of the ball", ball))
            plain.append(("α_1, K_1, K", f"{name}: step size, steps of the first epoch, steps in all", steps))
        return [*plain, ("total", "oracle calls", power_of_ten(self.log_total))]

    def as_solver(self, solver: Callable[..., BilevelSolver], max_total_calls: float = 1e9) -> tuple[Any, int]:
        """The solver with these numbers, and its number T of upper steps.

        `solver` is the class `UniBiO`. A schedule that takes more than `max_total_calls` oracle calls is refused with a
        ValueError that states its size.
        """
        checks.number("max_total_calls", max_total_calls, low=1.0)
        if self.log_total > math.log(max_total_calls):
            raise ValueError(
                f"this schedule takes {power_of_ten(self.log_total)} oracle calls (T = {power_of_ten(self.log_T)} "
                f"upper steps, {power_of_ten(self.refresh.log_steps)} lower steps per refresh), more than "
                f"max_total_calls = {max_total_calls:g}. It is a worst-case bound: tune the step sizes instead, or "
                "raise epsilon."
            )
        made = solver(
            step_size=math.exp(self.log_eta),
            momentum=-math.expm1(self.log_one_minus_beta),
            period=max(1, math.floor(math.exp(self.log_period))),
            lower=_epoch_sgd(self.refresh),
            warm_start=_epoch_sgd(self.warm_start),
            hypergradient=Neumann(terms=self.terms, scale=self.constants.C),
        )
        return made, math.ceil(math.exp(self.log_T))


def schedule(
    constants: Constants,
    epsilon: float,
    delta: float = 0.1,
    analysis: str = "paper",
    *,
    distance: float = 1.0,
    iota: float | None = None,
) -> Schedule:
    """The theorem's parameters for (1/T)Σ E‖∇Φ(x_t)‖ ≤ epsilon with probability 1 − delta.

    Q and σ_1 are proven only where the generalised Hessian d∇_y g/dz is symmetric, for example where it is diagonal.

    Arguments:
        analysis: "paper" (Õ(ε^{−(5p−6)}) oracle calls in total) or "sharp" (Õ(ε^{−(3p−2)})).
        distance: a bound on ‖y_0 − y*(x_0)‖.
        iota: a value for ι in place of log(2/δ̃), where δ̃ is delta divided by the T steps and the epochs of a refresh.
            With 1 the result shows the powers of ε alone.
    """
    if not isinstance(constants, Constants):
        raise TypeError(
            f"constants must be theory.Constants(…), e.g. theory.example3_constants(4.0); got {constants!r}."
        )
    checks.number("epsilon", epsilon, low=0.0, strict=True)
    checks.number("delta", delta, low=0.0, high=2 / math.e, strict=True, remedy="ι = log(2/δ̃) ≥ 1 needs δ ≤ 2/e.")
    checks.number("distance", distance, low=0.0, strict=True)
    if iota is not None:
        checks.number("iota", iota, low=1.0)
    if analysis not in ("paper", "sharp"):
        raise ValueError(f'analysis must be "paper" or "sharp"; got {analysis!r}.')
    c, p = constants, constants.p
    terms = neumann_terms(c, epsilon)
    if c.L_phi2 == 0:
        raise ValueError(
            "l_f1 and l_f0·l_g2 are 0, so the hypergradient does not depend on y: the lower level needs no schedule."
        )
    log_sigma_1 = c.log_sigma_1(terms)
    log_momentum = min(0.0, math.log(_c1) + 2 * math.log(epsilon) - 2 * log_sigma_1)
    log_period = -log_momentum
    log_eta = _log_eta(c, epsilon, analysis, log_momentum)
    log_T = max(
        0.0,
        math.log(_C1) + math.log(c.delta_phi) - log_eta - math.log(epsilon),
        # enough steps for the noise of the first estimates, which few others average out yet, not to count
        math.log(2 * _C1) + log_sigma_1 - log_momentum - math.log(epsilon),
    )
    radius = _lower_target(c, epsilon)
    log_iota = math.log(math.log(2 / delta) + 1 if iota is None else iota)
    for _ in range(60):  # ι and k† depend on each other only through logarithms, so this converges in a few rounds
        warm = _lower_plan(c, distance, radius / 2, log_iota)
        refresh = _lower_plan(c, radius, radius / 2, log_iota)
        growth = max(plan.log_steps - plan.log_first for plan in (warm, refresh))
        epochs = max(1.0, math.floor(growth / (2 * (p - 1) / p * math.log(2)) + 1))
        if iota is None:
            log_iota = math.log(math.log(2 / delta) + log_T + math.log(epochs))
    log_refreshes = log_sum(log_T - log_period, 0.0)
    log_total = log_sum(log_T + math.log(terms + 1), warm.log_steps, log_refreshes + refresh.log_steps)
    return Schedule(
        c, epsilon, delta, analysis, log_eta, log_momentum, log_period, terms, log_sigma_1, log_T, log_iota, epochs,
        warm, refresh, log_total,
    )  # fmt: skip


def neumann_terms(c: Constants, epsilon: float) -> int:
    """The number of terms of the Neumann series, Q = max(1, ⌈ln(μ_J ε/(16 l_g1 l_f0))/ln(1 − μ_J/C)⌉).

    It is 1 where one term is exact (μ_J = C), and where the series is multiplied by 0 (l_g1·l_f0 = 0).
    """
    if c.mu_J == c.C or c.l_g1 * c.l_f0 == 0:
        return 1
    return max(1, math.ceil(math.log(c.mu_J * epsilon / (16 * c.l_g1 * c.l_f0)) / math.log1p(-c.mu_J / c.C)))


def _lower_target(c: Constants, epsilon: float) -> float:
    """The distance from y* within which y must stay at all times, min{ε/(4L_φ2), 1/L1}."""
    return min(epsilon / (4 * c.L_phi2), math.inf if c.L1 == 0 else 1 / c.L1)


def _log_eta(c: Constants, epsilon: float, analysis: str, log_momentum: float) -> float:
    """log η, the largest upper step size that two bounds allow.

    The first bound keeps the lag of the momentum and the curvature of Φ small, the second the drift of y* over a
    period. The theorem's other bounds on η follow from these, because 1 − β ≤ 1 and L_φ1 = l_p·L_φ2.
    """
    p, log_epsilon = c.p, math.log(epsilon)
    log_c2 = math.log(0.1 / 5.5) if p == 2 else (p - 1) * math.log(0.1 / 3.5)
    log_target = math.log(_lower_target(c, epsilon) / 2)
    if analysis == "paper":
        holder = (p - 1) * (log_epsilon + (log_momentum - log(c.L_phi1)))
        drift = (p - 1) * (log_momentum - log(c.l_p) + log_target)
    else:
        holder = log_momentum + (p - 1) * (log_epsilon - log(c.L_phi1))
        drift = log_momentum + (p - 1) * (log_target - log(c.l_p))
    lipschitz = log_momentum + log_epsilon - math.log(c.L_phi2)
    return min(log_c2 + min(holder, lipschitz), drift)


def _lower_plan(c: Constants, radius: float, target: float, log_iota: float) -> LowerPlan:
    """The parameters with which Epoch-SGD goes from within `radius` of y* to within `target`."""
    p = c.p
    log_G = gradient_bound(c, radius)
    log_both = log_sum(2 * log_G, 2 * log(c.sigma_g1))
    reach = (math.log(p / c.mu) + log_G) / (p - 1)
    log_step = log_G + reach - math.log(24) - log_both
    log_first = math.log(3600) + log_both - 2 * log_G
    # Rounding k† down to a whole number costs a factor of 2 in the gap, which is 2^{1/p} in the distance. The paper's
    # factor ι in the gap is therefore ι^{1/p} in the distance.
    log_steps = (
        math.log(3600) + log_both + 2 * math.log(p / c.mu) + 2 * (p - 1) / p * (math.log(2) + log_iota)
        - 2 * (p - 1) * math.log(target)
    )  # fmt: skip
    return LowerPlan(log_G, log_step, log_first, max(log_steps, log_first), reach + log_iota / p, math.log(radius))


def gradient_bound(c: Constants, radius: float) -> float:
    """log G, where G = (L0/L1)(e^{2·L1·R} − 1) bounds ‖∇_y g‖ within 2R of y*. For L1 → 0 it tends to 2·L0·R."""
    reach = 2 * c.L1 * radius
    if reach < 1e-12:
        return math.log(2 * c.L0 * radius)
    return math.log(c.L0 / c.L1) + (reach + math.log1p(-math.exp(-reach)) if reach > 1 else math.log(math.expm1(reach)))


def _epoch_sgd(plan: LowerPlan) -> EpochSGD:
    return EpochSGD(
        steps=math.ceil(math.exp(plan.log_steps)),
        step_size=math.exp(plan.log_step),
        first_epoch=max(2.0, math.exp(plan.log_first)),
        radius=math.exp(plan.log_radius),
        largest_radius=math.exp(plan.log_largest),
    )


def power_of_ten(logarithm: float) -> str:
    """e^logarithm in decimal notation, such as 1.62e+52. It may be larger than any float."""
    if math.isinf(logarithm):
        return "0" if logarithm < 0 else "inf"
    if -7 < logarithm < 14:
        return f"{math.exp(logarithm):.4g}"
    exponent = math.floor(logarithm / math.log(10))
    mantissa = f"{math.exp(logarithm - exponent * math.log(10)):.2f}"
    return f"{mantissa}e{exponent:+d}" if mantissa != "10.00" else f"1.00e{exponent + 1:+d}"
