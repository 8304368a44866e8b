"""Comparing and tuning solvers: tables, files, and curves (which need the extra `plot`)."""

from unibio.comparison.comparing import Comparison, compare
from unibio.comparison.criteria import CallsToReach, Final
from unibio.comparison.tuning import Tuned, tune

__all__ = ["CallsToReach", "Comparison", "Final", "Tuned", "compare", "tune"]
