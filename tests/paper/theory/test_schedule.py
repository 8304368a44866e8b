"""Schedules: powers of ε, no overflow, and refusing what cannot be run."""

import dataclasses
import math

import numpy as np
import pytest

import unibio as ub
from unibio.paper import theory

LOG10 = math.log(10)


def noisy(p, **others):
    return theory.example3_constants(p, sigma_f=1.0, sigma_g1=1.0, **others)


@pytest.mark.parametrize("p", [2.0, 3.0, 4.0, 6.0, 8.0])
@pytest.mark.parametrize(
    ("analysis", "steps", "total"),
    [("paper", lambda p: 3 * p - 2, lambda p: 5 * p - 6), ("sharp", lambda p: p + 2, lambda p: 3 * p - 2)],
)
def test_exponents(p, analysis, steps, total):
    grid = np.logspace(-3, -1, 9)
    plans = [theory.schedule(noisy(p), eps, 0.1, analysis, iota=1.0) for eps in grid]
    slope = lambda values: np.polyfit(np.log(grid), values, 1)[0]
    assert slope([plan.log_T for plan in plans]) == pytest.approx(-steps(p), abs=1e-3)
    assert slope([plan.log_total for plan in plans]) == pytest.approx(-total(p), abs=1e-3)


def test_nothing_overflows():
    for analysis in ("paper", "sharp"):
        plan = theory.schedule(noisy(20.0), 1e-6, 0.01, analysis)
        assert math.isfinite(plan.log_total)
        assert plan.log_total > 700  # more than a float can hold
        assert all("inf" not in value and "nan" not in value for _, _, value in plan.rows())


def test_the_sharp_analysis_never_asks_for_more_and_agrees_at_p_2():
    for p in (2.0, 2.5, 4.0, 8.0):
        paper, sharp = (theory.schedule(noisy(p), 0.05, 0.1, analysis) for analysis in ("paper", "sharp"))
        if p == 2:
            assert sharp.log_total == pytest.approx(paper.log_total)
        else:
            assert sharp.log_total < paper.log_total
    # the sizes for Example 3 at ε = .1, one per order in the docs
    sizes = [round(theory.schedule(noisy(p), 0.1).log_total / LOG10) for p in (2.0, 4.0, 6.0, 8.0)]
    assert sizes == [17, 52, 89, 126]


def test_iota_is_at_its_fixed_point():
    plan = theory.schedule(noisy(4.0), 0.1, 0.05)
    expected = math.log(2 / 0.05) + plan.log_T + math.log(plan.epochs)
    assert math.exp(plan.log_iota) == pytest.approx(expected, rel=1e-12)


def test_the_bounds_of_the_theorem_add_up_to_epsilon():
    """With the schedule's numbers, the right-hand side of the main theorem is at most ε, term by term and in sum."""
    for p in (2.0, 3.0, 4.0, 6.0):
        for analysis in ("paper", "sharp"):
            c = noisy(p)
            plan = theory.schedule(c, 0.1, 0.1, analysis)
            eta, rest = plan.log_eta, plan.log_one_minus_beta
            power = lambda log, p=p: math.exp(log / (p - 1))
            first = math.exp(math.log(c.delta_phi) - plan.log_T - eta)
            curvature = (p - 1) / p * c.L_phi1 * power(eta) + c.L_phi2 / 2 * math.exp(eta)
            start = 2 * plan.sigma_1 * math.exp(-plan.log_T - rest)
            noise = 2 * math.exp(rest / 2) * plan.sigma_1
            lower = 2 * c.L_phi2 * min(0.1 / (4 * c.L_phi2), 1 / c.L1 if c.L1 else math.inf)
            if analysis == "paper":
                lag = 2 * (c.L_phi1 * power(eta - (p - 1) * rest) + c.L_phi2 * math.exp(eta - rest))
            else:
                lag = 2 * (c.L_phi1 * power(eta - rest) + c.L_phi2 * math.exp(eta - rest))
            bias = 2 * c.l_g1 * c.l_f0 / c.mu_J * (1 - c.mu_J / c.C) ** plan.terms
            assert first + curvature + start + noise + lower + lag + bias <= 0.1
            assert start <= 0.1 / 20 * (1 + 1e-9)


