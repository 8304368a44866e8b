"""The recipe of HyperCleaner without one of its parts, for the ablation."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from noisy_labels.data import Task
from noisy_labels.methods import Answer, hyper_cleaner
from unibio.cleaning import calibration, noise_matrix, recipe

Array = np.ndarray


@contextlib.contextmanager
def changed(module: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def average_without(kind: str) -> Callable[..., Any]:
    """The recipe's average with the weight 0 for one kind of fit, once there are others."""
    original = recipe._average

    def average(fits: dict[str, recipe.Fitted], labels: recipe.Labels, T: Array) -> Any:
        kept = {name: fitted for name, fitted in fits.items() if name != kind}
        if not kept or len(kept) == len(fits):
            return original(fits, labels, T)
        found, place = original(kept, labels, T), list(fits).index(kind)
        weights, factors = (np.insert(one, place, 0.0, axis=0) for one in (found.weights, found.factors))
        return found._replace(weights=weights, factors=factors)

    return average


VARIANTS: dict[str, tuple[Any, str, Any]] = {
    "one pass": (recipe, "PASSES", 1),
    "three passes": (recipe, "PASSES", 3),
    "noisy rows weigh 1": (recipe, "_EXPONENT", 0.0),
    "no temperatures": (calibration, "best_factor", lambda logits, labels: 1.0),
    "2 pseudo-counts": (noise_matrix, "STRENGTHS", (2.0,)),
    "200 pseudo-counts": (noise_matrix, "STRENGTHS", (200.0,)),
    "no plain fit in the average": (recipe, "_average", average_without("plain")),
    "no symmetric fit in the average": (recipe, "_average", average_without("symmetric")),
    "no matrix fit in the average": (recipe, "_average", average_without("matrix")),
}


def variant(name: str) -> Callable[[Task], Answer]:
    def method(task: Task) -> Answer:
        with changed(*VARIANTS[name]):
            return hyper_cleaner(task)

    return method
