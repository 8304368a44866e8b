"""Sharp constants against brute force, and the points where they are attained."""

import numpy as np
import pytest

import unibio as ub
from unibio.paper import theory
from unibio.paper.theory.moduli import log_sum

ORDERS = [2.0, 2.1, 2.3, 2.5, 2.7, 3.0, 3.3, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 7.0, 7.7, 8.0, 10.0, 12.0, 15.0, 20.0]


def spow(y, a):
    return np.sign(y) * np.abs(y) ** a


def gap(a, b, p):
    """g(b) − g(a) − ⟨∇g(a), b − a⟩ of ‖y‖_p^p/p, over the last axis."""
    value = lambda y: np.sum(np.abs(y) ** p, axis=-1) / p
    return value(b) - value(a) - np.sum(spow(a, p - 1) * (b - a), axis=-1)


@pytest.mark.parametrize(
    ("p", "printed"),
    [
        (2, "1"),
        (3, "0.5857864376"),
        (4, "0.3333333333"),
        (6, "0.1012917555"),
        (8, "0.02924294146"),
        (12, "0.002248275874"),
        (20, "1.143983318e-05"),
    ],
)
def test_the_table(p, printed):
    assert f"{theory.modulus(float(p)):.10g}" == printed


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.slow
def test_the_modulus_is_the_least_ratio(p):
    """a = −t and b = 1, up to a factor and the sign, over a fine grid of t."""
    t = np.linspace(-5, 5, 2_000_001)[:, None]
    ratios = p * gap(t, np.ones_like(t), p) / np.abs(1 - t[:, 0]) ** p
    least = np.nanmin(ratios[np.abs(1 - t[:, 0]) > 1e-3])
    assert theory.modulus(p) == pytest.approx(least, rel=1e-7)
    assert theory.modulus(p) <= least * (1 + 1e-9)  # the gap itself is rounded
    assert theory.modulus(p) >= 2 ** (2 - p)


@pytest.mark.parametrize("p", [2.3, 4.0, 7.7])
@pytest.mark.parametrize("dim", [1, 2, 9])
def test_in_d_dimensions_it_holds_and_is_attained(p, dim):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 20_000, dim)) * 10 ** rng.uniform(-2, 2, size=(2, 20_000, 1))
    distance = np.linalg.norm(b - a, axis=1)
    assert np.all(gap(a, b, p) >= theory.modulus(p, dim) / p * distance**p * (1 - 1e-9))
    # the scalar's worst pair in every coordinate at once
    low, high = 0.0, 1.0
    for _ in range(100):
        t = (low + high) / 2
        low, high = (t, high) if (p - 2) * t ** (p - 1) + (p - 1) * t ** (p - 2) < 1 else (low, t)
    a, b = np.full(dim, -t), np.ones(dim)
    assert p * gap(a, b, p) / np.linalg.norm(b - a) ** p == pytest.approx(theory.modulus(p, dim), rel=1e-9)


@pytest.mark.parametrize("p", [2.0, 3.0, 4.0, 7.7])
@pytest.mark.parametrize("dim", [1, 4])
def test_monotonicity_holds_and_is_attained(p, dim):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 20_000, dim)) * 10 ** rng.uniform(-1, 1, size=(2, 20_000, 1))
    inner = np.sum((spow(b, p - 1) - spow(a, p - 1)) * (b - a), axis=1)
    m = theory.monotonicity(p, dim)
    assert np.all(inner >= m * np.linalg.norm(b - a, axis=1) ** p * (1 - 1e-9))
    y = np.full(dim, 0.7)
    assert np.sum(2 * spow(y, p - 1) * 2 * y) == pytest.approx(m * np.linalg.norm(2 * y) ** p)
    assert m >= 2 * theory.modulus(p, dim) / p * (1 - 1e-12)


