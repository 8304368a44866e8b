"""Several solvers on one problem, the same seeds for each, as one tidy table."""

import dataclasses
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from unibio.comparison import deterministic
from unibio.core import checks, tree
from unibio.core.problem import Problem, prepare
from unibio.core.protocols import BilevelSolver
from unibio.core.tree import PyTree
from unibio.files import tables
from unibio.run.ensemble import as_seeds, check_length, check_surroundings, kept_ensemble
from unibio.run.metrics import Metric, Truth
from unibio.run.minimise import Minimum, minimise
from unibio.run.minimise import checked as minimise_can
from unibio.run.programs import check_solver
from unibio.run.result import Table

_KEYS = ("solver", "seed", "step")
_FACTS = "comparison.json"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One row per solver, seed and measurement: `table["solver"]`, `["seed"]`, `["step"]`, the calls of each oracle and
    their sum `calls`, `seconds` (the run of all seeds, divided by their number), direction_norm, finite, the metrics.

    `facts` says how it was made: settings of each solver, seeds, versions.
    """

    table: Table
    facts: dict[str, Any]

    @property
    def solvers(self) -> list[str]:
        """Names, in the order they were given."""
        return list(dict.fromkeys(self.table["solver"].tolist()))

    def lane(self, solver: str, seed: int) -> Table:
        """The rows of one run."""
        checks.text("solver", solver, "SOBA")
        checks.whole_number("seed", seed, low=0, high=2**32)
        rows = (self.table["solver"] == solver) & (self.table["seed"] == seed)
        if not rows.any():
            raise ValueError(
                f"there is no run of {solver!r} with seed {seed}. The solvers are {', '.join(self.solvers)}; the seeds "
                f"are {', '.join(map(str, self.facts['seeds']))}."
            )
        return {name: values[rows] for name, values in self.table.items()}

    def reach(self, target: float, metric: str = "gradient_norm") -> dict[str, Table]:
        """For each solver the columns `step`, `calls` and `seconds`, arrays with an entry for each seed. The entry is
        the number at the first measurement of that seed's run with metric ≤ target; inf if
        there is none."""
        checks.number("target", target)
        checks.text("metric", metric, "gradient_norm")
        found: dict[str, Table] = {}
        for solver in self.solvers:
            firsts = [_first(self.lane(solver, seed), metric, target) for seed in self.facts["seeds"]]
            found[solver] = {name: np.asarray([first[name] for first in firsts]) for name in firsts[0]}
        return found

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes comparison.csv (the same bytes for the same seeds), timings.csv and comparison.json, which holds the
        SHA-256 of both."""
        checks.path("folder", folder)
        folder = Path(folder)
        numbers = {name: values for name, values in self.table.items() if name != "seconds"}
        clock = {name: self.table[name] for name in (*_KEYS, "seconds")}
        named = {"comparison": tables.as_rows(numbers), "timings": tables.as_rows(clock)}
        tables.write(folder / _FACTS, self.facts, named)
        return folder

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Comparison":
        """Reads what `save` wrote. Raises a ValueError that names the file if one is missing, or was changed."""
        checks.path("folder", folder)
        try:
            facts, named = tables.read(Path(folder) / _FACTS)
            table, clock = (tables.as_columns(named[name]) for name in ("comparison", "timings"))
            together = {"seconds": clock["seconds"], "finite": table["finite"] == "True"}
            if not set(_KEYS) <= table.keys() or not isinstance(facts["seeds"], list):
                raise ValueError(f"{_FACTS} is damaged")
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{folder} holds no comparison that Comparison.save wrote: {error}.") from None
        return cls(table | together, facts)

    def __str__(self) -> str:
        """A text with a line for each solver: its last measurement, every number as the median over the seeds."""
        names = [name for name in self.table if name not in (*_KEYS, "finite", "grad_f", "grad_g", "hvp", "cross")]
        lines = ["".join(["solver".ljust(12), "step".rjust(8), *(name.rjust(16) for name in names)])]
        for solver in self.solvers:
            ends = [{name: values[-1] for name, values in self.lane(solver, s).items()} for s in self.facts["seeds"]]
            medians = [float(np.median([end[name] for end in ends])) for name in names]
            lines.append("".join([solver.ljust(12), f"{ends[0]['step']:8d}", *(f"{value:16.4g}" for value in medians)]))
        return "\n".join(lines)

    __repr__ = __str__


