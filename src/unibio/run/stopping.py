"""When to stop early: rules for `solve(…, stop=[Below("gradient_norm", 1e-3), MaxCalls(10**6)])`."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from unibio.core import checks
from unibio.core.problem import Problem
from unibio.core.status import Status
from unibio.run.between import Between, End, View
from unibio.run.record import first_true
from unibio.run.result import Table


class Condition(Protocol):
    """Whether a run should end here; `row` is what was last recorded, by name."""

    def __call__(self, problem: Problem, state: Any, row: Mapping[str, Any], /) -> bool: ...


class Rule(Between):
    """Ends the run, with the status `status`, as soon as `met` returns True."""

    status: ClassVar[Status] = Status.budget

    def met(self, view: View) -> bool:
        """Whether the run should end here."""
        raise TypeError(
            f"{type(self).__name__} does not say when to end a run: define the method met(self, view), which returns "
            "True where the run should end."
        )

    def after(self, view: View) -> End | None:
        if view.end is not None or not self.met(view):
            return None
        return End(self.status, f"{self!r} after {view.record.step} steps")


class StopWhen(Rule):
    """A function `(problem, state, row) -> bool` as a rule; `row` has the last recorded numbers by name. The run ends
    with the function's attribute `status`, or with `budget` if it has none."""

    def __init__(self, function: Condition) -> None:
        self.function = function
        self.status = getattr(function, "status", Status.budget)  # type: ignore[misc]

    def __repr__(self) -> str:
        return repr(self.function)

    def met(self, view: View) -> bool:
        ends = self.function(view.problem, view.state, view.record.row())
        if np.ndim(ends) != 0 or np.asarray(ends).dtype != bool:
            raise TypeError(f"the stop rule {self!r} must return True or False; it returned {ends!r}.")
        return bool(ends)


@dataclasses.dataclass(frozen=True)
class Below(Rule):
    """Stop when a recorded number is at most a tolerance, e.g. `Below("gradient_norm", 1e-3)` with `Truth()`.

    `direction_norm` is no safe choice: it is noisy, and 0 in the first step of solvers whose v starts at 0.
    """

    name: str
    tolerance: float
    status: ClassVar[Status] = Status.ok

    def __post_init__(self) -> None:
        checks.text("Below(name, …)", self.name, "gradient_norm")
        checks.number("tolerance", self.tolerance)

    def met(self, view: View) -> bool:
        return _recorded(self.name, view.record.row(), "Below") <= self.tolerance


@dataclasses.dataclass(frozen=True)
class Above(Rule):
    """End as diverged when a recorded number is above a bound or NaN, e.g. `Above("lower_residual", 10.0)` with
    `LowerResidual()`: a lower level that does not follow x. With back-off the run goes on from before."""

    name: str
    bound: float
    status: ClassVar[Status] = Status.diverged

    def __post_init__(self) -> None:
        checks.text("Above(name, …)", self.name, "lower_residual")
        checks.number("bound", self.bound)

    def met(self, view: View) -> bool:
        value = _recorded(self.name, view.record.row(), "Above")
        if self.name == "direction_norm" and view.record.step == 0:  # there has been none yet
            return False
        return not value <= self.bound


@dataclasses.dataclass(frozen=True)
class MaxSeconds(Rule):
    """Stop after `seconds` seconds of computing; compilation and metrics do not count."""

    seconds: float

    def __post_init__(self) -> None:
        checks.number("seconds", self.seconds, low=0.0, strict=True)

    def met(self, view: View) -> bool:
        return view.record.seconds >= self.seconds


@dataclasses.dataclass(frozen=True)
class MaxCalls(Rule):
    """Stop with the first step that brings the calls (samples of all four oracles) to `calls` or more."""

    calls: int

    def __post_init__(self) -> None:
        checks.whole_number("calls", self.calls, low=1, high=checks.LONGEST)

    def keep(self, log: Table) -> int:
        """The steps up to the one that uses up the budget, whatever the length of the stretch."""
        return first_true(log["calls"] >= self.calls) + 1

    def met(self, view: View) -> bool:
        return int(view.record.calls.sum()) >= self.calls


def _recorded(name: str, row: Mapping[str, Any], rule: str) -> float:
    """The last recorded number of this name. If there is none, a ValueError lists the names that there are."""
    if name not in row:
        raise ValueError(
            f"{rule}({name!r}): nothing of this name is recorded; there is {', '.join(sorted(row))}. "
            "Add a metric that gives it, e.g. metrics=Truth()."
        )
    return float(row[name])
