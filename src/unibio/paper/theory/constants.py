"""The constants of the paper's assumptions as one object, what follows from them, and their values for the paper's
examples. The proofs are in docs/theory.md."""

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike

from unibio.core import checks
from unibio.paper.theory.moduli import holder_constant, log, log_sum, modulus, monotonicity, smoothness


@dataclasses.dataclass(frozen=True)
class Constants:
    """The constants of the paper's assumptions: (i)–(vi) on g, (i)–(iv) on f, and those on the noise.

    | field | meaning |
    |---|---|
    | p, mu, m | order and modulus of uniform convexity; modulus of monotonicity (2μ/p if left out) |
    | mu_J, C | smallest singular value and norm of the generalised Hessian d∇_y g/dz |
    | L0, L1 | ‖∇²_yy g‖ ≤ L0 + L1‖∇_y g‖ |
    | l_g1, l_g2 | ∇_y g is l_g1-Lipschitz in x; ∇²_xy g and d∇_y g/dz are l_g2-Lipschitz |
    | l_f0, l_f1 | ‖df/dz‖ ≤ l_f0; ∇_x f and df/dz are l_f1-Lipschitz |
    | sigma_f | standard deviation of the noise of ∇_x f and of df/dz |
    | sigma_g1 | the same of ∇_y g, whose error e has the light tail E exp(‖e‖²/sigma_g1²) ≤ exp(1) |
    | sigma_g2 | the same of ∇²_xy g and of d∇_y g/dz |
    | delta_phi | Φ(x_0) − inf Φ |

    Here z is the coordinate sign(y − a0)|y − a0|^(p−1) around the shift a0. μ, m and μ_J are three different numbers,
    although the paper writes μ for all of them.
    """

    p: float
    mu: float
    mu_J: float
    C: float
    L0: float
    L1: float
    l_g1: float
    l_g2: float
    l_f0: float
    l_f1: float
    delta_phi: float
    sigma_f: float = 0.0
    sigma_g1: float = 0.0
    sigma_g2: float = 0.0
    m: float | None = None

    def __post_init__(self) -> None:
        checks.number("p", self.p, low=2.0)
        for name in ("mu", "mu_J", "C", "L0", "delta_phi"):
            checks.number(name, getattr(self, name), low=0.0, strict=True)
        for name in ("L1", "l_g1", "l_g2", "l_f0", "l_f1", "sigma_f", "sigma_g1", "sigma_g2"):
            checks.number(name, getattr(self, name), low=0.0)
        if self.mu_J > self.C:
            raise ValueError(
                f"mu_J = {self.mu_J} is the smallest and C = {self.C} the largest singular value of one matrix, so "
                "mu_J ≤ C must hold."
            )
        if self.m is None:
            object.__setattr__(self, "m", 2 * self.mu / self.p)
        checks.number("m", self.m, low=0.0, strict=True)
        if self.m < 2 * self.mu / self.p * (1 - 1e-12):  # type: ignore[operator]
            raise ValueError(
                f"m = {self.m} is too small for mu = {self.mu}: adding the inequality of uniform convexity at (a, b) "
                f"to that at (b, a) gives m ≥ 2·mu/p = {2 * self.mu / self.p:g}. Leave m out to take this value, raise "
                "m, or lower mu."
            )
        if self.p == 2 and self.mu > self.L0:
            raise ValueError(
                f"mu = {self.mu} exceeds L0 = {self.L0}: for p = 2 the eigenvalues of the Hessian at a minimiser lie "
                "between mu and L0."
            )

    @property
    def l_p(self) -> float:
        """The Hölder constant of the lower solution, ‖y*(x) − y*(x')‖ ≤ l_p‖x − x'‖^{1/(p−1)}.

        It is (l_g1/m)^{1/(p−1)}, which is at most (p·l_g1/(2μ))^{1/(p−1)}.
        """
        return holder_constant(self.p, self.p * self.m / 2, self.l_g1)  # type: ignore[operator]

    @property
    def L_phi2(self) -> float:
        """The Lipschitz constant in y of the hypergradient formula h(x, y), which is ∇Φ(x) at y = y*(x)."""
        bound = (
            self.l_f1
            + self.l_f0 * self.l_g2 / self.mu_J
            + self.l_g1 * self.l_f1 / self.mu_J
            + self.l_g1 * self.l_f0 * self.l_g2 / self.mu_J / self.mu_J
        )
        if not math.isfinite(bound):
            raise ValueError(
                f"mu_J = {self.mu_J} is so small that L_φ2, which grows like 1/mu_J², is larger than any float."
            )
        return bound

    @property
    def L_phi1(self) -> float:
        """The Hölder constant of ∇Φ, ‖∇Φ(x) − ∇Φ(x')‖ ≤ L_φ1‖x − x'‖^{1/(p−1)} + L_φ2‖x − x'‖."""
        return self.l_p * self.L_phi2

    def log_sigma_1(self, terms: int) -> float:
        """log σ_1, where σ_1² bounds the variance of a hypergradient by a Neumann series of Q = `terms` terms.

        It holds for the forms `Independent` and `Horner` of the series if the generalised Hessian J is symmetric. The
        proof: for a sample ζ, E‖(I − J(ζ)/C)u‖² ≤ ρ‖u‖² with ρ = (1 − μ_J/C)² + σ_g2²/C², so by Minkowski the series
        applied to b is at most Σ_{q<Q} ρ^{q/2}‖b‖ in mean square. Without any noise σ_1 = 0, and the result is −∞.
        """
        checks.whole_number("terms", terms, low=1, high=10**400)  # of a schedule, which may be astronomical
        if self.sigma_f == self.sigma_g2 == 0:
            return -math.inf
        log_root = math.log(math.hypot(1 - self.mu_J / self.C, self.sigma_g2 / self.C) or 1e-300)  # log ρ / 2
        log_growth = (
            log(math.hypot(self.l_g1, self.sigma_g2)) + log(math.hypot(self.l_f0, self.sigma_f)) - math.log(self.C)
        )
        series = 2 * (log_growth + _log_geometric(log_root, terms))
        return (math.log(2) + log_sum(2 * log(self.sigma_f), series)) / 2

    def sigma_1(self, terms: int) -> float:
        """σ_1 itself, infinite where it is larger than any float."""
        value = self.log_sigma_1(terms)
        return math.exp(value) if value < 709 else math.inf


