"""The noise matrix against brute force, EM written out, and simulated noise."""

import numpy as np
import pytest

from unibio.cleaning import noise_matrix as nm


def simulated(rows, T, seed, sharp=3.0):
    """Probabilities that are right, true classes drawn from them, and labels drawn from T."""
    random = np.random.default_rng(seed)
    z = sharp * random.normal(size=(rows, len(T)))
    P = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)

    def draw(Q):
        return (random.random(rows)[:, None] >= np.cumsum(Q, axis=1)).sum(axis=1).clip(max=len(T) - 1)

    truth = draw(P)
    return P, truth, draw(T[truth])


def brute_force_em(P, given, strength, prior, steps):
    """The same EM with loops over rows and classes."""
    T = prior.copy()
    for _ in range(steps):
        counts = strength * prior
        for p, label in zip(P, given, strict=True):
            joint = np.array([p[k] * T[k, label] for k in range(len(p))])
            counts[:, label] += joint / joint.sum()
        T = np.array([row / row.sum() for row in counts])
    return T


def test_the_symmetric_rate_is_the_best_of_a_fine_grid_and_a_fixed_point_of_em():
    P, _, given = simulated(500, nm.symmetric(0.3, 4), 0)
    r = nm.symmetric_rate(P, given)
    grid = np.linspace(0, 0.75, 7501)
    values = [nm.log_likelihood(P, nm.symmetric(rate, 4), given) for rate in grid]
    assert abs(grid[np.argmax(values)] - r) < 2e-4
    own = P[np.arange(500), given]
    after = np.mean(r * (1 - own) / 3 / ((1 - r) * own + r * (1 - own) / 3))  # one step of EM
    assert abs(after - r) < 1e-8


def test_labels_that_look_right_can_still_be_ranked():
    """The rate never falls below one row of n."""
    P = np.array([[0.99, 0.01], [0.9, 0.1], [0.2, 0.8]])
    given = np.array([0, 0, 1])
    assert nm.symmetric_rate(P, given) == 1 / 3
    many = np.tile(P, (100, 1)), np.tile(given, 100)
    assert nm.symmetric_rate(*many) == 1 / 300
    assert (np.diff(nm.posterior(P, nm.symmetric(1 / 300, 2), given)[[2, 1, 0], given[[2, 1, 0]]]) > 0).all()


def test_em_is_what_loops_give():
    P, _, given = simulated(80, nm.symmetric(0.3, 3), 1)
    prior = nm.symmetric(nm.symmetric_rate(P, given), 3)
    np.testing.assert_allclose(nm.noise_matrix(P, given, 2.0), brute_force_em(P, given, 2.0, prior, 60), rtol=1e-10)


def test_the_likelihood_is_a_sum_over_classes():
    P, _, given = simulated(30, nm.symmetric(0.2, 3), 2)
    T = np.array([[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.3, 0.3, 0.4]])
    by_hand = sum(np.log(sum(P[i, k] * T[k, given[i]] for k in range(3))) for i in range(30))
    np.testing.assert_allclose(nm.log_likelihood(P, T, given), by_hand, rtol=1e-12)
    np.testing.assert_allclose(nm.posterior(P, T, given).sum(axis=1), 1)


def standard_errors(P, T, given):
    """Of the entries of T, from the observed information of its free entries T[k, j], j ≠ k (finite differences)."""
    K = len(T)
    free = [(k, j) for k in range(K) for j in range(K) if j != k]

    def gradients(row):
        seen = P[row] @ T[:, given[row]]
        return [P[row, k] * ((given[row] == j) - float(given[row] == k)) / seen for k, j in free]

    scores = np.array([gradients(row) for row in range(len(P))])
    return dict(zip(free, np.sqrt(np.diag(np.linalg.inv(scores.T @ scores))), strict=True))


def test_a_simulated_matrix_is_recovered_within_its_standard_error():
    T = np.array([[0.7, 0.25, 0.05], [0.05, 0.9, 0.05], [0.3, 0.1, 0.6]])
    deviations = []
    for seed in range(6):
        P, _, given = simulated(3000, T, seed)
        found = nm.chosen_noise_matrix(P, given)
        errors = standard_errors(P, found, given)
        deviations += [(found[entry] - T[entry]) / errors[entry] for entry in errors]
    assert np.abs(deviations).max() < 4
    assert 0.6 < np.std(deviations) < 1.4  # 36 of them: a standard deviation of 1 ± .12


def test_few_rows_are_pulled_towards_symmetric_noise_and_many_are_not():
    T = np.array([[0.6, 0.4, 0.0], [0.0, 0.6, 0.4], [0.4, 0.0, 0.6]])
    P, _, given = simulated(4000, T, 3)
    assert np.abs(nm.chosen_noise_matrix(P, given) - T).max() < 0.06
    symmetric = nm.symmetric(0.4, 3)
    strong = nm.noise_matrix(P[:20], given[:20], 1e6)
    assert np.abs(strong - symmetric).max() < np.abs(nm.noise_matrix(P[:20], given[:20], 2.0) - symmetric).max() + 0.3
    np.testing.assert_allclose(strong, nm.symmetric(nm.symmetric_rate(P[:20], given[:20]), 3), atol=1e-4)


@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_the_interval_of_the_rate_covers_what_it_should(rate):
    """Where P is right: 95 % of 100 simulations, up to what chance allows."""
    inside = 0
    for seed in range(100):
        P, _, given = simulated(400, nm.symmetric(rate, 3), seed)
        found = nm.noise_rate(P, nm.symmetric(nm.symmetric_rate(P, given), 3), given)
        inside += found.low <= rate <= found.high
    assert 88 <= inside <= 100


def test_the_rate_is_the_share_of_wrong_labels():
    T = np.array([[0.9, 0.1], [0.4, 0.6]])
    P, truth, given = simulated(20000, T, 5)
    found = nm.noise_rate(P, nm.chosen_noise_matrix(P, given), given)
    assert abs(found.value - np.mean(truth != given)) < 0.015
    assert found.low < found.value < found.high
