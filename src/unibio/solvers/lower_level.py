"""The lower level as a lower solver sees it: a stochastic gradient and a way to draw its samples."""

from typing import Any

import jax
import jax.numpy as jnp

from unibio.core import oracle, tree
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, LowerSolver, count
from unibio.core.streams import Site
from unibio.core.tree import Number, PyTree


def refresh(
    lower: LowerSolver, problem: Problem, x: PyTree, y: PyTree, key: jax.Array, p: Number | None = None
) -> tuple[PyTree, Calls]:
    """Lets the lower solver move y towards y*(x), from the given y. Returns the new y and the calls that it took.

    The lower solver sees ∇_y g(x, ·; ζ), whose samples ζ are drawn as one block, and `p`, by default the problem's.
    """

    def gradient(y: PyTree, realisation: PyTree) -> PyTree:
        return oracle.grad_g(problem, x, y, problem.g_batches.batch(realisation))

    def draw(number: int) -> Any:
        return problem.g_draws(key, number, x, y, Site.lower)

    order = problem.p if p is None else jnp.asarray(p, tree.dtype(y))
    y_new, steps = lower(gradient, draw, y, order)
    samples = oracle.samples(problem.g_batch(key, x, y, Site.lower))
    return y_new, jax.tree.map(jnp.int32, Calls(grad_g=count(steps, samples)))
