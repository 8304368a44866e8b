"""docs/without_p.md: every inequality of its proofs on random instances, its theorems on runs, and the schedule."""

import dataclasses
import math

import jax
import numpy as np
import pytest

import unibio as ub
from unibio.paper import theory
from unibio.paper.theory import without_p

RNG = np.random.default_rng(0)
KEY = jax.random.key(0)


def adagrad(gradients, start, radius):
    """The points w_1 … w_n of a stage on given gradients, in plain numpy."""
    w, square, points = start, 0.0, []
    for s in gradients:
        points.append(w)
        square += s @ s
        w = w - (math.sqrt(2) * radius / math.sqrt(square) * s if square > 0 else 0)
        offset = w - start
        w = start + offset * min(1.0, radius / max(np.linalg.norm(offset), 1e-300))
    return np.array(points)


def test_a_regret():
    """(a) Σ⟨s_t, w_t − u⟩ ≤ 2√2·R√S in the ball and (5√2/4)·R√S at its centre, for any gradients: random, and the ones
    that do most harm, s_t along w_t − u with changing sizes."""
    shares = []
    for trial in range(300):
        d, n, radius = RNG.integers(1, 6), RNG.integers(1, 60), 10 ** RNG.uniform(-2, 2)
        start, u = RNG.normal(size=d), RNG.normal(size=d)
        u = start + u / np.linalg.norm(u) * radius * (1 if trial % 3 else 0)
        sizes = 10 ** RNG.uniform(-3, 3, size=n) if trial % 2 else np.ones(n)
        gradients, points = RNG.normal(size=(n, d)) * sizes[:, None], np.array([start])
        if trial % 5 == 0:  # chosen against the algorithm
            gradients = np.zeros((n, d))
            for t in range(n):
                points = adagrad(gradients[: t + 1], start, radius)
                away = points[t] - u
                gradients[t] = sizes[t] * (away if np.linalg.norm(away) > 0 else RNG.normal(size=d))
        points = adagrad(gradients, start, radius)
        regret = np.sum(gradients * (points - u))
        limit = (2 * math.sqrt(2) if trial % 3 else 5 * math.sqrt(2) / 4) * radius * np.linalg.norm(gradients)
        assert regret <= limit * (1 + 1e-12)
        shares.append(regret / limit)
    assert max(shares) > 0.4  # the bound is not idle


def test_c_moments():
    """(c) e^x ≤ x + e^{9x²/16}; and E e^{λX} ≤ e^{3λ²c²/4} where E X = 0 and E exp(X²/c²) = e: for X of two values, and
    for Gaussian X."""
    x = np.linspace(-40, 40, 400_001)
    assert np.all(x + np.exp(np.minimum(9 * x**2 / 16, 700)) - np.exp(x) >= -1e-12)
    for share in np.linspace(0.01, 0.99, 99):  # X = a with probability 1 − share, −b with probability share
        a, b = share, 1 - share
        low, high = 1e-6, 1e6  # c by bisection
        for _ in range(200):
            c = math.sqrt(low * high)
            value = np.logaddexp(math.log(b) + a**2 / c**2, math.log(a) + b**2 / c**2)
            low, high = (c, high) if value > 1 else (low, c)
        lam = np.linspace(-30, 30, 4001) / c
        moment = np.logaddexp(math.log(b) + lam * a, math.log(a) - lam * b)
        assert np.all(moment <= 3 * lam**2 * c**2 / 4 + 1e-12)
    c2 = 2 / -math.expm1(-2)  # of N(0, 1)
    assert np.all(x**2 / 2 <= 3 * x**2 * c2 / 4)


def spread(y):
    return np.arange(1, len(y) + 1)


FUNCTIONS = {  # value, gradient, (p, growth) around the minimiser 0; the last one is degenerate along one axis only
    "power": (lambda y: np.sum(y**4) / 4, lambda y: y**3, 4.0, lambda d: d**-1.0),
    "quadratic": (lambda y: y @ (y * spread(y)) / 2, lambda y: y * spread(y), 2.0, lambda d: 1.0),
    "lopsided": (
        lambda y: np.sum(np.where(y > 0, 10.0, 1.0) * np.abs(y) ** 3) / 3,
        lambda y: np.where(y > 0, 10.0, 1.0) * np.abs(y) * y,
        3.0,
        lambda d: d**-0.5,
    ),
}  # fmt: skip


