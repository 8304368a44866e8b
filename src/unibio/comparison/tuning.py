"""The best setting of a solver on a grid, all settings and seeds in one vmapped program."""

import dataclasses
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from unibio.comparison.criteria import Criterion, Final
from unibio.core import checks, kinds, tree
from unibio.core.problem import Problem, prepare
from unibio.core.protocols import BilevelSolver
from unibio.core.tree import PyTree
from unibio.run.ensemble import as_seeds, check_length, check_surroundings, kept_ensemble
from unibio.run.metrics import Metric, Truth
from unibio.run.minimise import minimise
from unibio.run.programs import check_solver
from unibio.run.result import Table
from unibio.run.start import fault_at_start
from unibio.solvers.step_sizes import replaced, tunable

STEP_SIZES = (0.01, 0.03, 0.1, 0.3, 1.0)  # the paper searches [0.01, 1] at both levels


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What `tune` returns. `solver` is the solver with the best setting. The lists have an entry for each setting that
    was tried: `settings` its numbers by field, `scores` its score, and `tables` its runs, whose columns are arrays
    (seeds, measurements)."""

    solver: Any
    settings: list[dict[str, float]]
    scores: list[tuple[float, ...]]
    tables: list[Table]

    @property
    def best(self) -> int:
        """The number of the setting with the smallest score."""
        return min(range(len(self.scores)), key=lambda i: self.scores[i])


def tune(
    problem: Problem,
    solver: BilevelSolver,
    x0: PyTree,
    y0: PyTree,
    *,
    seeds: Iterable[int],
    steps: int | None = None,
    max_calls: int | None = None,
    grid: Mapping[str, Sequence[float]] | None = None,
    criterion: Criterion = Final(),
    metrics: Metric | Sequence[Metric] = Truth(),
    measurements: int = 20,
    lanes: int = 256,
    folder: str | os.PathLike[str] | None = None,
    mesh: Mesh | None = None,
) -> Tuned:
    """Tries every combination of `grid` with every seed and keeps the one with the smallest score.

    Arguments:
        grid: the values to try, by field; a dot leads to a field of a field: {"step_size": […], "lower.step_size":
            […]}. By default both step sizes take the five values 0.01, 0.03, 0.1, 0.3 and 1, which makes 25 settings.
        criterion: `Final()`, on the true ‖∇Φ‖, or `CallsToReach(target)`.
        steps, max_calls, metrics, measurements, mesh: as in `compare`.
        lanes: the most runs (settings times seeds) that are computed at once. Settings beyond that run afterwards.
        folder: where the runs that were computed at once are kept when they are finished; after an interruption the
            same call continues.
    """
    seeds = as_seeds(seeds)
    if solver is minimise:  # type: ignore[comparison-overlap]
        raise ValueError("there is nothing to tune: minimise has no step sizes. Pass it to compare as it is.")
    check_surroundings(metrics, folder, mesh)
    check_length(steps, max_calls, measurements)
    kinds.is_a("criterion", criterion, Criterion, "Final(), CallsToReach(target) or a function of a table")
    check_solver(solver, tree.dtype(prepare(problem, x0, y0)[1]))
    checks.whole_number("lanes", lanes, low=1)
    settings = _settings(dict.fromkeys(tunable(solver), STEP_SIZES) if grid is None else grid)
    candidates = [_with(solver, setting) for setting in settings]
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    together = max(1, lanes // len(seeds))
    length = {"steps": steps, "max_calls": max_calls, "measurements": measurements}
    tables: list[Table] = []
    for first in range(0, len(candidates), together):
        group = candidates[first : first + together]
        padded = group + [group[-1]] * (min(together, len(candidates)) - len(group))  # one shape, one program
        each = [candidate for candidate in padded for _ in seeds]
        title = f"{type(solver).__name__}: settings {first + 1} to {first + len(group)} of {len(candidates)},"
        lanes_keys = jnp.tile(keys, len(padded))
        found, _ = kept_ensemble(folder, problem, each, x0, y0, lanes_keys, metrics, title, length, mesh)
        for i in range(len(group)):
            rows = slice(i * len(seeds), (i + 1) * len(seeds))
            tables.append({name: values[rows] for name, values in found.items()})
    scores = [criterion(table) for table in tables]
    best = min(range(len(scores)), key=lambda i: scores[i])
    if not np.isfinite(scores[best][-1]):
        why = "they diverged, or the metric is NaN everywhere. Try smaller step sizes in grid=…, or another metric"
        why = fault_at_start(*prepare(problem, x0, y0)) or why
        raise ValueError(f"none of the {len(settings)} settings has a finite score under {criterion!r}: {why}.")
    return Tuned(candidates[best], settings, scores, tables)


def _settings(grid: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """Every combination of the values in the grid."""
    if not isinstance(grid, Mapping):
        raise TypeError(f'grid must be values by field, such as {{"step_size": [0.1, 0.3]}}; got {grid!r}.')
    for name, values in grid.items():
        checks.text("a field of the grid", name, "step_size")
        if np.ndim(checks.numbers(f"grid[{name!r}]", values)) != 1:
            raise ValueError(f"grid[{name!r}] must be a list of numbers; got {values!r}.")
    settings = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if not settings or not grid:
        raise ValueError("the grid is empty: give every field at least one value.")
    return settings


def _with(solver: BilevelSolver, setting: Mapping[str, float]) -> Any:
    for name, value in setting.items():
        solver = replaced(solver, name, value)
    return solver
