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
from unibio.core.protocols import BilevelSolver
from unibio.core.status import Status
from unibio.core.tree import PyTree
from unibio.distributed.placement import on_mesh, placed
from unibio.distributed.processes import is_leader, largest, spans_processes
from unibio.files.archive import Facts
from unibio.run.back_off import BackOff
from unibio.run.checkpoints import Checkpoints, Keeper
from unibio.run.identity import identity, next_step
from unibio.run.mesh_checkpoints import MeshKeeper
from unibio.run.metrics import Metric, as_measure, evaluate
from unibio.run.programs import CAPACITY, Log, advance, check_solver, initialise, run
from unibio.run.progress import terminal_progress
from unibio.run.record import Anchor, Record, diagnosis
from unibio.run.result import Result
from unibio.run.signals import noted
from unibio.run.stopping import Stop

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
    back_off: int = 0,
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
        back_off: how often a divergence may be answered by halving every step size and going back to the last multiple
            of 64 steps where x and y were not yet 1,000 times their first size, or to where `resume` began; the
            history's `halvings` tells.

    Example:
        >>> problem = problems.example3(4.0)
        >>> solver = UniBiO(step_size=0.03, hypergradient=Neumann(terms=1, scale=1.0))
        >>> result = solve(problem, solver, 1.0, 1.0, steps=200, key=jax.random.key(0))
        >>> result.status, abs(float(result.x) + jnp.pi / 2) < 0.03  # Φ(x) = sin(sin x) is least at −π/2
        (finished, True)
    """
    checks.whole_number("steps", steps, low=0)
    if key is None:
        raise ValueError("solve needs key=…, e.g. key=jax.random.key(0): every random number comes from it.")
    checks.random_key(key)
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
    anchor: Anchor = None
    halvings = 0
    keeper = None if checkpoint is None else _keeper(checkpoint, problem, solver, x0, y0, key)
    solver = placed(solver, x0, y0)
    together = spans_processes((problem, x0, y0))
    tellers = tellers if is_leader() or not together else ()
    shapes = jax.eval_shape(initialise, solver, problem, x0, y0, key)[0]
    if keeper is not None:
        if resume is not None:
            raise ValueError("pass either resume=… or checkpoint=…, not both.")
        resume, anchor, halvings = keeper.resumed(shapes) or (None, None, 0)
    record = Record(x0, resume, halvings)
    guard = BackOff(back_off, solver, record, anchor, (x0, y0))
    if resume is None:
        state = _started(guard, problem, x0, y0, key)
        if state is None:
            reason = "the warm start became NaN or infinite, x and y are where it began: lower the lower step size"
            return record.result(x0, y0, None, Status.diverged, reason)
    else:
        state = _state_of(resume, steps, shapes)
        if guard.has_no_way_back(state):  # it was broken off without back-off, too late: all that is left is the start
            (first, calls), seconds, compiling = run(initialise, guard.solver, problem, x0, y0, key)
            record.start(calls, seconds, compiling)
            guard.anchor = 0, first

    def probe(state: Any) -> Facts:
        facts, compiling = next_step(guard.solver, problem, state, key, record.step)
        record.compile_seconds += compiling
        return facts

    if keeper is not None and resume is not None:
        keeper.check(probe(state))
    has_metrics = bool(measure.metrics)
    names = set(jax.eval_shape(evaluate, measure, problem, state)) if has_metrics and resume is not None else set()
    new_names = not names <= set(record.latest)

    def look(state: Any) -> None:
        if has_metrics and record.wants_metrics(names):
            values, _, compiling = run(evaluate, measure, problem, state)
            record.measured(values, compiling)

    with contextlib.ExitStack() as stack:
        tell = [*tellers, stack.enter_context(terminal_progress(steps))]
        caught = stack.enter_context(noted(signal.SIGINT, signal.SIGTERM)) if keeper is not None else []
        for callback in tellers:
            if hasattr(callback, "begin"):  # a log, which may have to go on
                callback.begin(record.step)
        if keeper is None or resume is None or new_names:
            look(state)
        ended = _asked_to_stop(rules, problem, state, record)
        length = 1 if chunk is None else chunk
        while record.step < steps and ended is None:
            guard.mark(state)
            target = guard.target(min(steps, (record.step // every + 1) * every) if has_metrics else steps)
            if keeper is not None:
                target = min(target, keeper.next(record.step))
            number = min(length, target - record.step, CAPACITY)

            def stretch(number: int, state: Any = state) -> tuple[Any, Log, float, float]:
                first, length = jnp.int32(record.step), jnp.int32(number)
                args = (guard.solver, problem, state, key, first, length)
                (after, log), seconds, compiling = run(advance, *args, capacity=CAPACITY)
                return after, jax.tree.map(lambda leaf: np.asarray(leaf)[:number], log), seconds, compiling

            after, log, seconds, compiling = stretch(number)
            finite, within = _finite_steps(log), record.steps_within(log, rules)
            keep = min(finite, within)
            if finite < within:
                step = record.step + keep
                ended = Status.diverged, diagnosis(step, int(log.status.code[keep]), stretch(keep + 1)[0])
            if keep < number:  # take only the steps before the bad one, or up to the budget
                after, log, _, _ = stretch(keep)
            record.advanced(log, seconds * (keep / number), compiling, keep)
            state = after
            if record.step == steps or (record.step == target and target % every == 0):
                look(state)
            ended = ended or _asked_to_stop(rules, problem, state, record)
            if ended is not None and ended[0] == Status.diverged and guard.may_halve():
                state, ended = guard.restart(), None
            elif ended is not None:
                look(state)
            elif record.step < steps and (name := _interrupted(caught, together)):
                # Nothing is measured, so that what follows is as if it had not been.
                ended = (Status.interrupted, f"{name} after {record.step} steps; the same call goes on from there")
            for callback in tell:
                callback(record.row())
            if keeper is not None and (ended is not None or record.step in (steps, keeper.next(record.step - 1))):
                keeper.keep(record, state, guard.anchor, probe(state))
            if chunk is None:
                length = max(1, min(2 * number, int(_STRETCH_SECONDS * number / max(seconds, 1e-9))))
    outcome, reason = ended or (Status.finished, f"{steps} steps")
    return record.result(state.x, state.y, state, outcome, reason)


def _keeper(files: Any, problem: Problem, solver: Any, x: PyTree, y: PyTree, key: Any) -> Keeper:
    if not isinstance(files, Checkpoints):
        raise TypeError(f"checkpoint must be Checkpoints(folder, …); got {files!r}.")
    run = identity(problem, solver, x, y, key)
    return MeshKeeper(files, run, placed(solver, x, y)) if on_mesh((x, y)) else Keeper(files, run)


def _interrupted(caught: list[str], together: bool) -> str:
    """The signal that ends the run, on whichever process it was caught."""
    number = largest(len(caught)) if together else len(caught)
    if not number:  # even if one came just now: the others would go on without this process
        return ""
    return caught[0] if caught else "a signal to another process"


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


def _started(guard: BackOff, problem: Problem, x: PyTree, y: PyTree, key: Any) -> Any:
    """The first state, with smaller step sizes if it must be; None if it is not finite."""
    while True:
        (state, calls), seconds, compiling = run(initialise, guard.solver, problem, x, y, key)
        guard.record.start(calls, seconds, compiling)
        if bool(tree.all_finite((state.x, state.y))):
            return state
        if not guard.may_halve():
            return None
        guard.halve()


def _finite_steps(log: Log) -> int:
    """How many steps there were before the first bad one."""
    finite = np.asarray(log.finite)
    return int(finite.size if finite.all() else np.argmin(finite))


def _asked_to_stop(
    rules: tuple[Stop, ...], problem: Problem, state: Any, record: "Record"
) -> tuple[Status, str] | None:
    row = record.row()
    for rule in rules:
        if rule(problem, state, row):
            return getattr(rule, "status", Status.budget), f"{rule!r} after {record.step} steps"
    return None
