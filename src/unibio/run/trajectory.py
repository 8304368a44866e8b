"""The bare run as a pure function of its numbers, to `jit` and `vmap`."""

from typing import Any

import jax
import jax.numpy as jnp

from unibio.core import checks, kinds, tree
from unibio.core.problem import Problem, prepare
from unibio.core.protocols import BilevelSolver, Calls, State, Watch
from unibio.core.tree import PyTree
from unibio.run.programs import Log, check_solver, initialise, one_step


def trajectory(
    problem: Problem,
    solver: BilevelSolver,
    x: PyTree,
    y: PyTree,
    steps: int,
    key: jax.Array,
    watch: Watch | None = None,
) -> tuple[Any, Log]:
    """The bare run as a pure function, to `jit` and `vmap` over anything: seeds, step sizes, p, noise, starts.

    Returns the state after `steps` steps and the log, a `run.programs.Log` whose arrays have an entry for each step:
    `direction_norm`, `calls`, `status`, `bad` (and `finite`), `watched`. `watch` is a function of the state; what it
    returns before each step is in `watched`. Nothing is stopped or saved; the calls of the warm start count with the
    first step. For runs that stop by rules, save checkpoints and show progress there is `solve`.
    """
    checks.whole_number("steps", steps, low=1)
    checks.given_key("trajectory", key)
    if watch is not None:
        kinds.is_a("watch", watch, Watch, "a function of the state")
    problem, x, y = prepare(problem, x, y)
    solver = check_solver(solver, tree.dtype(x))
    state, calls = initialise(solver, problem, x, y, key)

    def step(state: State, t: jax.Array) -> tuple[Any, Log]:
        watched = None if watch is None else checks.arrays("watch(state)", watch(state))
        state, log = one_step(solver, problem, state, key, t)
        return state, log._replace(watched=watched)

    state, log = jax.lax.scan(step, state, jnp.arange(steps, dtype=jnp.int32))
    first = Calls(*(counts.at[0].add(more) for counts, more in zip(log.calls, calls, strict=True)))
    return state, log._replace(calls=first)