def noisy_stage(gradient, y, radius, noise):
    """The mean of one stage, S, and the points."""
    points, w, square = [], y, 0.0
    for e in noise:
        points.append(w)
        s = gradient(w) + e
        square += s @ s
        offset = w - math.sqrt(2) * radius / math.sqrt(square) * s - y
        w = y + offset * min(1.0, radius / np.linalg.norm(offset))
    return np.mean(points, axis=0), square, np.array(points)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_d_stage_inequality(name):
    """(d) pathwise: g(y_{k+1}) − g(u) ≤ [2√2·R√S − Σ⟨n_t, w_t − u⟩]/N_0 for u in the ball."""
    value, gradient, _, _ = FUNCTIONS[name]
    for _ in range(60):
        d, n, radius = RNG.integers(1, 5), RNG.integers(2, 60), 10 ** RNG.uniform(-1, 1)
        y, noise = RNG.normal(size=d), 10 ** RNG.uniform(-2, 1) * RNG.normal(size=(n, d))
        mean, square, points = noisy_stage(gradient, y, radius, noise)
        direction = RNG.normal(size=d)
        for u, factor in (
            (y + radius * direction / np.linalg.norm(direction), 2 * math.sqrt(2)),
            (y, 5 * math.sqrt(2) / 4),
        ):
            right = factor * radius * math.sqrt(square) - np.sum(noise * (points - u))
            assert value(mean) - value(u) <= right / n + 1e-12 * abs(value(y))


def path(gradient, y0, R0, plan, draw):
    """The stages of the plan from y0, each as (start, end, radius, √S·R, Σ⟨n_t, w_t − u⟩ for u = 0 and u = start, its
    steps), the last stage included."""
    y, last, stages = y0, R0, []
    for k in range(plan.stages + (plan.last_steps > 0)):
        n = plan.stage_steps if k < plan.stages else plan.last_steps
        R, noise = (R0 / 2**k if k < plan.stages else last), draw(n)
        mean, square, points = noisy_stage(gradient, y, R, noise)
        if k > 0 and np.linalg.norm(mean - y) <= R / 2:
            last = 2 * R
        stages.append((y, mean, R, R * math.sqrt(square), np.sum(noise * points), np.sum(noise * (points - y)), n))
        y = mean
    return stages


def distance_bound(plan, p, mu, A, R0):
    """Theorem 1."""
    with_last = plan.last_steps > 0
    c, factor = (13 / 8 + 5 / (2 * math.sqrt(plan.stages)), 8) if with_last else (13 / 8, 2)
    r = (factor * p * A / (mu * math.sqrt(plan.stage_steps))) ** (1 / (p - 1))
    return max(R0 / 2**plan.stages, c ** (1 / p) * r)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_theorem_1_on_paths(name):
    """With A replaced by what the path itself shows, the distance and the radius of the last stage obey Theorem 1 and
    its proof in every run, and y* is in the ball as long as (e) says so."""
    _, gradient, p, growth = FUNCTIONS[name]
    shares = []
    for trial in range(60):
        d, budget = int(RNG.integers(1, 4)), int(10 ** RNG.uniform(1.3, 3.0))
        plan, R0 = ub.StagedSGD(budget, last_stage=trial % 2 == 0), 10 ** RNG.uniform(0, 1)
        y = RNG.normal(size=d)
        y *= RNG.uniform(0, 1) * R0 / np.linalg.norm(y)
        scale = 10 ** RNG.uniform(-2, 1)
        stages = path(gradient, y, R0, plan, lambda n, s=scale, d=d: s * RNG.normal(size=(n, d)))
        A, mu = 0.0, growth(d)
        for start, _, R, root, whole, own, n in stages:
            if np.linalg.norm(start) <= R:
                A = max(A, (2 * math.sqrt(2) * root - whole) / (R * math.sqrt(n)))
            A = max(A, (5 * math.sqrt(2) / 4 * root - own) / (R * math.sqrt(n)) * 8 / 5)
        X, end = p * A / (mu * math.sqrt(plan.stage_steps)), np.linalg.norm(stages[-1][1])
        late = [(factor**p * X) ** (1 / (p - 1)) for factor in (2, 8)]
        for start, mean, R, *_ in stages[: plan.stages]:
            for radius, share in zip(late, (2, 8), strict=True):
                if np.linalg.norm(start) <= R and radius <= R:
                    assert np.linalg.norm(mean) <= R / share * (1 + 1e-9)
        if plan.last_steps:
            assert stages[-1][2] <= min(R0, max(4 * R0 / 2**plan.stages, 4 * late[1])) * (1 + 1e-12)
        assert all(np.linalg.norm(mean - y) <= 3 * R0 for _, mean, *_ in stages)
        shares.append(end / distance_bound(plan, p, mu, A, R0))
    assert max(shares) <= 1
    assert max(shares) > 0.01


