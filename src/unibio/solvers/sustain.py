"""SUSTAIN: recursive momentum at both levels."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, oracle, tree
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, Info
from unibio.core.streams import Site
from unibio.core.tree import Number, PyTree
from unibio.hypergradients.neumann import Randomised
from unibio.solvers.series import series_estimate


class State(NamedTuple):
    """x_k, y_k, the point before, the two averages h^f and h^g, k."""

    x: PyTree
    y: PyTree
    x_before: PyTree
    y_before: PyTree
    h_f: PyTree
    h_g: PyTree
    t: jax.Array


class SUSTAIN(eqx.Module):
    """Both levels follow corrected averages: one batch, evaluated here and at the point before.

        h^g_k = ∇_y g(x_k, y_k; ζ) + (1−η^g_k)(h^g_{k−1} − ∇_y g(x_{k−1}, y_{k−1}; ζ)),   y_{k+1} = y_k − β_k h^g_k
        h^f_k = ĥ(x_k, y_k; ξ) + (1−η^f_k)(h^f_{k−1} − ĥ(x_{k−1}, y_{k−1}; ξ)),            x_{k+1} = x_k − α_k h^f_k
        α_k = α(1+k)^{−r},  β_k = β(1+k)^{−r},  η_k = η·k^{−2r} for k ≥ 1,  η_0 = 1

    ĥ is TTSA's series of random length, its length and samples the same at both points.

    | symbol | field |
    |---|---|
    | α, β, r | `step_size`, `lower_step_size`, `decay` (1/3; 0 keeps steps and weights constant) |
    | η^f, η^g | `upper_weight`, `lower_weight` |
    | N, s of ĥ | `terms`, `neumann_step` (by default β) |

    Reference: Algorithm 1 of Khanduri, Zeng, Hong, Wai, Wang, Yang, A Near-Optimal Algorithm for Stochastic Bilevel
    Optimization via Double-Momentum (NeurIPS 2021). Different here: its α_k = (w+k)^{−1/3} and η_{k+1} = c·α_k² have
    their constants in front, so that each is one field.
    """

    step_size: float = eqx.field(converter=checks.as_real)
    lower_step_size: float = eqx.field(converter=checks.as_real)
    upper_weight: float = eqx.field(default=0.5, converter=checks.as_real)
    lower_weight: float = eqx.field(default=0.5, converter=checks.as_real)
    decay: float = eqx.field(default=1 / 3, converter=checks.as_real)
    terms: int = eqx.field(static=True, default=10)
    neumann_step: float | None = eqx.field(default=None, converter=checks.as_real)

    def __check_init__(self) -> None:
        checks.step_sizes(self, "step_size", "lower_step_size", "neumann_step")
        checks.whole_number("terms", self.terms, low=1)
        checks.number("decay", self.decay, low=0.0)
        for name in ("upper_weight", "lower_weight"):
            checks.number(name, getattr(self, name), low=0.0, strict=True, high=1.0)

    def init(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> tuple[State, Info]:
        state = State(x, y, x, y, tree.zeros_like(x), tree.zeros_like(y), jnp.int32(0))
        return state, Info(jnp.zeros((), tree.dtype(x)), Calls())

    def step(self, problem: Problem, state: State, key: jax.Array) -> tuple[State, Info]:
        key_lower, key_hyper = jax.random.split(key)
        x, y, t = state.x, state.y, state.t
        batch = problem.g_batch(key_lower, x, y, Site.lower)
        s = self.lower_step_size if self.neumann_step is None else self.neumann_step
        points = ((x, y), (state.x_before, state.y_before))
        g_here, g_before = (oracle.grad_g(problem, *point, batch) for point in points)
        (f_here, calls), (f_before, more) = (
            series_estimate(problem, *point, key_hyper, Randomised(), self.terms, s) for point in points
        )
        k = jnp.maximum(t, 1).astype(tree.dtype(x))
        fade = k ** (-2 * self.decay)
        h_g = _corrected(g_here, g_before, state.h_g, jnp.where(t == 0, 1.0, self.lower_weight * fade))
        h_f = _corrected(f_here, f_before, state.h_f, jnp.where(t == 0, 1.0, self.upper_weight * fade))
        shrink = (1 + t).astype(tree.dtype(x)) ** -self.decay
        x_next = tree.axpy(-self.step_size * shrink, h_f, x)
        y_next = tree.axpy(-self.lower_step_size * shrink, h_g, y)
        calls = calls.plus(more).plus(Calls(grad_g=2 * oracle.samples(batch)))
        return State(x_next, y_next, x, y, h_f, h_g, t + 1), Info(tree.norm(h_f), calls)


def _corrected(here: PyTree, before: PyTree, average: PyTree, eta: Number) -> PyTree:
    """here + (1−η)(average − before)."""
    return tree.axpy(1 - eta, tree.sub(average, before), here)
