"""Reads the step sizes of a solver, and makes the same solver with other ones."""

import dataclasses
import operator
from typing import Any

import equinox as eqx
import jax
from jax.tree_util import KeyPath

from unibio.core.protocols import BilevelSolver


def step_size_fields(solver: BilevelSolver) -> tuple[str, str]:
    """The names of a solver's upper and lower step size."""
    names = {field.name for field in dataclasses.fields(solver)}  # type: ignore[arg-type]
    return "step_size", "lower_step_size" if "lower_step_size" in names else "lower.step_size"


def tunable(solver: BilevelSolver) -> tuple[str, ...]:
    """Those of `step_size_fields` that the solver has: one whose lower level needs no step size has only the first."""
    head, _, rest = step_size_fields(solver)[1].partition(".")
    lower = getattr(solver, head)
    names = {field.name for field in dataclasses.fields(lower)} if rest else {rest}
    return step_size_fields(solver) if rest in names else ("step_size",)


def step_sizes(solver: BilevelSolver) -> tuple[float, float]:
    """The upper and the lower step size of a solver."""
    upper, lower = (operator.attrgetter(name)(solver) for name in step_size_fields(solver))
    return upper, lower


def stepping(solver: BilevelSolver, upper: float, lower: float) -> Any:
    """The solver with these step sizes."""
    first, second = step_size_fields(solver)
    return replaced(replaced(solver, first, upper), second, lower)


def scaled(solver: BilevelSolver, factor: float) -> Any:
    """The solver with every number in a field named …step_size times `factor`."""

    def scale(path: KeyPath[Any], leaf: Any) -> Any:
        return leaf * factor if _is_step_size(path) else leaf

    return solver if factor == 1 else jax.tree_util.tree_map_with_path(scale, solver)


def has_step_sizes(solver: BilevelSolver) -> bool:
    """Whether there is a field named …step_size."""
    return any(_is_step_size(path) for path, _ in jax.tree_util.tree_leaves_with_path(solver))


def _is_step_size(path: KeyPath[Any]) -> bool:
    return bool(path) and str(getattr(path[-1], "name", "")).endswith("step_size")


def replaced(solver: Any, name: str, value: float) -> Any:
    """The solver with another number in the field `name`, which a dot may lead to a field of a field, such as
    "lower.step_size". The number is checked as at construction."""
    head, _, rest = name.partition(".")
    fields = dataclasses.fields(solver) if isinstance(solver, eqx.Module) else ()
    numbers = [field.name for field in fields if not field.metadata.get("static", False)]
    if head not in numbers:
        raise ValueError(f"{type(solver).__name__} has no number {head!r} to tune; it has {', '.join(numbers)}.")
    if not rest:
        return dataclasses.replace(solver, **{head: value})
    return dataclasses.replace(solver, **{head: replaced(getattr(solver, head), rest, value)})
