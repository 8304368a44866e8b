"""Comparing and tuning solvers: tables and files, no plots."""

from unibio.comparison.comparing import Comparison, compare
from unibio.comparison.criteria import CallsToReach, Final
from unibio.comparison.tuning import Tuned, tune

__all__ = ["CallsToReach", "Comparison", "Final", "Tuned", "compare", "tune"]