@pytest.mark.parametrize("name", FUNCTIONS)
def test_theorem_2_on_paths(name):
    """Without noise A = max 2√2·√(S/n) over the stages: accepted only if d ≤ 2·max(R, r), and at the latest when
    R ≥ max(4d, R̂); the end within
    max(R_0·2^−K, 6r), or 8r with a last stage."""
    _, gradient, p, growth = FUNCTIONS[name]
    rejected = 0
    for trial in range(60):
        d, budget, cap = int(RNG.integers(1, 4)), int(10 ** RNG.uniform(1.3, 3.0)), 1e3
        y0 = RNG.normal(size=d) * 10 ** RNG.uniform(-1, 1)
        distance, R = np.linalg.norm(y0), 10 ** RNG.uniform(-3, 3)
        plan = ub.StagedSGD(budget, cap, min(R, cap), last_stage=trial % 2 == 0)
        n, mu, A = plan.stage_steps, growth(d), 0.0
        while cap > R:
            mean, square, _ = noisy_stage(gradient, y0, R, np.zeros((n, d)))
            A = max(A, 2 * math.sqrt(2 * square / n))
            r, late = ((factor * p * A / (mu * math.sqrt(n))) ** (1 / (p - 1)) for factor in (2, 4**p))
            if np.linalg.norm(mean - y0) <= R / 2:
                assert distance <= 2 * max(R, r)
                break
            assert max(4 * distance, late) > R
            rejected += 1
            R *= 2
        R0 = min(2 * R, cap)
        stages = path(gradient, y0, R0, plan, lambda n, d=d: np.zeros((n, d)))
        A = max([A] + [2 * math.sqrt(2) * root / (radius * math.sqrt(m)) for _, _, radius, root, *_, m in stages])
        r = (2 * p * A / (mu * math.sqrt(n))) ** (1 / (p - 1))
        assert np.linalg.norm(stages[-1][1]) <= max(R0 / 2**plan.stages, (8 if plan.last_stage else 6) * r)
    assert rejected > 20


def test_gradient_bound_from_smoothness():
    """‖∇g(w)‖ ≤ (L0/L1)(e^{L1·r} − 1) for ‖y‖_p^p/p − ⟨b, y⟩ with the L0, L1 of `smoothness`."""
    for p in (2.5, 4.0, 8.0):
        for _ in range(200):
            b, d = RNG.normal(), int(RNG.integers(1, 4))
            L0, L1 = theory.smoothness(p, abs(b))
            y_star = math.copysign(abs(b) ** (1 / (p - 1)), b) * np.ones(d)
            w = y_star + RNG.normal(size=d) * 10 ** RNG.uniform(-2, 0)
            slope = np.linalg.norm(np.sign(w) * np.abs(w) ** (p - 1) - b)
            assert slope <= L0 / L1 * math.expm1(L1 * np.linalg.norm(w - y_star)) * (1 + 1e-9)


def test_log_distance_is_theorem_1():
    """Against the formula in plain arithmetic, and it counts no more steps in a stage than the solver makes."""
    p, mu, G, sigma, radius, N, delta = 4.0, 0.5, 7.0, 1.3, 3.0, 4**8, 0.1
    K = math.log2(N) / 2 + 2  # the code's rounding up of ½log₂N + 1
    n = N // K
    level = math.log(3 * K / delta)
    A = 2 * math.sqrt(2) * (G + sigma * math.sqrt(1 + level / n)) + 2 * sigma * math.sqrt(3 * level)
    expected = max(radius / 2 / math.sqrt(N), (13 / 8) ** (1 / p) * (2 * p * A / (mu * math.sqrt(n))) ** (1 / (p - 1)))
    found = without_p.log_distance(p, mu, math.log(G), sigma, radius, math.log(N), math.log(1 / delta))
    assert math.exp(found) == pytest.approx(expected, rel=1e-12)
    for steps in range(4, 3000):
        assert steps // (math.log2(steps) / 2 + 2) <= max(ub.StagedSGD(steps).stage_steps, 1)