def test_the_first_estimate_is_forgotten():
    """A tiny Δ_φ must not make T so short that the first estimate's noise counts."""
    c = theory.Constants(
        p=2.0, mu=1.0, mu_J=1.0, C=1.0, L0=1.0, L1=0.0, l_g1=0.01, l_g2=0.01, l_f0=0.01, l_f1=1.0, delta_phi=1e-4,
        sigma_f=10.0,
    )  # fmt: skip
    plan = theory.schedule(c, 0.01, 0.1, "sharp")
    assert 2 * plan.sigma_1 * math.exp(-plan.log_one_minus_beta - plan.log_T) <= 0.01 / 20 * (1 + 1e-9)


EXTREME = {
    "growing series": {"mu_J": 0.01, "sigma_g2": 10.0},
    "endless series": {"mu_J": 1e-9},
    "no gap": {"delta_phi": 1e-60},
    "no coupling": {"l_g1": 0.0},
    "loud": {"sigma_f": 1e200, "sigma_g1": 1e200},
}


@pytest.mark.parametrize("change", EXTREME.values(), ids=EXTREME)
def test_extreme_constants(change):
    for analysis in ("paper", "sharp"):
        plan = theory.schedule(dataclasses.replace(noisy(4.0), **change), 0.1, 0.1, analysis)
        assert math.isfinite(plan.log_total)
        assert plan.log_T >= 0
        assert all("nan" not in value and "inf" not in value for _, _, value in plan.rows())


def test_a_small_one_becomes_a_solver():
    """p = 2, no noise, a large ε: the theorem's own numbers as a solver."""
    c = theory.example3_constants(2.0)  # no noise
    plan = theory.schedule(c, 1.5, 0.1, "sharp")
    solver, steps = plan.as_solver(ub.UniBiO, max_total_calls=1e11)
    assert isinstance(solver, ub.UniBiO)
    assert steps == math.ceil(math.exp(plan.log_T))
    assert isinstance(solver.hypergradient, ub.Neumann)
    assert isinstance(solver.lower, ub.EpochSGD)
    assert solver.hypergradient.terms == plan.terms
    assert solver.lower.steps >= solver.lower.first_epoch


def test_an_infeasible_one_is_refused_with_its_numbers():
    plan = theory.schedule(noisy(4.0), 0.1)
    with pytest.raises(ValueError, match=r"takes 1\.\d+e\+52 oracle calls.*more than max_total_calls = 1e\+09"):
        plan.as_solver(ub.UniBiO)


def test_neumann_terms():
    c = theory.Constants(
        p=2.0, mu=0.1, mu_J=0.1, C=1.0, L0=1.0, L1=0.0, l_g1=1.0, l_g2=1.0, l_f0=1.0, l_f1=1.0, delta_phi=1.0
    )
    plan = theory.schedule(c, 0.1)
    bias = c.l_g1 * c.l_f0 / c.mu_J * (1 - c.mu_J / c.C) ** plan.terms
    assert bias <= 0.1 / 16 < bias / (1 - c.mu_J / c.C)
    assert theory.schedule(theory.example3_constants(4.0), 0.1).terms == 1  # μ_J = C: the series is exact


