"""Whether a point is the minimiser of g(x, ·) up to rounding, and how far from it it may be: what `Newton` ends with.

A small gradient does not tell: exp(−y) has one far out, cos y at its maximum, and a g in small units everywhere. So
∇_y g is looked at on both sides of y, along two lines: it must push back on either side.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from unibio.core import coordinates, linear, oracle, tree
from unibio.core.batches import AllSamples, Batch
from unibio.core.problem import Problem
from unibio.core.status import Status
from unibio.core.tree import Number, PyTree
from unibio.lower.system import DENSE, PROBES, system, vanishing

_CLOSE = 64.0  # units of rounding to which ∇_y g must vanish
_INVERSE_ITERATIONS = 3
_RTOL = 1e-5  # of CG
_LOOKS = 60  # distances at which the gradient is looked at, each four times the one before


class Point(NamedTuple):
    """y, g and ∇_y g there, and `path`: the largest |y_i| and |y_i − start_i| on the way to it."""

    y: PyTree
    value: jax.Array
    gradient: PyTree
    path: PyTree


def judge(problem: Problem, x: PyTree, point: Point) -> tuple[Status, jax.Array, jax.Array, jax.Array]:
    """Looks along two lines through y. Returns the status, the error, and how many gradients and products it took;
    `stagnated` stands for a point that is no minimiser although there is one.

        n_i                                                     the rounding of ∂_i g (`rounding`)
        σ_i = sign ∂_i g, or an irregular sign where |∂_i g| ≤ n_i
        (H + ridge) d = −σ∘(|∇_y g| + n)                        a Newton step that exaggerates both
        (H + ridge)⁻¹ v ∝ v, at the end of the first line       the direction of least curvature

    Along d every entry of the gradient must have the sign −σ_i at y + t·d and the sign σ_i at y − t·d; along v some
    entry must point away from y at y ± t·v; all by more than rounding, for the same t = …, 1/4, 1, 4, … on both
    sides. Then there is a minimiser in between, and the larger of the two smallest t‖d‖ and t‖v‖ is the error. If
    the gradient never turns round on one side, g falls for ever there, without bound if its slope does not fade. If it
    does on neither side, g is flat.
    """
    batch = problem.g_batches.whole()
    y, r, eps = point.y, point.gradient, jnp.finfo(tree.dtype(point.y)).eps
    noise, span = rounding(problem, x, point)
    line = _exaggerated(oracle.hessian_g(problem, x, y, batch), point, noise)
    step, tries = _reach(problem, x, point, line, noise)
    line = line._replace(step=step)
    entries = _turning(_entries(problem, x, point, line, noise), tree.dtype(y))
    edge = tree.axpy(jnp.where(jnp.isfinite(entries.t), entries.t, 0.0), line.step, y)
    flattest = _flattest(oracle.hessian_g(problem, x, edge, batch), point, noise)
    along = _turning(_along(problem, x, point, flattest.step, noise), tree.dtype(y))
    length, path = tree.norm(line.step), tree.norm(point.path)
    across = tree.norm(flattest.step)  # 0 where H has no digits at all
    error = jnp.maximum(entries.t * length, jnp.where(across > 0, along.t * across / 8, 0.0))  # 8: it was clearly more

    # Across the small distance `error` a smooth g's gradient changes little; across a kink, as much as along the path.
    small, little = error <= jnp.sqrt(eps) * path, jnp.sqrt(error / path)
    left = jax.tree.map(lambda a, n: jnp.abs(a) > _CLOSE * n + coordinates.safe(a.dtype), r, noise)
    away = tree.any_true(jax.tree.map(lambda w, a, c: w & ~(small & (jnp.abs(a) <= little * c)), left, r, span))
    rough = tree.any_true(jax.tree.map(lambda n, c: n > 0.1 * c, noise, span))
    status = Status.where((error > path / 4) & (path > 0), Status.ill_conditioned, Status.ok)
    status = Status.where(away | rough, Status.stagnated, status)
    distance = 1e6 * (path / length)
    drop = point.value - oracle.value_g(problem, x, tree.axpy(distance, line.step, y), batch)
    falls = ~(drop < 0.1 * distance * jnp.abs(tree.dot(line.step, r)))
    endless = Status.where(falls & tree.any_true(left), Status.unbounded, Status.no_minimiser)
    nowhere = Status.where(entries.flat | along.flat, Status.ill_conditioned, endless)
    status = Status.where(jnp.isfinite(error), status, nowhere)
    status = Status.where(line.convex & flattest.convex, status, Status.not_convex)
    status = Status.where(tree.all_finite((r, point.value)), status, Status.not_finite)
    gradients = 2 * (tries + entries.looks) + 6 * along.looks + PROBES + 4
    return status, error, gradients, line.products + flattest.products


class _Line(NamedTuple):
    """A direction, whether H has no negative curvature, and the products it took; of d also σ (`sign`), which entries
    are asked (`counts`), and for which coordinates H says nothing (`lost`)."""

    step: PyTree
    convex: jax.Array
    products: jax.Array
    sign: PyTree = None
    counts: PyTree = None
    lost: PyTree = None


def _ridged(operator: linear.Operator, like: PyTree) -> tuple[linear.Operator, PyTree, jax.Array, int]:
    """H + ridge, H's diagonal, whether that has a negative entry, and the products that this and one more take beside
    those of `system`, which builds small matrices."""
    size, eps = tree.size(like), jnp.finfo(tree.dtype(like)).eps
    ridge, products = 16 * eps * (size**0.5 if size <= DENSE else 1), PROBES + 1
    if size <= DENSE:
        operator, products = linear.as_matrix(operator, like), 0
    diagonal, _, negative = linear.rough_diagonal(operator, like, PROBES)
    return lambda v: tree.axpy(ridge, tree.mul(diagonal, v), operator(v)), diagonal, negative, products


def sizes(path: PyTree) -> PyTree:
    """The size of each y_i that its rounding is measured against: the length of its path; if y_i has always been 0, the
    longest path of all, or 1."""
    longest = tree.largest(path)
    longest = jnp.where(longest > 0, longest, 1.0)
    return jax.tree.map(lambda a: jnp.where(a > 0, a, longest), path)


def _exaggerated(operator: linear.Operator, point: Point, noise: PyTree) -> _Line:
    """The line d of `judge`."""
    r, irregular, eps = point.gradient, linear.irregular(point.y), jnp.finfo(tree.dtype(point.y)).eps
    ridged, _, negative, others = _ridged(operator, point.y)
    sign = jax.tree.map(lambda a, n, z: jnp.where(jnp.abs(a) > n, jnp.sign(a), jnp.sign(z)), r, noise, irregular)
    right = jax.tree.map(lambda s, a, n, z: -s * (jnp.abs(a) + n * jnp.abs(z)), sign, r, noise, irregular)
    solver = system(ridged, point.y)
    step, products = solver.solve(right, _RTOL)
    convex = tree.all_finite(step) & ~negative
    # CG is not exact: coordinates that it has not come to are not asked.
    solved = jax.tree.map(lambda s, h, b: s * h <= 0.25 * s * b, sign, ridged(step), right)

    # H says nothing of a coordinate if it or the gradient has no digits, or if the step is longer than the path.
    size, none = sizes(point.path), jax.tree.map(jnp.logical_or, solver.empty, vanishing(right))
    lost = jax.tree.map(lambda e, d, a: e | ~(jnp.abs(d) <= a), none, step, size)
    # y itself is rounded.
    step = jax.tree.map(lambda d, s, a, e: jnp.where(e, 0.0, d) - s * eps * a, step, sign, size, lost)
    counts = jax.tree.map(lambda c, e: c | e | (tree.size(r) <= DENSE), solved, lost)
    return _Line(step, convex, products + solver.products + others, sign, counts, lost)


def _flattest(operator: linear.Operator, point: Point, noise: PyTree) -> _Line:
    """The line v of `judge`: inverse iterations in the coordinates that make H's diagonal 1, with H where the gradient
    has begun to exceed its rounding; after one iteration v still holds what is curved, by a share of the size of the
    ridge. Its length is that at which the gradient along v should exceed its rounding."""
    ridged, diagonal, negative, others = _ridged(operator, point.y)
    root, solver = jax.tree.map(jnp.sqrt, diagonal), system(ridged, point.y)

    def iteration(_: PyTree, carry: tuple[PyTree, jax.Array]) -> tuple[PyTree, jax.Array]:
        v, more = solver.solve(tree.mul(root, tree.direction(tree.mul(root, carry[0]))[0]), _RTOL)
        return v, carry[1] + more

    start = tree.divide(linear.irregular(point.y, 0.71), root)
    v, products = jax.lax.fori_loop(0, _INVERSE_ITERATIONS, iteration, (start, solver.products))
    convex = tree.all_finite(v) & ~negative
    v = jax.tree.map(lambda a: jnp.where(jnp.isfinite(a), a, 0.0), v)
    longest = jnp.maximum(tree.largest(tree.divide(v, sizes(point.path))), jnp.finfo(tree.dtype(v)).tiny)
    predicted = tree.dot(jax.tree.map(jnp.abs, v), noise) / tree.dot(v, ridged(v))
    length = jnp.clip(predicted, jnp.finfo(tree.dtype(v)).eps / longest, 1 / longest)
    return _Line(tree.scale(jnp.where(jnp.isfinite(length), length, 1 / longest), v), convex, products + others)


Look = Callable[[jax.Array], PyTree]  # t ↦ whether the gradient pushes back at y + t·line; for t < 0 that is behind y


def _reach(problem: Problem, x: PyTree, point: Point, line: _Line, noise: PyTree) -> tuple[PyTree, jax.Array]:
    """d with the coordinates lengthened for which H says nothing, each until its own entry of the gradient pushes back
    on both sides; one that never does is left as it is. Also how many lengths were tried."""

    def longer(carry: tuple[PyTree, PyTree, jax.Array]) -> tuple[PyTree, PyTree, jax.Array]:
        step, _, looks = carry
        asked = line._replace(step=tree.select(line.lost, step, tree.zeros_like(step)), counts=line.lost)
        sides = jax.vmap(_entries(problem, x, point, asked, noise))(jnp.asarray([1.0, -1.0], tree.dtype(step)))
        back = jax.tree.map(lambda side: jnp.all(side, axis=0), sides)
        return tree.select(back, step, tree.scale(4, step)), back, looks + 1

    def unfinished(carry: tuple[PyTree, PyTree, jax.Array]) -> jax.Array:
        return tree.any_true(jax.tree.map(jnp.logical_not, carry[1])) & (carry[2] < _LOOKS)

    back = jax.tree.map(jnp.logical_not, line.lost)
    step, back, looks = jax.lax.while_loop(unfinished, longer, (line.step, back, jnp.int32(0)))
    return tree.select(back, step, line.step), looks


def _entries(problem: Problem, x: PyTree, point: Point, line: _Line, noise: PyTree) -> Look:
    """Whether each entry of the gradient pushes back at y + t·d; those that are not asked do."""

    def pushes_back(t: jax.Array) -> PyTree:
        r = oracle.grad_g(problem, x, tree.axpy(t, line.step, point.y), problem.g_batches.whole())
        way = jnp.sign(t)
        return jax.tree.map(lambda c, s, a, n: ~c | (-way * s * a > n), line.counts, line.sign, r, noise)

    return pushes_back


def _along(problem: Problem, x: PyTree, point: Point, v: PyTree, noise: PyTree) -> Look:
    """Whether some entry of the gradient pushes back at y + t·v, clearly by more than it is at y and than its rounding,
    which is that at y, or how much it changes among neighbours of y + t·v."""
    eps, z, size = jnp.finfo(tree.dtype(point.y)).eps, linear.irregular(point.y), sizes(point.path)

    def pushes_back(t: jax.Array) -> jax.Array:
        there = tree.axpy(t, v, point.y)

        def gradient(units: Number) -> PyTree:
            near = jax.tree.map(lambda y, a, z: y + units * eps * jnp.maximum(a, jnp.abs(y)) * z, there, size, z)
            return oracle.grad_g(problem, x, near, problem.g_batches.whole())

        def clearly(r: jax.Array, v: jax.Array, n: jax.Array, before: jax.Array) -> jax.Array:
            change = jnp.maximum(jnp.abs(r[1] - r[0]), jnp.abs(r[2] - r[0]))
            return jnp.sign(t) * jnp.sign(v) * r[0] > 4 * n + 32 * change + jnp.abs(before)

        three = jax.vmap(gradient)(jnp.asarray([0.0, 1.0, -1.0], t.dtype))
        return tree.any_true(jax.tree.map(clearly, three, v, noise, point.gradient))

    return pushes_back


class _Turning(NamedTuple):
    """`t`: the smallest at which the gradient pushes back on both sides, infinite if there is none; `at_1` whether it
    does at t = 1, `found` whether at the last t; `ever` whether it ever does in front and behind (a first axis of two);
    `flat` whether some entry does on neither side; `looks`: how many t were tried."""

    t: jax.Array
    at_1: jax.Array
    found: jax.Array
    ever: PyTree
    looks: jax.Array
    flat: jax.Array


def _turning(look: Look, dtype: jnp.dtype) -> _Turning:
    """Looks at t = 1, and then at 4, 16, … or at 1/4, 1/16, …, always on both sides."""
    no, one = jnp.asarray(False), jnp.ones((), dtype)
    none = jax.tree.map(lambda s: jnp.zeros((2, *s.shape), bool), jax.eval_shape(look, one))

    def next_look(so_far: _Turning) -> _Turning:
        first = so_far.looks == 0
        t = jnp.where(first, 1.0, jnp.where(so_far.at_1, so_far.t / 4, 4 * so_far.t))
        now = jax.vmap(look)(jnp.stack([t, -t]))
        found = ~tree.any_true(jax.tree.map(jnp.logical_not, now))
        ever = jax.tree.map(jnp.logical_or, now, so_far.ever)
        return _Turning(t, jnp.where(first, found, so_far.at_1), found, ever, so_far.looks + 1, no)

    def unfinished(now: _Turning) -> jax.Array:
        return (now.looks == 0) | ((now.found == now.at_1) & (now.looks < _LOOKS))

    last = jax.lax.while_loop(unfinished, next_look, _Turning(one, no, no, none, jnp.int32(0), no))
    smallest = jnp.where(last.found, last.t, jnp.where(last.at_1, 4 * last.t, jnp.inf))
    flat = tree.any_true(jax.tree.map(lambda sides: ~jnp.any(sides, axis=0), last.ever))
    return last._replace(t=smallest, flat=flat & ~jnp.isfinite(smallest))


def rounding(problem: Problem, x: PyTree, point: Point) -> tuple[PyTree, PyTree]:
    """How large each entry of ∇_y g may be by rounding alone, and how much it changes along the path.

    The first is the largest change of ∇_y g among neighbours of y that differ by a few units of rounding, plus such a
    unit of the gradients of the samples that cancel in it.
    """
    batch, dtype = problem.g_batches.whole(), tree.dtype(point.y)
    eps, size = jnp.finfo(dtype).eps, sizes(point.path)

    def change(factor: Number, z: PyTree) -> PyTree:
        near = jax.tree.map(lambda y, a, z: y + factor * a * z, point.y, size, z)
        return jax.tree.map(lambda a, b: jnp.abs(a - b), oracle.grad_g(problem, x, near, batch), point.gradient)

    units = jnp.concatenate([eps * (1 + jnp.arange(PROBES, dtype=dtype) / 2), jnp.ones(2, dtype)])
    z = linear.probes(point.y, PROBES)
    z = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[:1], -leaf[:1]]), z)
    changes = jax.vmap(change)(units, z)
    samples = sample_gradients(problem, x, point.y)
    noise = jax.tree.map(lambda c, s: jnp.max(c[:PROBES], axis=0) + eps * s, changes, samples)
    return noise, jax.tree.map(lambda c: jnp.maximum(c[-1], c[-2]), changes)


def sample_gradients(problem: Problem, x: PyTree, y: PyTree) -> PyTree:
    """Mean over the samples of |∂_i g_k(x, y)|: the size of what cancels in ∇_y g at a minimiser."""
    whole = problem.g_batches.whole()
    if not isinstance(whole, AllSamples):
        return jax.tree.map(jnp.abs, oracle.grad_g(problem, x, y, whole))

    def mean(chunk: Batch, weight: float) -> PyTree:
        def one(index: jax.Array, value: PyTree) -> PyTree:
            single = Batch(index[None], jax.tree.map(lambda a: a[None], value), chunk.slot)
            return jax.tree.map(jnp.abs, oracle.grad_g(problem, x, y, single))

        each = jax.vmap(one)(chunk.index, chunk.value)
        return jax.tree.map(lambda a: weight * jnp.mean(a, axis=0), each)

    return whole.total(mean)
