"""AmIGO: warm-started SGD for the lower level and, in turn, for the linear system."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, oracle, tree
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, Info, count
from unibio.core.streams import Site
from unibio.core.tree import PyTree
from unibio.lower.sgd import SGD
from unibio.solvers.lower_level import refresh


class State(NamedTuple):
    """x_k, y_k, v_k."""

    x: PyTree
    y: PyTree
    v: PyTree


class AmIGO(eqx.Module):
    """Amortised implicit gradient: both inner problems start where they ended.

        y ← y − α∇_y g(x_k, y)                            T times
        v ← v − β(H(ζ_n) v − ∇_y f)                       N times, at the new y, one ∇_y f for all; v_0 = 0
        x_{k+1} = x_k − γ(∇_x f − A v)

    | symbol | field |
    |---|---|
    | γ, α, T | `step_size`, `lower_step_size`, `lower_steps` |
    | β, N | `linear_step_size` (by default α), `linear_steps` |

    Reference: Algorithms 1 to 3 of Arbel, Mairal, Amortized Implicit Differentiation for Stochastic Bilevel
    Optimization (ICLR 2022). Different here: v ≈ +H⁻¹∇_y f has the opposite sign; all batches have one size.
    """

    step_size: float = eqx.field(converter=checks.as_real)
    lower_step_size: float = eqx.field(converter=checks.as_real)
    linear_step_size: float | None = eqx.field(default=None, converter=checks.as_real)
    lower_steps: int = eqx.field(static=True, default=10)
    linear_steps: int = eqx.field(static=True, default=10)

    def __check_init__(self) -> None:
        checks.step_sizes(self, "step_size", "lower_step_size", "linear_step_size")
        checks.whole_number("lower_steps", self.lower_steps, low=1)
        checks.whole_number("linear_steps", self.linear_steps, low=1)

    def init(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> tuple[State, Info]:
        return State(x, y, tree.zeros_like(y)), Info(jnp.zeros((), tree.dtype(x)), Calls())

    def step(self, problem: Problem, state: State, key: jax.Array) -> tuple[State, Info]:
        key_lower, key_f, key_hess, key_cross = jax.random.split(key, 4)
        x = state.x
        y, calls = refresh(SGD(self.lower_steps, self.lower_step_size), problem, x, state.y, key_lower)
        f_batch = problem.f_batch(key_f, x, y, Site.upper)
        cross_batch = problem.g_batch(key_cross, x, y, Site.cross)
        grad_x, grad_y = oracle.grads_f(problem, x, y, f_batch)
        beta = self.lower_step_size if self.linear_step_size is None else self.linear_step_size

        def linear_step(v: PyTree, draw: PyTree) -> Any:
            product = oracle.hvp_g(problem, x, y, v, problem.g_batches.batch(draw))
            return tree.axpy(-beta, tree.sub(product, grad_y), v), None

        draws = problem.g_draws(key_hess, self.linear_steps, x, y, Site.hessian)
        v, _ = jax.lax.scan(linear_step, state.v, draws, length=self.linear_steps)
        estimate = tree.sub(grad_x, oracle.cross_g(problem, x, y, v, cross_batch))
        samples = oracle.samples(cross_batch)
        more = Calls(grad_f=oracle.samples(f_batch), hvp=count(self.linear_steps, samples), cross=samples)
        x = tree.axpy(-self.step_size, estimate, x)
        return State(x, y, v), Info(tree.norm(estimate), calls.plus(more))
