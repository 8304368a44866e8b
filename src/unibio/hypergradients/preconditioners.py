"""Positive diagonals M: every one gives the same v = H⁻¹∇_y f, some give it sooner.

Each is called as `m, products = preconditioner(problem, y, operator, b)`, where `operator` is v ↦ H v.
"""

from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, coordinates, linear, tree
from unibio.core.linear import Operator
from unibio.core.problem import Problem
from unibio.core.tree import PyTree

_RACE_STEPS = 4


class Preconditioner(Protocol):
    """A positive diagonal, and the number of Hessian-vector products it took."""

    def __call__(self, problem: Problem, y: PyTree, operator: Operator, b: PyTree) -> tuple[PyTree, int]: ...


class Identity(eqx.Module):
    """M = I: no preconditioner."""

    def __call__(self, problem: Problem, y: PyTree, operator: Operator, b: PyTree) -> tuple[PyTree, int]:
        return jax.tree.map(jnp.ones_like, y), 0


class Power(eqx.Module):
    """M = D = 1/((p−1)|y−a0|^(p−2)), the paper's coordinate; best when c‖y‖_p^p dominates g."""

    def __call__(self, problem: Problem, y: PyTree, operator: Operator, b: PyTree) -> tuple[PyTree, int]:
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

    def __call__(self, problem: Problem, y: PyTree, operator: Operator, b: PyTree) -> tuple[PyTree, int]:
        tiny = jnp.finfo(tree.dtype(y)).tiny
        if self.probes is None:
            diagonal, products = linear.exact_diagonal(operator, y), tree.size(y)
        else:
            diagonal = linear.estimate_diagonal(operator, y, self.probes)
            products = self.probes if tree.size(y) <= self.probes else 2 * self.probes
        return jax.tree.map(lambda d: 1 / jnp.maximum(d, tiny), diagonal), products


class Auto(eqx.Module):
    """Jacobi or Power, whichever lowers ½vᵀHv − bᵀv more in four steps of CG run side by side.

    That decrease is the squared energy norm of the error that is gone, the same measure for both.
    """

    def __call__(self, problem: Problem, y: PyTree, operator: Operator, b: PyTree) -> tuple[PyTree, int]:
        jacobi, products = Jacobi()(problem, y, operator, b)
        power, _ = Power()(problem, y, operator, b)
        both = jax.tree.map(lambda u, v: jnp.stack([u, v]), jacobi, power)
        race = jax.vmap(lambda m: linear.conjugate_gradients(operator, b, m, 0.0, _RACE_STEPS).decrease)(both)
        power_wins = race[1] > race[0]
        chosen = jax.tree.map(lambda u, v: jnp.where(power_wins, v, u), jacobi, power)
        return chosen, products + 2 * _RACE_STEPS
