"""Total oracle calls that the main theorem asks for, against ε and p, by both analyses."""

import math
from collections.abc import Sequence

import numpy as np

from unibio.theory import Constants, schedule

ANALYSES = ("paper", "sharp")
Row = dict[str, float | str]


def totals(sets: Sequence[Constants], delta: float = 0.1) -> list[Row]:
    """One row for each set of constants, analysis and ε from 1e-3 to 1: log10 of T and of all calls."""
    return [
        {"p": c.p, "analysis": analysis, "epsilon": float(epsilon),
         "log10_T": plan.log_T / math.log(10), "log10_total": plan.log_total / math.log(10)}
        for c in sets for analysis in ANALYSES for epsilon in np.logspace(-3, 0, 13)
        for plan in [schedule(c, float(epsilon), delta, analysis)]
    ]  # fmt: skip
