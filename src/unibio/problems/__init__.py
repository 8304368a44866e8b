"""Named bilevel problems, from the paper and for tests."""

from unibio.problems.examples import coupled_example3, example1, example3, example4
from unibio.problems.hyper_cleaning import (
    LossNetwork,
    LpLoss,
    NoiseRate,
    PerSample,
    Shared,
    cross_entropy,
    hyper_cleaning,
)
from unibio.problems.lp_regression import corrupted_regression, lp_regression
from unibio.problems.named import PROBLEMS
from unibio.problems.quadratic import quadratic
from unibio.problems.setting import Setting

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
