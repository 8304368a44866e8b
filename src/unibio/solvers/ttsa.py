"""TTSA: one lower and one upper step, on two time scales, with a series of random length."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, kinds, tree
from unibio.core.problem import Problem, as_pytree
from unibio.core.protocols import Calls, Info, Projection
from unibio.core.tree import PyTree
from unibio.hypergradients.neumann import Randomised
from unibio.lower.sgd import SGD
from unibio.solvers.lower_level import refresh
from unibio.solvers.series import series_estimate


class State(NamedTuple):
    """x_k, y_k, k."""

    x: PyTree
    y: PyTree
    t: jax.Array


class TTSA(eqx.Module):
    """Two-timescale stochastic approximation.

        y_{k+1} = y_k − β_k∇_y g(x_k, y_k)
        v = N·s·Π_{j=1}^{q}(I − sH(ζ_j))∇_y f(x_k, y_{k+1}),   q uniform on 0..N−1
        x_{k+1} = P(x_k − α_k(∇_x f − A v))
        α_k = α(1+k)^{−a},  β_k = β(1+k)^{−b}

    | symbol | field |
    |---|---|
    | α, a, β, b | `step_size`, `upper_decay` (3/5), `lower_step_size`, `lower_decay` (2/5); 0 keeps a step constant |
    | N, s | `terms`, `neumann_step` (by default β) |
    | P | `project` |

    Reference: Algorithm 1 of Hong, Wai, Wang, Yang, A Two-Timescale Stochastic Algorithm Framework for Bilevel
    Optimization (SIAM J. Optimization, 2023). Different here: N is fixed, where the paper lets it grow with log k; the
    steps decay with k, where its theorem for nonconvex Φ has constants of the same powers of the horizon.
    """

    step_size: float = eqx.field(converter=checks.as_real)
    lower_step_size: float = eqx.field(converter=checks.as_real)
    terms: int = eqx.field(static=True, default=10)
    neumann_step: float | None = eqx.field(default=None, converter=checks.as_real)
    upper_decay: float = eqx.field(default=0.6, converter=checks.as_real)
    lower_decay: float = eqx.field(default=0.4, converter=checks.as_real)
    project: Projection | None = eqx.field(default=None, converter=as_pytree)

    def __check_init__(self) -> None:
        checks.step_sizes(self, "step_size", "lower_step_size", "neumann_step")
        checks.whole_number("terms", self.terms, low=1)
        if self.project is not None:
            kinds.is_a("project", self.project, Projection, "a function of x, such as Box(0, 1)")
        checks.number("upper_decay", self.upper_decay, low=0.0)
        checks.number("lower_decay", self.lower_decay, low=0.0)

    def init(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> tuple[State, Info]:
        return State(x, y, jnp.int32(0)), Info(jnp.zeros((), tree.dtype(x)), Calls())

    def step(self, problem: Problem, state: State, key: jax.Array) -> tuple[State, Info]:
        key_lower, key_hyper = jax.random.split(key)
        x, t = state.x, (1 + state.t).astype(tree.dtype(state.x))
        beta = self.lower_step_size * t**-self.lower_decay
        y, calls = refresh(SGD(1, beta), problem, x, state.y, key_lower)
        s = self.lower_step_size if self.neumann_step is None else self.neumann_step
        estimate, more = series_estimate(problem, x, y, key_hyper, Randomised(), self.terms, s)
        x = tree.axpy(-self.step_size * t**-self.upper_decay, estimate, x)
        if self.project is not None:
            x = checks.returned("project(x)", self.project(x), x)
        return State(x, y, state.t + 1), Info(tree.norm(estimate), calls.plus(more))
