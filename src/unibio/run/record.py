"""What a run has recorded so far: history, metrics, totals."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import tree
from unibio.core.programs import computed
from unibio.core.protocols import Calls, State
from unibio.core.status import Status
from unibio.core.tree import PyTree
from unibio.run.programs import Log
from unibio.run.result import Result, Table
from unibio.run.rows import Rows, length

OK, STATIONARY = int(Status.ok.code), int(Status.stationary.code)


def first_true(flags: np.ndarray) -> int:
    """The place of the first True, or the length if there is none."""
    return int(np.argmax(flags)) if flags.any() else flags.size


class Anchor(NamedTuple):
    """A step to which back-off may send a run back, and the state after it."""

    step: int
    state: Any


class Record:
    """History, metrics and totals of a run as it goes.

    `restarts` says why the run was started again from an earlier state, once for each time; `anchor` is where it would
    go back to (None: the start); `origin` are digests of what the run was given (see `identity`).
    """

    def __init__(
        self,
        x0: PyTree,
        resume: Result | None = None,
        anchor: Anchor | None = None,
        origin: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.x0 = x0
        self.anchor = anchor
        self.origin = origin
        self.step = 0 if resume is None else resume.steps
        self.calls = np.zeros(4, np.int64) if resume is None else np.asarray(resume.calls, np.int64)
        self.seconds = 0.0 if resume is None else resume.seconds
        self.compile_seconds = 0.0 if resume is None else resume.compile_seconds
        self.history = Rows() if resume is None else Rows(resume.history)
        self.metrics = Rows() if resume is None else Rows(resume.metrics)
        self.restarts: list[str] = [] if resume is None else list(resume.restarts)
        self._recall()

    def _recall(self) -> None:
        """Sets `latest` and `direction_norm`, the last numbers, by what history and metrics hold."""
        position = self.position()
        self.latest: dict[str, float] = {}
        for table in self.metrics.tables:
            self.latest |= {name: float(values[-1]) for name, values in table.items() if name not in position}
        self.direction_norm = (
            float(self.history.tables[-1]["direction_norm"][-1]) if len(self.history) else float("nan")
        )

    def position(self) -> dict[str, Any]:
        """Step, calls and seconds so far."""
        names = dict(zip(Calls._fields, (int(c) for c in self.calls), strict=True))
        return {"step": self.step, **names, "calls": int(self.calls.sum()), "seconds": self.seconds}

    def row(self) -> dict[str, Any]:
        """What was last recorded: step, calls, seconds, direction_norm, restarts, and the metrics by name."""
        return self.position() | {"direction_norm": self.direction_norm, "restarts": len(self.restarts)} | self.latest

    def spent(self, calls: Calls, seconds: float) -> None:
        """Adds the calls and seconds that belong to no recorded step, such as those of a warm start."""
        self.calls += np.asarray([int(value) for value in calls])
        self.seconds += seconds

    def mark(self, state: State) -> None:
        """Makes the state after the present step the anchor."""
        self.anchor = Anchor(self.step, state)

    def spent_compiling(self, seconds: float) -> None:
        """Adds seconds of compilation."""
        self.compile_seconds += seconds

    def has(self, names: set[str]) -> bool:
        """Whether metrics of these names have been noted at this step."""
        here = len(self.metrics) > 0 and int(self.metrics.tables[-1]["step"][-1]) == self.step
        return here and names <= set(self.metrics.tables[-1])

    def note(self, values: Mapping[str, Any]) -> None:
        """Adds metrics, numbers by name, to the row of this step."""
        new = {name: float(value) for name, value in values.items()}
        self.latest |= new
        row = {name: np.asarray([value]) for name, value in (self.position() | new).items()}
        if self.has(set()) and length(self.metrics.tables[-1]) == 1:
            self.metrics.tables[-1] = self.metrics.tables[-1] | row  # a resumed Result keeps its own
        else:
            self.metrics.add(row)

    def table(self, log: Log, seconds: float = 0.0) -> Table:
        """The history's columns for the steps of a log that follow on those recorded, and `bad`, which tells whether x
        or y is not finite after a step (see `Log`); `seconds` are spread evenly."""
        number = len(log.bad)
        each = np.stack([np.asarray(counts, np.int64) for counts in log.calls], axis=1)
        totals = self.calls + np.cumsum(each, axis=0)
        codes = np.asarray(log.status.code)
        return {
            "step": self.step + np.arange(number),
            "direction_norm": np.asarray(log.direction_norm),
            **{name: totals[:, i] for i, name in enumerate(Calls._fields)},
            "calls": totals.sum(axis=1),
            "seconds": self.seconds + seconds * (np.arange(number) + 1) / max(1, number),
            "ok": np.isin(codes, (OK, STATIONARY)),
            "status": codes,
            "restarts": np.full(number, len(self.restarts)),
            "bad": np.asarray(log.bad),
        }

    def advanced(self, log: Log, seconds: float, compiling: float) -> None:
        """Adds the steps of a stretch."""
        piece = self.table(log, seconds)
        del piece["bad"]  # only steps that left x and y finite are recorded
        self.history.add(piece)
        self.compile_seconds += compiling
        self.seconds += seconds
        self.step += len(piece["step"])
        if len(piece["step"]):
            self.calls = np.asarray([piece[name][-1] for name in Calls._fields])
            self.direction_norm = float(piece["direction_norm"][-1])

    def rewind(self, step: int, state: State | None, why: str) -> None:
        """Forgets what was recorded after `step` steps, but not the calls and seconds that it took. The anchor and what
        was measured at `step` stay only if the run goes on from the anchor's state."""
        if self.anchor is None or self.anchor.state is not state:
            self.anchor = None
        self.history.cut(step - 1)
        self.metrics.cut(step if self.anchor is not None else step - 1)
        self.step = step
        self.restarts.append(why)
        self._recall()

    def result(self, state: State, y0: PyTree, status: Status, why: str) -> Result:
        """The result of the run that ends with this state; None: where it began."""
        x, y = (self.x0, y0) if state is None else (state.x, state.y)
        history, metrics = self.history.since(0), self.metrics.since(0)
        again = [f"{reason} ({_times(count)})" for reason, count in Counter(self.restarts).items()]
        notes = [*_notes(history), *_still_note(self.x0, x, self.step), *_lower_note(metrics)]
        if status == Status.not_finite:  # nothing that follows from NaN in the data is worth a word of advice
            notes = []
        return Result(
            x,
            y,
            status,
            "; ".join([why, *notes, *again]),
            self.step,
            Calls(*(int(c) for c in self.calls)),
            self.seconds,
            self.compile_seconds,
            history,
            metrics,
            state,
            tuple(self.restarts),
            self.origin,
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _notes(history: Table) -> list[str]:
    """Sentences on hypergradients whose status was not ok: how many, and in which step the first. A direction of norm 0
    is mentioned only if the last one was: solvers whose v starts at 0 begin with one."""
    codes = history.get("status", np.zeros(0, int))
    bad = [code for code in np.unique(codes) if code not in (OK, STATIONARY)]
    notes = [
        f"hypergradient in {np.sum(codes == code)} of {len(codes)} steps, first in step "
        f"{history['step'][np.argmax(codes == code)]}: {Status(code).message}"
        for code in bad
    ]
    if codes.size and codes[-1] == STATIONARY:
        moving = np.flatnonzero(codes != STATIONARY)
        since = history["step"][moving[-1] + 1 if moving.size else 0]
        notes.append(f"direction of norm 0 since step {since}: {Status.stationary.message}")
    return notes


def _change(x0: PyTree, x: PyTree) -> tuple[jax.Array, jax.Array]:
    """The largest change of an entry from x0 to x, and the largest entry of x0."""
    return tree.largest(tree.sub(x, x0)), tree.largest(x0)


def _still_note(x0: PyTree, x: PyTree, steps: int) -> list[str]:
    """A sentence if x is still where the run began, up to the rounding of its largest entry."""
    moved, largest = computed(_change, x0, x)
    if steps == 0 or not bool(moved <= 4 * jnp.finfo(moved.dtype).eps * largest):
        return []
    return [
        f"x has not moved in {steps} steps (its largest change is {float(moved):.3g}): every step was 0 or was lost in "
        "the rounding of x. Raise step_size, or use a solver whose steps have a fixed length, such as UniBiO"
    ]


def _lower_note(metrics: Table) -> list[str]:
    """A sentence if y is further from y*(x) than at first and does not come closer, as far as a metric tells.

    A start that was better than what followed is no harm in itself, so that the trend decides: the median of the later
    half of the measurements after the first against that of the earlier half.
    """
    for name in ("lower_residual", "lower_error"):
        values = metrics.get(name, np.zeros(0))
        half = (values.size - 1) // 2
        if half < 2:
            continue
        early, late = np.median(values[1 : 1 + half]), np.median(values[-half:])
        if late > 0.9 * early and late > 2 * values[0]:
            return [
                f"the lower level is not converging: {name} was {values[0]:.3g} at first, {early:.3g} (median) in the "
                f"first half of the run and {late:.3g} in the second; give the lower level more or smaller steps, or "
                "refresh it more often"
            ]
    return []
