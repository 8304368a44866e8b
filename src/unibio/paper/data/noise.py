"""Label noise. It is drawn once, so that a sample has the same label whenever it is used."""

import numpy as np

from unibio.core import checks


def symmetric(rate: float, classes: int) -> np.ndarray:
    """The transition matrix of symmetric noise: with probability `rate` a label becomes any other class, each alike."""
    checks.whole_number("classes", classes, low=2)
    checks.number("the noise rate", rate, low=0.0)
    if rate >= 1:
        raise ValueError(f"the noise rate must be at least 0 and below 1; got {rate}.")
    return np.full((classes, classes), rate / (classes - 1)) + (1 - rate - rate / (classes - 1)) * np.eye(classes)


def flip(labels: np.ndarray, matrix: np.ndarray, seed: int) -> np.ndarray:
    """The labels that a learner sees. Each is drawn from the row of its true class: class i becomes class j with
    probability matrix[i, j]."""
    checks.whole_number("seed", seed, low=0, high=checks.LONGEST)
    labels, matrix = (np.asarray(checks.real_array(*named)) for named in (("labels", labels), ("matrix", matrix)))
    classes = len(matrix)
    if matrix.shape != (classes, classes) or (matrix < 0).any() or not np.allclose(matrix.sum(axis=1), 1):
        raise ValueError("the transition matrix must be square, without negative entries, its rows adding up to 1.")
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels must be a vector of whole numbers; got {labels.dtype} of shape {labels.shape}.")
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"labels must lie in 0 … {classes - 1}; got {labels.min()} … {labels.max()}.")
    draws = np.random.default_rng(seed).random(len(labels))
    seen = (draws[:, None] >= np.cumsum(matrix, axis=1)[labels]).sum(axis=1).clip(max=classes - 1)
    return seen.astype(labels.dtype)
