"""How good a hypergradient estimate is: a second estimate from better points, and how far the two differ.

Given ĥ = ∇_x f − A v at y, with H v ≈ ∇_y f:

    s  ≈ −H⁻¹(∇_y g + rounding)              a Newton step of the lower level
    d  ≈ H⁻¹(∇_y f − H v + rounding)          the correction of v, with everything taken at y + s
    ĥ' = ∇_x f − A(v + d)                     the better estimate
    error = 2‖ĥ' − ĥ‖                         (without the 2 it would be below the true error every fifth time)

So one number covers y off y*(x), an inaccurate v, and what rounding does to an ill-conditioned H. Both systems are
solved roughly (to 3 %; exactly for at most 32 unknowns; by the Hessian at y if the method has built it), with
H + 2·eps·diag(H): a direction without curvature then turns rounding into a large d, and counts if A sees it. If the
Newton step makes ∇_y g larger instead of smaller, y is too far from the minimiser for any estimate, and the error is
infinite.

Where coordinates of y were moved by h because H is singular there, ĥ' is also computed at eighteen points around the
singular one: along six directions, at the distances h, Rh and R²h. If it tends to a limit like c·h^q, the changes
d_1 = c(R^q − 1)h^q and d_2 = c(R^q − 1)R^q·h^q give what is left of it at h, and all directions must agree but for
that.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from unibio.core import coordinates, linear, oracle, tree
from unibio.core.noise import AnyBatch
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, Evaluation, HyperInfo, add_counts, count
from unibio.core.status import Status
from unibio.core.tree import PyTree
from unibio.hypergradients.preconditioners import rough_part
from unibio.hypergradients.singular import directions, ratio, regular_point, row_probe

_RTOL = 0.03
_MIN_STEPS = 4
_CG_STEPS = 1000
_PROBES = 8
_POINTS = 18


def promised(dtype: jnp.dtype) -> float:
    """The relative error that the status `ok` promises: 1e-4 in float64, 1e-2 in float32."""
    return 1e-4 if jnp.finfo(dtype).eps < 1e-10 else 1e-2


class _Around(NamedTuple):
    """What the looks around a singular point found: the last ĥ', each ‖ĥ' − ĥ‖ and its change from one look to the
    next, whether H has digits there, the largest |v_i| among the moved coordinates, and whether f needs a coordinate
    of y that g leaves open."""

    last: PyTree
    jumps: jax.Array
    changes: jax.Array
    usable: jax.Array
    sizes: jax.Array
    undetermined: jax.Array


class _Looks(NamedTuple):
    """What the first two looks found: the Newton point, ‖∇_y g‖ in the scaled norm at y and there, the two terms of ĥ',
    the worse condition and curvature; then the CG steps of all looks, their number, and what those around a singular
    point found."""

    newton: PyTree
    residuals: jax.Array
    grad_x: PyTree
    cross: PyTree
    condition: jax.Array
    curvature: jax.Array
    steps: jax.Array
    number: jax.Array
    around: _Around | None


def assess(problem: Problem, x: PyTree, y: PyTree, value: PyTree, info: HyperInfo, singular: bool) -> HyperInfo:
    """`info` with `lower_residual`, `condition`, `error`, and a status that takes the error into account, on all data.

    `singular`: whether coordinates of y may have been moved, and the points around them should be looked at.
    """
    problem, x, y, value, info = jax.lax.stop_gradient((problem, x, y, value, info))
    f_batch, g_batch = problem.f_batches.whole(), problem.g_batches.whole()
    unsolved = info.at.v is None
    if unsolved and singular:  # an estimate that needs no Hessian has not looked whether it vanishes
        point = regular_point(problem, x, info.at.y, g_batch, lambda y: oracle.grads_f(problem, x, y, f_batch)[1])
        distance = jax.tree.map(jnp.maximum, info.at.distance, point.distance)
        slopes = Calls(grad_f=count(point.slopes, oracle.samples(f_batch)))
        info = info._replace(at=Evaluation(point.y, distance, None), calls=info.calls.plus(point.calls).plus(slopes))
    part, known = rough_part(g_batch), _known(info, singular)
    near = oracle.hessian_g(problem, x, info.at.y, part) if known is None else known
    diagonal, _, negative = linear.rough_diagonal(near, y, _PROBES)
    if part is not g_batch and known is None:
        negative = jnp.asarray(False)  # a part of the samples cannot tell
    m = jax.tree.map(lambda d: 1 / d, diagonal)
    if unsolved:
        info = _with_v(problem, x, info, m)
    looks = _look_around(problem, x, value, info, m, singular)
    elsewhere = unsolved or singular  # the looks began at another point than y
    residual = _scaled_norm(oracle.grad_g(problem, x, y, g_batch), m) if elsewhere else looks.residuals[0]
    length = tree.norm(jax.tree.map(lambda m, y: y / jnp.sqrt(m), m, y))  # in the unit of `residual`
    lower_residual = jnp.where(residual == 0, residual, residual / (residual + length))

    eps = jnp.finfo(tree.dtype(x)).eps
    gap = tree.sub(tree.sub(looks.grad_x, looks.cross), value)
    size, direct, indirect, change = tree.norms(value, looks.grad_x, looks.cross, gap)
    terms = direct + indirect
    # Where ∇_x f and A v cancel, at a stationary x, nobody can ask for more than their rounding.
    allowed = jnp.maximum(promised(tree.dtype(x)) * size, 100 * eps * terms)
    astray = ~(looks.residuals[1] <= 4 * (looks.residuals[0] + eps * length))
    off = jnp.where(astray, jnp.inf, 2 * _finite_or_inf(change))
    flat, bias = looks.curvature == linear.FLAT, jnp.zeros_like(off)
    if looks.around is not None:
        flat, bias = flat | looks.around.undetermined, 2 * _bias(looks.around, 0.05 * allowed)
    error = jnp.where(flat, jnp.inf, _finite_or_inf(jnp.maximum(off, bias) + 4 * eps * terms))

    solved = lower_residual <= 1e4 * eps
    cause = Status.where(solved, Status.ill_conditioned, Status.lower_not_solved)
    short = info.residual > 0.1 * promised(tree.dtype(x))
    cause = Status.where(short, Status.where(info.status == Status.ok, Status.truncated, info.status), cause)
    # Only an estimate whose linear system is solved can tell that there is no limit.
    at_fault = (bias > allowed) & (solved | (off <= allowed)) & ~short
    cause = Status.where(at_fault, Status.where(jnp.isfinite(bias), Status.stagnated, Status.no_limit), cause)
    # At a solution of the upper level nothing but rounding is left of ∇Φ, which is no fault of a well-conditioned H.
    vanished = (cause == Status.ill_conditioned) & (size <= error) & jnp.isfinite(error)
    cause = Status.where(vanished & (looks.condition < 1 / jnp.sqrt(eps)), Status.stationary, cause)
    status = Status.where((error <= allowed) & jnp.isfinite(error), Status.ok, cause)
    status = Status.where((looks.curvature == linear.NEGATIVE) | negative, Status.not_convex, status)
    judged = (info.status == Status.ok) | (info.status == Status.ill_conditioned)
    status = Status.where(judged, status, info.status)
    return info._replace(
        status=status,
        at=info.at._replace(matrix=None),
        calls=info.calls.plus(_calls(looks, info, elsewhere, singular, f_batch, g_batch)),
        lower_residual=lower_residual,
        condition=looks.condition,
        error=error,
    )


def _known(info: HyperInfo, singular: bool) -> linear.Operator | None:
    """Products with the Hessian at y, if the method has built it; None otherwise, and where coordinates may have been
    moved, because H is then looked at in other places. The systems of both looks are solved with it. The second look is
    a Newton step away from y: if that step is short, H has hardly changed; if it is long, it makes the error large."""
    known = None if singular else info.at.matrix
    return None if known is None else linear.product_with(known, info.at.y)


def _with_v(problem: Problem, x: PyTree, info: HyperInfo, m: PyTree) -> HyperInfo:
    """`info` with the v that its method did not need, solved ten times as accurately as is promised."""
    y, f_batch, g_batch = info.at.y, problem.f_batches.whole(), problem.g_batches.whole()
    _, grad_y = oracle.grads_f(problem, x, y, f_batch)
    operator = oracle.hessian_g(problem, x, y, g_batch)
    cg = linear.conjugate_gradients(operator, grad_y, m, 0.1 * promised(tree.dtype(x)), _CG_STEPS)
    calls = Calls(grad_f=oracle.samples(f_batch)).plus(Calls(hvp=count(cg.steps, oracle.samples(g_batch))))
    return info._replace(at=info.at._replace(v=cg.value), calls=info.calls.plus(calls))


def _calls(
    looks: _Looks, info: HyperInfo, elsewhere: bool, singular: bool, f_batch: AnyBatch, g_batch: AnyBatch
) -> Calls:
    """What the assessment asked for: a gradient a look and the products of CG, or those that build H; an estimate at
    each look but possibly the first, with a product H v unless H was built; the diagonal, on a part of the data. If the
    method has built H, only the products H v are left."""
    f_samples, g_samples, n = oracle.samples(f_batch), oracle.samples(g_batch), looks.number
    part, y = rough_part(g_batch), info.at.y
    estimates = n - int(part is not g_batch and not singular)
    if _known(info, singular) is not None:
        hvp = count(estimates, g_samples)
    else:
        products = looks.steps + (0 if tree.size(y) <= linear.FEW else estimates) + (n if singular else 0)
        hvp = add_counts(count(products, g_samples), count(linear.block(y, _PROBES), oracle.samples(part)))
    return Calls(count(estimates, f_samples), count(n + int(elsewhere), g_samples), hvp, count(estimates, g_samples))


def _scaled_norm(gradient: PyTree, m: PyTree) -> jax.Array:
    """(Σ m_i r_i²)^½ of a gradient r, which measures it in the square root of g's unit whatever that of y."""
    return tree.norm(jax.tree.map(lambda m, r: jnp.sqrt(m) * r, m, gradient))


