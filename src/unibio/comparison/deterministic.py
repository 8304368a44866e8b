"""`minimise` in a comparison: it is run once, because nothing in it is random, and every seed gets the same rows."""

from collections.abc import Sequence

import numpy as np

from unibio.core.problem import Problem
from unibio.core.protocols import Calls
from unibio.core.status import Status
from unibio.core.tree import PyTree, dtype
from unibio.run.between import Between, End, View
from unibio.run.metrics import Metric, as_measure
from unibio.run.minimise import minimise
from unibio.run.result import Table


class _Measured(Between):
    """Measures after every step, off the clock, and ends the run after `steps` steps."""

    def __init__(self, metrics: Metric | Sequence[Metric], steps: int | None) -> None:
        self.measure, self.steps = as_measure(metrics), steps
        self.rows: list[dict[str, float]] = []
        self.compiling = 0.0

    def after(self, view: View) -> End | None:
        record, cast = view.record, dtype(view.state.x)
        values, compiling = self.measure.measured(view.problem, view.state)
        self.compiling += compiling
        position = record.position()
        row = {name: position[name] for name in ("step", *Calls._fields, "calls", "seconds")}
        row |= {"direction_norm": float(view.state.control.norm), "finite": True}
        row |= {name: float(np.asarray(value, cast)) for name, value in values.items()}
        if self.rows and self.rows[-1]["step"] == row["step"]:  # the calls of a step that the budget cut off
            self.rows.pop()
        self.rows.append(row)
        if self.steps is not None and record.step >= self.steps:
            return End(Status.budget, f"{self.steps} steps")
        return None


def measured(
    problem: Problem,
    x0: PyTree,
    y0: PyTree,
    metrics: Metric | Sequence[Metric],
    lanes: int,
    length: dict[str, int | None],
) -> tuple[Table, float]:
    """The columns of `run_ensemble`'s table, (lanes, measurements), all lanes alike; and the seconds of compilation."""
    steps, max_calls = length["steps"], length["max_calls"]
    if (steps is None) == (max_calls is None):
        raise ValueError("say how long to run: either steps=… or max_calls=…")
    path = _Measured(metrics, steps)
    found = minimise(problem, x0, y0, max_calls=max_calls, callbacks=path)
    table = {name: np.tile([row[name] for row in path.rows], (lanes, 1)) for name in path.rows[0]}
    return table, found.compile_seconds + path.compiling