BAD = {
    "epsilon": (lambda c: theory.schedule(c, 0.0), "epsilon must be finite and > 0"),
    "delta": (lambda c: theory.schedule(c, 0.1, 0.9), r"delta must be finite and > 0 and ≤ 0\.735"),
    "analysis": (lambda c: theory.schedule(c, 0.1, analysis="best"), 'analysis must be "paper" or "sharp"'),
    "iota": (lambda c: theory.schedule(c, 0.1, iota=0.5), "iota must be finite and ≥ 1"),
    "distance": (lambda c: theory.schedule(c, 0.1, distance=-1.0), "distance must be finite and > 0"),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make(noisy(4.0))


GOOD = {"p": 4.0, "mu": 0.3, "mu_J": 0.5, "C": 1.0, "L0": 3.0, "L1": 2.0}
GOOD |= {"l_g1": 1.0, "l_g2": 1.0, "l_f0": 1.0, "l_f1": 1.0, "delta_phi": 1.0}
CONTRADICTIONS = {
    "mu_J > C": ({"mu_J": 2.0}, r"mu_J = 2\.0 is the smallest and C = 1\.0 the largest.*mu_J ≤ C"),
    "m": ({"m": 0.01}, r"m = 0\.01 is too small for mu = 0\.3.*m ≥ 2·mu/p = 0\.15"),
    "mu > L0": ({"p": 2.0, "mu": 5.0}, r"mu = 5\.0 exceeds L0 = 3\.0"),
    "negative": ({"l_f0": -1.0}, "l_f0 must be finite and ≥ 0"),
    "nan": ({"mu": float("nan")}, "mu must be finite and > 0"),
    "p": ({"p": 1.5}, "p must be finite and ≥ 2"),
}


@pytest.mark.parametrize(("change", "message"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_constants_that_contradict_themselves(change, message):
    with pytest.raises(ValueError, match=message):
        theory.Constants(**(GOOD | change))
    theory.Constants(**GOOD)


def test_sigma_1_bounds_the_measured_variance():
    """J = C = 1 in one dimension with Hessian noise: the series has variance Σ σ^{2q}, and the bound must exceed it."""
    for sigma in (0.3, 1.0, 3.0):
        c = theory.example3_constants(4.0, sigma_g2=sigma)
        terms = 6
        exact = sum(sigma ** (2 * q) for q in range(1, terms))  # of v for b = 1; times A² ≤ 1
        assert c.sigma_1(terms) ** 2 >= exact
    assert theory.example3_constants(4.0).sigma_1(5) == 0.0


def test_sigma_1_of_many_terms():
    """The geometric sum at once against its terms one by one."""
    for sigma in (0.0, 0.3, 0.999, 3.0):
        c = theory.Constants(**GOOD, sigma_f=0.4, sigma_g2=sigma)
        rho = 0.25 + sigma**2
        series = sum(rho ** (q / 2) for q in range(7))
        expected = 2 * 0.16 + 2 * (1 + sigma**2) * (1 + 0.16) * series**2
        assert c.sigma_1(7) ** 2 == pytest.approx(expected, rel=1e-9)


def test_what_the_first_estimates_add_to_the_noise():
    """docs/theory.md: the norm of the weights of m_t/(1 − β^{t+1}) exceeds √((1−β)/(1+β)) by at most 1/(1−β) in all."""
    for distance in 10.0 ** -np.arange(0, 5.1, 0.25):
        beta = 1 - distance
        n = np.arange(1, int(40 / distance) + 50)
        q = beta**n
        norms = np.sqrt((1 - beta) / (1 + beta) * (1 + q) / (1 - q))
        assert np.sum(norms - np.sqrt((1 - beta) / (1 + beta))) <= 1 / distance
    beta, weights = 0.8, (1 - 0.8) * 0.8 ** np.arange(6)  # the closed form of the norm, for t = 5
    q = beta**6
    assert np.sum((weights / (1 - q)) ** 2) == pytest.approx((1 - beta) / (1 + beta) * (1 + q) / (1 - q))


def test_a_stretch_that_fits_into_no_bound_is_refused():
    tiny = theory.Constants(
        p=4.0, mu=0.3, mu_J=1e-170, C=1.0, L0=3.0, L1=2.0, l_g1=1.0, l_g2=1.0, l_f0=1.0, l_f1=1.0, delta_phi=1.0
    )
    with pytest.raises(ValueError, match="mu_J = 1e-170 is so small"):
        theory.schedule(tiny, 0.1)