@pytest.mark.parametrize("p", [2.0, 3.0, 4.0, 8.0])
def test_exponents(p):
    """The total calls grow like ε^−4(p−1) with N = √T and ε^−(3p−2) with the grid, up to logarithms, which add less
    than .25 to the fitted exponents over ε from 1e-8 to 1e-4."""
    c, grid = theory.example3_constants(p, sigma_f=1.0, sigma_g1=1.0), np.logspace(-8, -4, 5)
    for use_grid, exponent in ((False, 4 * (p - 1)), (True, 3 * p - 2)):
        totals = [theory.complexity_without_p(c, float(e), grid=use_grid)[1] for e in grid]
        fitted = -float(np.polyfit(np.log(grid), totals, 1)[0])
        assert exponent < fitted < exponent + 0.25


def test_the_bound_is_met_where_the_complexity_says():
    c = theory.example3_constants(3.0, sigma_f=1.0, sigma_g1=1.0)
    log_T, _ = theory.complexity_without_p(c, 0.1)
    at = without_p.log_mean_gradient(c, log_T, log_T / 2)
    assert math.exp(at) == pytest.approx(0.1, rel=1e-6)
    assert without_p.log_mean_gradient(c, log_T - 1, log_T / 2 - 0.5) > at
    wild = dataclasses.replace(c, mu_J=0.1, sigma_g2=3.0)  # the series' variance outgrows everything
    assert theory.complexity_without_p(wild, 0.1) == (math.inf, math.inf)


def test_the_numbers_of_the_schedule():
    plan = theory.schedule_without_p(10_000, kappa=0.5, radius=3.0, condition=4.0)
    assert (plan.period, plan.terms, plan.calls) == (100, math.ceil(2 * math.log(100)), 10_000 * 13 + 100)
    assert plan.step_size == pytest.approx(0.5 * 100**-1.5)
    assert plan.momentum == pytest.approx(0.99)
    solver = plan.as_solver()
    assert isinstance(solver.lower, ub.StagedSGD)
    assert (solver.period, solver.lower.steps, solver.lower.radius) == (100, 100, 3.0)
    assert plan.as_solver(ub.CG()).hypergradient == ub.CG()
    for steps in (4, 100, 10_000, 10**6, 10**9):
        periods = [plan.period for plan in theory.grid_without_p(steps, kappa=1.0, radius=1.0, condition=1.0)]
        assert periods[0] == math.isqrt(steps)
        assert periods[-1] >= min(steps, math.floor(steps ** (2 / 3)))  # every p: the exponent of N is in [1/2, 2/3)


def test_refusals_name_what_is_missing():
    complete = {"kappa": 1.0, "radius": 1.0, "condition": 1.0}
    for name, words in (("kappa", "scales the upper step"), ("radius", "bounds the distance"), ("condition", "C/μ_J")):
        for make in (theory.schedule_without_p, theory.grid_without_p):
            with pytest.raises(TypeError, match=rf"{name} must be one real number; got None.*{words}"):
                make(100, **{key: value for key, value in complete.items() if key != name})
            with pytest.raises(ValueError, match=rf"{name} must be finite"):
                make(100, **complete | {name: -1.0})
    with pytest.raises(ValueError, match=r"steps must be ≥ 4.*at least 2"):
        theory.schedule_without_p(3, **complete)


@pytest.mark.slow
def test_the_grid_returns_the_run_whose_averaged_estimate_is_smallest():
    noise = ub.Noise(grad_y_g=0.1, grad_z_f=0.1)
    problem = ub.problems.example3(4.0, noise, noise)
    plans = theory.grid_without_p(256, kappa=8.0, radius=2.0, condition=1.0)
    found = theory.validated(problem, plans, 1.0, 1.0, KEY, ub.CG(preconditioner=ub.Jacobi()))
    assert len(found.norms) == len(plans) == 3
    assert found.best == int(np.argmin(found.norms))
    true = abs(math.cos(float(found.x)) * math.cos(math.sin(float(found.x))))
    assert abs(found.norms[found.best] - true) < 0.15  # noise of T = 256 estimates, and the error of y
    again = theory.validated(problem, plans, 1.0, 1.0, KEY, ub.CG(preconditioner=ub.Jacobi()))
    assert float(again.x) == float(found.x)
    lower = sum(ub.StagedSGD(plan.steps, 2.0).stages * ub.StagedSGD(plan.steps, 2.0).stage_steps for plan in plans)
    assert found.calls.grad_f >= len(plans) * 256
    assert found.calls.grad_g >= lower
