"""Many runs of one solver at once, in one vmapped program over seeds and settings. Each of these runs is a lane."""

import dataclasses
import hashlib
import itertools
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from unibio.core import checks, tree
from unibio.core.problem import Problem, prepare
from unibio.core.programs import lowered
from unibio.core.protocols import BilevelSolver, Calls, State
from unibio.core.tree import PyTree
from unibio.distributed.dataset import SAMPLES
from unibio.distributed.mesh import check_mesh
from unibio.distributed.processes import from_leader, gathered, is_leader
from unibio.files.archive import Facts
from unibio.files.store import Store
from unibio.run.driver import Stretch, stretches
from unibio.run.identity import circumstances, identity
from unibio.run.metrics import Measure, Metric, as_measure
from unibio.run.programs import CAPACITY, Log, advance, check_solver, initialise, timed
from unibio.run.progress import terminal_progress
from unibio.run.result import Table

_MOST_SEEDS = 2**20


@dataclasses.dataclass(frozen=True)
class Ensemble:
    """What `run_ensemble` returns: many runs (lanes) of one vmapped program, measured at the same steps.

    x and y are those at the end, stacked along a first axis over the lanes; a lane may have diverged. The columns of
    `table` are arrays (lanes, measurements): `step`, the calls of each oracle and their sum `calls`, `seconds` (the
    whole run's, divided by the number of lanes), `direction_norm`, `finite`, and the metrics by name. `seconds` and
    `compile_seconds` are those of the whole run.
    """

    x: PyTree
    y: PyTree
    table: Table
    seconds: float
    compile_seconds: float


def run_ensemble(
    problem: Problem,
    solvers: Sequence[BilevelSolver],
    x0: PyTree,
    y0: PyTree,
    keys: jax.Array,
    *,
    steps: int | None = None,
    max_calls: int | None = None,
    metrics: Metric | Sequence[Metric] = (),
    measurements: int = 50,
    title: str = "",
    mesh: Mesh | None = None,
) -> Ensemble:
    """Runs solvers[i] with keys[i] as lane i, all lanes in one program; the solvers differ only in their numbers.

    The lanes run for `steps` steps, or until they have made `max_calls` calls on average. They are measured at the
    start and then `measurements` times, at equal distances of steps or calls. With a mesh
    the lanes are spread over its devices, the last one repeated to fill them up; every process gets all of them."""
    goal = check_length(steps, max_calls, measurements)
    problem, x0, y0 = prepare(problem, x0, y0)
    solver, keys = _lanes(solvers, tree.dtype(x0), keys, mesh)
    measure = tree.cast(as_measure(metrics), tree.dtype(x0))
    (state, calls), seconds, compiling = timed(initialise_many, solver, problem, x0, y0, keys)
    lanes = _Lanes(len(solvers), steps is None, goal, measurements, calls, seconds, compiling)
    lanes.measure(measure, problem, state)
    with terminal_progress(goal, title) as report:
        begin = problem, state, keys, 0
        for stretch in stretches(solver, *begin, lanes.limit, chunk=CAPACITY, program=advance_many):
            state = stretch.state
            lanes.advanced(stretch)
            if lanes.so_far() == 0:
                raise ValueError(f"{type(solvers[0]).__name__} reports no calls, so max_calls never ends: use steps=…")
            report({"step": min(goal, round(lanes.so_far()))})
            if lanes.at_a_mark():
                lanes.measure(measure, problem, state)
    x, y = (state.x, state.y) if mesh is None else lanes.fetched((state.x, state.y))
    return Ensemble(x, y, lanes.table(), lanes.seconds, lanes.compiling)


def check_length(steps: int | None, max_calls: int | None, measurements: int) -> int:
    """How long an ensemble runs, in steps or in calls, whichever is given."""
    if (steps is None) == (max_calls is None):
        raise ValueError("say how long to run: either steps=… or max_calls=…")
    name, goal = ("max_calls", max_calls) if steps is None else ("steps", steps)
    checks.whole_number(name, goal, low=1, high=checks.LONGEST)
    checks.whole_number("measurements", measurements, low=1)
    return int(goal or 0)


def check_surroundings(metrics: object, folder: str | os.PathLike[str] | None, mesh: Mesh | None) -> None:
    """What all ensembles of a comparison share must make sense, before the first one is run."""
    as_measure(metrics)
    if folder is not None:
        checks.path("folder", folder)
        if Path(folder).exists() and not Path(folder).is_dir():
            raise ValueError(f"folder={str(folder)!r} is a file; choose a folder.")
    check_mesh(mesh)


