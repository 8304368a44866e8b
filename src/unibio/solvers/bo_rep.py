"""BO-REP: refined start, periodic lower updates, normalised momentum, and a linear system solved on the way."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, kinds, oracle, tree
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, Info, LowerSolver
from unibio.core.streams import Site
from unibio.core.tree import PyTree
from unibio.lower.epoch_sgd import ONE_STEP, EpochSGD
from unibio.solvers.lower_level import refresh


class State(NamedTuple):
    """x_k, y_k, v_k, m_{k−1}, k."""

    x: PyTree
    y: PyTree
    v: PyTree
    momentum: PyTree
    t: jax.Array


class BOREP(eqx.Module):
    """UniBiO's ancestor for strongly convex lower levels.

        y_0 = Epoch-SGD(g(x_0, ·)) with p = 2                                   once, the refinement
        y ← one epoch of Epoch-SGD: N steps of size γ in the ball B(y, R)        if k mod I = 0
        m_k = βm_{k−1} + (1−β)(∇_x f − A v_k)
        v_{k+1} = v_k − ν(H v_k − ∇_y f)                                         both at (x_k, y), v_0 = 0
        x_{k+1} = x_k − η m_k/‖m_k‖                                              no move where m_k = 0

    | symbol | field |
    |---|---|
    | η, β, I | `step_size`, `momentum`, `period` |
    | γ, N, R | `lower_step_size`, `lower_steps`, `radius` |
    | ν | `linear_step_size` (by default γ) |
    | Epoch-SGD | `refinement` |

    One batch of f serves both of its gradients, one of g serves H and A.

    Reference: Algorithms 1 and 2 of Hao, Gong, Liu, Bilevel Optimization under Unbounded Smoothness: A New Algorithm
    and Convergence Analysis (ICLR 2024). Different here: v_0 = 0, where the authors' code draws it at random; that code
    also has neither ball nor mean.
    """

    step_size: float = eqx.field(converter=checks.as_real)
    lower_step_size: float = eqx.field(converter=checks.as_real)
    linear_step_size: float | None = eqx.field(default=None, converter=checks.as_real)
    momentum: float = eqx.field(default=0.9, converter=checks.as_real)
    period: int = eqx.field(static=True, default=2)
    lower_steps: int = eqx.field(static=True, default=3)
    radius: float = eqx.field(default=1.0, converter=checks.as_real)
    refinement: LowerSolver | None = None

    def __check_init__(self) -> None:
        checks.step_sizes(self, "step_size", "lower_step_size", "linear_step_size", "radius")
        checks.fraction("momentum", self.momentum)
        checks.whole_number("period", self.period, low=1)
        checks.whole_number("lower_steps", self.lower_steps, low=2, remedy=ONE_STEP)
        if self.refinement is not None:
            kinds.is_a("refinement", self.refinement, LowerSolver, "EpochSGD(), StagedSGD(), SGD() or Optax(…)")

    def init(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> tuple[State, Info]:
        default = EpochSGD(steps=100, step_size=self.lower_step_size, radius=self.radius)
        refinement = default if self.refinement is None else self.refinement
        y, calls = refresh(refinement, problem, x, y, key, p=2.0)
        state = State(x, y, tree.zeros_like(y), tree.zeros_like(x), jnp.int32(0))
        return state, Info(jnp.zeros((), tree.dtype(x)), calls)

    def step(self, problem: Problem, state: State, key: jax.Array) -> tuple[State, Info]:
        key_lower, key_f, key_g = jax.random.split(key, 3)
        x, v, t = state.x, state.v, state.t
        n = self.lower_steps
        one_epoch = EpochSGD(n, self.lower_step_size, first_epoch=n, radius=self.radius)
        y, calls = tree.compute_if_any(
            t % self.period == 0,
            lambda x, y: refresh(one_epoch, problem.counting(lambda t: t // self.period), x, y, key_lower, p=2.0),
            (state.y, jax.tree.map(jnp.int32, Calls())),
            x,
            state.y,
        )
        f_batch, g_batch = problem.f_batch(key_f, x, y, Site.upper), problem.g_batch(key_g, x, y, Site.hessian)
        grad_x, grad_y = oracle.grads_f(problem, x, y, f_batch)
        estimate = tree.sub(grad_x, oracle.cross_g(problem, x, y, v, g_batch))
        nu = self.lower_step_size if self.linear_step_size is None else self.linear_step_size
        v = tree.axpy(-nu, tree.sub(oracle.hvp_g(problem, x, y, v, g_batch), grad_y), v)
        m = tree.axpy(self.momentum, state.momentum, tree.scale(1 - self.momentum, estimate))
        direction, norm = tree.direction(m)
        x = tree.axpy(-self.step_size, direction, x)
        samples = oracle.samples(g_batch)
        more = Calls(grad_f=oracle.samples(f_batch), hvp=samples, cross=samples)
        return State(x, y, v, m, t + 1), Info(norm, calls.plus(more))
