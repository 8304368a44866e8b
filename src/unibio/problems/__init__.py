"""Named bilevel problems, from the paper and for tests."""

from unibio.problems.examples import coupled_example3, example1, example3, example4
from unibio.problems.lp_regression import corrupted_regression, lp_regression
from unibio.problems.named import PROBLEMS, Setting
from unibio.problems.quadratic import quadratic

__all__ = [
    "PROBLEMS",
    "Setting",
    "corrupted_regression",
    "coupled_example3",
    "example1",
    "example3",
    "example4",
    "lp_regression",
    "quadratic",
]
