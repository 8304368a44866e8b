"""What a run has recorded so far: history, metrics, totals."""

from typing import Any

import jax
import numpy as np

from unibio.core.protocols import Calls, Status, describe
from unibio.core.tree import PyTree
from unibio.run.programs import Log
from unibio.run.result import Outcome, Result, Table
from unibio.run.stopping import MaxCalls, Stop

MESSAGES = {int(item._value): describe(item) for item in Status._name_to_item.values()}  # type: ignore[arg-type]
OK = int(Status.ok._value)


class Record:
    """History, metrics and totals of a run as it goes; sums are Python integers and cannot overflow."""

    def __init__(self, resume: Result | None) -> None:
        self.step = 0 if resume is None else resume.steps
        self.calls = np.zeros(4, np.int64) if resume is None else np.asarray(resume.calls, np.int64)
        self.seconds = 0.0 if resume is None else resume.seconds
        self.compile_seconds = 0.0 if resume is None else resume.compile_seconds
        self.pieces: list[Table] = [] if resume is None else [resume.history]
        self.rows: list[Table] = [] if resume is None else [resume.metrics]
        metrics = {} if resume is None else resume.metrics
        self.latest: dict[str, float] = {name: float(v[-1]) for name, v in metrics.items()}
        self.latest = {name: value for name, value in self.latest.items() if name not in self.position()}
        history = {} if resume is None else resume.history
        self.direction_norm = float(history["direction_norm"][-1]) if history and self.step else float("nan")

    def start(self, calls: Calls, seconds: float, compiling: float) -> None:
        self.calls += np.asarray([int(value) for value in calls])
        self.seconds += seconds
        self.compile_seconds += compiling

    def wants_metrics(self) -> bool:
        """Not twice at the same step, as after a resume."""
        return not (self.rows and self.rows[-1] and int(self.rows[-1]["step"][-1]) == self.step)

    def measured(self, values: dict[str, jax.Array], compiling: float) -> None:
        self.compile_seconds += compiling
        self.latest = {name: float(value) for name, value in values.items()}
        row = self.position() | self.latest
        self.rows.append({name: np.asarray([value]) for name, value in row.items()})

    def position(self) -> dict[str, Any]:
        names = dict(zip(Calls._fields, (int(c) for c in self.calls), strict=True))
        return {"step": self.step, **names, "calls": int(self.calls.sum()), "seconds": self.seconds}

    def row(self) -> dict[str, Any]:
        return self.position() | {"direction_norm": self.direction_norm} | self.latest

    def cumulative(self, log: Log) -> np.ndarray:
        """(steps, 4): calls after each step of a stretch."""
        each = np.stack([np.asarray(counts, np.int64) for counts in log.calls], axis=1)
        return self.calls + np.cumsum(each, axis=0)

    def steps_within(self, log: Log, rules: tuple[Stop, ...]) -> int:
        """Steps of a stretch until a budget of calls is reached, that one included; all if none is."""
        budgets = [rule.calls for rule in rules if isinstance(rule, MaxCalls)]
        reached = self.cumulative(log).sum(axis=1) >= min(budgets, default=np.inf)
        return int(np.argmax(reached)) + 1 if reached.any() else reached.size

    def budget_reached(self, rules: tuple[Stop, ...]) -> bool:
        return any(isinstance(rule, MaxCalls) and self.calls.sum() >= rule.calls for rule in rules)

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
                "ok": codes == OK,
                "status": codes,
            }
        )
        self.seconds += seconds
        self.step += number
        if number:
            self.calls = totals[-1]
            self.direction_norm = float(np.asarray(log.direction_norm)[-1])

    def result(self, x: PyTree, y: PyTree, state: Any, outcome: Outcome, reason: str) -> Result:
        history = _joined(self.pieces)
        codes = history.get("status", np.zeros(0, int))
        notes = [f"{np.sum(codes == c)} of {self.step} steps: {MESSAGES[int(c)]}" for c in np.unique(codes) if c != OK]
        return Result(
            x,
            y,
            outcome,
            "; ".join([reason, *notes]),
            self.step,
            Calls(*(int(c) for c in self.calls)),
            self.seconds,
            self.compile_seconds,
            history,
            _joined(self.rows),
            state,
        )


def _joined(pieces: list[Table]) -> Table:
    """One table; a column that a piece does not have, because metrics changed at a resume, is NaN there."""
    pieces = [piece for piece in pieces if piece]
    names = dict.fromkeys(name for piece in pieces for name in piece)
    blank = [np.full(len(piece["step"]), np.nan) for piece in pieces]
    return {name: np.concatenate([p.get(name, b) for p, b in zip(pieces, blank, strict=True)]) for name in names}
