"""Bilevel optimization beyond strong convexity."""

from unibio import problems
from unibio.core.batches import Batch, Dataset, Full
from unibio.core.coordinates import abs_pow, spow
from unibio.core.noise import Noise
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, HyperInfo, LowerInfo, Status
from unibio.hypergradients import (
    CG,
    Auto,
    Exact,
    Horner,
    Identity,
    Independent,
    Jacobi,
    Neumann,
    Power,
    Randomised,
    Unrolled,
    argmin,
    differentiable_in_z,
    hypergradient,
)
from unibio.lower.newton import Newton, lower_solution

__all__ = [
    "CG",
    "Auto",
    "Batch",
    "Calls",
    "Dataset",
    "Exact",
    "Full",
    "Horner",
    "HyperInfo",
    "Identity",
    "Independent",
    "Jacobi",
    "LowerInfo",
    "Neumann",
    "Newton",
    "Noise",
    "Power",
    "Problem",
    "Randomised",
    "Status",
    "Unrolled",
    "abs_pow",
    "argmin",
    "differentiable_in_z",
    "hypergradient",
    "lower_solution",
    "problems",
    "spow",
]
