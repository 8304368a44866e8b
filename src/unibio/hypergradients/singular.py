"""Points where the lower Hessian is singular: where to evaluate instead, and which points around it to compare.

For g = y⁴/4 − y sin x and f = y³ the hypergradient at y = 0 is 0/0, but it has a limit as y → 0. So y is moved a tiny
distance, to where the Hessian has digits again, and the estimate is made there. Whether the limit exists is judged by
other points around y: in other directions, at larger distances.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from unibio.core import coordinates, linear, oracle, tree
from unibio.core.noise import AnyBatch
from unibio.core.problem import Problem, check_functions, prepare
from unibio.core.protocols import Calls, count
from unibio.core.tree import Number, PyTree

_FARTHEST = 70.0  # exponents of 2: distances up to 1e21 are tried
_UNITS = 2.0**70  # a row of H may grow by this factor in the search for ∇_y f, if f is measured in such small units

Slope = Callable[[PyTree], PyTree]  # y ↦ ∇_y f


class RegularPoint(NamedTuple):
    """y with the coordinates moved whose row of H vanishes.

    `singular` says which they are, `distance` how far each moved (0 for the others), `rows` is H z at the new point for
    the fixed vector z of `row_probe`, `slopes` how often ∇_y f was asked for, `calls` the products with H.
    """

    y: PyTree
    singular: PyTree
    distance: PyTree
    rows: PyTree
    slopes: jax.Array
    calls: Calls


class DifferentiableInZ(NamedTuple):
    """For each coordinate of y, whether f and whether ∇_y g are differentiable in z there."""

    f: PyTree
    grad_g: PyTree


def vanishing(rows: PyTree) -> PyTree:
    """Which rows of H, seen by `row_probe`, have no digits, so that their coordinate of y should be moved."""
    safe = coordinates.safe(tree.dtype(rows))
    return jax.tree.map(lambda r: jnp.abs(r) < safe, rows)


def regular_point(
    problem: Problem, x: PyTree, y: PyTree, g_batch: AnyBatch, slope: Slope | None = None
) -> RegularPoint:
    """y, or where a row of H vanishes there, the point that `moved_away` finds. Costs one product that looks for such
    rows, and those of the search only if there are any."""
    problem, x, y = jax.lax.stop_gradient((problem, x, y))
    rows = row_probe(problem, x, y, g_batch)
    point = unmoved(y, rows, count(1, oracle.samples(g_batch)))
    some = tree.any_true(point.singular)
    return tree.compute_if_any(some, lambda point: moved_away(problem, x, point, g_batch, slope), point, point)


def unmoved(y: PyTree, rows: PyTree, hvp: jax.Array) -> RegularPoint:
    """y as it is, with the coordinates named whose row of H vanishes; `hvp` is what it cost to look for them."""
    return RegularPoint(y, vanishing(rows), tree.zeros_like(y), rows, jnp.int32(0), Calls(hvp=hvp))


def moved_away(
    problem: Problem, x: PyTree, point: RegularPoint, g_batch: AnyBatch, slope: Slope | None
) -> RegularPoint:
    """Moves the coordinates of y whose row of H vanishes as far as H needs to have digits, and no further.

    H is positive semidefinite, so H_ii = 0 exactly when row i is 0. A row counts as vanishing below
    `coordinates.safe`. The distance is found by bisection of its exponent, coordinate by coordinate, so that neither p
    nor the shift nor the unit of y need to be known; a coordinate whose row is 0 even far away is left alone. With
    `slope`, the function y ↦ ∇_y f, the distance is then increased until ∇_y f has digits too, if that happens while
    the row of H grows by less than 2^70. It takes twenty products and as many slopes.
    """
    y, safe = point.y, coordinates.safe(tree.dtype(point.y))

    def look(k: jax.Array, state: _Search) -> _Search:
        there = move(problem, y, state.which, _distance(state.exponent(k)))
        rows = row_probe(problem, x, there, g_batch)
        return state.seen(k, rows, rows if slope is None else slope(there), safe)

    end = jax.lax.fori_loop(0, _LOOKS, look, _begin(y, point.singular, point.rows))
    distance = jax.tree.map(lambda w, d: jnp.where(w, d, jnp.zeros_like(d)), end.which, _distance(end.high))
    calls = point.calls.plus(Calls(hvp=count(_LOOKS, oracle.samples(g_batch))))
    return RegularPoint(move(problem, y, end.which, distance), end.which, distance, end.rows, jnp.int32(_LOOKS), calls)


_FIRST, _SECOND = 9, 7  # halvings of the interval of exponents, in the search for H and in that for ∇_y f
_LOOKS = _FIRST + _SECOND + 4


class _Search(NamedTuple):
    """The state of the search for distances 2^exponent, in one loop so that its body is compiled once.

    Look 0 goes as far as possible: coordinates whose row stays 0 there are left out of `which`. Looks 1 … 9 halve the
    interval [low, high] for the smallest exponent at which the row of H has digits. Look 10 keeps that exponent as
    `found` and the row as `rows`. Looks 11 … 17 halve [found, found + 70] for the smallest one at which ∇_y f has
    digits too, look 18 goes back to `found` where it never has, and look 19 sees the rows at the end.
    """

    which: PyTree
    low: PyTree
    high: PyTree
    found: PyTree
    rows: PyTree

    def exponent(self, k: jax.Array) -> PyTree:
        """The exponents at which look k is made."""
        return jax.tree.map(lambda a, b: jnp.where(_halves(k), (a + b) / 2, b), self.low, self.high)

    def seen(self, k: jax.Array, rows: PyTree, slopes: PyTree, safe: float) -> "_Search":
        """The state after look k has seen these rows of H and slopes ∇_y f; NaN counts as large."""
        curved = jax.tree.map(lambda r: ~(jnp.abs(r) < safe), rows)
        shown = jax.tree.map(lambda b: ~(jnp.abs(b) < safe), slopes)
        given_up = jax.tree.map(lambda r, r0: ~(jnp.abs(r) < _UNITS * jnp.abs(r0)), rows, self.rows)
        enough = tree.where(k <= _FIRST, curved, jax.tree.map(jnp.logical_or, shown, given_up))
        middle = self.exponent(k)
        low = jax.tree.map(lambda e, a, m: jnp.where(_halves(k) & ~e, m, a), enough, self.low, middle)
        high = jax.tree.map(lambda e, b, m: jnp.where(_halves(k) & e, m, b), enough, self.high, middle)
        begins, ends = k == _FIRST + 1, k == _LOOKS - 2
        found = tree.where(begins, high, self.found)
        back = tree.select(shown, high, found)
        return _Search(
            jax.tree.map(lambda w, c: w & (c | (k > 0)), self.which, curved),
            tree.where(begins, high, low),
            tree.where(begins, jax.tree.map(lambda e: e + _FARTHEST, high), tree.where(ends, back, high)),
            found,
            tree.where(begins | (k == _LOOKS - 1), rows, self.rows),
        )


def _halves(k: jax.Array) -> jax.Array:
    """Whether look k halves an interval."""
    return ((k >= 1) & (k <= _FIRST)) | ((k >= _FIRST + 2) & (k <= _FIRST + _SECOND + 1))


def _begin(y: PyTree, vanishing: PyTree, rows: PyTree) -> _Search:
    """Exponents between the rounding of y and the farthest."""
    limits = jnp.finfo(tree.dtype(y))
    low = jax.tree.map(lambda leaf: jnp.log2(jnp.maximum(8 * limits.eps * jnp.abs(leaf), limits.tiny)), y)
    high = jax.tree.map(lambda leaf: jnp.full_like(leaf, _FARTHEST), y)
    return _Search(vanishing, low, high, high, rows)


def _distance(exponent: PyTree) -> PyTree:
    """2^exponent, times a factor in [1, 2) that differs from coordinate to coordinate: a singular direction that is no
    coordinate is left by unequal steps only."""
    return tree.mul(jax.tree.map(jnp.exp2, exponent), linear.uneven(exponent, 0.0))


def row_probe(problem: Problem, x: PyTree, y: PyTree, batch: AnyBatch) -> PyTree:
    """H z for one fixed z of unequal magnitudes: entry i is 0 only if row i of H is."""
    signs = jax.tree.map(lambda leaf: leaf[0], linear.probes(y, 1))
    flat, unravel = tree.ravel(signs)
    magnitudes = 1 + 0.5 * jnp.sin(jnp.arange(flat.size, dtype=flat.dtype))
    return oracle.hvp_g(problem, x, y, unravel(flat * magnitudes), batch)


def move(problem: Problem, y: PyTree, which: PyTree, distance: PyTree) -> PyTree:
    """y with the coordinates in `which` farther from the shift by `distance`; upwards where they are at it."""

    def one(leaf: jax.Array, t: jax.Array, moves: jax.Array, d: jax.Array) -> jax.Array:
        return jnp.where(moves, leaf + jnp.where(t < 0, -d, d), leaf)

    return jax.tree.map(one, y, coordinates.offset(y, problem.shift), which, distance)


def directions(like: PyTree) -> list[PyTree]:
    """Six directions to approach a point from: every coordinate with both signs, neighbours with equal and with
    opposite ones, lengths uneven."""
    flat, unravel = tree.ravel(like)
    i = jnp.arange(flat.size)
    alternating = unravel(jnp.where(i % 2 == 0, 1, -1).astype(flat.dtype))
    irregular = jax.tree.map(lambda leaf: leaf[0], linear.probes(like, 1))
    up, side = linear.uneven(like, 0.0), linear.uneven(like, 0.37)
    half = [up, tree.mul(alternating, side), tree.mul(irregular, side)]
    return half + [tree.scale(-1.0, d) for d in half]


def ratio(rows: PyTree, rows_at_double: PyTree) -> PyTree:
    """R ∈ [2, 100], the factor between two distances to compare at, from the growth of H's rows when they double.

    A row that grows like h^(p−2) gets R = 10^(6/(p−2)): six decades of H, so that a steep power does not leave the
    neighbourhood of the point, and a gentle one is followed over several decades of h.
    """

    def one(near: jax.Array, far: jax.Array) -> jax.Array:
        order = jnp.log2(jnp.abs(far) / jnp.abs(near))
        return jnp.clip(10 ** (6 / jnp.maximum(order, 1e-3)), 2.0, 100.0)

    return jax.tree.map(one, rows, rows_at_double)


def differentiable_in_z(problem: Problem, x: PyTree, y: PyTree) -> DifferentiableInZ:
    """Whether f and ∇_y g are continuously differentiable in z = spow(y − shift, p−1) at (x, y).

    True where y_i ≠ a0_i. Where y_i = a0_i, D∇_y f and D∇²_yy g must have one finite limit from every side. They are
    compared along six directions at three distances h, Rh and R²h from a0, R between 2 and 100 depending on p: with
    a power law c·h^q + limit, the change from h to R²h is more than twice that from h to Rh exactly if q > 0.
    """
    problem, x, y = prepare(problem, x, y)
    check_functions(problem, x, y)
    dtype = tree.dtype(y)
    p = coordinates.order(problem.p)
    shift = coordinates.shifts(problem.shift, y)
    h = jnp.maximum(8 * coordinates.safe(dtype) ** (1 / jnp.maximum(p - 2, 0.1)), 1e-10)
    distances = jax.tree.map(lambda a0: jnp.maximum(h, 1e4 * jnp.finfo(dtype).eps * jnp.abs(a0)), shift)
    far = jnp.clip(10 ** (6 / jnp.maximum(p - 2, 1e-3)), 2.0, 100.0).astype(dtype)
    at_shift = jax.tree.map(lambda t, d: jnp.abs(t) < d, coordinates.offset(y, problem.shift), distances)

    def j1(point: PyTree) -> PyTree:
        _, grad_y = oracle.grads_f(problem, x, point, problem.f_batches.whole())
        return tree.mul(coordinates.scaling(point, problem.p, problem.shift), grad_y)

    def j2(point: PyTree) -> PyTree:
        rows = row_probe(problem, x, point, problem.g_batches.whole())
        return tree.mul(coordinates.scaling(point, problem.p, problem.shift), rows)

    steps = jax.tree.map(lambda *leaves: jnp.stack(leaves), *directions(y))

    def answer(quantity: Callable[[PyTree], PyTree]) -> PyTree:
        def at(factor: Number) -> PyTree:
            def one(step: PyTree) -> PyTree:
                place = jax.tree.map(
                    lambda leaf, a0, w, s, d: jnp.where(w, a0 + factor * d * s, leaf),
                    y,
                    shift,
                    at_shift,
                    step,
                    distances,
                )
                return quantity(place)

            return jax.vmap(one)(steps)

        values = at(1.0), at(far), at(far * far)
        exists = jax.tree.map(lambda a, b, c: jnp.all(_has_limit(a[:1], b, c), axis=0), *values)
        return jax.tree.map(lambda s, e: ~s | e, at_shift, exists)

    return DifferentiableInZ(answer(j1), answer(j2))


def _has_limit(nearest: jax.Array, near: jax.Array, far: jax.Array) -> jax.Array:
    """Whether a quantity seen at h, Rh and R²h tends to one finite value as h → 0: it hardly changes, or its change
    fades like a positive power of h."""
    change, larger = jnp.abs(near - nearest), jnp.abs(far - nearest)
    constant = larger <= 1e-3 * jnp.abs(nearest)
    return jnp.isfinite(nearest) & jnp.isfinite(far) & (constant | (larger > 2.08 * change))
