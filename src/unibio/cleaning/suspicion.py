"""Which labels are probably wrong, how sure that is, and what they should have been."""

from typing import NamedTuple

import numpy as np

from unibio.cleaning.noise_matrix import posterior

Array = np.ndarray


class Verdicts(NamedTuple):
    """For each row: 1 − P(given label is right | features, given label), the most probable class, its probability."""

    suspicion: Array
    suggested: Array
    confidence: Array


def judge(P: Array, T: Array, given: Array) -> Verdicts:
    """Judges given labels by out-of-sample probabilities P of the true classes and the noise matrix T."""
    after = posterior(P, T, given)
    rows, suggested = np.arange(len(given)), after.argmax(axis=1)
    return Verdicts(1 - after[rows, given], suggested, after[rows, suggested])


def ranking(verdicts: Verdicts, given: Array) -> Array:
    """The rows whose suggested class is not the given one, the most suspicious first."""
    suspects = np.flatnonzero(verdicts.suggested != given)
    return suspects[np.argsort(-verdicts.suspicion[suspects], kind="stable")]