def _lanes(
    solvers: Sequence[BilevelSolver], dtype: jnp.dtype, keys: jax.Array, mesh: Mesh | None
) -> tuple[Any, jax.Array]:
    """The solvers as one with stacked numbers, and the keys: as many as the mesh has devices, or a multiple of that."""
    fill = 0 if mesh is None else -len(solvers) % mesh.shape[SAMPLES]
    solver = _stacked([check_solver(solver, dtype) for solver in [*solvers, *[solvers[-1]] * fill]])
    keys = jnp.concatenate([keys, *[keys[-1:]] * fill])
    if mesh is None:
        return solver, keys
    spread = NamedSharding(mesh, PartitionSpec(SAMPLES))
    return jax.jit(lambda lanes: lanes, out_shardings=spread)((solver, keys))


class _Lanes:
    """Where the lanes of an ensemble are, and what has been measured of them."""

    def __init__(
        self, number: int, by_calls: bool, goal: int, measurements: int, calls: Calls, seconds: float, compiling: float
    ) -> None:
        self.number, self.by_calls, self.goal, self.measurements = number, by_calls, goal, measurements
        self.calls = np.stack([each.astype(np.int64) for each in self.fetched(calls)], axis=1)  # (lanes, 4)
        self.seconds, self.compiling = seconds, compiling
        self.norm, self.finite = np.full(number, np.nan), np.ones(number, bool)
        self.step = 0
        # The number of the next measurement, at mark/measurements of the goal; a warm start may have passed some.
        self.mark = int(self.so_far() * measurements / goal) + 1
        self.rows: list[Table] = []

    def fetched(self, variable: PyTree) -> PyTree:
        """The entries of the real lanes, as numpy arrays."""
        return jax.tree.map(lambda leaf: leaf[: self.number], gathered(variable))

    def so_far(self) -> float:
        """Steps, or calls in the mean of the lanes: what the goal is about."""
        return float(np.mean(self.calls.sum(axis=1)) if self.by_calls else self.step)

    def limit(self, step: int) -> int:
        """The step at which the lanes reach the next measurement, as far as their calls so far tell."""
        if self.so_far() >= self.goal:
            return step
        if self.by_calls and step == 0:
            return 1
        rate = self.so_far() / step if self.by_calls else 1.0
        missing = self.goal * self.mark / self.measurements - self.so_far()
        return step + max(1, math.ceil(missing / max(rate, 1.0)))

    def advanced(self, stretch: Stretch) -> None:
        """Adds a stretch of steps."""
        log = self.fetched(stretch.log)
        self.seconds, self.compiling = self.seconds + stretch.seconds, self.compiling + stretch.compiling
        self.step += log.bad.shape[1]
        self.calls = self.calls + np.stack([np.asarray(each, np.int64).sum(axis=1) for each in log.calls], axis=1)
        self.norm, self.finite = log.direction_norm[:, -1], self.finite & log.finite.all(axis=1)

    def at_a_mark(self) -> bool:
        """Whether it is time to measure. If so, `mark` is set to the next measurement that is still to come."""
        if self.so_far() < self.goal * self.mark / self.measurements:
            return False
        self.mark = max(self.mark + 1, int(self.so_far() * self.measurements / self.goal) + 1)
        return True

    def measure(self, measure: Measure, problem: Problem, state: State) -> None:
        """Adds a row of the table."""
        values, _, compiling = timed(evaluate_many, measure, problem, state)
        self.compiling += compiling
        each = {name: self.calls[:, i] for i, name in enumerate(Calls._fields)}
        position = {"step": np.full(self.number, self.step), **each, "calls": self.calls.sum(axis=1)}
        clock = {"seconds": np.full(self.number, self.seconds / self.number)}
        self.rows.append(position | clock | {"direction_norm": self.norm, "finite": self.finite} | self.fetched(values))

    def table(self) -> Table:
        """All rows, (lanes, measurements) for each column."""
        return {name: np.stack([row[name] for row in self.rows], axis=1) for name in self.rows[0]}


