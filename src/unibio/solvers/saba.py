"""SABA: SOBA with a memory of every batch's last directions, which removes the noise of a finite sum."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, oracle, tree
from unibio.core.batches import Dataset, Sampler
from unibio.core.noise import AnyBatch
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, Info
from unibio.core.streams import Site
from unibio.core.tree import PyTree


class Memory(NamedTuple):
    """Last seen value of every slot, stacked, and the mean over the slots."""

    stored: PyTree
    mean: PyTree


class State(NamedTuple):
    """x_t, y_t, v_t, the memories of (∇_x f, ∇_y f) by slots of f and of (∇_y g, H v, A v) by slots of g."""

    x: PyTree
    y: PyTree
    v: PyTree
    f: Memory
    g: Memory


class SABA(eqx.Module):
    """SAGA on the three directions of SOBA.

        Δ_t[φ] = φ_i(x_t, y_t, v_t) − φ_i(stored) + mean of the stored φ,   then φ_i is stored anew
        y ← y − ρ Δ[∇_y g],  v ← v − ρ(Δ[H v] − Δ[∇_y f]),  x ← x − γ(Δ[∇_x f] − Δ[A v])

    i is a random batch of the fixed partition (`Dataset.slot`), one for f and one for g. All slots are filled at
    (x_0, y_0, v_0 = 0), one pass over the data. The memory takes slots × (size of x + size of y) numbers for f and
    slots × (size of x + 2·size of y) for g.

    | symbol | field |
    |---|---|
    | γ, ρ | `step_size`, `lower_step_size` |

    Reference: Algorithm 1 with equations (11) of Dagréou, Ablin, Vaiter, Moreau, A framework for bilevel optimization
    that enables stochastic and global variance reduction algorithms (NeurIPS 2022). Different here: v has the opposite
    sign, and the memory is kept per batch, not per sample.
    """

    step_size: float = eqx.field(converter=checks.as_real)
    lower_step_size: float = eqx.field(converter=checks.as_real)

    def __check_init__(self) -> None:
        checks.step_sizes(self, "step_size", "lower_step_size")

    def init(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> tuple[State, Info]:
        v = tree.zeros_like(y)
        f_sampler, g_sampler = _finite_sum("f", problem.f_batches), _finite_sum("g", problem.g_batches)
        f = _fill(f_sampler, lambda batch: oracle.grads_f(problem, x, y, batch))
        g = _fill(g_sampler, lambda batch: _of_g(problem, x, y, v, batch))
        n_f, n_g = f_sampler.n, g_sampler.n
        return State(x, y, v, f, g), Info(jnp.zeros((), tree.dtype(x)), Calls(n_f, n_g, n_g, n_g))

    def step(self, problem: Problem, state: State, key: jax.Array) -> tuple[State, Info]:
        key_f, key_g = jax.random.split(key)
        x, y, v = state.x, state.y, state.v
        f_sampler, g_sampler = _finite_sum("f", problem.f_batches), _finite_sum("g", problem.g_batches)
        i, j = f_sampler.draw_slot(key_f, Site.upper), g_sampler.draw_slot(key_g, Site.lower)
        f_batch, g_batch = f_sampler.slot(i), g_sampler.slot(j)
        (grad_x, grad_y), f = _saga(state.f, i, oracle.grads_f(problem, x, y, f_batch))
        (grad_g, hv, av), g = _saga(state.g, j, _of_g(problem, x, y, v, g_batch))
        direction = tree.sub(grad_x, av)
        state = State(
            tree.axpy(-self.step_size, direction, x),
            tree.axpy(-self.lower_step_size, grad_g, y),
            tree.axpy(-self.lower_step_size, tree.sub(hv, grad_y), v),
            f,
            g,
        )
        samples = oracle.samples(g_batch)
        return state, Info(tree.norm(direction), Calls(oracle.samples(f_batch), samples, samples, samples))


def _finite_sum(name: str, sampler: Sampler) -> Dataset:
    """The sampler, which must be data cut into batches without a remainder."""
    if not isinstance(sampler, Dataset):
        raise ValueError(
            f"SABA needs a finite sum for {name}, but {name}_batches is {type(sampler).__name__}. "
            f"Pass {name}_batches=Dataset(…), or use SOBA."
        )
    if sampler.batch_size is not None and sampler.n % sampler.batch_size:
        fitting = max(b for b in range(1, sampler.batch_size + 1) if sampler.n % b == 0)
        raise ValueError(
            f"SABA cuts the {sampler.n} samples of {name} into batches of {sampler.batch_size}, which leaves "
            f"{sampler.n % sampler.batch_size} over that it would never see. Use batch_size={fitting}, or drop those."
        )
    return sampler


def _of_g(problem: Problem, x: PyTree, y: PyTree, v: PyTree, batch: AnyBatch) -> PyTree:
    return (
        oracle.grad_g(problem, x, y, batch),
        oracle.hvp_g(problem, x, y, v, batch),
        oracle.cross_g(problem, x, y, v, batch),
    )


def _fill(sampler: Dataset, value: Any) -> Memory:
    stored = jax.lax.map(lambda k: value(sampler.slot(k)), jnp.arange(sampler.slots, dtype=jnp.int32))
    return Memory(stored, jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), stored))


def _saga(memory: Memory, slot: jax.Array, new: PyTree) -> tuple[PyTree, Memory]:
    """new − stored + mean, and the memory with `new` in its slot."""
    old = jax.tree.map(lambda leaf: leaf[slot], memory.stored)
    change = tree.sub(new, old)
    slots = jax.tree.leaves(memory.stored)[0].shape[0]
    stored = jax.tree.map(lambda leaf, value: leaf.at[slot].set(value), memory.stored, new)
    return tree.add(memory.mean, change), Memory(stored, tree.axpy(1 / slots, change, memory.mean))
