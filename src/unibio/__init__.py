"""Bilevel optimization beyond strong convexity."""

import importlib
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

from unibio import distributed, problems
from unibio.comparison import CallsToReach, Comparison, Final, Tuned, compare, tune
from unibio.core.batches import Batch, Dataset, Full
from unibio.core.coordinates import abs_pow, spow
from unibio.core.noise import Noise
from unibio.core.problem import Problem
from unibio.core.projections import Box, Simplex
from unibio.core.protocols import Calls, HyperInfo, LowerInfo
from unibio.core.status import Status
from unibio.hypergradients import (
    CG,
    Auto,
    Exact,
    Horner,
    Identity,
    Independent,
    Jacobi,
    Nested,
    Neumann,
    Power,
    Randomised,
    Unrolled,
    argmin,
    differentiable_in_z,
    hypergradient,
)
from unibio.lower.epoch_sgd import EpochSGD
from unibio.lower.newton import Newton, lower_solution
from unibio.lower.optax import Optax
from unibio.lower.sgd import SGD
from unibio.run import logs
from unibio.run.between import Between, End, Restart, View
from unibio.run.checkpoints import Checkpoints
from unibio.run.metrics import Accuracy, LowerResidual, Truth
from unibio.run.result import Result
from unibio.run.solve import solve
from unibio.run.stopping import Above, Below, MaxCalls, MaxSeconds
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
    "Above",
    "Accuracy",
    "AmIGO",
    "Auto",
    "Batch",
    "Below",
    "Between",
    "Box",
    "Calls",
    "CallsToReach",
    "Checkpoints",
    "Comparison",
    "Dataset",
    "End",
    "EpochSGD",
    "Exact",
    "Final",
    "Full",
    "Horner",
    "HyperInfo",
    "Identity",
    "Independent",
    "Jacobi",
    "LowerInfo",
    "LowerResidual",
    "MaxCalls",
    "MaxSeconds",
    "Nested",
    "Neumann",
    "Newton",
    "Noise",
    "Optax",
    "Power",
    "Problem",
    "Randomised",
    "Restart",
    "Result",
    "Simplex",
    "Status",
    "StocBiO",
    "Truth",
    "Tuned",
    "UniBiO",
    "Unrolled",
    "View",
    "__version__",
    "abs_pow",
    "argmin",
    "compare",
    "differentiable_in_z",
    "distributed",
    "hypergradient",
    "logs",
    "lower_solution",
    "problems",
    "solve",
    "spow",
    "theory",
    "trajectory",
    "tune",
]


def __getattr__(name: str) -> Any:
    """`unibio.theory`, which belongs to the paper, is loaded when it is first used."""
    if name == "theory":
        return importlib.import_module("unibio.paper.theory")
    raise AttributeError(f"module 'unibio' has no attribute {name!r}")
