"""StocBiO: several lower steps, then a nested Neumann series."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, tree
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, Info
from unibio.core.tree import PyTree
from unibio.hypergradients.neumann import Nested
from unibio.lower.sgd import SGD
from unibio.solvers.lower_level import refresh
from unibio.solvers.series import series_estimate


class State(NamedTuple):
    """x_k, y_k."""

    x: PyTree
    y: PyTree


class StocBiO(eqx.Module):
    """Warm-started SGD below, a Neumann series of Q factors above.

        y ← y − α∇_y g(x_k, y; S_t)                       D times, from the last y
        r_0 = ∇_y f,  r_{j+1} = (I − ηH(B_j)) r_j,  v = η Σ_{j=0}^{Q} r_j
        x_{k+1} = x_k − β(∇_x f − A v)

    | symbol | field |
    |---|---|
    | β, α, D | `step_size`, `lower_step_size`, `lower_steps` |
    | Q, η | `terms` (Q products, Q + 1 terms), `neumann_step` (by default α) |

    Reference: Algorithms 2 and 3 of Ji, Yang, Liang, Bilevel Optimization: Convergence Analysis and Enhanced Design
    (ICML 2021). Different here: every B_j has the problem's batch size, where the paper lets it shrink with j.
    """

    step_size: float = eqx.field(converter=checks.as_real)
    lower_step_size: float = eqx.field(converter=checks.as_real)
    lower_steps: int = eqx.field(static=True, default=5)
    terms: int = eqx.field(static=True, default=10)
    neumann_step: float | None = eqx.field(default=None, converter=checks.as_real)

    def __check_init__(self) -> None:
        checks.step_sizes(self, "step_size", "lower_step_size", "neumann_step")
        checks.whole_number("lower_steps", self.lower_steps, low=1)
        checks.whole_number("terms", self.terms, low=0)

    def init(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> tuple[State, Info]:
        return State(x, y), Info(jnp.zeros((), tree.dtype(x)), Calls())

    def step(self, problem: Problem, state: State, key: jax.Array) -> tuple[State, Info]:
        key_lower, key_hyper = jax.random.split(key)
        x = state.x
        y, calls = refresh(SGD(self.lower_steps, self.lower_step_size), problem, x, state.y, key_lower)
        eta = self.lower_step_size if self.neumann_step is None else self.neumann_step
        estimate, more = series_estimate(problem, x, y, key_hyper, Nested(), self.terms + 1, eta)
        x = tree.axpy(-self.step_size, estimate, x)
        return State(x, y), Info(tree.norm(estimate), calls.plus(more))
