"""SOBA: lower variable, linear system and upper variable move together, one step each."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, oracle, tree
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, Info
from unibio.core.streams import Site
from unibio.core.tree import PyTree


class State(NamedTuple):
    """x_t, y_t, v_t, t."""

    x: PyTree
    y: PyTree
    v: PyTree
    t: jax.Array


def directions(
    problem: Problem, x: PyTree, y: PyTree, v: PyTree, key: jax.Array
) -> tuple[PyTree, PyTree, PyTree, Calls]:
    """D_y = ∇_y g,  D_v = H v − ∇_y f,  D_x = ∇_x f − A v, all at (x, y, v), on one batch of f and one of g; and the
    calls that they take."""
    key_f, key_g = jax.random.split(key)
    f_batch, g_batch = problem.f_batch(key_f, x, y, Site.upper), problem.g_batch(key_g, x, y, Site.lower)
    grad_x, grad_y = oracle.grads_f(problem, x, y, f_batch)
    d_y = oracle.grad_g(problem, x, y, g_batch)
    d_v = tree.sub(oracle.hvp_g(problem, x, y, v, g_batch), grad_y)
    d_x = tree.sub(grad_x, oracle.cross_g(problem, x, y, v, g_batch))
    samples = oracle.samples(g_batch)
    return d_y, d_v, d_x, Calls(oracle.samples(f_batch), samples, samples, samples)


class SOBA(eqx.Module):
    """SGD on three variables at once.

        D_y = ∇_y g,  D_v = H v − ∇_y f,  D_x = ∇_x f − A v       at (x_t, y_t, v_t), one batch of f and one of g
        y ← y − ρ_t D_y,  v ← v − ρ_t D_v,  x ← x − γ_t D_x
        ρ_t = ρ(1+t)^{−b},  γ_t = γ(1+t)^{−a},  v_0 = 0

    | symbol | field |
    |---|---|
    | γ, a, ρ, b | `step_size`, `upper_decay` (1/2), `lower_step_size`, `lower_decay` (1/2); 0 keeps a step constant |

    Reference: Algorithm 1 with equations (10) of Dagréou, Ablin, Vaiter, Moreau, A framework for bilevel optimization
    that enables stochastic and global variance reduction algorithms (NeurIPS 2022), with the decays of its authors'
    own code (benchmark_bilevel on GitHub, where they were 3/5 and 2/5 until September 2022).
    Different here: v has the opposite sign, v ≈ H⁻¹∇_y f, as everywhere in this package.
    """

    step_size: float = eqx.field(converter=checks.as_real)
    lower_step_size: float = eqx.field(converter=checks.as_real)
    upper_decay: float = eqx.field(default=0.5, converter=checks.as_real)
    lower_decay: float = eqx.field(default=0.5, converter=checks.as_real)

    def __check_init__(self) -> None:
        checks.step_sizes(self, "step_size", "lower_step_size")
        checks.number("upper_decay", self.upper_decay, low=0.0)
        checks.number("lower_decay", self.lower_decay, low=0.0)

    def init(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> tuple[State, Info]:
        return State(x, y, tree.zeros_like(y), jnp.int32(0)), Info(jnp.zeros((), tree.dtype(x)), Calls())

    def step(self, problem: Problem, state: State, key: jax.Array) -> tuple[State, Info]:
        x, y, v = state.x, state.y, state.v
        d_y, d_v, d_x, calls = directions(problem, x, y, v, key)
        t = (1 + state.t).astype(tree.dtype(x))
        rho, gamma = self.lower_step_size * t**-self.lower_decay, self.step_size * t**-self.upper_decay
        state = State(tree.axpy(-gamma, d_x, x), tree.axpy(-rho, d_y, y), tree.axpy(-rho, d_v, v), state.t + 1)
        return state, Info(tree.norm(d_x), calls)
