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
from unibio.core import checks
from unibio.core.problem import Problem
from unibio.core.protocols import BilevelSolver
from unibio.core.tree import PyTree
from unibio.run.ensemble import as_seeds, kept_ensemble
from unibio.run.metrics import Metric, Truth
from unibio.run.minimise import minimise
from unibio.run.programs import check_solver
from unibio.run.result import Table
from unibio.solvers.step_sizes import replaced, step_size_fields

STEP_SIZES = (0.01, 0.03, 0.1, 0.3, 1.0)  # the paper searches [0.01, 1] at both levels


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The best solver; and for each setting its numbers, its score, and its runs, arrays (seeds, measurements)."""

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
        grid: values by field, dotted where it lies deeper: {"step_size": […], "lower.step_size": […]}. By default both
            step sizes over 0.01 … 1, 25 settings for every solver.
        criterion: `Final()`, on the true ‖∇Φ‖, or `CallsToReach(target)`.
        steps, max_calls, mesh: as in `compare`. Settings that do not fit into `lanes` at once run in turns.
        folder: where each turn is kept when it is finished; the same call continues after a stop.
    """
    seeds = as_seeds(seeds)
    if solver is minimise:  # type: ignore[comparison-overlap]
        raise ValueError("there is nothing to tune: minimise has no step sizes. Pass it to compare as it is.")
    check_solver(solver, jnp.dtype(float))
    checks.whole_number("lanes", lanes, low=1)
    settings = _settings(dict.fromkeys(step_size_fields(solver), STEP_SIZES) if grid is None else grid)
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
        raise ValueError(
            f"none of the {len(settings)} settings has a finite score under {criterion!r}: they diverged, or the "
            "metric is NaN everywhere. Try smaller step sizes in grid=…, or another metric."
        )
    return Tuned(candidates[best], settings, scores, tables)


def _settings(grid: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """Every combination of the values in the grid."""
    for name, values in grid.items():
        if np.ndim(values) != 1:
            raise ValueError(f"grid[{name!r}] must be a list of numbers; got {values!r}.")
    settings = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if not settings:
        raise ValueError("the grid is empty: give every field at least one value.")
    return settings


def _with(solver: BilevelSolver, setting: Mapping[str, float]) -> Any:
    for name, value in setting.items():
        solver = replaced(solver, name, value)
    return solver
