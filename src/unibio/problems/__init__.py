"""Named bilevel problems, from the paper and for tests."""

from unibio.problems.examples import coupled_example3, example1, example3, example4
from unibio.problems.lp_regression import lp_regression
from unibio.problems.quadratic import quadratic

__all__ = ["coupled_example3", "example1", "example3", "example4", "lp_regression", "quadratic"]