def _log_geometric(log_ratio: float, terms: int) -> float:
    """log Σ_{q<terms} e^{q·log_ratio} in closed form, because the number of terms may be astronomical."""
    if abs(log_ratio) * terms < 1e-9:
        return math.log(terms)
    if log_ratio < 0:
        return math.log(-math.expm1(terms * log_ratio)) - math.log(-math.expm1(log_ratio))
    return (terms - 1) * log_ratio + _log_geometric(-log_ratio, terms)


def example3_constants(p: float, dim: int = 1, **noise: float) -> Constants:
    """The constants of Example 3, f = Σ sin(clip(z_i)), in `dim` uncoupled dimensions.

    `noise` is given as sigma_f=…, sigma_g1=…, sigma_g2=…. For Gaussian noise of variance v on ∇_y g, the light tail
    needs sigma_g1² = 2v/(1 − e^{−2}).
    """
    checks.whole_number("dim", dim, low=1)
    return _sine_constants(p, dim, 1.0, 1.0, dim * math.sin(1.0), noise)


def example4_constants(p: float, dim: int = 1, **noise: float) -> Constants:
    """The constants of Example 4, f = Σ z_i. With p = 4 and dim = 1 it is Example 1. As df/dz is constant, l_f1 = 0."""
    uncoupled = example3_constants(p, dim, **noise)
    return dataclasses.replace(uncoupled, l_f1=0.0, delta_phi=2.0 * dim)


def coupled_example3_constants(p: float, coupling: ArrayLike, **noise: float) -> Constants:
    """The constants of Example 3 with its coordinates coupled by a matrix B = `coupling`.

    The problem is g = ‖y‖_p^p/p − yᵀB sin x and f = Σ_i f_3(y_i), where f_3 is the f of Example 3. Its generalised
    Hessian d∇_y g/dz is the identity, so μ_J = C = 1. As functions of x, ∇_y g depends on B sin x alone and ∇²_xy g on
    B diag(cos x), so l_g1 = l_g2 = ‖B‖; and |(B sin x)_i| ≤ ‖B_i‖_1, the sum of absolute values in row i. df/dz = cos z
    has the slope (p−1)|y|^{p−2} sin|z| in y, which is largest at the clip |z| = π/2 and gives l_f1.
    """
    coupling = np.atleast_2d(np.asarray(coupling, float))
    if coupling.ndim != 2 or not np.isfinite(coupling).all() or not coupling.any():
        raise ValueError(f"coupling must be a finite matrix other than 0; got {coupling!r}.")
    largest = np.abs(coupling).sum(axis=1)
    reach = float(np.sin(np.minimum(largest, math.pi / 2)).sum())
    norm = float(np.linalg.norm(coupling, 2))
    return _sine_constants(p, coupling.shape[0], norm, float(largest.max()), reach, noise)


def _sine_constants(
    p: float, dim: int, norm: float, largest: float, reach: float, noise: dict[str, float]
) -> Constants:
    """The constants of the coupled Example 3 for ‖B‖ = `norm`, |(B sin x)_i| ≤ `largest` and |Φ| ≤ `reach`."""
    L0, L1 = smoothness(p, largest)
    return Constants(
        p=p,
        mu=modulus(p, dim),
        m=monotonicity(p, dim),
        mu_J=1.0,
        C=1.0,
        L0=L0,
        L1=L1,
        l_g1=norm,
        l_g2=norm,
        l_f0=math.sqrt(dim),
        l_f1=(p - 1) * (math.pi / 2) ** ((p - 2) / (p - 1)),
        delta_phi=2.0 * reach,
        **noise,
    )
