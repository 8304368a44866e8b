"""What a run has recorded so far: history, metrics, totals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import tree
from unibio.core.protocols import Calls
from unibio.core.status import Status
from unibio.core.tree import PyTree
from unibio.run.programs import Log
from unibio.run.result import Result, Table, joined, until
from unibio.run.stopping import MaxCalls, Stop

Anchor = tuple[int, Any] | None  # a step to which back-off may return, and the state after so many
OK, STATIONARY = int(Status.ok.code), int(Status.stationary.code)


class Record:
    """History, metrics and totals of a run as it goes; sums are Python integers and cannot overflow."""

    def __init__(self, x0: PyTree, resume: Result | None, halvings: int = 0) -> None:
        self.x0 = x0
        self.step = 0 if resume is None else resume.steps
        self.calls = np.zeros(4, np.int64) if resume is None else np.asarray(resume.calls, np.int64)
        self.seconds = 0.0 if resume is None else resume.seconds
        self.compile_seconds = 0.0 if resume is None else resume.compile_seconds
        self.pieces: list[Table] = [] if resume is None else [resume.history]
        self.rows: list[Table] = [] if resume is None else [resume.metrics]
        self.halvings = halvings  # of the step sizes, by back-off
        self._recall(*({}, {}) if resume is None else (resume.history, resume.metrics))
        if resume is not None and self.step:
            self.halvings = max(halvings, *resume.history.get("halvings", np.zeros(1, int))[-1:].tolist())

    def _recall(self, history: Table, metrics: Table) -> None:
        """The last numbers of both tables."""
        position = self.position()
        self.latest = {name: float(values[-1]) for name, values in metrics.items() if name not in position}
        self.direction_norm = float(history["direction_norm"][-1]) if history else float("nan")

    def start(self, calls: Calls, seconds: float, compiling: float) -> None:
        self.calls += np.asarray([int(value) for value in calls])
        self.seconds += seconds
        self.compile_seconds += compiling

    def wants_metrics(self, names: set[str]) -> bool:
        """Not twice at the same step, as after a resume, unless one of these names is new."""
        here = self.rows and self.rows[-1] and int(self.rows[-1]["step"][-1]) == self.step
        return not here or not names <= set(self.latest)

    def measured(self, values: dict[str, jax.Array], compiling: float) -> None:
        self.compile_seconds += compiling
        self.latest = {name: float(value) for name, value in values.items()}
        row = self.position() | self.latest
        self.rows.append({name: np.asarray([value]) for name, value in row.items()})

    def position(self) -> dict[str, Any]:
        names = dict(zip(Calls._fields, (int(c) for c in self.calls), strict=True))
        return {"step": self.step, **names, "calls": int(self.calls.sum()), "seconds": self.seconds}

    def row(self) -> dict[str, Any]:
        return self.position() | {"direction_norm": self.direction_norm, "halvings": self.halvings} | self.latest

    def cumulative(self, log: Log) -> np.ndarray:
        """(steps, 4): calls after each step of a stretch."""
        each = np.stack([np.asarray(counts, np.int64) for counts in log.calls], axis=1)
        return self.calls + np.cumsum(each, axis=0)

    def steps_within(self, log: Log, rules: tuple[Stop, ...]) -> int:
        """Steps of a stretch until a budget of calls is reached, that one included; all if none is."""
        budgets = [rule.calls for rule in rules if isinstance(rule, MaxCalls)]
        reached = self.cumulative(log).sum(axis=1) >= min(budgets, default=np.inf)
        return int(np.argmax(reached)) + 1 if reached.any() else reached.size

    def advanced(self, log: Log, seconds: float, compiling: float, number: int) -> None:
        self.compile_seconds += compiling
        totals = self.cumulative(log)
        clock = self.seconds + seconds * (np.arange(number) + 1) / max(1, number)
        codes = np.asarray(log.status.code)
        self.pieces.append(
            {
                "step": self.step + np.arange(number),
                "direction_norm": np.asarray(log.direction_norm),
                **{name: totals[:, i] for i, name in enumerate(Calls._fields)},
                "calls": totals.sum(axis=1),
                "seconds": clock,
                "ok": np.isin(codes, (OK, STATIONARY)),
                "status": codes,
                "halvings": np.full(number, self.halvings),
            }
        )
        self.seconds += seconds
        self.step += number
        if number:
            self.calls = totals[-1]
            self.direction_norm = float(np.asarray(log.direction_norm)[-1])

    def rewind(self, step: int) -> None:
        """Forgets what was recorded after `step` steps, but not the calls and seconds that it took."""
        self.pieces = until(self.pieces, step - 1)
        self.rows = until(self.rows, step)
        self.step = step
        self._recall(joined(self.pieces), joined(self.rows))

    def result(self, x: PyTree, y: PyTree, state: Any, status: Status, reason: str) -> Result:
        history, metrics = joined(self.pieces), joined(self.rows)
        notes = [reason, *_notes(history), *_still_note(self.x0, x, self.step), *_lower_note(metrics)]
        if self.halvings:
            notes.append(f"the step sizes were halved {self.halvings} times after divergence")
        return Result(
            x,
            y,
            status,
            "; ".join(notes),
            self.step,
            Calls(*(int(c) for c in self.calls)),
            self.seconds,
            self.compile_seconds,
            history,
            metrics,
            state,
        )


def diagnosis(step: int, code: int, state: Any) -> str:
    """What became NaN or infinite in a step that led to `state`, and what to try; `code` is its hypergradient's."""
    names = [name for name in ("x", "y") if not bool(tree.all_finite(getattr(state, name)))]
    remedies = {"y": "the lower level diverges, lower its step size", "x": "lower step_size"}
    remedy = remedies.get("".join(names), "lower the step sizes, the lower one first")
    why = "" if code == OK else f"; hypergradient: {Status(code).message}"
    return f"{' and '.join(names)} became NaN or infinite in step {step}: {remedy}{why}"


def _notes(history: Table) -> list[str]:
    """What befell hypergradients: how often, and first in which step. A direction of norm 0 only if it was the last:
    solvers whose v starts at 0 begin with one."""
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


def _still_note(x0: PyTree, x: PyTree, steps: int) -> list[str]:
    """Whether x is still where the run began, up to the rounding of its largest entry."""
    moved = tree.largest(tree.sub(x, x0))
    if steps == 0 or not bool(moved <= 4 * jnp.finfo(moved.dtype).eps * tree.largest(x0)):
        return []
    return [
        f"x has not moved in {steps} steps (its largest change is {float(moved):.3g}): every step was 0 or was lost in "
        "the rounding of x. Raise step_size, or use a solver whose steps have a fixed length, such as UniBiO"
    ]


def _lower_note(metrics: Table) -> list[str]:
    """Whether y is further from y*(x) than at first and does not come closer, where a metric tells.

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
