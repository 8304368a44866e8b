"""F2SA: gradients only; the lower level enters as a penalty."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, oracle, tree
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, Info, count
from unibio.core.streams import Site
from unibio.core.tree import PyTree


class State(NamedTuple):
    """x_k, y_k ≈ y*(x_k), w_k ≈ argmin f + λg, k."""

    x: PyTree
    y: PyTree
    penalised: PyTree
    t: jax.Array


class F2SA(eqx.Module):
    """Fully first-order stochastic approximation: ∇Φ ≈ ∇_x(f + λ(g(x, w) − g(x, y))) with y ≈ y*(x), w ≈ argmin f + λg.

        y ← y − γ_k∇_y g(x_k, y),   w ← w − α_k(∇_y f(x_k, w) + λ_k∇_y g(x_k, w))        T times
        x_{k+1} = x_k − ξ_k(∇_x f(x_k, w) + λ_k(∇_x g(x_k, w) − ∇_x g(x_k, y)))
        γ_k = γ(1+k)^{−c},  ξ_k = ξ(1+k)^{−a},  λ_k = λ(1+k)^{a−c},  α_k = γ_k/(2λ_k),  w_0 = y_0

    | symbol | field |
    |---|---|
    | ξ, a | `step_size`, `upper_decay` (5/7) |
    | γ, c, T | `lower_step_size`, `lower_decay` (4/7), `lower_steps` |
    | λ | `multiplier`; the error left is of order 1/λ_k |
    | w | `state.penalised` |

    Reference: Algorithm 1 of Kwon, Kwon, Wright, Nowak, A Fully First-Order Method for Stochastic Bilevel Optimization
    (ICML 2023), exponents for noise at both levels. Different here: x's step is its own field and not ξα_k; the
    lower solution, z there, is y as in every solver, and y there is w.
    """

    step_size: float = eqx.field(converter=checks.as_real)
    lower_step_size: float = eqx.field(converter=checks.as_real)
    multiplier: float = eqx.field(default=1.0, converter=checks.as_real)
    lower_steps: int = eqx.field(static=True, default=10)
    upper_decay: float = eqx.field(default=5 / 7, converter=checks.as_real)
    lower_decay: float = eqx.field(default=4 / 7, converter=checks.as_real)

    def __check_init__(self) -> None:
        checks.step_sizes(self, "step_size", "lower_step_size", "multiplier")
        checks.whole_number("lower_steps", self.lower_steps, low=1)
        checks.number("upper_decay", self.upper_decay, low=0.0)
        checks.number("lower_decay", self.lower_decay, low=0.0)

    def init(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> tuple[State, Info]:
        return State(x, y, y, jnp.int32(0)), Info(jnp.zeros((), tree.dtype(x)), Calls())

    def step(self, problem: Problem, state: State, key: jax.Array) -> tuple[State, Info]:
        key_y, key_w, key_f, key_x = jax.random.split(key, 4)
        key_fx, key_gw, key_gy = jax.random.split(key_x, 3)
        x, steps = state.x, self.lower_steps
        k = (1 + state.t).astype(tree.dtype(x))
        gamma, xi = self.lower_step_size * k**-self.lower_decay, self.step_size * k**-self.upper_decay
        lam = self.multiplier * k ** (self.upper_decay - self.lower_decay)
        alpha = gamma / (2 * lam)

        def inner(carry: PyTree, draws: PyTree) -> Any:
            y, w = carry
            for_y, for_w, for_f = draws
            y = tree.axpy(-gamma, oracle.grad_g(problem, x, y, problem.g_batches.batch(for_y)), y)
            _, grad_y = oracle.grads_f(problem, x, w, problem.f_batches.batch(for_f))
            penalty = oracle.grad_g(problem, x, w, problem.g_batches.batch(for_w))
            return (y, tree.axpy(-alpha, tree.axpy(lam, penalty, grad_y), w)), None

        blocks = (
            problem.g_draws(key_y, steps, x, state.y, Site.lower),
            problem.g_draws(key_w, steps, x, state.y, Site.penalty),
            problem.f_draws(key_f, steps, x, state.y, Site.penalty_upper),
        )
        (y, w), _ = jax.lax.scan(inner, (state.y, state.penalised), blocks, length=steps)
        f_batch = problem.f_batch(key_fx, x, w, Site.upper)
        w_batch, y_batch = problem.g_batch(key_gw, x, w, Site.gap), problem.g_batch(key_gy, x, y, Site.cross)
        grad_x, _ = oracle.grads_f(problem, x, w, f_batch)
        gap = tree.sub(oracle.grad_x_g(problem, x, w, w_batch), oracle.grad_x_g(problem, x, y, y_batch))
        estimate = tree.axpy(lam, gap, grad_x)
        calls = Calls(
            grad_f=count(steps + 1, oracle.samples(f_batch)), grad_g=count(2 * steps + 2, oracle.samples(w_batch))
        )
        return State(tree.axpy(-xi, estimate, x), y, w, state.t + 1), Info(tree.norm(estimate), calls)
