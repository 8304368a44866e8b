"""The order of the recipe, its folds and its average, with a learner that only remembers what it was asked."""

import numpy as np

from unibio.cleaning import calibration, noise_matrix, recipe
from unibio.cleaning.linear import Linear


class Spy:
    """A learner whose models have learnt nothing."""

    members = 2

    def __init__(self, rows, seed=0):
        self.asked, self.random, self.rows = [], np.random.default_rng(seed), rows

    def fit(self, likelihood, weights, folds, start):
        self.asked.append((likelihood, weights.copy(), folds, start))
        return recipe.Fitted(self.random.normal(size=(self.rows, 2, 3)), len(self.asked))

    def blend(self, parts):
        return parts


def labels(rows=150, seed=1):
    random = np.random.default_rng(seed)
    values, trusted = random.integers(0, 3, rows), np.arange(rows) < 30
    return recipe.Labels(values, trusted, recipe.make_folds(values, trusted, random), 3)


def test_what_is_fitted_when():
    known, spy = labels(), Spy(150)
    told: list[str] = []
    cleaned = recipe.clean(spy, known, told.append)
    assert told == ["plain", "matrix 1", "symmetric 1", "matrix 2", "symmetric 2"]
    assert len(told) == len(spy.asked) == recipe.FITS
    assert [start for *_, start in spy.asked] == [None, 1, 1, 2, 3]  # from plain, then each from its own
    for likelihood, weights, folds, _ in spy.asked:
        np.testing.assert_array_equal(folds, known.folds)
        np.testing.assert_array_equal(likelihood[known.trusted], np.eye(3)[known.values[known.trusted]])
        assert (weights[known.trusted] == 1).all()
    np.testing.assert_array_equal(spy.asked[0][0], np.eye(3)[known.values])
    symmetric = spy.asked[2][0][~known.trusted]
    assert np.unique(symmetric.round(6)).size == 2  # right or wrong
    assert all(0.02**0.5 - 1e-6 <= weights.min() < 1 for _, weights, *_ in spy.asked[1:])
    assert {model for _, model, _ in cleaned.model} <= {1, 4, 5}
    np.testing.assert_allclose(cleaned.weights.sum(), 1)


def test_the_average_is_that_of_the_formula():
    known, spy = labels(), Spy(150)
    fits = {kind: spy.fit(np.ones(1), np.ones(1), known.folds, None) for kind in ("plain", "matrix")}
    T, noisy, values = noise_matrix.symmetric(0.2, 3), ~known.trusted, known.values
    found = recipe._average(fits, known, T)
    losses, scaled = [], []
    for fitted in fits.values():
        for j in range(2):
            z = fitted.held_out[:, j]
            t = calibration.best_factor(z[~noisy], values[~noisy])
            p = np.exp(t * z) / np.exp(t * z).sum(axis=1, keepdims=True)
            seen = [np.log(p[i] @ T[:, values[i]]) for i in np.flatnonzero(noisy)]
            right = [np.log(p[i, values[i]]) for i in np.flatnonzero(~noisy)]
            losses.append(-sum(right) - 0.1 * sum(seen))
            scaled.append(t * z)
    weights = np.exp(-np.array(losses) / 2)
    weights[weights < 0.02 * weights.max()] = 0
    weights /= weights.sum()
    np.testing.assert_allclose(found.weights.ravel(), weights, rtol=1e-8)
    z = sum(w * one for w, one in zip(weights, scaled, strict=True)) * found.factor
    np.testing.assert_allclose(found.P, np.exp(z) / np.exp(z).sum(axis=1, keepdims=True), rtol=1e-6)


def test_folds_are_even_within_classes_and_trusted_rows():
    known = labels(rows=300)
    sizes = np.bincount(known.folds, minlength=recipe.FOLDS)
    assert np.ptp(sizes) <= 6
    for value in range(3):
        for trusted in (True, False):
            group = known.folds[(known.values == value) & (known.trusted == trusted)]
            assert np.ptp(np.bincount(group, minlength=recipe.FOLDS)) <= 1


def test_out_of_sample_probabilities_do_not_know_the_labels():
    """Labels that are pure chance: models that had seen them would think them right more often than chance."""
    random = np.random.default_rng(3)
    table = np.column_stack([random.normal(size=(400, 20)), np.full(400, 10.0)]).astype(np.float32)
    values = random.integers(0, 2, 400)
    known = recipe.Labels(values, np.zeros(400, bool), recipe.make_folds(values, np.zeros(400, bool), random), 2)
    fitted = Linear(table).fit(np.eye(2)[values], np.ones(400), known.folds, None)
    for member in range(4):
        right = np.mean(fitted.held_out[:, member].argmax(axis=1) == values)
        assert right < 0.58  # 50 ± 2.5 %
        inside = (table @ fitted.models[member][:, -1]).argmax(axis=1)
        assert np.mean(inside == values) > right
