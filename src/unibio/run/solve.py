"""`solve`, which runs one solver on one problem from one start."""

import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from unibio.core import checks, kinds, tree
from unibio.core.problem import Problem, prepare
from unibio.core.protocols import BilevelSolver
from unibio.core.tree import PyTree
from unibio.distributed.placement import on_mesh, placed
from unibio.distributed.processes import is_leader, spans_processes
from unibio.files.archive import Facts
from unibio.run.back_off import BackOff, in_force
from unibio.run.between import Between, View
from unibio.run.checkpoints import Checkpoints, Keeper
from unibio.run.driver import Driver, KeepFinite
from unibio.run.identity import Origin
from unibio.run.logs import Callback, Teller
from unibio.run.mesh_checkpoints import MeshKeeper
from unibio.run.metrics import Measurements, Metric, as_measure
from unibio.run.programs import check_solver, initialise
from unibio.run.progress import terminal_progress
from unibio.run.record import Anchor, Record
from unibio.run.result import Result
from unibio.run.signals import Interruption, noted
from unibio.run.stopping import Condition, StopWhen

Rule = Between | Condition
Listener = Between | Teller


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
    stop: Rule | Sequence[Rule] = (),
    callbacks: Listener | Sequence[Listener] = (),
    chunk: int | None = None,
    resume: Result | None = None,
    checkpoint: Checkpoints | None = None,
    back_off: int = 0,
) -> Result:
    """Runs a solver for `steps` steps from (x0, y0).

    Step t uses `fold_in(key, t)`, so that the trajectory does not depend on `chunk`, on metrics, or on having been
    resumed. A non-finite iterate ends the run with status `diverged`; x and y are the last finite ones.

    Arguments:
        metrics: e.g. `Truth()`, measured at the start, every `every` steps (by default steps // 100) and at the end.
        stop: rules such as `Below("gradient_norm", 1e-3)`, `MaxSeconds(60)`, `MaxCalls(10**6)`.
        callbacks: functions that are called after every stretch of steps with a dictionary of the last numbers (step,
            calls, seconds, direction_norm, restarts and the metrics); a stretch is a number of steps that run compiled.
        chunk: steps in a stretch; by default as many as take half a second.
        resume: a Result of the same run with fewer steps, to go on from; its history is kept.
        checkpoint: `Checkpoints(folder, every=1000)` keeps the run on disk. The same call goes on from there, bitwise
            as if it had never stopped. SIGINT (Ctrl-C) and SIGTERM write a last checkpoint and end the run with status
            `interrupted`.
        back_off: how often a divergence may be answered by halving every step size and going back to the last multiple
            of 64 steps where x and y were not yet 1,000 times their first size, or to where `resume` began; the
            history's column `restarts` tells.

    Example:
        >>> problem = problems.example3(4.0)
        >>> solver = UniBiO(step_size=0.03, hypergradient=Neumann(terms=1, scale=1.0))
        >>> result = solve(problem, solver, 1.0, 1.0, steps=200, key=jax.random.key(0))
        >>> result.status, abs(float(result.x) + jnp.pi / 2) < 0.03  # Φ(x) = sin(sin x) is least at −π/2
        (finished, True)
    """
    _check_lengths(steps, every, chunk)
    problem, solver, x0, y0, key = _checked(problem, solver, x0, y0, key)
    measure = tree.cast(as_measure(metrics), tree.dtype(x0))
    rules = several("stop", stop, StopWhen, Condition, "Below(…), MaxSeconds(…) or MaxCalls(…)")
    callbacks = several("callbacks", callbacks, Callback, Teller, "functions of one dictionary")
    together = spans_processes((problem, x0, y0))
    origin: Mapping[str, Any] = Origin(problem, solver, x0, y0, key)
    origin = dict(origin) if together else origin  # in which all processes must take part
    keeper = None if checkpoint is None else _keeper(checkpoint, dict(origin), solver, x0, y0, key)
    solver = placed(solver, x0, y0)
    shapes = jax.eval_shape(initialise, solver, problem, x0, y0, key)[0]
    resumed, anchor = _resumed(resume, keeper, shapes, steps, origin)
    record = Record(x0, resumed, anchor, origin)
    backing_off = BackOff(back_off, solver, (x0, y0))
    now, state = in_force(solver, record.restarts), None if resumed is None else resumed.state
    if keeper is not None and resumed is not None:
        keeper.check(View(problem, now, state, record, steps, begins=True))
    known = keeper is not None and resumed is not None
    every = max(1, steps // 100) if every is None else every
    measurements = [Measurements(measure, every, known)] if measure.metrics else []
    with contextlib.ExitStack() as stack:
        # The order matters: rules need what was just measured, and what ends the run is measured, told and kept.
        deciding, tellers = _sorted(callbacks)
        between = [*measurements, *rules, KeepFinite((x0, y0)), backing_off, *deciding, *measurements]
        if keeper is not None:
            caught = stack.enter_context(noted(signal.SIGINT, signal.SIGTERM))
            between.append(Interruption(caught, together))
        if is_leader() or not together:
            between += tellers
        between.append(Callback(stack.enter_context(terminal_progress(steps))))
        if keeper is not None:
            between.append(keeper)
        state, end = Driver(problem, x0, y0, key, steps, record, between, chunk).run(now, state)
    return record.result(state, y0, *end)


def _check_lengths(steps: int, every: int | None, chunk: int | None) -> None:
    """Refuses values of `steps`, `every` and `chunk` that are not whole numbers, or that are too small or too large."""
    checks.whole_number("steps", steps, low=0, high=checks.LONGEST)
    for name, value in (("every", every), ("chunk", chunk)):
        if value is not None:
            checks.whole_number(name, value, low=1, high=checks.LONGEST)


def _checked(
    problem: Problem, solver: Any, x: PyTree, y: PyTree, key: Any
) -> tuple[Problem, BilevelSolver, PyTree, PyTree, jax.Array]:
    """The arguments of a run, checked, with every number in the dtype of x."""
    checks.given_key("solve", key)
    problem, x, y = prepare(problem, x, y)
    if any(checks.is_traced(leaf) for leaf in jax.tree.leaves((problem, x, y, key))):
        raise TypeError("solve compiles and times programs itself: inside jit or vmap use trajectory(…).")
    return problem, check_solver(solver, tree.dtype(x)), x, y, key


def _keeper(files: Any, origin: Facts, solver: Any, x: PyTree, y: PyTree, key: Any) -> Keeper:
    if not isinstance(files, Checkpoints):
        raise TypeError(f"checkpoint must be Checkpoints(folder, …); got {files!r}.")
    return MeshKeeper(files, origin, key, placed(solver, x, y)) if on_mesh((x, y)) else Keeper(files, origin, key)


def several(name: str, value: Any, wrap: Callable[[Any], Between], plain: type, choices: str) -> list[Between]:
    """One object or function, or several; functions become objects by `wrap`."""
    several = list(value) if isinstance(value, (list, tuple)) else [value]
    objects = []
    for one in several:
        ready = kinds.fits(one, Between)
        if not ready:
            kinds.is_a(name, one, plain, f"{choices}, or a list of such")
        objects.append(one if ready else wrap(one))
    return objects


def _sorted(callbacks: list[Between]) -> tuple[list[Between], list[Callback]]:
    """Those that may end or restart the run, which every process must ask, and those that only listen."""
    listening = [each for each in callbacks if isinstance(each, Callback)]
    return [each for each in callbacks if each not in listening], listening


def _resumed(
    resume: Any, keeper: Keeper | None, shapes: PyTree, steps: int, origin: Mapping[str, Any]
) -> tuple[Result | None, Anchor | None]:
    """The run that is continued, if there is one: the given Result, or what the newest checkpoint has."""
    if resume is not None and not isinstance(resume, Result):
        raise TypeError(f"resume must be a Result of solve; got {type(resume).__name__}.")
    anchor = None
    if keeper is not None:
        if resume is not None:
            raise ValueError("pass either resume=… or checkpoint=…, not both.")
        resume, anchor = keeper.resumed(shapes) or (None, None)
        if resume is None or resume.steps < steps:
            keeper.files.check_writable()
    if resume is not None:
        _check_resume(resume, steps, shapes, origin)
    return resume, anchor


def _check_resume(resume: Result, steps: int, wanted: PyTree, origin: Mapping[str, Any]) -> None:
    """Refuses a Result of a run with another start, key or problem, whose state is not one of this solver, or that is
    beyond `steps`. The solver's numbers may differ: to go on with smaller steps is a decision."""
    differing = [name for name in resume.origin if name != "solver" and resume.origin[name] != origin.get(name)]
    if differing:
        raise ValueError(
            f"resume is a Result of another run, which differs in {', '.join(differing)}. Give the arguments that it "
            "was made with; to begin a new run where it ended, pass its x and y as x0 and y0 instead."
        )
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
