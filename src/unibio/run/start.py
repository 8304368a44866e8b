"""Why a run went wrong that could not go right: whether f and g are finite where it starts, and if not, in which
sample."""

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import oracle, tree
from unibio.core.batches import Dataset
from unibio.core.problem import Function, Problem
from unibio.core.programs import compiled
from unibio.core.tree import PyTree
from unibio.distributed.processes import gathered


def fault_at_start(problem: Problem, x: PyTree, y: PyTree) -> str:
    """What is not finite at (x, y) on all data, with the first sample of which that is so; "" if all is finite."""
    finite, _, _ = compiled(_finite, problem, x, y)
    for name, (value, gradient) in gathered(finite).items():
        if not (value and gradient):
            what = name if not value else f"the gradient of {name}"
            return f"{what} is NaN or infinite at the start already, {_where(name, problem, x, y)}"
    return ""


def _finite(problem: Problem, x: PyTree, y: PyTree) -> dict[str, tuple[jax.Array, jax.Array]]:
    """Whether f and g, and their gradients by both variables, are finite on all data."""
    f_all, g_all = problem.f_batches.whole(), problem.g_batches.whole()
    return {
        "f": (
            jnp.isfinite(oracle.value_f(problem, x, y, f_all)),
            tree.all_finite(oracle.grads_f(problem, x, y, f_all)),
        ),
        "g": (jnp.isfinite(oracle.value_g(problem, x, y, g_all)), tree.all_finite(oracle.grad_g(problem, x, y, g_all))),
    }


def _where(name: str, problem: Problem, x: PyTree, y: PyTree) -> str:
    """Which samples are at fault, and what to do."""
    sampler = problem.f_batches if name == "f" else problem.g_batches
    if not isinstance(sampler, Dataset):
        return "at x0 and y0: start elsewhere, or check its formula"
    fine, _, _ = compiled(_fine_samples, problem.f if name == "f" else problem.g, sampler, x, y)
    bad = np.flatnonzero(~gathered(fine))
    if not bad.size:  # each is finite, their sum is not
        return "although it is finite on each sample: the sum is too large for this dtype"
    others = f" and {bad.size - 1} others" if bad.size > 1 else ""
    remedy = f"mend these rows of {name}_batches, or leave them out"
    return f"in sample {bad[0]} of {sampler.n}{others} (counted from 0): {remedy}"


def _fine_samples(fn: Function, data: Dataset, x: PyTree, y: PyTree) -> jax.Array:
    """For each sample whether the function and its gradients are finite on it alone."""

    def fine(i: jax.Array) -> jax.Array:
        value, gradients = jax.value_and_grad(lambda both: fn(both[0], both[1], data.rows(i, 1)))((x, y))
        return jnp.isfinite(value) & tree.all_finite(gradients)

    return jax.lax.map(fine, jnp.arange(data.n, dtype=jnp.int32))