def _bias(looks: _Around, small: jax.Array) -> jax.Array:
    """What is left of c·h^q at the distance h, the most of all directions; infinite if there is no common limit.

    The changes d_1 and d_2 along a direction have d_2/d_1 = R^q, so c·h^q = d_1²/(d_2 − d_1); q ≤ 0 where d_2 ≤ d_1.
    A d_2 as `small` as nobody minds is not judged. The distances at h from the first direction to each must be what
    is left of both, but for something `small`. A direction that is not usable leads, from a y that is only near the
    singular point, across it to where H has no digits.
    """
    jumps, near, far = (_finite_or_inf(a) for a in (looks.jumps[2::3], looks.changes[3::3], looks.changes[4::3]))
    usable = looks.usable[2::3] & looks.usable[3::3] & looks.usable[4::3]
    fades = far > near
    left = jnp.where(fades, near * (near / jnp.where(fades, far - near, 1.0)), jnp.inf)
    left = jnp.where(far <= small, near, left)
    agree = jumps <= 1.5 * (left + left[0]) + 2 * small
    # Where v grows without bound, A v may vanish only because A does at this very x.
    bounded = looks.sizes[2] <= 10 * looks.sizes[4]
    return jnp.where(bounded, jnp.max(jnp.where(usable, jnp.where(agree, left, jnp.inf), 0.0)), jnp.inf)


