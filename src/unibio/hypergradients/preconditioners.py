"""Positive diagonals M: every one gives the same v = H⁻¹∇_y f, some give it sooner.

Each is called as `m, products = preconditioner(problem, y, operator, samples)`, where `operator` is v ↦ H v on
a batch of so many samples (None: not a finite sum).
"""

from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, coordinates, linear, tree
from unibio.core.linear import Operator
from unibio.core.problem import Problem
from unibio.core.tree import PyTree


class Preconditioner(Protocol):
    """A positive diagonal, and the number of Hessian-vector products it took."""

    def __call__(self, problem: Problem, y: PyTree, operator: Operator, samples: int | None) -> tuple[PyTree, int]: ...


class Identity(eqx.Module):
    """M = I: no preconditioner."""

    def __call__(self, problem: Problem, y: PyTree, operator: Operator, samples: int | None) -> tuple[PyTree, int]:
        return jax.tree.map(jnp.ones_like, y), 0


class Power(eqx.Module):
    """M = D = 1/((p−1)|y−a0|^(p−2)), the paper's coordinate; best when c‖y‖_p^p dominates g."""

    def __call__(self, problem: Problem, y: PyTree, operator: Operator, samples: int | None) -> tuple[PyTree, int]:
        return coordinates.scaling(y, problem.p, problem.shift), 0


class Jacobi(eqx.Module):
    """M = 1/diag(H), the diagonal estimated from two blocks of `probes` products (a power of two), or
    exactly, by one product per unknown, with `probes=None`."""

    probes: int | None = eqx.field(static=True, default=8)

    def __check_init__(self) -> None:
        if self.probes is not None:
            checks.whole_number("probes", self.probes, low=1)
            if self.probes & (self.probes - 1):
                raise ValueError(f"probes must be a power of two; got {self.probes}. Use 8 or 16.")

    def __call__(self, problem: Problem, y: PyTree, operator: Operator, samples: int | None) -> tuple[PyTree, int]:
        tiny = jnp.finfo(tree.dtype(y)).tiny
        if self.probes is None:
            diagonal, products = linear.exact_diagonal(operator, y), tree.size(y)
        else:
            diagonal = linear.estimate_diagonal(operator, y, self.probes)
            products = self.probes if tree.size(y) <= self.probes else 2 * self.probes
        return jax.tree.map(lambda d: 1 / jnp.maximum(d, tiny), diagonal), products


class Auto(eqx.Module):
    """Power if the batch has at most half as many samples as there are unknowns, else Jacobi.

    So few samples leave the data's part of H rank-deficient and c‖y‖_p^p in charge of the rest, on which
    D H is a multiple of the identity: CG then needs about as many steps as there are samples. Racing the
    two over a few steps would choose wrongly: with D the error falls late, but then all at once.
    """

    def __call__(self, problem: Problem, y: PyTree, operator: Operator, samples: int | None) -> tuple[PyTree, int]:
        few = samples is not None and 2 * samples <= tree.size(y)
        chosen: Preconditioner = Power() if few else Jacobi()
        return chosen(problem, y, operator, samples)
