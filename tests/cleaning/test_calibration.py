"""Temperatures against a fine grid, and weights by hand."""

import numpy as np

from unibio.cleaning import calibration as ca
from unibio.cleaning import noise_matrix, suspicion


def logits_and_labels(seed, rows=200, factor=1.0):
    random = np.random.default_rng(seed)
    z = 2 * random.normal(size=(rows, 4))
    labels = (factor * z + random.gumbel(size=z.shape)).argmax(axis=1)
    return z, labels


def test_the_factor_is_the_best_of_a_grid():
    for factor in (0.5, 1.0, 3.0):
        z, labels = logits_and_labels(0, factor=factor)
        a = np.linspace(-1.5, 2.5, 4001)
        values = [ca.log_loss(ca.softmax(np.exp(b) * z), labels) + b**2 / 2 for b in a]
        assert abs(np.log(ca.best_factor(z, labels)) - a[np.argmin(values)]) < 2e-3


def test_without_rows_the_factor_is_one():
    assert ca.best_factor(np.zeros((0, 3)), np.zeros(0, int)) == 1.0


def test_sharpening_finds_a_model_that_is_as_unsure_as_the_labels_are_wrong():
    z, labels = logits_and_labels(1, rows=4000, factor=3.0)  # the truth is three times as sure as z says
    assert ca.sharpening(z, labels) >= 2.0
    random = np.random.default_rng(2)
    noisy = np.where(random.random(4000) < 0.3, random.integers(0, 4, 4000), labels)
    assert ca.sharpening(z, noisy) in (2.0, 3.0, 4.0)
    z, labels = logits_and_labels(1, rows=4000)
    assert ca.sharpening(z, labels) == 1.0


def test_shares():
    found = ca.shares(np.array([[10.0, 12.0], [10.0, 1000.0]]))
    np.testing.assert_allclose(found, np.array([[1, np.exp(-1)], [1, 0]]) / (2 + np.exp(-1)), atol=1e-12)


def test_verdicts_are_bayes_rule():
    P, T, given = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([1, 1])
    found = suspicion.judge(P, T, given)
    first = 0.9 * 0.2 / (0.9 * 0.2 + 0.1 * 0.6)  # P(class 0 | label 1)
    second = 0.2 * 0.2 / (0.2 * 0.2 + 0.8 * 0.6)
    np.testing.assert_allclose(found.suspicion, [first, second])
    np.testing.assert_array_equal(found.suggested, [0, 1])
    np.testing.assert_allclose(found.confidence, [first, 1 - second])
    np.testing.assert_array_equal(suspicion.ranking(found, given), [0])


def test_the_symmetric_likelihood_is_that_of_the_study_of_sentence_pairs():
    """`problems.hyper_cleaning.as_seen`, in which the study learns its rate, and the matrix here are one formula."""
    from unibio.problems.hyper_cleaning import as_seen

    z, labels = logits_and_labels(3, rows=50)
    T = noise_matrix.symmetric(0.3, 4)
    theirs = np.asarray(as_seen(0.3, z))[np.arange(50), labels].sum()
    np.testing.assert_allclose(noise_matrix.log_likelihood(ca.softmax(z), T, labels), theirs, rtol=1e-10)