def _look_around(problem: Problem, x: PyTree, value: PyTree, info: HyperInfo, m: PyTree, singular: bool) -> _Looks:
    """Look 0 finds the Newton step, look 1 takes the better estimate there, looks 2 … 19 (only if a coordinate of y was
    moved) take it around the singular point. All of them are the same program: a linear system at a point."""
    f_batch, g_batch = problem.f_batches.whole(), problem.g_batches.whole()
    y, v, known = info.at.y, info.at.v, _known(info, singular)
    around = _Surroundings(problem, x, value, info, m) if singular else None
    # Relative rounding errors. Their unequal sizes make sure that they are not a multiple of the right-hand side, in
    # whose direction alone H may have curvature.
    disturbance = tree.scale(jnp.finfo(tree.dtype(y)).eps, linear.irregular(y))

    def for_estimates(k: jax.Array, compute: Callable[..., PyTree], otherwise: PyTree, *at: PyTree) -> PyTree:
        """Computes what only an estimate needs; look 0 makes none and leaves it out, which pays where the data are
        large."""
        large = rough_part(g_batch) is not g_batch
        return tree.compute_if_any(k > 0, compute, otherwise, *at) if large and not singular else compute(*at)

    def look(k: jax.Array, so_far: _Looks) -> _Looks:
        point, scale = tree.where(k == 0, y, so_far.newton), m
        if around is not None:
            point = tree.where(k <= 1, point, around.point(k))
            rows = row_probe(problem, x, point, g_batch)
            scale = _rescaled(m, around.moved, around.rows, rows)
        slope = oracle.grad_g(problem, x, point, g_batch)
        operator, solvable = _operators(problem, x, point, known)

        def terms(point: PyTree, v: PyTree) -> tuple[PyTree, PyTree, PyTree]:
            return *oracle.grads_f(problem, x, point, f_batch), tree.linearly(operator, v)

        grad_x, grad_y, product = for_estimates(k, terms, tree.zeros_like((x, y, y)), point, v)
        left = tree.where(k == 0, tree.scale(-1.0, slope), tree.sub(grad_y, product))
        # ∇_y g is rounded because y is, ∇_y f − H v because its two terms are.
        b, u = tree.where(k == 0, (tree.zeros_like(y), y), (grad_y, v))
        right = jax.tree.map(lambda a, d, b, u, m: a + d * (jnp.abs(b) + jnp.abs(u) / m), left, disturbance, b, u, m)

        cg = _roughly_solved(solvable, right, scale)
        newton, corrected = tree.add(y, cg.value), tree.add(v, cg.value)
        if around is not None:
            newton, corrected = _held(newton, info), tree.add(corrected, around.unknown)

        def cross_term(point: PyTree, v: PyTree) -> PyTree:
            return tree.linearly(lambda v: oracle.cross_g(problem, x, point, v, g_batch), v)

        cross = for_estimates(k, cross_term, grad_x, point, corrected)
        first = k <= 1
        seen = None
        if around is not None and so_far.around is not None:
            better = tree.sub(grad_x, cross)
            seen = around.seen(so_far.around, k, rows, grad_y, corrected, better)
        return _Looks(
            tree.where(k == 0, newton, so_far.newton),
            so_far.residuals.at[k].set(_scaled_norm(slope, m)),
            tree.where(first, grad_x, so_far.grad_x),
            tree.where(first, cross, so_far.cross),
            jnp.where(first, jnp.fmax(so_far.condition, cg.condition), so_far.condition),
            jnp.where(first, jnp.maximum(so_far.curvature, cg.curvature), so_far.curvature),
            so_far.steps + cg.steps,
            so_far.number + 1,
            seen,
        )

    most = 2 if around is None else 2 + _POINTS
    blank = jnp.zeros(most, tree.dtype(x))
    unseen_around = None if around is None else _Around(value, blank, blank, blank > 0, blank, jnp.asarray(False))
    unseen, zero = jnp.full((), jnp.nan, blank.dtype), tree.zeros_like(x)
    start = _Looks(y, blank, zero, zero, unseen, jnp.int32(linear.POSITIVE), jnp.int32(0), jnp.int32(0), unseen_around)
    return jax.lax.fori_loop(0, 2 if around is None else jnp.where(around.some, most, 2), look, start)


