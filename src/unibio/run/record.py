"""What a run has recorded so far: history, metrics, totals."""

from typing import Any

import jax
import numpy as np

from unibio.core import tree
from unibio.core.protocols import Calls, Status, describe
from unibio.core.tree import PyTree
from unibio.run.programs import Log
from unibio.run.result import Outcome, Result, Table
from unibio.run.stopping import MaxCalls, Stop

MESSAGES = {int(item._value): describe(item) for item in Status._name_to_item.values()}  # type: ignore[arg-type]
OK, ZERO = int(Status.ok._value), int(Status.zero._value)


class Record:
    """History, metrics and totals of a run as it goes; sums are Python integers and cannot overflow."""

    def __init__(self, resume: Result | None, halvings: int = 0) -> None:
        self.step = 0 if resume is None else resume.steps
        self.calls = np.zeros(4, np.int64) if resume is None else np.asarray(resume.calls, np.int64)
        self.seconds = 0.0 if resume is None else resume.seconds
        self.compile_seconds = 0.0 if resume is None else resume.compile_seconds
        self.pieces: list[Table] = [] if resume is None else [resume.history]
        self.rows: list[Table] = [] if resume is None else [resume.metrics]
        self.halvings = halvings  # of the step sizes, by back-off
        self._recall(*({}, {}) if resume is None else (resume.history, resume.metrics))
        if resume is not None and self.step:
            self.halvings = max(halvings, int(resume.history["halvings"][-1]))

    def _recall(self, history: Table, metrics: Table) -> None:
        """The last numbers of both tables."""
        position = self.position()
        self.latest = {name: float(values[-1]) for name, values in metrics.items() if name not in position}
        self.direction_norm = float(history["direction_norm"][-1]) if self.step else float("nan")

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
        codes = np.asarray(log.status._value)
        self.pieces.append(
            {
                "step": self.step + np.arange(number),
                "direction_norm": np.asarray(log.direction_norm),
                **{name: totals[:, i] for i, name in enumerate(Calls._fields)},
                "calls": totals.sum(axis=1),
                "seconds": clock,
                "ok": np.isin(codes, (OK, ZERO)),
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
        self.pieces = _until(self.pieces, step - 1)
        self.rows = _until(self.rows, step)
        self.step = step
        self._recall(_joined(self.pieces), _joined(self.rows))

    def result(self, x: PyTree, y: PyTree, state: Any, outcome: Outcome, reason: str) -> Result:
        history, metrics = _joined(self.pieces), _joined(self.rows)
        notes = [reason, *_notes(history), *_lower_note(metrics)]
        if self.halvings:
            notes.append(f"the step sizes were halved {self.halvings} times after divergence")
        return Result(
            x,
            y,
            outcome,
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
    why = "" if code == OK else f"; hypergradient: {MESSAGES[code]}"
    return f"{' and '.join(names)} became NaN or infinite in step {step}: {remedy}{why}"


def _notes(history: Table) -> list[str]:
    """What befell hypergradients: how often, and first in which step. A direction of norm 0 only if it was the last:
    solvers whose v starts at 0 begin with one."""
    codes = history.get("status", np.zeros(0, int))
    bad = [code for code in np.unique(codes) if code not in (OK, ZERO)]
    notes = [
        f"hypergradient in {np.sum(codes == code)} of {len(codes)} steps, first in step "
        f"{history['step'][np.argmax(codes == code)]}: {MESSAGES[int(code)]}"
        for code in bad
    ]
    if codes.size and codes[-1] == ZERO:
        moving = np.flatnonzero(codes != ZERO)
        since = history["step"][moving[-1] + 1 if moving.size else 0]
        notes.append(f"direction of norm 0 since step {since}: {MESSAGES[ZERO]}")
    return notes


def _lower_note(metrics: Table) -> list[str]:
    """Whether y is further from y*(x) than it was at the first measurement, where a metric tells."""
    for name in ("lower_residual", "lower_error"):
        values = metrics.get(name, np.zeros(0))
        if values.size > 1 and 0 < values[0] < values[-1]:
            return [
                f"the lower level is not converging: {name} was {values[0]:.3g} at first and is {values[-1]:.3g} after "
                f"step {metrics['step'][-1]}; give the lower level more or smaller steps, or refresh it more often"
            ]
    return []


def _until(tables: list[Table], step: int) -> list[Table]:
    """The rows with at most this step."""
    cut = [{name: values[table["step"] <= step] for name, values in table.items()} for table in tables if table]
    return [table for table in cut if len(table["step"])]


def _joined(pieces: list[Table]) -> Table:
    """One table; a column that a piece does not have, because metrics changed at a resume, is NaN there."""
    pieces = [piece for piece in pieces if piece]
    names = dict.fromkeys(name for piece in pieces for name in piece)
    blank = [np.full(len(piece["step"]), np.nan) for piece in pieces]
    return {name: np.concatenate([p.get(name, b) for p, b in zip(pieces, blank, strict=True)]) for name in names}
