"""scikit-learn's 8×8 digits, split."""

from typing import NamedTuple

import numpy as np


class Split(NamedTuple):
    """Inputs in [0, 1] and labels 0–9 of three disjoint parts."""

    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def load(train: int = 1000, validation: int = 200, seed: int = 0) -> Split:
    """A random split of the 1,797 digits; what is left is the test part."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ValueError("the digits come with scikit-learn: pip install 'unibio[sklearn]'") from None
    data = load_digits()
    if train < 1 or validation < 1 or train + validation >= len(data.target):
        raise ValueError(f"train and validation must leave some of the {len(data.target)} digits for the test.")
    order = np.random.default_rng(seed).permutation(len(data.target))
    inputs, labels = data.data[order].astype(np.float32) / 16, data.target[order].astype(np.int32)
    ends = np.cumsum([train, validation])
    parts = [(a, b) for a, b in zip(np.split(inputs, ends), np.split(labels, ends), strict=True)]
    return Split(*parts)