def _operators(
    problem: Problem, x: PyTree, point: PyTree, known: linear.Operator | None
) -> tuple[linear.Operator, linear.Operator]:
    """Products with the Hessian at a point, and those with which systems there are solved: with the Hessian that the
    method has built, if it has, else the same ones, for few unknowns by its matrix."""
    operator = oracle.hessian_g(problem, x, point, problem.g_batches.whole())
    if known is None and tree.size(point) <= linear.FEW:
        operator = linear.as_matrix(operator, point)
    return operator, operator if known is None else known


def _roughly_solved(operator: linear.Operator, right: PyTree, m: PyTree) -> linear.CGResult:
    """(H + 2·eps·diag(H))⁻¹ of a right-hand side, m ≈ 1/diag(H): for few unknowns exactly, else to 3 %."""

    def ridged(u: PyTree) -> PyTree:
        return tree.axpy(2 * jnp.finfo(tree.dtype(u)).eps, tree.divide(u, m), operator(u))

    if tree.size(right) <= linear.FEW:
        return linear.solve_by_eigenvalues(ridged, right)
    return linear.conjugate_gradients(ridged, right, m, _RTOL, _CG_STEPS, None, True, _MIN_STEPS)


class _Surroundings:
    """The points around a singular one, and what to note down at each."""

    def __init__(self, problem: Problem, x: PyTree, value: PyTree, info: HyperInfo, m: PyTree) -> None:
        self.value, self.safe = value, coordinates.safe(tree.dtype(x))
        self.moved = jax.tree.map(lambda d: d > 0, info.at.distance)
        self.some = tree.any_true(self.moved)
        self.rows = rows = row_probe(problem, x, info.at.y, problem.g_batches.whole())
        self.unknown = _unknown(info.at.v, rows, self.safe)
        nowhere = _stack([info.at.y] * _POINTS)
        self.points = tree.compute_if_any(
            self.some, lambda at, rows: _around(problem, x, at, rows), nowhere, info.at, rows
        )

    def point(self, k: jax.Array) -> PyTree:
        """The point at which look k is made."""
        return jax.tree.map(lambda leaf: leaf[jnp.maximum(k - 2, 0)], self.points)

    def seen(self, so_far: _Around, k: jax.Array, rows: PyTree, grad_y: PyTree, v: PyTree, better: PyTree) -> _Around:
        """Adds what look k has found."""
        lost = jax.tree.map(lambda w, r: w & (jnp.abs(r) < self.safe / 4), self.moved, rows)
        is_open = jax.tree.map(lambda r, b: (jnp.abs(r) < self.safe) & (jnp.abs(b) >= self.safe), self.rows, grad_y)
        return _Around(
            better,
            so_far.jumps.at[k].set(tree.norm(tree.sub(better, self.value))),
            so_far.changes.at[k].set(tree.norm(tree.sub(better, so_far.last))),
            so_far.usable.at[k].set(~tree.any_true(lost)),
            so_far.sizes.at[k].set(tree.largest(tree.select(self.moved, v, tree.zeros_like(v)))),
            so_far.undetermined | ((k == 0) & tree.any_true(is_open)),
        )