def compare(
    problem: Problem,
    solvers: Mapping[str, BilevelSolver | Callable[..., Minimum]],
    x0: PyTree,
    y0: PyTree,
    *,
    seeds: Iterable[int],
    steps: int | Mapping[str, int] | None = None,
    max_calls: int | None = None,
    metrics: Metric | Sequence[Metric] = Truth(),
    measurements: int = 50,
    folder: str | os.PathLike[str] | None = None,
    mesh: Mesh | None = None,
) -> Comparison:
    """Runs every solver from (x0, y0) with every seed, the seeds in one vmapped program.

    `minimise` may stand among the solvers, as in {"minimise": ub.minimise, "SOBA": ub.SOBA(0.1, 0.1)}. It is run once,
    because it is deterministic, and measured after each of its steps; every seed gets the same rows.

    Arguments:
        steps: how many steps a run has: one number for all solvers, or a dictionary by name. Give this or `max_calls`.
        max_calls: each solver runs until it has shown this many samples to the oracles, on average over the seeds.
        metrics: what to measure at the start and then `measurements` times.
        folder: where each solver's finished runs are kept; the same call continues after a stop.
        mesh: a mesh of devices over which the seeds are spread. With several processes each must make this call.

    Example:
        >>> problem = problems.example3(4.0)
        >>> solvers = {"StocBiO": StocBiO(0.5, 0.1), "SOBA": SOBA(0.5, 0.1)}
        >>> compare(problem, solvers, 1.0, 1.0, seeds=[0], steps=20).solvers
        ['StocBiO', 'SOBA']
    """
    seeds = as_seeds(seeds)
    check_surroundings(metrics, folder, mesh)
    checked = prepare(problem, x0, y0)
    steps_of = _steps_of(solvers, steps)
    for name, solver in solvers.items():
        checks.text("the name of a solver", name, "SOBA")
        if solver is minimise:
            minimise_can(problem, x0, y0)
        else:
            check_solver(solver, tree.dtype(checked[1]))  # type: ignore[arg-type]
        check_length(steps_of[name], max_calls, measurements)
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    pieces: list[Table] = []
    compiling: dict[str, float] = {}
    for name, solver in solvers.items():
        length = {"steps": steps_of[name], "max_calls": max_calls, "measurements": measurements}
        if solver is minimise:
            found, compiling[name] = deterministic.measured(problem, x0, y0, metrics, len(seeds), length)
        else:
            found, compiling[name] = kept_ensemble(
                folder, problem, [solver] * len(seeds), x0, y0, keys, metrics, name, length, mesh
            )
        measured = next(iter(found.values())).shape[1]
        labels = {"solver": np.full(len(seeds) * measured, name), "seed": np.repeat(seeds, measured)}
        pieces.append(labels | {column: values.reshape(-1) for column, values in found.items()})
    table = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    facts = {
        "solvers": {name: _shown(solver) for name, solver in solvers.items()},
        "seeds": seeds,
        "steps": dict(steps) if isinstance(steps, Mapping) else steps,
        "max_calls": max_calls,
        "compile_seconds": compiling,
        "versions": {package: version(package) for package in ("unibio", "jax", "numpy", "equinox", "optax")},
        "python": platform.python_version(),
    }
    return Comparison(table, facts)


def _steps_of(solvers: Mapping[str, object], steps: int | Mapping[str, int] | None) -> Mapping[str, int | None]:
    """The number of steps of each solver, by its name. A dictionary must name every solver."""
    if not isinstance(solvers, Mapping) or not solvers:
        raise ValueError('compare needs at least one solver by name, e.g. {"SOBA": SOBA(0.1, 0.1)}.')
    if not isinstance(steps, Mapping):
        return dict.fromkeys(solvers, steps)
    if set(steps) != set(solvers):
        raise ValueError(f"steps must name every solver: {sorted(solvers)}; got {sorted(map(str, steps))}.")
    return steps


def _shown(solver: object) -> str:
    return "minimise" if solver is minimise else repr(solver)


def _first(lane: Table, metric: str, target: float) -> dict[str, float]:
    if metric not in lane:
        raise ValueError(f"no metric {metric!r} was measured; there is {', '.join(lane)}.")
    hits = np.flatnonzero(lane[metric] <= target)
    return {name: float(lane[name][hits[0]]) if hits.size else float("inf") for name in ("step", "calls", "seconds")}
