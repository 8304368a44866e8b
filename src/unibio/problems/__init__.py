"""Bilevel problems to try things on: the paper's examples, hyper-cleaning of any model, and a quadratic."""

from unibio.problems.examples import coupled_example3, example1, example3, example4, quadratic
from unibio.problems.hyper_cleaning import (
    LossNetwork,
    LpLoss,
    NoiseRate,
    PerSample,
    Setting,
    Shared,
    cross_entropy,
    hyper_cleaning,
)
from unibio.problems.lp_regression import corrupted_regression, lp_regression
from unibio.problems.named import PROBLEMS

__all__ = [
    "PROBLEMS",
    "LossNetwork",
    "LpLoss",
    "NoiseRate",
    "PerSample",
    "Setting",
    "Shared",
    "corrupted_regression",
    "coupled_example3",
    "cross_entropy",
    "example1",
    "example3",
    "example4",
    "hyper_cleaning",
    "lp_regression",
    "quadratic",
]
