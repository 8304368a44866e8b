"""How `tune` chooses among settings. A criterion gives a score, smaller is better, from one setting's runs over the
seeds."""

import dataclasses
from typing import Protocol

import numpy as np

from unibio.core import checks
from unibio.run.result import Table

Score = tuple[float, ...]


class Criterion(Protocol):
    """Gets the runs of one setting as a table, whose columns are arrays (seeds, measurements), and returns their score.
    Scores are compared entry by entry, like tuples; the smallest wins."""

    def __call__(self, table: Table) -> Score: ...


@dataclasses.dataclass(frozen=True)
class Final:
    """The score is the median over the seeds of the mean of a metric over the last `share` of the measurements; it is
    infinite where a run has diverged."""

    metric: str = "gradient_norm"
    share: float = 0.2

    def __post_init__(self) -> None:
        checks.text("metric", self.metric, "gradient_norm")
        checks.number("share", self.share, low=0.0, high=1.0, strict=True)

    def __call__(self, table: Table) -> Score:
        values = _column(table, self.metric)
        last = max(1, round(self.share * values.shape[1]))
        return (float(np.median(np.mean(values[:, -last:], axis=1))),)


@dataclasses.dataclass(frozen=True)
class CallsToReach:
    """The score is the median over the seeds of the calls at the first measurement with metric ≤ target. Ties are
    decided by `Final`, which also ranks settings that never reach the target."""

    target: float
    metric: str = "gradient_norm"

    def __post_init__(self) -> None:
        checks.number("target", self.target)
        checks.text("metric", self.metric, "gradient_norm")

    def __call__(self, table: Table) -> Score:
        reached = _column(table, self.metric) <= self.target
        calls = np.where(reached, table["calls"], np.inf).min(axis=1)  # they only grow: the first have the fewest
        return (float(np.median(calls)), *Final(self.metric)(table))


def _column(table: Table, metric: str) -> np.ndarray:
    if metric not in table:
        raise ValueError(f"no metric {metric!r} was measured; there is {', '.join(table)}.")
    finite = np.isfinite(table[metric]) & table.get("finite", np.asarray(True))
    return np.where(finite, table[metric], np.inf)
