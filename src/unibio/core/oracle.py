"""The only ways to touch a Problem. Each takes a batch: one from its sampler, or `whole()`.

| oracle      | value                      | how                                    |
|-------------|----------------------------|----------------------------------------|
| `value_f`   | f(x, y), also `value_g`    |                                        |
| `grads_f`   | (∇_x f, ∇_y f)             | one reverse pass, `value_and_grads_f` too |
| `grad_g`    | ∇_y g, also `grad_x_g`     | one reverse pass, `value_and_grad_g` too |
| `hvp_g`     | ∇²_yy g · v                | forward over reverse                   |
| `cross_g`   | ∇²_xy g · v (y → x space)  | reverse over forward, never back to y  |

A batch of `None` is the exact function, a `Perturbation` adds the paper's noise.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from unibio.core import tree
from unibio.core.batches import AllSamples, Batch
from unibio.core.coordinates import inverse_scaling
from unibio.core.noise import AnyBatch, Perturbation, visible
from unibio.core.problem import Problem
from unibio.core.tree import PyTree


def samples(batch: AnyBatch) -> int:
    """What one call on this batch adds to `Calls`: its samples, 1 for an exact or noisy oracle."""
    if isinstance(batch, AllSamples):
        return batch.n
    return batch.index.shape[0] if isinstance(batch, Batch) else 1


def _total(fn: Callable[[Any, float], PyTree], batch: AnyBatch) -> PyTree:
    """Σ weight·fn over the chunks of a batch: one chunk of weight 1 unless it is `AllSamples`."""
    return batch.total(fn) if isinstance(batch, AllSamples) else fn(visible(batch), 1.0)


def _noise(batch: AnyBatch) -> Perturbation:
    return batch if isinstance(batch, Perturbation) else Perturbation(None, None, None, None, None)


def value_f(problem: Problem, x: PyTree, y: PyTree, batch: AnyBatch) -> jax.Array:
    """f(x, y)."""
    return _total(lambda chunk, weight: weight * problem.f(x, y, chunk), batch)


def value_g(problem: Problem, x: PyTree, y: PyTree, batch: AnyBatch) -> jax.Array:
    """g(x, y)."""
    return _total(lambda chunk, weight: weight * problem.g(x, y, chunk), batch)


def value_and_grads_f(
    problem: Problem, x: PyTree, y: PyTree, batch: AnyBatch
) -> tuple[jax.Array, tuple[PyTree, PyTree]]:
    """f and (∇_x f, ∇_y f) in one pass, for methods that search along a line; without noise."""

    def all_three(chunk: AnyBatch, weight: float) -> PyTree:
        return jax.value_and_grad(lambda x, y: weight * problem.f(x, y, chunk), argnums=(0, 1))(x, y)

    value, grads = _total(all_three, batch)
    return value, grads


def value_and_grad_g(problem: Problem, x: PyTree, y: PyTree, batch: AnyBatch) -> tuple[jax.Array, PyTree]:
    """g and ∇_y g in one pass, for methods that search along a line; without noise."""

    def both(chunk: AnyBatch, weight: float) -> PyTree:
        return jax.value_and_grad(lambda y: weight * problem.g(x, y, chunk))(y)

    value, grad = _total(both, batch)
    return value, grad


def grads_f(problem: Problem, x: PyTree, y: PyTree, batch: AnyBatch) -> tuple[PyTree, PyTree]:
    """(∇_x f, ∇_y f); with noise (∇_x f + e, ∇_y f + D⁻¹e')."""

    def both(chunk: AnyBatch, weight: float) -> tuple[PyTree, PyTree]:
        return jax.grad(lambda x, y: weight * problem.f(x, y, chunk), argnums=(0, 1))(x, y)

    grad_x, grad_y = _total(both, batch)
    noise = _noise(batch)
    if noise.grad_x_f is not None:
        grad_x = tree.add(grad_x, noise.grad_x_f)
    if noise.grad_z_f is not None:
        grad_y = tree.add(grad_y, _from_z(problem, y, noise.grad_z_f))
    return grad_x, grad_y


def grad_g(problem: Problem, x: PyTree, y: PyTree, batch: AnyBatch) -> PyTree:
    """∇_y g."""
    gradient = _total(lambda chunk, weight: _grad_y(problem, x, y, chunk, weight), batch)
    noise = _noise(batch).grad_y_g
    return gradient if noise is None else tree.add(gradient, noise)


def grad_x_g(problem: Problem, x: PyTree, y: PyTree, batch: AnyBatch) -> PyTree:
    """∇_x g, for first-order methods; it counts as a call of grad_g, and the paper's noise leaves it exact."""
    return _total(lambda chunk, weight: jax.grad(lambda x: weight * problem.g(x, y, chunk))(x), batch)


def hvp_g(problem: Problem, x: PyTree, y: PyTree, v: PyTree, batch: AnyBatch) -> PyTree:
    """∇²_yy g · v; with noise + D⁻¹E v."""

    def product(chunk: AnyBatch, weight: float) -> PyTree:
        return jax.jvp(lambda y: _grad_y(problem, x, y, chunk, weight), (y,), (v,))[1]

    return _add_hessian_noise(problem, y, v, batch, _total(product, batch))


def hessian_g(problem: Problem, x: PyTree, y: PyTree, batch: AnyBatch) -> Callable[[PyTree], PyTree]:
    """v ↦ ∇²_yy g · v for many v at one point: linearised once, but streamed anew if it takes chunks."""
    if isinstance(batch, AllSamples) and not batch.in_one_chunk:
        return lambda v: hvp_g(problem, x, y, v, batch)
    _, product = jax.linearize(lambda y: _total(lambda chunk, weight: _grad_y(problem, x, y, chunk, weight), batch), y)
    return lambda v: _add_hessian_noise(problem, y, v, batch, product(v))


def cross_g(problem: Problem, x: PyTree, y: PyTree, v: PyTree, batch: AnyBatch) -> PyTree:
    """∇²_xy g · v = ∇_x [d/dε g(x, y + εv)]; with noise + E v."""

    def product(chunk: AnyBatch, weight: float) -> PyTree:
        def directional(x: PyTree) -> jax.Array:
            return jax.jvp(lambda y: weight * problem.g(x, y, chunk), (y,), (v,))[1]

        return jax.grad(directional)(x)

    out = _total(product, batch)
    noise = _noise(batch).cross
    if noise is None:
        return out
    _, unravel = tree.ravel(x)
    return tree.add(out, unravel(noise @ tree.ravel(v)[0]))


def _grad_y(problem: Problem, x: PyTree, y: PyTree, chunk: AnyBatch, weight: float) -> PyTree:
    return jax.grad(lambda y: weight * problem.g(x, y, chunk))(y)


def _from_z(problem: Problem, y: PyTree, e: PyTree) -> PyTree:
    """D⁻¹e: a disturbance of the coordinate z as the coordinate y sees it."""
    return tree.mul(inverse_scaling(y, problem.p, problem.shift), e)


def _add_hessian_noise(problem: Problem, y: PyTree, v: PyTree, batch: AnyBatch, product: PyTree) -> PyTree:
    noise = _noise(batch).hess_z
    if noise is None:
        return product
    flat, unravel = tree.ravel(v)
    return tree.add(product, _from_z(problem, y, unravel(jnp.matmul(noise, flat))))
