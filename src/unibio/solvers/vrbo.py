"""VRBO: SPIDER at both levels, with large-batch checkpoints."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, oracle, tree
from unibio.core.batches import Dataset, Full, Sampler
from unibio.core.noise import Noise
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, Info, count
from unibio.core.streams import Site
from unibio.core.tree import PyTree
from unibio.hypergradients.neumann import Nested
from unibio.solvers.series import series_estimate


class State(NamedTuple):
    """x_k, y_k, the estimates v of ∇Φ and u of ∇_y g there, k."""

    x: PyTree
    y: PyTree
    v: PyTree
    u: PyTree
    t: jax.Array


class VRBO(eqx.Module):
    """Estimates that are corrected by differences, and renewed on a large batch every q steps.

        if k mod q = 0:   v, u = ĥ, ∇_y g at (x_k, y_k) on S_1
        x_{k+1} = x_k − αv;   (x', y') = (x_k, y_k), y = y_k, and then for t = 0..m, with a fresh S_2 each time,
            v ← v + ĥ(x_{k+1}, y; S_2) − ĥ(x', y'; S_2),   u ← u + ∇_y g(x_{k+1}, y; S_2) − ∇_y g(x', y'; S_2)
            (x', y') ← (x_{k+1}, y);   y ← y − βu  if t < m
        y_{k+1} = y

    so that v and u belong to (x_{k+1}, y_{k+1}). ĥ is StocBiO's nested series, its samples the same at both points.

    | symbol | field |
    |---|---|
    | α, β, m | `step_size`, `lower_step_size`, `lower_steps` |
    | q, S_1 | `period`, `checkpoint_batches` (how many times the problem's batch size, which is S_2) |
    | Q, η of ĥ | `terms` (Q products, Q + 1 terms), `neumann_step` (by default β) |

    Reference: Algorithm 2 of Yang, Ji, Liang, Provably Faster Algorithms for Bilevel Optimization (NeurIPS 2021).
    Different here: m counts the steps of y.
    """

    step_size: float = eqx.field(converter=checks.as_real)
    lower_step_size: float = eqx.field(converter=checks.as_real)
    lower_steps: int = eqx.field(static=True, default=3)
    period: int = eqx.field(static=True, default=3)
    checkpoint_batches: int = eqx.field(static=True, default=2)
    terms: int = eqx.field(static=True, default=10)
    neumann_step: float | None = eqx.field(default=None, converter=checks.as_real)

    def __check_init__(self) -> None:
        checks.step_sizes(self, "step_size", "lower_step_size", "neumann_step")
        for name in ("lower_steps", "period", "checkpoint_batches"):
            checks.whole_number(name, getattr(self, name), low=1)
        checks.whole_number("terms", self.terms, low=0)

    def init(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> tuple[State, Info]:
        _enlarged(problem, self.checkpoint_batches)
        state = State(x, y, tree.zeros_like(x), tree.zeros_like(y), jnp.int32(0))
        return state, Info(jnp.zeros((), tree.dtype(x)), Calls())

    def step(self, problem: Problem, state: State, key: jax.Array) -> tuple[State, Info]:
        key_checkpoint, key_inner = jax.random.split(key)
        x, y, t = state.x, state.y, state.t
        large = _enlarged(problem, self.checkpoint_batches).counting(lambda t: t // self.period)
        # A noisy oracle asked k times is one with k times less variance, and k calls.
        f_times, g_times = (
            self.checkpoint_batches if isinstance(sampler, Noise) else 1
            for sampler in (problem.f_batches, problem.g_batches)
        )

        def checkpoint(x: PyTree, y: PyTree) -> tuple[tuple[PyTree, PyTree], Calls]:
            estimates, calls = self._estimates(large, x, y, key_checkpoint)
            return estimates, Calls(count(calls.grad_f, f_times), *(count(each, g_times) for each in calls[1:]))

        old = (state.v, state.u), jax.tree.map(jnp.int32, Calls())
        (v, u), calls = tree.compute_if_any(t % self.period == 0, checkpoint, old, x, y)
        direction_norm = tree.norm(v)
        x_next = tree.axpy(-self.step_size, v, x)

        def inner(carry: PyTree, inputs: PyTree) -> Any:
            (x_before, y_before), y, v, u, calls = carry
            key, j, moves = inputs
            small = problem.counting(lambda t: t * (self.lower_steps + 1) + j)
            (v_here, u_here), more = self._estimates(small, x_next, y, key)
            (v_before, u_before), again = self._estimates(small, x_before, y_before, key)
            v, u = tree.add(v, tree.sub(v_here, v_before)), tree.add(u, tree.sub(u_here, u_before))
            y_next = tree.axpy(-self.lower_step_size * moves, u, y)
            return ((x_next, y), y_next, v, u, calls.plus(more).plus(again)), None

        rounds = jnp.arange(self.lower_steps + 1, dtype=jnp.int32)
        moves = (rounds < self.lower_steps).astype(tree.dtype(x))
        keys = jax.random.split(key_inner, self.lower_steps + 1)
        (_, y, v, u, calls), _ = jax.lax.scan(inner, ((x, y), y, v, u, calls), (keys, rounds, moves))
        return State(x_next, y, v, u, t + 1), Info(direction_norm, calls)

    def _estimates(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> tuple[tuple[PyTree, PyTree], Calls]:
        """(ĥ, ∇_y g) at one point; the same key gives the same samples."""
        key_lower, key_hyper = jax.random.split(key)
        eta = self.lower_step_size if self.neumann_step is None else self.neumann_step
        v, calls = series_estimate(problem, x, y, key_hyper, Nested(), self.terms + 1, eta)
        batch = problem.g_batch(key_lower, x, y, Site.lower)
        return (v, oracle.grad_g(problem, x, y, batch)), calls.plus(Calls(grad_g=oracle.samples(batch)))


def _enlarged(problem: Problem, factor: int) -> Problem:
    """The problem with batches `factor` times as large."""
    f_batches, g_batches = (_larger(name, getattr(problem, name), factor) for name in ("f_batches", "g_batches"))
    return Problem(problem.f, problem.g, problem.p, problem.shift, f_batches, g_batches)


def _larger(name: str, sampler: Sampler, factor: int) -> Any:
    if isinstance(sampler, Dataset) and sampler.batch_size is not None:
        if sampler.batch_size * factor > sampler.n:
            most = sampler.n // sampler.batch_size
            raise ValueError(
                f"VRBO(checkpoint_batches={factor}) needs {factor} × {sampler.batch_size} samples, but {name} has "
                f"{sampler.n}. Use checkpoint_batches={most} or less."
            )
        return sampler.resized(sampler.batch_size * factor)
    if isinstance(sampler, Noise):
        return jax.tree.map(lambda variance: variance / factor, sampler)
    if isinstance(sampler, (Full, Dataset)) or factor == 1:
        return sampler
    raise ValueError(
        f"VRBO cannot enlarge the batches of {name}, a {type(sampler).__name__}: use Dataset, or checkpoint_batches=1."
    )
