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
from unibio.core.problem import Problem
from unibio.core.protocols import BilevelSolver
from unibio.core.tree import PyTree
from unibio.files import tables
from unibio.files.atomic import write_bytes
from unibio.run.ensemble import as_seeds, kept_ensemble
from unibio.run.metrics import Metric, Truth
from unibio.run.minimise import Minimum, minimise
from unibio.run.result import Table

_KEYS = ("solver", "seed", "step")


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
        rows = (self.table["solver"] == solver) & (self.table["seed"] == seed)
        if not rows.any():
            raise ValueError(f"no run of {solver!r} with seed {seed}; there are {self.solvers}, {self.facts['seeds']}.")
        return {name: values[rows] for name, values in self.table.items()}

    def reach(self, target: float, metric: str = "gradient_norm") -> dict[str, Table]:
        """For each solver and seed the step, calls and seconds at the first measurement with metric ≤ target; inf if
        there is none."""
        found: dict[str, Table] = {}
        for solver in self.solvers:
            firsts = [_first(self.lane(solver, seed), metric, target) for seed in self.facts["seeds"]]
            found[solver] = {name: np.asarray([first[name] for first in firsts]) for name in firsts[0]}
        return found

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes comparison.csv (the same bytes for the same seeds), timings.csv and comparison.json."""
        folder = Path(folder)
        numbers = {name: values for name, values in self.table.items() if name != "seconds"}
        clock = {name: self.table[name] for name in (*_KEYS, "seconds")}
        _write_csv(folder / "comparison.csv", numbers)
        _write_csv(folder / "timings.csv", clock)
        tables.write_json(folder / "comparison.json", self.facts)
        return folder

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Comparison":
        """Reads what `save` wrote."""
        folder = Path(folder)
        table = _read_csv(folder / "comparison.csv")
        clock = _read_csv(folder / "timings.csv")
        if len(clock["step"]) != len(table["step"]):
            raise ValueError(f"{folder}: comparison.csv and timings.csv do not belong together.")
        return cls(table | {"seconds": clock["seconds"]}, tables.read_json(folder / "comparison.json"))

    def __str__(self) -> str:
        """The last measurement of each solver, medians over the seeds."""
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
        steps: how many, for all or by name; or
        max_calls: run each until its seeds have shown this many samples to the oracles, on average.
        metrics: what to measure at the start and then `measurements` times.
        folder: where each solver's finished runs are kept; the same call continues after a stop.
        mesh: spread the seeds over its devices; every process of a run with several must call this.

    Example:
        >>> problem = problems.example3(4.0)
        >>> solvers = {"StocBiO": StocBiO(0.5, 0.1), "SOBA": SOBA(0.5, 0.1)}
        >>> compare(problem, solvers, 1.0, 1.0, seeds=[0], steps=20).solvers
        ['StocBiO', 'SOBA']
    """
    seeds = as_seeds(seeds)
    if not isinstance(solvers, Mapping) or not solvers:
        raise ValueError('compare needs at least one solver by name, e.g. {"SOBA": SOBA(0.1, 0.1)}.')
    steps_of = _steps_of(steps, solvers)
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


def _steps_of(steps: int | Mapping[str, int] | None, solvers: Iterable[str]) -> Mapping[str, int | None]:
    """How many steps each solver makes."""
    if not isinstance(steps, Mapping):
        return dict.fromkeys(solvers, steps)
    if set(steps) != set(solvers):
        raise ValueError(f"steps must name every solver: {sorted(solvers)}; got {sorted(steps)}.")
    return steps


def _shown(solver: object) -> str:
    return "minimise" if solver is minimise else repr(solver)


def _first(lane: Table, metric: str, target: float) -> dict[str, float]:
    if metric not in lane:
        raise ValueError(f"no metric {metric!r} was measured; there is {', '.join(lane)}.")
    hits = np.flatnonzero(lane[metric] <= target)
    return {name: float(lane[name][hits[0]]) if hits.size else float("inf") for name in ("step", "calls", "seconds")}


def _write_csv(path: Path, table: Table) -> None:
    write_bytes(path, tables.as_csv(tables.as_rows(table)).encode())


def _read_csv(path: Path) -> Table:
    table = tables.as_columns(tables.from_csv(path.read_text()))
    return table | ({"finite": table["finite"] == "True"} if "finite" in table else {})
