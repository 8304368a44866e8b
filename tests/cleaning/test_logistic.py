"""The batched logistic fit against dense formulas, finite differences and scipy's optimiser."""

import numpy as np
import pytest
from scipy import optimize, sparse

from unibio.cleaning import logistic
from unibio.cleaning.linear import Linear, column_squares


def problem(seed=0, rows=60, columns=4, classes=3, lanes=2, dtype=np.float64):
    random = np.random.default_rng(seed)
    table = random.normal(size=(rows, columns)).astype(dtype)
    likelihood = random.uniform(0.05, 1, size=(rows, 1, classes)).astype(dtype)
    weights = random.uniform(0, 1, size=(rows, lanes)).astype(dtype)
    return table, likelihood, weights, np.array([0.5, 3.0])[:lanes]


def dense(table, likelihood, weights, penalty, coefficients):
    """The objective of one lane as the module's docstring states it."""
    z = table @ coefficients
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    return -np.sum(weights * np.log(np.sum(p * likelihood, axis=1))) + penalty / 2 * np.sum(coefficients**2)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_value_and_gradient(kind, monkeypatch):
    monkeypatch.setattr(logistic, "_CHUNK", 1)  # more than one chunk
    table, likelihood, weights, penalties = problem(rows=150)
    W = np.random.default_rng(1).normal(size=(4, 2, 3))
    value, gradient = logistic.value_and_gradient(kind(table), likelihood, weights, penalties, W)
    for b in range(2):

        def objective(flat, b=b):
            return dense(table, likelihood[:, 0], weights[:, b], penalties[b], flat.reshape(4, 3))

        np.testing.assert_allclose(value[b], objective(W[:, b].ravel()), rtol=1e-12)
        numeric = optimize.approx_fprime(W[:, b].ravel(), objective, 1e-6)
        np.testing.assert_allclose(gradient[:, b].ravel(), numeric, rtol=1e-4, atol=1e-4)


def test_every_lane_is_where_scipy_ends():
    table, _, weights, penalties = problem()
    likelihood = np.eye(3)[np.random.default_rng(2).integers(0, 3, 60)][:, None]  # convex: one minimum
    found = logistic.fit(
        table, likelihood, weights, penalties, np.zeros((4, 2, 3)), curvature=column_squares(table), tolerance=1e-14
    )
    assert found.converged.all()
    for b in range(2):
        peer = optimize.minimize(
            lambda flat, b=b: dense(table, likelihood[:, 0], weights[:, b], penalties[b], flat.reshape(4, 3)),
            np.zeros(12), method="BFGS", options={"gtol": 1e-7},
        )  # fmt: skip
        np.testing.assert_allclose(found.values[b], peer.fun, rtol=1e-10)
        np.testing.assert_allclose(found.coefficients[:, b].ravel(), peer.x, atol=1e-5)


def test_float32_is_enough():
    """With the tolerance of the recipe, probabilities differ from those of an exact fit by less than 2e-2."""
    table, likelihood, weights, penalties = problem(rows=400, columns=8)
    exact, short = (
        logistic.fit(
            table.astype(dtype), likelihood.astype(dtype), weights.astype(dtype), penalties,
            np.zeros((8, 2, 3), dtype), curvature=column_squares(table), tolerance=tolerance,
        )
        for dtype, tolerance in ((np.float64, 1e-13), (np.float32, 3e-6))
    )  # fmt: skip
    p, q = (np.exp(logistic.logits(table, one.coefficients)) for one in (exact, short))
    np.testing.assert_allclose(q / q.sum(-1, keepdims=True), p / p.sum(-1, keepdims=True), atol=2e-2)
    assert short.evaluations < exact.evaluations


def test_a_lane_sees_nothing_of_rows_without_weight():
    table, likelihood, weights, penalties = problem()
    weights[:20] = 0

    def fit():
        size = np.full(4, 60.0)
        return logistic.fit(table, likelihood, weights, penalties, np.zeros((4, 2, 3)), curvature=size, tolerance=1e-12)

    found = fit()
    table[:20] += 100.0
    again = fit()
    np.testing.assert_allclose(again.coefficients, found.coefficients, atol=1e-7)


def test_the_budget_is_reported():
    table, likelihood, weights, penalties = problem()
    found = logistic.fit(
        table, likelihood, weights, penalties, np.zeros((4, 2, 3)), curvature=np.ones(4), tolerance=1e-14, most=2
    )
    assert found.evaluations == 2
    assert not found.converged.any()


def test_held_out_logits_come_from_fits_without_the_fold(monkeypatch):
    """One fit per fold, by hand, gives the same; so do members that are fitted one after the other."""
    table, likelihood, _, _ = problem(dtype=np.float32)
    table, folds, weights = np.asarray(table), np.arange(60) % 3, np.ones(60, np.float32)
    learner = Linear(table, (1.0, 5.0), tolerance=1e-10)
    fitted = learner.fit(likelihood[:, 0], weights, folds, None)
    monkeypatch.setattr("unibio.cleaning.linear._MOST", 1)
    one_by_one = learner.fit(likelihood[:, 0], weights, folds, None)
    np.testing.assert_allclose(one_by_one.held_out, fitted.held_out, atol=2e-3)
    for fold in range(3):
        rest = folds != fold
        alone = logistic.fit(
            table[rest].astype(float), likelihood[rest].astype(float), np.ones((rest.sum(), 1)), np.array([5.0]),
            np.zeros((4, 1, 3)), curvature=column_squares(table), tolerance=1e-12,
        )  # fmt: skip
        by_hand = table[~rest] @ alone.coefficients[:, 0]
        np.testing.assert_allclose(fitted.held_out[~rest, 1], by_hand, atol=2e-3)
    average = learner.blend([(0.25, fitted.models, 0), (2.0, fitted.models, 1)])
    by_hand = 0.25 * table @ fitted.models[0][:, -1] + 2.0 * table @ fitted.models[1][:, -1]
    np.testing.assert_allclose(average.logits(table), by_hand, rtol=1e-4, atol=1e-5)
