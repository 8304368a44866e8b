"""Bilevel optimization beyond strong convexity.

`dir(unibio)` lists what most programs need. The rest stands in groups: `unibio.preconditioners`, `unibio.neumann`
(orders of the series), `metrics`, `stop` (rules that end a run), `between` (what acts between the steps of a run),
`criteria` (what a comparison judges by), `logs`, `oracle` (the only ways to touch a problem), `problems`,
`distributed` and `theory`.
Members of these groups that are also here by their own name, such as `unibio.Truth`, are so for earlier programs.
"""

import importlib
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

from unibio import distributed, problems
from unibio.comparison import Comparison as Comparison
from unibio.comparison import Tuned as Tuned
from unibio.comparison import compare, criteria, tune
from unibio.comparison.criteria import CallsToReach as CallsToReach
from unibio.comparison.criteria import Final as Final
from unibio.core import oracle
from unibio.core.batches import Batch as Batch
from unibio.core.batches import Dataset
from unibio.core.batches import Full as Full
from unibio.core.coordinates import abs_pow as abs_pow
from unibio.core.coordinates import spow
from unibio.core.noise import Noise
from unibio.core.problem import Problem
from unibio.core.projections import Box, Simplex
from unibio.core.protocols import BilevelSolver, Hypergradient, Info, LowerSolver
from unibio.core.protocols import Calls as Calls
from unibio.core.protocols import HyperInfo as HyperInfo
from unibio.core.protocols import LowerInfo as LowerInfo
from unibio.core.status import Status
from unibio.hypergradients import (
    CG,
    Exact,
    Neumann,
    Unrolled,
    argmin,
    differentiable_in_z,
    hypergradient,
    neumann,
    preconditioners,
)
from unibio.hypergradients.neumann import Horner as Horner
from unibio.hypergradients.neumann import Independent as Independent
from unibio.hypergradients.neumann import Nested as Nested
from unibio.hypergradients.neumann import Randomised as Randomised
from unibio.hypergradients.preconditioners import Auto as Auto
from unibio.hypergradients.preconditioners import Identity as Identity
from unibio.hypergradients.preconditioners import Jacobi as Jacobi
from unibio.hypergradients.preconditioners import Power as Power
from unibio.lower.epoch_sgd import EpochSGD
from unibio.lower.newton import Newton, lower_solution
from unibio.lower.optax import Optax
from unibio.lower.sgd import SGD
from unibio.lower.staged_sgd import StagedSGD
from unibio.run import between, logs, metrics
from unibio.run import stopping as stop
from unibio.run.between import Between
from unibio.run.between import End as End
from unibio.run.between import Restart as Restart
from unibio.run.between import View as View
from unibio.run.checkpoints import Checkpoints
from unibio.run.metrics import Accuracy as Accuracy
from unibio.run.metrics import LowerResidual as LowerResidual
from unibio.run.metrics import Truth as Truth
from unibio.run.minimise import Minimum as Minimum
from unibio.run.minimise import minimise
from unibio.run.result import Result
from unibio.run.solve import solve
from unibio.run.stopping import Above as Above
from unibio.run.stopping import Below as Below
from unibio.run.stopping import MaxCalls as MaxCalls
from unibio.run.stopping import MaxSeconds as MaxSeconds
from unibio.run.trajectory import trajectory
from unibio.solvers import BOREP, F2SA, MASOBA, SABA, SOBA, SOLVERS, SUSTAIN, TTSA, VRBO, AmIGO, StocBiO, UniBiO

if TYPE_CHECKING:
    from unibio.paper import theory

__version__ = _version("unibio")  # pyproject.toml states it; the installed distribution knows it

__all__ = [
    "BOREP",
    "CG",
    "F2SA",
    "MASOBA",
    "SABA",
    "SGD",
    "SOBA",
    "SOLVERS",
    "SUSTAIN",
    "TTSA",
    "VRBO",
    "AmIGO",
    "Between",
    "BilevelSolver",
    "Box",
    "Checkpoints",
    "Dataset",
    "EpochSGD",
    "Exact",
    "Hypergradient",
    "Info",
    "LowerSolver",
    "Neumann",
    "Newton",
    "Noise",
    "Optax",
    "Problem",
    "Result",
    "Simplex",
    "StagedSGD",
    "Status",
    "StocBiO",
    "UniBiO",
    "Unrolled",
    "__version__",
    "argmin",
    "between",
    "compare",
    "criteria",
    "differentiable_in_z",
    "distributed",
    "hypergradient",
    "logs",
    "lower_solution",
    "metrics",
    "minimise",
    "neumann",
    "oracle",
    "preconditioners",
    "problems",
    "solve",
    "spow",
    "stop",
    "theory",
    "trajectory",
    "tune",
]


def __getattr__(name: str) -> Any:
    """`unibio.theory`, which belongs to the paper, is loaded when it is first used."""
    if name == "theory":
        return importlib.import_module("unibio.paper.theory")
    raise AttributeError(f"module 'unibio' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
