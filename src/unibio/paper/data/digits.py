"""The 8×8 images of handwritten digits that come with scikit-learn."""

import numpy as np


def load(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The 1,797 digits in a random order: inputs (1797, 64) in [0, 1] and labels 0 to 9."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ValueError("the digits come with scikit-learn: pip install 'unibio[sklearn]'") from None
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    return data.data[order].astype(np.float32) / 16, data.target[order].astype(np.int32)