EXAMPLES = {
    "example1": (theory.example4_constants(4.0), np.eye(1)),
    "example3": (theory.example3_constants(6.0), np.eye(1)),
    "example4": (theory.example4_constants(8.0, 3), np.eye(3)),
    "coupled": (theory.coupled_example3_constants(5.0, [[0.6, 0.3], [-0.2, 0.9]]), np.array([[0.6, 0.3], [-0.2, 0.9]])),
}


@pytest.mark.parametrize(("constants", "coupling"), EXAMPLES.values(), ids=EXAMPLES)
def test_the_lower_solution_is_holder_with_l_p(constants, coupling):
    rng = np.random.default_rng(2)
    dim = len(coupling)
    x = rng.uniform(-3, 3, size=(10_000, dim))
    near = x + rng.normal(size=x.shape) * 10 ** rng.uniform(-6, 0.5, size=(10_000, 1))
    solution = lambda x: spow(np.sin(x) @ coupling.T, 1 / (constants.p - 1))
    distance = np.linalg.norm(solution(x) - solution(near), axis=1)
    bound = constants.l_p * np.linalg.norm(x - near, axis=1) ** (1 / (constants.p - 1))
    assert np.all(distance <= bound * (1 + 1e-9))


@pytest.mark.parametrize("p", [2.0, 4.0, 6.0, 8.0, 12.0, 20.0])
def test_the_papers_holder_constant_is_wrong_from_p_6_on(p):
    """Around x = 0 the distance is 2·(sin h)^{1/(p−1)} over a step of 2h. With μ = 1 the paper has p^{1/(p−1)}."""
    h = 1e-3
    ratio = 2 * np.sin(h) ** (1 / (p - 1)) / (2 * h) ** (1 / (p - 1))
    sharp = theory.example3_constants(p).l_p
    assert sharp == pytest.approx(2 ** ((p - 2) / (p - 1)))
    assert ratio == pytest.approx(sharp, rel=1e-4)
    assert (ratio > p ** (1 / (p - 1))) == (p >= 6)
    assert theory.holder_constant(p, theory.modulus(p), 1.0) >= sharp * (1 - 1e-12)


@pytest.mark.parametrize("p", [2.0, 2.5, 4.0, 8.0])
def test_smoothness_holds_and_is_tight(p):
    y = np.concatenate([-np.logspace(-3, 3, 4000), np.logspace(-3, 3, 4000)])
    for bound in (1.0, 0.3, 2.5):
        L0, L1 = theory.smoothness(p, bound)
        for b in np.linspace(-bound, bound, 21):
            curvature, slope = (p - 1) * np.abs(y) ** (p - 2), np.abs(spow(y, p - 1) - b)
            assert np.all(curvature <= (L0 + L1 * slope) * (1 + 1e-12))
    assert theory.smoothness(p) == (p - 1, p - 2)


def test_regression_moduli_are_lower_bounds():
    data = ub.problems.corrupted_regression(40, 3)
    features = data.train[0]
    logits = np.random.default_rng(3).normal(size=40)
    weights = 1 / (1 + np.exp(-logits))
    p, c = 4.0, 0.05
    moduli = theory.regression_moduli(features, logits, p, c)
    assert moduli.data > 0
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(2, 20_000, 3))
    total = np.zeros(20_000)
    for feature, target, weight in zip(features, data.train[1], weights, strict=True):
        total += weight * p * gap((a @ feature - target)[:, None], (b @ feature - target)[:, None], p) / 40
    distance = np.linalg.norm(b - a, axis=1) ** p
    assert np.all(total >= moduli.data / p * distance)
    assert np.all(total + c * p * gap(a, b, p) >= sum(moduli) / p * distance)
    assert theory.regression_moduli(features[:2], logits[:2], p, c).data == 0.0


def test_log_sum():
    assert log_sum(0.0, 0.0) == pytest.approx(np.log(2))
    assert log_sum(5000.0, 4990.0) == pytest.approx(5000 + np.log1p(np.exp(-10)))
    assert log_sum(-np.inf, 3.0) == pytest.approx(3.0)
