"""Finished pieces of a sweep on disk, so that it continues after a stop and can be shared out.

A piece is one file, named by the digest of all that its numbers depend on: pieces of different sweeps lie side by side,
and one that is there is not computed again, whoever put it there.
"""

import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from unibio.core.problem import Problem
from unibio.core.tree import PyTree
from unibio.distributed.processes import from_leader, is_leader
from unibio.files.archive import decode, encode
from unibio.files.atomic import write_file
from unibio.run.ensemble import depends_on, run_ensemble
from unibio.run.result import Table


class Store:
    """Tables by what they depend on; without a folder nothing is kept."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.folder = None if folder is None else Path(folder)

    def ensemble(
        self, problem: Problem, solvers: list[Any], x: PyTree, y: PyTree, keys: jax.Array, metrics: Any, title: str,
        length: dict[str, Any], mesh: Mesh | None,
    ) -> tuple[Table, float]:  # fmt: skip
        """The table of `run_ensemble` with these arguments, kept or made now; and the seconds of its compilation."""
        found, path = None, None
        if self.folder is not None:
            facts = json.dumps(
                depends_on(problem, solvers, x, y, keys, metrics) | length, sort_keys=True, default=int
            ).encode()
            path = self.folder / f"{hashlib.sha256(facts).hexdigest()[:32]}.piece"
            found = _read(path, shared=mesh is not None and jax.process_count() > 1)
        if found is None:
            made = run_ensemble(problem, solvers, x, y, keys, metrics=metrics, title=title, mesh=mesh, **length)
            found = made.table, made.compile_seconds
            if path is not None and is_leader():
                try:
                    _write(path, *found)
                except OSError as error:  # what was computed is not thrown away for it
                    message = f"{path} is not kept: {error.strerror or error}."
                    warnings.warn(message, RuntimeWarning, stacklevel=4)
        return found


def _read(path: Path, shared: bool) -> tuple[Table, float] | None:
    """None if it is not there; one that is damaged is reported, and made anew. Processes that share the work must all
    find it or none: they see what the first one sees."""
    content = path.read_bytes() if path.exists() and (is_leader() or not shared) else b""
    content = from_leader(content) if shared else content
    if not content:
        return None
    try:
        facts, arrays = decode(content)
    except ValueError as error:
        warnings.warn(f"{path} is made anew: {error}", RuntimeWarning, stacklevel=5)
        return None
    return dict(zip(facts["columns"], arrays["table"], strict=True)), facts["compile_seconds"]


def _write(path: Path, table: Table, compile_seconds: float) -> None:
    content = encode({"columns": list(table), "compile_seconds": compile_seconds}, {"table": list(table.values())})
    write_file(path, lambda file: file.write(content))
