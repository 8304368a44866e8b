"""Finished pieces of a sweep on disk, so that it continues after a stop and can be shared out."""

import os
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from unibio.core.problem import Problem
from unibio.core.tree import PyTree
from unibio.distributed.processes import from_leader, is_leader
from unibio.files.store import Store, Table
from unibio.run.ensemble import depends_on, run_ensemble

_COMPILING = "compile_seconds"


def kept_ensemble(
    folder: str | os.PathLike[str] | None, problem: Problem, solvers: list[Any], x: PyTree, y: PyTree, keys: jax.Array,
    metrics: Any, title: str, length: dict[str, Any], mesh: Mesh | None,
) -> tuple[Table, float]:  # fmt: skip
    """The table of `run_ensemble` with these arguments, kept in the folder or made now; and the seconds of its
    compilation. Processes that share the work see what the first one sees."""

    def make() -> Table:
        made = run_ensemble(problem, solvers, x, y, keys, metrics=metrics, title=title, mesh=mesh, **length)
        return made.table | {_COMPILING: np.asarray(made.compile_seconds)}

    shared = {"agreed": from_leader} if mesh is not None and jax.process_count() > 1 else {}
    store = Store(folder, **shared, writes=is_leader())
    table = dict(store.table(lambda: depends_on(problem, solvers, x, y, keys, metrics) | length, make))
    return table, float(table.pop(_COMPILING))
