"""`solve`: compiled stretches of steps, and between them the host's work."""

import contextlib
import signal
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import checks, tree
from unibio.core.problem import Problem, prepare
from unibio.core.protocols import BilevelSolver, Calls, Status, describe
from unibio.core.tree import PyTree
from unibio.run.checkpoints import Checkpoints, Keeper, fingerprint
from unibio.run.metrics import Metric, as_measure, evaluate
from unibio.run.programs import Log, advance, check_solver, initialise, run
from unibio.run.progress import terminal_progress
from unibio.run.result import Outcome, Result, Table, check_steps
from unibio.run.signals import noted
from unibio.run.stopping import MaxCalls, Stop

_MESSAGES = {int(item._value): describe(item) for item in Status._name_to_item.values()}  # type: ignore[arg-type]
_OK = int(Status.ok._value)
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
    checkpoint: Checkpoints | None = None,
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
        checkpoint: `Checkpoints(folder, every=1000)` keeps the run on disk. The same call goes on from there, bitwise
            as if it had never stopped. SIGINT (Ctrl-C) and SIGTERM write a last checkpoint and end the run with status
            `interrupted`.

    Example:
        >>> problem = problems.example3(4.0)
        >>> solver = UniBiO(step_size=0.03, hypergradient=Neumann(terms=1, scale=1.0))
        >>> result = solve(problem, solver, 1.0, 1.0, steps=200, key=jax.random.key(0))
        >>> result.status, abs(float(result.x) + jnp.pi / 2) < 0.03  # Φ(x) = sin(sin x) is least at −π/2
        (<Outcome.finished: 'finished'>, True)
    """
    check_steps(steps, key)
    problem, x0, y0 = prepare(problem, x0, y0)
    if any(checks.is_traced(leaf) for leaf in jax.tree.leaves((problem, x0, y0, key))):
        raise TypeError("solve compiles and times programs itself: inside jit or vmap use trajectory(…).")
    solver = check_solver(solver, tree.dtype(x0))
    measure = tree.cast(as_measure(metrics), tree.dtype(x0))
    rules: tuple[Any, ...] = _several("stop", stop, "Below(…), MaxSeconds(…) or MaxCalls(…)")
    tellers = _several("callbacks", callbacks, "functions of one dictionary")
    for name, value in (("every", every), ("chunk", chunk)):
        if value is not None:
            checks.whole_number(name, value, low=1)
    every = max(1, steps // 100) if every is None else every
    if resume is not None and not isinstance(resume, Result):
        raise TypeError(f"resume must be a Result of solve; got {type(resume).__name__}.")
    shapes = jax.eval_shape(initialise, solver, problem, x0, y0, key)[0]
    keeper = None if checkpoint is None else _keeper(checkpoint, problem, solver, x0, y0, key)
    if keeper is not None:
        if resume is not None:
            raise ValueError("pass either resume=… or checkpoint=…, not both.")
        resume = keeper.resumed(shapes)
    record = _Record(resume)
    if resume is None:
        (state, calls), seconds, compiling = run(initialise, solver, problem, x0, y0, key)
        record.start(calls, seconds, compiling)
        if not bool(tree.all_finite((state.x, state.y))):
            reason = "the warm start became NaN or infinite, x and y are where it began: lower the lower step size"
            return record.result(x0, y0, None, Outcome.diverged, reason)
    else:
        state = _state_of(resume, steps, shapes)
    has_metrics = bool(measure.metrics)

    def look(state: Any) -> None:
        if has_metrics and record.wants_metrics():
            values, _, compiling = run(evaluate, measure, problem, state)
            record.measured(values, compiling)

    with contextlib.ExitStack() as stack:
        tell = [*tellers, stack.enter_context(terminal_progress(steps))]
        caught = stack.enter_context(noted(signal.SIGINT, signal.SIGTERM)) if keeper is not None else []
        if keeper is None or resume is None:
            look(state)
        ended = _asked_to_stop(rules, problem, state, record)
        length = 1 if chunk is None else chunk
        while record.step < steps and ended is None:
            target = min(steps, (record.step // every + 1) * every) if has_metrics else steps
            if keeper is not None:
                target = min(target, keeper.next(record.step))
            number = min(length, target - record.step, _CAPACITY)

            def stretch(number: int, state: Any = state) -> tuple[Any, Log, float, float]:
                first, length = jnp.int32(record.step), jnp.int32(number)
                args = (solver, problem, state, key, first, length)
                (after, log), seconds, compiling = run(advance, *args, capacity=_CAPACITY)
                return after, jax.tree.map(lambda leaf: np.asarray(leaf)[:number], log), seconds, compiling

            after, log, seconds, compiling = stretch(number)
            keep = min(_finite_steps(log), record.steps_within(log, rules))
            bad = int(log.status._value[keep]) if keep < number else 0
            if keep < number:  # take only the steps before the bad one, or up to the budget
                after, log, _, _ = stretch(keep)
            record.advanced(log, seconds * (keep / number), compiling, keep)
            state = after
            if keep < number and not record.budget_reached(rules):
                why = "lower the step sizes" if bad == _OK else _MESSAGES[bad]
                ended = (Outcome.diverged, f"x or y became NaN or infinite in step {record.step}: {why}")
            if record.step == steps or (record.step == target and target % every == 0):
                look(state)
            ended = ended or _asked_to_stop(rules, problem, state, record)
            if ended is not None:
                look(state)
            elif caught and record.step < steps:  # nothing is measured, so that what follows is as if it had not been
                reason = f"{caught[0]} after {record.step} steps; the same call goes on from there"
                ended = (Outcome.interrupted, reason)
            for callback in tell:
                callback(record.row())
            if keeper is not None and (ended is not None or record.step in (steps, keeper.next(record.step - 1))):
                keeper.keep(record.result(state.x, state.y, state, Outcome.interrupted, ""))
            if chunk is None:
                length = max(1, min(2 * number, int(_STRETCH_SECONDS * number / max(seconds, 1e-9))))
    outcome, reason = ended or (Outcome.finished, f"{steps} steps")
    return record.result(state.x, state.y, state, outcome, reason)


def _keeper(files: Any, problem: Problem, solver: Any, x: PyTree, y: PyTree, key: Any) -> Keeper:
    if not isinstance(files, Checkpoints):
        raise TypeError(f"checkpoint must be Checkpoints(folder, …); got {files!r}.")
    return Keeper(files, fingerprint(problem, solver, x, y, key))


def _several(name: str, value: Any, choices: str) -> tuple[Any, ...]:
    """One callable, or several."""
    several = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    for one in several:
        if isinstance(one, type) or not callable(one):
            raise TypeError(f"{name} must be {choices}, or a list of such; got {one!r}.")
    return several


def _state_of(resume: Result, steps: int, wanted: Any) -> Any:
    """The state to go on from, which must be one of this solver on this problem."""
    if resume.state is None:
        raise ValueError(
            "this Result has no solver state (it was loaded from a file, or diverged at once): resume from another."
        )
    if resume.steps > steps:
        raise ValueError(f"resume has already taken {resume.steps} steps, more than steps={steps}; raise steps.")
    shapes = [[(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(state)] for state in (resume.state, wanted)]
    if not tree.same_structure(resume.state, wanted) or shapes[0] != shapes[1]:
        raise ValueError(
            "resume is a Result of another solver, or of variables of another shape: it cannot go on here."
        )
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
        metrics = {} if resume is None else resume.metrics
        here = bool(metrics) and int(metrics["step"][-1]) == self.step
        self.latest: dict[str, float] = {name: float(v[-1]) for name, v in metrics.items() if here}
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
                "ok": codes == _OK,
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
        notes = [
            f"{np.sum(codes == c)} of {self.step} steps: {_MESSAGES[int(c)]}" for c in np.unique(codes) if c != _OK
        ]
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
