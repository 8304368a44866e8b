"""scikit-learn's 8×8 digits."""

import numpy as np


def load(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs in [0, 1] and labels 0–9 of the 1,797 digits, in random order."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ValueError("the digits come with scikit-learn: pip install 'unibio[sklearn]'") from None
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    return data.data[order].astype(np.float32) / 16, data.target[order].astype(np.int32)
