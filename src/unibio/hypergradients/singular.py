"""Points where the lower Hessian is singular: where to evaluate instead, and whether a limit exists."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from unibio.core import coordinates, linear, oracle, tree
from unibio.core.problem import Problem, check_functions, prepare
from unibio.core.protocols import Calls, count
from unibio.core.tree import PyTree


class RegularPoint(NamedTuple):
    """y with its singular coordinates moved to a0 ± δ, which they were, and the cost."""

    y: PyTree
    singular: PyTree
    calls: Calls


class DifferentiableInZ(NamedTuple):
    """For each coordinate of y, whether f and whether ∇_y g are differentiable in z there."""

    f: PyTree
    grad_g: PyTree


def regular_point(problem: Problem, x: PyTree, y: PyTree, batch: Any) -> RegularPoint:
    """Moves coordinates with |y_i − a0_i| < δ to distance δ, but only where row i of H vanishes.

    H is positive semidefinite, so H_ii = 0 exactly when row i is 0, and one product with a fixed vector
    tells. On ℓ_p regression a small y_i is harmless and stays. Costs nothing unless some |y_i − a0_i| < δ.
    """
    problem, x, y = jax.lax.stop_gradient((problem, x, y))
    tiny = jnp.finfo(tree.dtype(y)).tiny
    delta = coordinates.floors(y, problem.p, problem.shift)
    may_vanish = True if problem.p is None else problem.p > 2
    near = jax.tree.map(lambda t, d: (jnp.abs(t) < d) & may_vanish, coordinates.offset(y, problem.shift), delta)
    some = tree.any_true(near)

    def vanishing_rows() -> PyTree:
        rows = _row_probe(problem, x, y, batch)
        return jax.tree.map(lambda n, r: n & ~(jnp.abs(r) >= tiny), near, rows)

    singular = tree.lazily(some, vanishing_rows, jax.tree.map(jnp.zeros_like, near))
    return RegularPoint(
        _move(problem, y, singular, delta), singular, Calls(hvp=count(some.astype(jnp.int32), oracle.samples(batch)))
    )


def limit_exists(
    problem: Problem, x: PyTree, y: PyTree, point: RegularPoint, f_batch: Any, g_batch: Any
) -> tuple[jax.Array, Calls]:
    """Whether v = H⁻¹∇_y f has a limit in the singular coordinates of y, judged by (∇_y f)_i / (H z)_i."""
    problem, x, y = jax.lax.stop_gradient((problem, x, y))
    some = tree.any_true(point.singular)

    def ratio(moved: PyTree) -> PyTree:
        _, grad_y = oracle.grads_f(problem, x, moved, f_batch)
        return jax.tree.map(jnp.divide, grad_y, _row_probe(problem, x, moved, g_batch))

    def check() -> jax.Array:
        delta = coordinates.floors(y, problem.p, problem.shift)
        exists = _limits(ratio, problem, y, point.singular, delta)
        return ~tree.any_true(jax.tree.map(lambda s, e: s & ~e, point.singular, exists))

    times = 3 * some.astype(jnp.int32)
    calls = Calls(grad_f=count(times, oracle.samples(f_batch)), hvp=count(times, oracle.samples(g_batch)))
    return tree.lazily(some, check, jnp.asarray(True)), calls


def differentiable_in_z(problem: Problem, x: PyTree, y: PyTree) -> DifferentiableInZ:
    """Whether f and ∇_y g are continuously differentiable in z = spow(y − shift, p−1) at (x, y).

    True where y_i ≠ a0_i. Where y_i = a0_i, D∇_y f and D∇²_yy g must have finite one-sided limits that
    agree; they are compared at a0 ± h, at 4h, and in a direction in which coordinates move unequally.
    """
    problem, x, y = prepare(problem, x, y)
    check_functions(problem, x, y)
    f_batch, g_batch = problem.f_batches.whole(), problem.g_batches.whole()
    h = jax.tree.map(lambda d: jnp.maximum(4 * d, 1e-4), coordinates.floors(y, problem.p, problem.shift))
    at_shift = jax.tree.map(lambda t, d: jnp.abs(t) < d, coordinates.offset(y, problem.shift), h)

    def j1(point: PyTree) -> PyTree:
        _, grad_y = oracle.grads_f(problem, x, point, f_batch)
        return tree.mul(coordinates.scaling(point, problem.p, problem.shift), grad_y)

    def j2(point: PyTree) -> PyTree:
        rows = _row_probe(problem, x, point, g_batch)
        return tree.mul(coordinates.scaling(point, problem.p, problem.shift), rows)

    def answer(quantity: Callable[[PyTree], PyTree]) -> PyTree:
        exists = _limits(quantity, problem, y, at_shift, h)
        return jax.tree.map(lambda s, e: ~s | e, at_shift, exists)

    return DifferentiableInZ(answer(j1), answer(j2))


def _row_probe(problem: Problem, x: PyTree, y: PyTree, batch: Any) -> PyTree:
    """H z for one fixed z of unequal magnitudes: entry i is 0 only if row i of H is."""
    signs = jax.tree.map(lambda leaf: leaf[0], linear.probes(y, 1))
    flat, unravel = tree.ravel(signs)
    magnitudes = 1 + 0.5 * jnp.sin(jnp.arange(flat.size, dtype=flat.dtype))
    return oracle.hvp_g(problem, x, y, unravel(flat * magnitudes), batch)


def _move(problem: Problem, y: PyTree, which: PyTree, distance: PyTree) -> PyTree:
    """y with the coordinates in `which` at a0 + s·distance, s the sign of y − a0, +1 at 0."""
    offsets = coordinates.offset(y, problem.shift)

    def one(leaf: jax.Array, t: jax.Array, move: jax.Array, d: jax.Array) -> jax.Array:
        return jnp.where(move, leaf - t + jnp.where(t < 0, -d, d), leaf)

    return jax.tree.map(one, y, offsets, which, distance)


def _limits(quantity: Callable[[PyTree], PyTree], problem: Problem, y: PyTree, which: PyTree, h: PyTree) -> PyTree:
    """Entry by entry: does `quantity` have a finite limit as the coordinates in `which` go to a0?

    Compared at distance h (a), at 4h (c), and with uneven distances in [h, 2h] and both signs (b). If it
    behaves like h^s, then |a| > |c| means s < 0; |a| < |c| means it fades to 0; else a and b must agree.
    """
    flat, unravel = tree.ravel(y)
    even = jax.tree.map(lambda leaf, d: jnp.broadcast_to(d, leaf.shape), y, h)
    wave = jnp.cos(2.0 * jnp.arange(flat.size, dtype=flat.dtype) + 2.0)  # starts negative
    uneven = tree.mul(even, unravel(jnp.sign(wave) * (1 + jnp.abs(wave))))
    distances = jax.tree.map(lambda e, u: jnp.stack([e, u, 4 * e]), even, uneven)
    values = jax.vmap(lambda d: quantity(_move(problem, y, which, d)))(distances)

    def exists(value: jax.Array) -> jax.Array:
        a, b, c = value
        finite = jnp.isfinite(a) & jnp.isfinite(b) & jnp.isfinite(c)
        grows = jnp.abs(a) > 1.1 * jnp.abs(c)
        fades = jnp.abs(a) < 0.9 * jnp.abs(c)
        agrees = jnp.abs(a - b) <= 0.1 * jnp.maximum(jnp.abs(a), jnp.abs(b))
        return finite & ~grows & (fades | agrees)

    return jax.tree.map(exists, values)
