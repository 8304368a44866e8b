"""How labels go wrong: the matrix T with T[k, j] = probability that a row of class k was given the label j.

Everything here stands on probabilities P of the true classes for each row, from a model that has not seen the row's
label. The given labels then have the likelihood Π_i Σ_k P_ik T[k, ỹ_i], and T is estimated by maximising it.
"""

from typing import NamedTuple

import numpy as np

Array = np.ndarray
STRENGTHS = (2.0, 20.0, 200.0)  # pseudo-counts for each class that pull T towards symmetric noise
_STEPS = 60  # of EM


class Rate(NamedTuple):
    """A share of wrong labels and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def symmetric(rate: float, classes: int) -> Array:
    """The matrix of noise that replaces a label by any other class, each alike, with probability `rate`."""
    matrix = np.full((classes, classes), rate / (classes - 1))
    np.fill_diagonal(matrix, 1 - rate)
    return matrix


def symmetric_rate(P: Array, given: Array) -> float:
    """The r in [1/n, 1 − 1/K] that maximises Σ_i log((1−r) p_i + r (1−p_i)/(K−1)), p_i = P[i, ỹ_i], over n rows.

    The sum is concave in r, so bisection on its derivative finds the maximum. One row of n is always taken for wrong:
    with r = 0 no label could be wrong, and none be more suspicious than another.
    """
    classes = P.shape[1]
    own = P[np.arange(len(given)), given].astype(np.float64)
    rise = (1 - own) / (classes - 1) - own

    def slope(r: float) -> float:
        return float(np.sum(rise / np.maximum(own + r * rise, 1e-300)))

    high = 1 - 1 / classes
    low = min(1 / max(1, len(given)), high)
    if slope(low) <= 0:
        return low
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return (low + high) / 2


def posterior(P: Array, T: Array, given: Array) -> Array:
    """P(true class = k | features, given label) for each row: P_ik T[k, ỹ_i], normalised."""
    joint = P * T.T[given]
    return joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300)


def log_likelihood(P: Array, T: Array, given: Array) -> float:
    """Σ_i log Σ_k P_ik T[k, ỹ_i]."""
    seen = np.einsum("ik,ik->i", P, T.T[given])
    return float(np.sum(np.log(np.maximum(seen, 1e-300))))


def noise_matrix(P: Array, given: Array, strength: float) -> Array:
    """Estimates T by the EM algorithm. To every class k it adds `strength` pseudo-counts, spread as symmetric noise, so
    that the rows of rare classes do not rest on a few labels alone."""
    classes = P.shape[1]
    prior = symmetric(symmetric_rate(P, given), classes)
    labels = np.eye(classes)[given]
    T = prior
    for _ in range(_STEPS):
        counts = posterior(P, T, given).T @ labels + strength * prior
        T = counts / counts.sum(axis=1, keepdims=True)
    return T


def chosen_noise_matrix(P: Array, given: Array) -> Array:
    """T, with the pseudo-counts under which one half of the rows predicts the given labels of the other half best."""
    halves = [np.arange(half, len(given), 2) for half in (0, 1)]

    def held_out(strength: float) -> float:
        return sum(
            log_likelihood(P[test], noise_matrix(P[fit], given[fit], strength), given[test])
            for fit, test in (halves, halves[::-1])
        )

    return noise_matrix(P, given, max(STRENGTHS, key=held_out))


def noise_rate(P: Array, T: Array, given: Array) -> Rate:
    """The share of wrong labels that P and T imply, and a 95 % interval.

    The interval is that of u in (1−u)·I + u·T, from the curvature of the log-likelihood at u = 1. It holds P and the
    proportions within T for right: a model that is wrong is not within it.
    """
    wrong = 1 - np.diag(T)
    rate = float(np.mean(posterior(P, T, given) @ wrong)) if len(given) else 0.0
    own = P[np.arange(len(given)), given]
    seen = np.maximum(np.einsum("ik,ik->i", P, T.T[given]), 1e-300)
    information = float(np.sum(np.square((seen - own) / seen)))
    error = 1.96 / np.sqrt(information) if information > 0 else np.inf
    return Rate(rate, max(0.0, float(rate * (1 - error))), min(1.0, float(rate * (1 + error))) if rate else 0.0)
