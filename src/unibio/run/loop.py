"""`solve`: compiled stretches of steps, and between them the host's work."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import checks, tree
from unibio.core.problem import Problem, prepare
from unibio.core.protocols import BilevelSolver, Calls, Status, describe
from unibio.core.tree import PyTree
from unibio.run.metrics import Metric, as_measure, evaluate
from unibio.run.programs import Log, advance, initialise, run
from unibio.run.progress import terminal_progress
from unibio.run.result import Outcome, Result, Table, check_steps
from unibio.run.stopping import MaxCalls, Stop

_MESSAGES = {int(item._value): describe(item) for item in Status._name_to_item.values()}  # type: ignore[arg-type]
_CAPACITY = 1024  # most steps in one stretch; fixed, so that another number of steps is the same program
_STRETCH_SECONDS = 0.5  # how long a stretch should take, so that bars move and rules are asked


def solve(
    problem: Problem,
    solver: BilevelSolver,
    x0: PyTree,
    y0: PyTree,
    *,
    steps: int,
    key: jax.Array | None = None,
    metrics: Metric | Sequence[Metric] = (),
    every: int | None = None,
    stop: Stop | Sequence[Stop] = (),
    callbacks: Callable[[dict[str, Any]], None] | Sequence[Callable[[dict[str, Any]], None]] = (),
    chunk: int | None = None,
    resume: Result | None = None,
) -> Result:
    """Runs a solver for `steps` steps from (x0, y0).

    Step t uses `fold_in(key, t)`, so that the trajectory does not depend on `chunk`, on metrics, or on having been
    resumed. A non-finite iterate ends the run with status `diverged`; x and y are the last finite ones.

    Arguments:
        metrics: e.g. `Truth()`, measured at the start, every `every` steps (by default a hundredth) and at the end.
        stop: rules such as `Below("gradient_norm", 1e-3)`, `MaxSeconds(60)`, `MaxCalls(10**6)`.
        callbacks: called with what was last recorded, a dictionary, after every stretch of steps.
        chunk: steps in a stretch; by default as many as take half a second.
        resume: a Result of the same run with fewer steps, to go on from; its history is kept.

    Example:
        >>> problem = problems.example3(4.0)
        >>> solver = UniBiO(step_size=0.03, hypergradient=Neumann(terms=1, scale=1.0))
        >>> result = solve(problem, solver, 1.0, 1.0, steps=200, key=jax.random.key(0))
        >>> result.status, abs(float(result.x) + jnp.pi / 2) < 0.03  # Φ(x) = sin(sin x) is least at −π/2
        (<Outcome.finished: 'finished'>, Array(True, dtype=bool))
    """
    check_steps(steps, key)
    problem, x0, y0 = prepare(problem, x0, y0)
    solver = check_solver(solver, tree.dtype(x0))
    measure = tree.cast(as_measure(metrics), tree.dtype(x0))
    rules: tuple[Any, ...] = _several("stop", stop, "Below(…), MaxSeconds(…) or MaxCalls(…)")
    tellers = _several("callbacks", callbacks, "functions of one dictionary")
    for name, value in (("every", every), ("chunk", chunk)):
        if value is not None:
            checks.whole_number(name, value, low=1)
    every = max(1, steps // 100) if every is None else every
    record = _Record(resume)
    if resume is None:
        (state, calls), seconds, compiling = run(initialise, solver, problem, x0, y0, key)
        record.start(calls, seconds, compiling)
        if not bool(tree.all_finite((state.x, state.y))):
            reason = "the warm start became NaN or infinite, x and y are where it began: lower the lower step size"
            return record.result(x0, y0, None, Outcome.diverged, reason)
    else:
        state = _state_of(resume, steps)
    capacity = max(_CAPACITY, chunk or 0)
    has_metrics = bool(measure.metrics)

    def look(state: Any) -> None:
        if has_metrics and record.wants_metrics():
            values, _, compiling = run(evaluate, measure, problem, state)
            record.measured(values, compiling)

    with contextlib.ExitStack() as stack:
        tell = [*tellers, stack.enter_context(terminal_progress(steps))]
        look(state)
        ended = _asked_to_stop(rules, problem, state, record)
        length = 1 if chunk is None else chunk
        while record.step < steps and ended is None:
            target = min(steps, (record.step // every + 1) * every) if has_metrics else steps
            number = min(length, target - record.step, capacity)

            def stretch(number: int, state: Any = state) -> tuple[Any, Log, float, float]:
                first, length = jnp.int32(record.step), jnp.int32(number)
                args = (solver, problem, state, key, first, length)
                (after, log), seconds, compiling = run(advance, *args, capacity=capacity)
                return after, jax.tree.map(lambda leaf: np.asarray(leaf)[:number], log), seconds, compiling

            after, log, seconds, compiling = stretch(number)
            keep = min(_finite_steps(log), record.steps_within(log, rules))
            if keep < number:  # take only the steps before the bad one, or up to the budget
                after, log, _, _ = stretch(keep)
            record.advanced(log, seconds * (keep / number), compiling, keep)
            state = after
            if keep < number and not record.budget_reached(rules):
                ended = (Outcome.diverged, f"x or y became NaN or infinite in step {record.step}: lower the step sizes")
            if record.step in (target, steps) or ended is not None:
                look(state)
            ended = ended or _asked_to_stop(rules, problem, state, record)
            for callback in tell:
                callback(record.row())
            if chunk is None:
                length = max(1, min(2 * number, int(_STRETCH_SECONDS * number / max(seconds, 1e-9))))
    outcome, reason = ended or (Outcome.finished, f"{steps} steps")
    return record.result(state.x, state.y, state, outcome, reason)


def _several(name: str, value: Any, choices: str) -> tuple[Any, ...]:
    """One callable, or several."""
    several = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    for one in several:
        if isinstance(one, type) or not callable(one):
            raise TypeError(f"{name} must be {choices}, or a list of such; got {one!r}.")
    return several


def check_solver(solver: Any, dtype: jnp.dtype) -> Any:
    """The solver with its numbers in the dtype of x."""
    if isinstance(solver, type) or not all(callable(getattr(solver, name, None)) for name in ("init", "step")):
        raise TypeError(f"solver must be an instance such as UniBiO(step_size=0.03); got {solver!r}.")
    return tree.cast(solver, dtype)


def _state_of(resume: Result, steps: int) -> Any:
    if resume.state is None:
        raise ValueError(
            "this Result has no solver state (it was loaded from a file): resume from what solve returned."
        )
    if resume.steps > steps:
        raise ValueError(f"resume has already taken {resume.steps} steps, more than steps={steps}; raise steps.")
    return resume.state


def _finite_steps(log: Log) -> int:
    """How many steps there were before the first bad one."""
    finite = np.asarray(log.finite)
    return int(finite.size if finite.all() else np.argmin(finite))


def _asked_to_stop(
    rules: tuple[Stop, ...], problem: Problem, state: Any, record: "_Record"
) -> tuple[Outcome, str] | None:
    row = record.row()
    for rule in rules:
        if rule(problem, state, row):
            return Outcome.stopped, f"{rule!r} after {record.step} steps"
    return None


class _Record:
    """History, metrics and totals of a run as it goes; sums are Python integers and cannot overflow."""

    def __init__(self, resume: Result | None) -> None:
        self.step = 0 if resume is None else resume.steps
        self.calls = np.zeros(4, np.int64) if resume is None else np.asarray(resume.calls, np.int64)
        self.seconds = 0.0 if resume is None else resume.seconds
        self.compile_seconds = 0.0 if resume is None else resume.compile_seconds
        self.pieces: list[Table] = [] if resume is None else [resume.history]
        self.rows: list[Table] = [] if resume is None else [resume.metrics]
        self.latest: dict[str, float] = {}
        self.direction_norm = float("nan")
        self.problems: dict[str, int] = {}

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
        for code in np.unique(codes[codes != Status.ok._value]):
            message = _MESSAGES[int(code)]
            self.problems[message] = self.problems.get(message, 0) + int(np.sum(codes == code))
        self.pieces.append(
            {
                "step": self.step + np.arange(number),
                "direction_norm": np.asarray(log.direction_norm),
                **{name: totals[:, i] for i, name in enumerate(Calls._fields)},
                "calls": totals.sum(axis=1),
                "seconds": clock,
                "ok": codes == np.asarray(Status.ok._value),
            }
        )
        self.seconds += seconds
        self.step += number
        if number:
            self.calls = totals[-1]
            self.direction_norm = float(np.asarray(log.direction_norm)[-1])

    def result(self, x: PyTree, y: PyTree, state: Any, outcome: Outcome, reason: str) -> Result:
        notes = [f"{count} of {self.step} steps: {message}" for message, count in self.problems.items()]
        return Result(
            x,
            y,
            outcome,
            "; ".join([reason, *notes]),
            self.step,
            Calls(*(int(c) for c in self.calls)),
            self.seconds,
            self.compile_seconds,
            _joined(self.pieces),
            _joined(self.rows),
            state,
        )


def _joined(pieces: list[Table]) -> Table:
    pieces = [piece for piece in pieces if piece]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in (pieces[0] if pieces else ())}
