"""MA-SOBA: SOBA with a moving average of the upper direction."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, tree
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, Info
from unibio.core.tree import PyTree
from unibio.solvers.soba import directions


class State(NamedTuple):
    """x_k, y_k, v_k, h_k."""

    x: PyTree
    y: PyTree
    v: PyTree
    h: PyTree


class MASOBA(eqx.Module):
    """SOBA whose x follows the average of past directions.

        x_{k+1} = x_k − α h_k
        y_{k+1} = y_k − β∇_y g(x_k, y_k)
        v_{k+1} = v_k − γ(H v_k − ∇_y f)
        h_{k+1} = (1−θ) h_k + θ(∇_x f − A v_k)             all at (x_k, y_k, v_k); v_0 = 0, h_0 = 0

    Step 0 does not move x. `direction_norm` is ‖h_{k+1}‖, the newest average.

    | symbol | field |
    |---|---|
    | α, β, γ, 1−θ | `step_size`, `lower_step_size`, `linear_step_size` (by default β), `momentum` |

    Reference: Algorithm 1 of Chen, Xiao, Balasubramanian, Optimal Algorithms for Stochastic Bilevel Optimization under
    Relaxed Smoothness Conditions (JMLR 2024). Different here: one batch of g serves ∇_y g, H and A, as in SOBA.
    """

    step_size: float = eqx.field(converter=checks.as_real)
    lower_step_size: float = eqx.field(converter=checks.as_real)
    linear_step_size: float | None = eqx.field(default=None, converter=checks.as_real)
    momentum: float = eqx.field(default=0.9, converter=checks.as_real)

    def __check_init__(self) -> None:
        checks.step_sizes(self, "step_size", "lower_step_size", "linear_step_size")
        checks.fraction("momentum", self.momentum)

    def init(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> tuple[State, Info]:
        return State(x, y, tree.zeros_like(y), tree.zeros_like(x)), Info(jnp.zeros((), tree.dtype(x)), Calls())

    def step(self, problem: Problem, state: State, key: jax.Array) -> tuple[State, Info]:
        x, y, v, h = state
        d_y, d_v, d_x, calls = directions(problem, x, y, v, key)
        gamma = self.lower_step_size if self.linear_step_size is None else self.linear_step_size
        state = State(
            tree.axpy(-self.step_size, h, x),
            tree.axpy(-self.lower_step_size, d_y, y),
            tree.axpy(-gamma, d_v, v),
            tree.axpy(self.momentum, h, tree.scale(1 - self.momentum, d_x)),
        )
        return state, Info(tree.norm(state.h), calls)
