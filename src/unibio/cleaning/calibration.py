"""Probabilities that mean what they say: one temperature from trusted rows, or from the given labels alone."""

import numpy as np

from unibio.cleaning import noise_matrix

Array = np.ndarray
_COLDEST, _HOTTEST = -1.5, 2.5  # bounds of the logarithm of the factor of the logits
_SHARPER = (1.0, 1.5, 2.0, 3.0, 4.0)


def softmax(logits: Array) -> Array:
    """The probabilities that belong to logits, in float64; the classes are along the last axis."""
    z = np.asarray(logits, np.float64)
    p = np.exp(z - z.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def log_loss(P: Array, labels: Array) -> float:
    """−Σ_i log P[i, y_i]."""
    return -float(np.sum(np.log(np.maximum(P[np.arange(len(labels)), labels], 1e-12))))


def best_factor(logits: Array, labels: Array) -> float:
    """The factor t = e^a that minimises the log-loss of softmax(t·logits) + a²/2; 1 without rows.

    The term a²/2 keeps few rows from moving t far. Bisection on the derivative by a, between e^−1.5 and e^2.5.
    """
    z = np.asarray(logits, np.float64)
    own = z[np.arange(len(labels)), labels]

    def slope(a: float) -> float:
        t = np.exp(a)
        return float(t * np.sum(np.sum(softmax(t * z) * z, axis=1) - own) + a)

    low, high = _COLDEST, _HOTTEST
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return float(np.exp((low + high) / 2)) if len(labels) else 1.0


def sharpening(logits: Array, given: Array) -> float:
    """The factor of the logits under which symmetric noise, at its best rate, explains the given labels best.

    A model that was fitted to noisy labels is as unsure as they are: P then leaves nothing for noise to explain. If
    a surer model together with noise explains the labels better, the labels are noisy. That is all that can be known
    without trusted rows.
    """
    classes = logits.shape[1]

    def likelihood(factor: float) -> float:
        P = softmax(factor * np.asarray(logits, np.float64))
        T = noise_matrix.symmetric(noise_matrix.symmetric_rate(P, given), classes)
        return noise_matrix.log_likelihood(P, T, given)

    return max(_SHARPER, key=likelihood)


def shares(losses: Array) -> Array:
    """Weights in proportion to exp(−loss/2), which add up to 1."""
    weights = np.exp(-0.5 * (losses - losses.min()))
    return weights / weights.sum()