def _unknown(v: PyTree, rows: PyTree, safe: float) -> PyTree:
    """What to put for v_i where a coordinate has no curvature anywhere, which leaves v_i open: a number of the size of
    v."""
    size = tree.largest(v)
    size = jnp.where(size > 0, size, 1.0)
    return jax.tree.map(lambda r: jnp.where(jnp.abs(r) < safe, size, jnp.zeros_like(r)), rows)


def _held(newton: PyTree, info: HyperInfo) -> PyTree:
    """The Newton point, but with a moved coordinate where it was if the step would take it all the way back to the
    singular point, as it does for p near 2: H has no digits there."""

    def one(n: jax.Array, y: jax.Array, d: jax.Array) -> jax.Array:
        return jnp.where((d > 0) & (jnp.abs(jnp.abs(n - y) - d) <= d / 32), y, n)

    return jax.tree.map(one, newton, info.at.y, info.at.distance)


def _rescaled(m: PyTree, which: PyTree, rows: PyTree, rows_there: PyTree) -> PyTree:
    """m ≈ 1/diag(H) at another point, where the rows of H in `which` are larger or smaller."""

    def one(m: jax.Array, w: jax.Array, here: jax.Array, there: jax.Array) -> jax.Array:
        factor = jnp.abs(here) / jnp.abs(there)
        return jnp.where(w & (factor > 0) & jnp.isfinite(factor), m * factor, m)

    return jax.tree.map(one, m, which, rows, rows_there)


def _around(problem: Problem, x: PyTree, at: Evaluation, rows: PyTree) -> PyTree:
    """Eighteen points around the singular one: along six directions, at 1, R and R² times the distance moved."""
    y, distance = at.y, at.distance
    outward = jax.tree.map(lambda t: jnp.where(t < 0, -1.0, 1.0), coordinates.offset(y, problem.shift))
    singular = jax.tree.map(lambda leaf, o, d: leaf - o * d, y, outward, distance)
    twice = jax.tree.map(lambda s, o, d: s + 2 * o * d, singular, outward, distance)
    factor = ratio(rows, row_probe(problem, x, twice, problem.g_batches.whole()))

    def place(direction: PyTree, power: int) -> PyTree:
        return jax.tree.map(
            lambda leaf, s, o, d, r, e: jnp.where(d > 0, s + o * e * d * r**power, leaf),
            y,
            singular,
            outward,
            distance,
            factor,
            direction,
        )

    return _stack([place(direction, power) for direction in directions(y) for power in (0, 1, 2)])


def _stack(trees: list[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _finite_or_inf(a: jax.Array) -> jax.Array:
    """The number, or infinity instead of NaN: an error that cannot be computed may be of any size."""
    return jnp.where(jnp.isfinite(a), a, jnp.inf)
