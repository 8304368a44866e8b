"""What acts between two stretches of steps: rules, measurements, checkpoints, back-off, signals, logs.

A run is compiled stretches of steps. Between them the host asks a list of objects, in order, what to do. They all obey
one protocol, and none writes into another's fields: what an object wants, it answers.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from unibio.core.problem import Problem
from unibio.core.status import Status
from unibio.run.record import Record
from unibio.run.result import Table

NEVER = sys.maxsize


class End(NamedTuple):
    """The run ends here. `why` is the first sentence of the result's message."""

    status: Status
    why: str


class Restart(NamedTuple):
    """The run goes on with this solver from this state, which is that after `step` steps.

    What was recorded of later steps is forgotten, but their calls and seconds stay counted. A state of None is the
    start: the solver begins anew from x0 and y0, and `step` is 0. `why` is told at the end, with how often it happened.
    """

    solver: Any
    state: Any
    step: int
    why: str


@dataclasses.dataclass(frozen=True)
class View:
    """What an object sees between two stretches.

    Arguments:
        problem: the problem that is solved.
        solver: the solver in force.
        state: its state, with x and y; None if its warm start was not finite, and `end` says so.
        record: the numbers so far: `record.step`, `record.row()`, `record.note(…)` to add some.
        steps: the step at which the run is complete.
        begins: whether this is the first look of a call of `solve`, before it has made any step.
        restarted: whether no step has been made since a restart.
        end: what an object that was asked earlier in this round has answered, if it wants to end the run.
    """

    problem: Problem
    solver: Any
    state: Any
    record: Record
    steps: int
    begins: bool
    restarted: bool = False
    end: End | None = None


@runtime_checkable
class Between(Protocol):
    """Acts between stretches of steps. Derive from it and write the methods that are needed; these do nothing."""

    def limit(self, step: int) -> int:
        """The stretch that begins at this step ends at the returned step at the latest."""
        return NEVER

    def keep(self, log: Table) -> int:
        """How many steps of a stretch count: the others are undone. `log` has the history's columns for them."""
        return len(log["step"])

    def after(self, view: View) -> Restart | End | None:
        """Called after each stretch, once before the first, and after a restart. With None the run goes on."""
        return None


def ask(between: Sequence[Between], view: View) -> Restart | End | None:
    """What the objects answer together, asked in order. Those asked after an `End` see it in their view, and may answer
    with a `Restart` instead; after that nobody else is asked."""
    for each in between:
        answer = each.after(view)
        if isinstance(answer, Restart):
            return answer
        if isinstance(answer, End):
            view = dataclasses.replace(view, end=answer)
        elif answer is not None:
            raise TypeError(f"{type(each).__name__}.after must return None, an End or a Restart; got {answer!r}.")
    return view.end