def kept_ensemble(
    folder: str | os.PathLike[str] | None, problem: Problem, solvers: list[Any], x: PyTree, y: PyTree, keys: jax.Array,
    metrics: Metric | Sequence[Metric], title: str, length: dict[str, Any], mesh: Mesh | None,
) -> tuple[Table, float]:  # fmt: skip
    """Returns the table of `run_ensemble` with these arguments, and the seconds of its compilation.

    If the folder holds the table of an earlier call with the same arguments it is read; else the lanes are run and
    their table is stored there. Of several processes that share the work, all use what the first one finds.
    """

    def make() -> Table:
        made = run_ensemble(problem, solvers, x, y, keys, metrics=metrics, title=title, mesh=mesh, **length)
        return made.table | {"compile_seconds": np.asarray(made.compile_seconds)}

    shared = {"agreed": from_leader} if mesh is not None and jax.process_count() > 1 else {}
    store = Store(folder, **shared, writes=is_leader())
    table = dict(store.table(lambda: depends_on(problem, solvers, x, y, keys, metrics) | length, make))
    return table, float(table.pop("compile_seconds"))


def depends_on(
    problem: Problem,
    solvers: Sequence[BilevelSolver],
    x0: PyTree,
    y0: PyTree,
    keys: jax.Array,
    metrics: Metric | Sequence[Metric],
) -> Facts:
    """All that the numbers of `run_ensemble` depend on, except for the length of the run: its arguments, versions and
    settings, and its programs before compilation, which contain every constant that f, g or a metric uses."""
    problem, x0, y0 = prepare(problem, x0, y0)
    cast = [check_solver(solver, tree.dtype(x0)) for solver in solvers]
    solver, measure = _stacked(cast), tree.cast(as_measure(metrics), tree.dtype(x0))
    state = jax.eval_shape(initialise_many, solver, problem, x0, y0, keys)[0]
    number = jnp.int32(1)
    several = [
        lowered(initialise_many, (solver, problem, x0, y0, keys), {}),
        lowered(advance_many, (solver, problem, state, keys, number, number), {"capacity": CAPACITY}),
        lowered(evaluate_many, (measure, problem, state), {}),
    ]
    programs = [hashlib.sha256(each.as_text().encode()).hexdigest() for each in several]
    where = circumstances()
    given = identity(problem, (*cast, measure, keys), x0, y0, keys[0])
    return given | {"programs": programs, "versions": where["versions"], "settings": where["settings"]}


def as_seeds(seeds: object) -> list[int]:
    """Checks that the seeds are different whole numbers from 0 to 2³² − 1, at least one."""
    several = (
        isinstance(seeds, Iterable) and not isinstance(seeds, (str, bytes)) and getattr(seeds, "shape", None) != ()
    )
    listed = list(itertools.islice(seeds, _MOST_SEEDS + 1)) if several else []  # type: ignore[call-overload]
    if len(listed) > _MOST_SEEDS:
        raise ValueError(f"there are more than {_MOST_SEEDS:,} seeds, which no memory holds; got {seeds!r}.")
    if not listed or not all(
        isinstance(seed, (int, np.integer)) and not isinstance(seed, bool) and 0 <= seed < 2**32 for seed in listed
    ):
        raise ValueError(f"seeds must be whole numbers from 0 to 2³² − 1, at least one, e.g. range(8); got {seeds!r}.")
    if len(set(listed)) < len(listed):
        raise ValueError(f"seeds must differ from each other; got {listed}.")
    return [int(seed) for seed in listed]


def _stacked(solvers: list[Any]) -> Any:
    structures = {jax.tree.structure(solver) for solver in solvers}
    if len(structures) != 1:
        raise ValueError("the lanes of an ensemble must be one solver with different numbers, not different solvers.")
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *solvers)


def initialise_many(
    solver: BilevelSolver, problem: Problem, x: PyTree, y: PyTree, keys: jax.Array
) -> tuple[Any, Calls]:
    """`initialise`, one lane per solver and key."""
    return jax.vmap(lambda solver, key: initialise(solver, problem, x, y, key))(solver, keys)


def advance_many(
    solver: BilevelSolver,
    problem: Problem,
    state: State,
    keys: jax.Array,
    first: jax.Array,
    length: jax.Array,
    capacity: int,
) -> tuple[Any, Log]:
    """`advance`, one lane per solver, state and key."""

    def lane(solver: BilevelSolver, state: State, key: jax.Array) -> tuple[Any, Log]:
        return advance(solver, problem, state, key, first, length, capacity)

    return jax.vmap(lane)(solver, state, keys)


def evaluate_many(measure: Measure, problem: Problem, state: State) -> dict[str, jax.Array]:
    """The metrics of every lane."""
    return jax.vmap(lambda state: measure(problem, state))(state)
