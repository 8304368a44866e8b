"""The two compiled programs of a run: its start, and a stretch of steps.

Problem and solver are arguments, so that other numbers in them run the same program. The number of steps in a
stretch is an argument too: one program serves every stretch, the last short one included.
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from unibio.core import kinds, tree
from unibio.core.problem import Problem, check_functions
from unibio.core.programs import compiled
from unibio.core.protocols import BilevelSolver, Calls, State
from unibio.core.status import Status
from unibio.core.tree import PyTree
from unibio.distributed.processes import largest, spans_processes

CAPACITY = 1024  # most steps in one stretch; fixed, so that another number of steps is the same program
_START = 2**32 - 1  # the warm start's number among the steps


class Log(NamedTuple):
    """What a stretch of steps reports, each entry an array over the steps."""

    direction_norm: jax.Array
    calls: Calls
    status: Status
    bad: jax.Array  # 1 if x is not finite after the step, 2 if y is not, 3 if neither is, else 0
    watched: PyTree = None  # what `trajectory(…, watch=…)` said of the state before each step

    @property
    def finite(self) -> Any:
        """Whether x and y are finite after each step."""
        return self.bad == 0


def initialise(solver: BilevelSolver, problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> tuple[Any, Calls]:
    """The solver's first state, and the calls of its warm start."""
    check_functions(problem, x, y)
    state, info = solver.init(problem, x, y, jax.random.fold_in(key, jnp.uint32(_START)))
    return state, jax.tree.map(jnp.int32, info.calls)


def advance(
    solver: BilevelSolver,
    problem: Problem,
    state: State,
    key: jax.Array,
    first: jax.Array,
    length: jax.Array,
    capacity: int,
) -> tuple[Any, Log]:
    """Makes the steps t = first, …, first + length − 1, each with the key fold_in(key, t). Returns the state after them
    and the log, whose arrays have room for `capacity` ≥ length steps; entries beyond `length` are 0."""

    @partial(jax.jit, inline=True)  # traced once, for its shapes and for the loop
    def step(state: State, t: jax.Array) -> tuple[Any, Log]:
        return one_step(solver, problem, state, key, t)

    def body(i: jax.Array, carry: tuple[Any, Log]) -> tuple[Any, Log]:
        state, log = carry
        state, row = step(state, first + i)
        return state, jax.tree.map(lambda buffer, value: buffer.at[i].set(value), log, row)

    shapes = jax.eval_shape(step, state, first)[1]
    log = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), shapes)
    return jax.lax.fori_loop(jnp.int32(0), length, body, (state, log))


def one_step(solver: BilevelSolver, problem: Problem, state: State, key: jax.Array, t: jax.Array) -> tuple[Any, Log]:
    """Makes step t of the run with this key. Returns the next state and the log's entries for this step."""
    state, info = solver.step(problem.at_step(key, t), state, jax.random.fold_in(key, t))
    calls = jax.tree.map(jnp.int32, info.calls)
    still = (info.direction_norm == 0) & (info.status == Status.ok)
    status = Status.where(still, Status.stationary, info.status)
    bad = jnp.int32(~tree.all_finite(state.x)) + 2 * jnp.int32(~tree.all_finite(state.y))
    return state, Log(info.direction_norm, calls, status, bad)


def check_solver(solver: BilevelSolver, dtype: jnp.dtype) -> Any:
    """The solver with its numbers in the dtype of x."""
    kinds.is_a("solver", solver, BilevelSolver, "an instance such as UniBiO(step_size=0.03)")
    return tree.cast(solver, dtype)


def timed(fn: Callable[..., Any], *args: PyTree, **static: Hashable) -> tuple[Any, float, float]:
    """The result, the seconds that the program ran (of several processes the slowest's), and those of compilation."""
    out, seconds, compiling = compiled(fn, *args, **static)
    return out, largest(seconds) if spans_processes(args) else seconds, compiling
