"""What a run leaves behind, and how it is written to disk and read back: arrays and JSON, nothing executable."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from unibio.core import checks, show
from unibio.core.protocols import Calls
from unibio.core.status import Status
from unibio.core.tree import PyTree
from unibio.distributed.processes import gathered, is_leader, spans_processes
from unibio.files import figures
from unibio.files.atomic import write_file
from unibio.files.store import Table as Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_AS_JSON = ("message", "steps", "calls", "seconds", "compile_seconds", "restarts")  # fields that JSON holds as they are
_NO_CURVE = {"step", "calls", "seconds", *Calls._fields}  # they say where a measurement was made


@dataclasses.dataclass(frozen=True)
class Result:
    """The end of a run.

    `history` has one entry per step t: `step`, `direction_norm` (of the direction taken at x_t), the calls so far of
    `grad_f`, `grad_g`, `hvp`, `cross` and their sum `calls`, `seconds` so far (within a stretch of steps the clock is
    spread evenly), `ok` (whether the hypergradient was; `status` is its code), `restarts` so far. `metrics` has one
    entry per measurement, after `step` steps. `restarts` says why the run was started again from an earlier state, once
    for each time; by default never. `origin` holds digests of what the run was given, so that `solve(…, resume=…)` can
    refuse to go on from another start, with another key or on another problem.
    """

    x: PyTree
    y: PyTree
    status: Status
    message: str
    steps: int
    calls: Calls
    seconds: float
    compile_seconds: float
    history: Table
    metrics: Table
    state: Any = None
    restarts: tuple[str, ...] = ()
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        last = {name: float(self.metrics[name][-1]) for name in ("phi", "gradient_norm") if name in self.metrics}
        names = {"phi": "Φ", "gradient_norm": "‖∇Φ‖"}
        known = "".join(f", {names[name]} = {value:.3g}" for name, value in last.items())
        return (
            f"Result({self.status!r} after {show.quantity(self.steps, 'step')}{known}; "
            f"{show.quantity(sum(self.calls), 'call')}, {self.seconds:.2g} s and {self.compile_seconds:.2g} s of "
            f"compilation; x: {show.shapes(self.x)}, y: {show.shapes(self.y)})"
        )

    def plot(self, path: str | os.PathLike[str] | None = None) -> "Figure":
        """Draws the measured numbers against the oracle calls: ‖∇Φ‖ and Φ where `Truth()` measured them, other metrics
        too, and the norm of the direction where nothing was. Needs the extra `plot`.

        With a path the figure is also written there (.png, .svg or .pdf).
        """
        if path is not None:
            checks.path("path", path)
        table = self.metrics or self.history
        names = [name for name in table if name not in _NO_CURVE] if self.metrics else ["direction_norm"]
        curves = {name: (table["calls"], table[name]) for name in names}
        return figures.drawn(figures.curves, curves, "oracle calls", path=path)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes everything but the solver's state to one .npz file, first under another name. Where x and y lie on
        several processes, all must call it, and the first one writes."""
        checks.path("path", path)
        path = Path(path)
        arrays: dict[str, np.ndarray] = {}
        for name, table in (("history", self.history), ("metrics", self.metrics)):
            arrays |= {f"{name}/{column}": values for column, values in table.items()}
        for name, variable in (("x", self.x), ("y", self.y)):
            arrays |= {f"{name}/{i}": leaf for i, leaf in enumerate(jax.tree.leaves(gathered(variable)))}
        facts = {
            "format": 1,
            "status": self.status.name,
            **{name: getattr(self, name) for name in _AS_JSON},
            "x": _describe("x", self.x),
            "y": _describe("y", self.y),
        }
        odd = [name for name, values in arrays.items() if values.dtype.kind not in "biuf"]
        if odd:
            raise ValueError(
                f"{odd[0]} has dtype {arrays[odd[0]].dtype}, which .npz files cannot hold; cast it to float32."
            )
        arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        if is_leader() or not spans_processes((self.x, self.y)):
            write_file(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Result":
        """Reads what `save` wrote; `state` is None, so it can be looked at but not resumed."""
        checks.path("path", path)
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = dict(archive)
            facts = json.loads(arrays.pop("facts").tobytes())
            tables: dict[str, Table] = {"history": {}, "metrics": {}, "x": {}, "y": {}}
            for name, values in arrays.items():
                table, column = name.split("/", 1)
                tables[table][column] = values
            x, y = (_rebuild(facts[name], iter(tables[name].values())) for name in ("x", "y"))
            given = {name: facts[name] for name in _AS_JSON if name in facts}
            given |= {"calls": Calls(*facts["calls"]), "restarts": tuple(facts.get("restarts", ()))}
            status = Status.named(facts["status"])
            return cls(x, y, status, history=tables["history"], metrics=tables["metrics"], **given)
        except OSError:
            raise
        except Exception as error:
            raise ValueError(f"{path} is not a result written by Result.save, or it is damaged: {error}") from error


def _describe(name: str, variable: PyTree) -> Any:
    """The dictionaries, lists and tuples that a variable is made of, as JSON."""
    if type(variable) is dict and all(isinstance(key, str) for key in variable):
        return {"dict": {key: _describe(name, variable[key]) for key in sorted(variable)}}
    if type(variable) in (list, tuple):
        return {type(variable).__name__: [_describe(name, part) for part in variable]}
    if isinstance(variable, (jax.Array, np.ndarray, np.generic, float)):
        return "leaf"
    raise ValueError(
        f"{name} contains a {type(variable).__name__}: save keeps nested dictionaries, lists and tuples of arrays. "
        f"For another structure save jax.tree.leaves(result.{name}) yourself."
    )


def _rebuild(shape: Any, leaves: Any) -> PyTree:
    if shape == "leaf":
        return next(leaves)
    ((kind, parts),) = shape.items()
    if kind == "dict":
        return {key: _rebuild(part, leaves) for key, part in parts.items()}
    built = [_rebuild(part, leaves) for part in parts]
    return built if kind == "list" else tuple(built)


def joined(pieces: list[Table]) -> Table:
    """The rows of several tables, one after the other, as one table. Where a table lacks a column, because the metrics
    changed when the run was resumed, its rows have NaN there."""
    pieces = [piece for piece in pieces if piece]
    names = dict.fromkeys(name for piece in pieces for name in piece)
    blank = [np.full(len(piece["step"]), np.nan) for piece in pieces]
    return {name: np.concatenate([p.get(name, b) for p, b in zip(pieces, blank, strict=True)]) for name in names}
