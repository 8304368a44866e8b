"""Moduli of uniform convexity, of monotonicity and of smoothness for ‖y‖_p^p/p and for ℓ_p regression, for real p ≥ 2.

Uniform convexity, modulus μ:   g(b) ≥ g(a) + ⟨∇g(a), b − a⟩ + (μ/p)‖b − a‖^p
Monotonicity, modulus m:        ⟨∇g(b) − ∇g(a), b − a⟩ ≥ m‖b − a‖^p          m ≥ 2μ/p

"Sharp" means that no larger modulus is valid. The proofs are in docs/theory.md.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from unibio.core import checks


def scalar_modulus(p: float) -> float:
    """c_p, the sharp modulus of uniform convexity of |y|^p/p in one dimension.

    c_p = (1 + t^{p−1})/(1 + t)^{p−1}, where t in (0, 1) solves (p−2)t^{p−1} + (p−1)t^{p−2} = 1, and c_2 = 1. It is
    attained between the points −t and 1, and between all multiples of these. A simple lower bound is 2^{2−p} ≤ c_p.
    """
    checks.number("p", p, low=2.0)
    if p == 2:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(200):  # bisection: the left side of the equation grows from 0 at t = 0 to 2p − 3 > 1 at t = 1
        t = (low + high) / 2
        low, high = (t, high) if (p - 2) * t ** (p - 1) + (p - 1) * t ** (p - 2) < 1 else (low, t)
    return _positive("c_p", math.exp(math.log1p(t ** (p - 1)) - (p - 1) * math.log1p(t)), p)


def _positive(name: str, value: float, p: float, dim: int = 1) -> float:
    if not 0 < value < math.inf:
        raise ValueError(
            f"{name} at p = {p}, dim = {dim} is below 1e-308 or too large for a float: choose a smaller p or dim."
        )
    return value


def modulus(p: float, dim: int = 1) -> float:
    """The sharp modulus μ of uniform convexity of ‖y‖_p^p/p in `dim` dimensions, c_p·dim^{1−p/2}.

    Example:
        >>> round(modulus(4.0), 10), round(modulus(4.0, dim=9), 10)
        (0.3333333333, 0.037037037)
    """
    checks.whole_number("dim", dim, low=1)
    return _positive("modulus", scalar_modulus(p) * float(dim) ** (1 - p / 2), p, dim)


def monotonicity(p: float, dim: int = 1) -> float:
    """The largest m with ⟨∇g(b) − ∇g(a), b − a⟩ ≥ m‖b − a‖^p for all a and b, where g(y) = ‖y‖_p^p/p in `dim`
    dimensions and ‖·‖ is the Euclidean norm. It is m = 2^{2−p}·dim^{1−p/2}; there is equality for b = (1, …, 1) and
    a = −b."""
    checks.number("p", p, low=2.0)
    checks.whole_number("dim", dim, low=1)
    return _positive("monotonicity", 2.0 ** (2 - p) * float(dim) ** (1 - p / 2), p, dim)


def holder_constant(p: float, mu: float, l_g1: float) -> float:
    """l_p = (p·l_g1/(2μ))^{1/(p−1)}, a Hölder constant of y*: ‖y*(x) − y*(x')‖ ≤ l_p‖x − x'‖^{1/(p−1)}.

    μ = `mu` is the modulus of uniform convexity of g, and `l_g1` the Lipschitz constant of ∇_y g in x.
    """
    checks.number("p", p, low=2.0)
    checks.number("mu", mu, low=0.0, strict=True)
    checks.number("l_g1", l_g1, low=0.0)
    return math.exp((math.log(p / 2) + log(l_g1) - math.log(mu)) / (p - 1))


def smoothness(p: float, bound: float = 1.0) -> tuple[float, float]:
    """(L0, L1) with ‖∇²g‖ ≤ L0 + L1‖∇g‖ for g(y) = ‖y‖_p^p/p − ⟨y, b⟩, where |b_i| ≤ `bound`.

    They are L0 = 1 + (p−2)·bound and L1 = p − 2.
    """
    checks.number("p", p, low=2.0)
    checks.number("bound", bound, low=0.0)
    return 1 + (p - 2) * bound, p - 2


class RegressionModuli(NamedTuple):
    """The moduli μ of the data term and of the regulariser of ℓ_p regression. Their sum is a modulus of g."""

    data: float
    regulariser: float


def regression_moduli(features: ArrayLike, logits: ArrayLike, p: float, c: float) -> RegressionModuli:
    """Lower bounds on the two moduli of ℓ_p regression (Example 2), g(w) = mean σ(λ_i)|x_iᵀw − t_i|^p + c‖w‖_p^p.

    X = `features` has n rows x_i with d entries, λ = `logits`, and σ is the logistic function.
    The regulariser has the sharp modulus c·p·c_p·d^{1−p/2}, with c_p = `scalar_modulus(p)`. The data term has the
    modulus p·c_p·min_w ‖Aw‖_p^p/‖w‖_2^p / n with A = diag(σ(λ)^{1/p})X. That minimum is at least n^{1−p/2}·σ_min(A)^p,
    which is what is used; σ_min(A), the smallest singular value of A, is 0 if n < d.
    """
    checks.number("c", c, low=0.0)
    features, logits = np.asarray(features, float), np.asarray(logits, float)
    if features.ndim != 2 or logits.shape != features.shape[:1]:
        raise ValueError(f"features must be (n, d) and logits (n,); got shapes {features.shape} and {logits.shape}.")
    if not (np.isfinite(features).all() and np.isfinite(logits).all()):
        raise ValueError("features and logits must be finite.")
    n, d = features.shape
    weighted = np.exp(-np.logaddexp(0, -logits) / p)[:, None] * features
    least = float(np.linalg.svd(weighted, compute_uv=False)[-1]) if n >= d else 0.0
    data = p * scalar_modulus(p) * n ** (-p / 2) * least**p
    return RegressionModuli(data, c * p * modulus(p, d))


def log(value: float) -> float:
    """The natural logarithm, −∞ at 0."""
    return math.log(value) if value > 0 else -math.inf


def log_sum(*logs: float) -> float:
    """log Σ e^{a_i} without forming e^{a_i}, which may overflow."""
    most = max(logs)
    return most if math.isinf(most) else most + math.log(sum(math.exp(a - most) for a in logs))
