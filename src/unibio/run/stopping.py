"""When to stop early. A rule is `stop(problem, state, row) -> bool`, asked between stretches of steps; `row` is what
was last recorded: step, seconds, calls of each oracle and their sum `calls`, direction_norm, the metrics. The
run then ends with the rule's attribute `status`, or with `budget` if it has none."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from unibio.core import checks
from unibio.core.problem import Problem
from unibio.core.status import Status


class Stop(Protocol):
    """Whether to end the run here."""

    def __call__(self, problem: Problem, state: Any, row: Mapping[str, Any]) -> bool: ...


@dataclasses.dataclass(frozen=True)
class Below:
    """Stop when a recorded number is at most a tolerance, e.g. `Below("gradient_norm", 1e-3)` with `Truth()`.

    `direction_norm` is no safe choice: it is noisy, and 0 in the first step of solvers whose v starts at 0.
    """

    name: str
    tolerance: float
    status: ClassVar[Status] = Status.ok

    def __post_init__(self) -> None:
        checks.number("tolerance", self.tolerance)

    def __call__(self, problem: Problem, state: Any, row: Mapping[str, Any]) -> bool:
        return recorded(self.name, row, "Below") <= self.tolerance


@dataclasses.dataclass(frozen=True)
class Above:
    """End as diverged when a recorded number is above a limit or NaN, e.g. `Above("lower_residual", 10.0)` with
    `LowerResidual()`: a lower level that does not follow x. With back-off the run goes on from before."""

    name: str
    limit: float
    status: ClassVar[Status] = Status.diverged

    def __post_init__(self) -> None:
        checks.number("limit", self.limit)

    def __call__(self, problem: Problem, state: Any, row: Mapping[str, Any]) -> bool:
        value = recorded(self.name, row, "Above")
        if self.name == "direction_norm" and row["step"] == 0:  # there has been none yet
            return False
        return not value <= self.limit


def recorded(name: str, row: Mapping[str, Any], rule: str) -> float:
    """The number of that name, or a message that says what there is."""
    if name not in row:
        raise ValueError(
            f"{rule}({name!r}): nothing of this name is recorded; there is {', '.join(sorted(row))}. "
            "Add a metric that gives it, e.g. metrics=Truth()."
        )
    return float(row[name])


@dataclasses.dataclass(frozen=True)
class MaxSeconds:
    """Stop after so many seconds of computing; compilation and metrics do not count."""

    seconds: float

    def __post_init__(self) -> None:
        checks.number("seconds", self.seconds, low=0.0, strict=True)

    def __call__(self, problem: Problem, state: Any, row: Mapping[str, Any]) -> bool:
        return bool(row["seconds"] >= self.seconds)


@dataclasses.dataclass(frozen=True)
class MaxCalls:
    """Stop with the first step that brings the calls (samples of all four oracles) to `calls` or more."""

    calls: int

    def __post_init__(self) -> None:
        checks.whole_number("calls", self.calls, low=1)

    def __call__(self, problem: Problem, state: Any, row: Mapping[str, Any]) -> bool:
        return bool(row["calls"] >= self.calls)
