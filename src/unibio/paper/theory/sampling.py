"""What the checks of `audit` evaluate: points of a region, the derivatives of a problem there, and how fast a quantity
grows or vanishes towards the shift."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from unibio.core import coordinates, linear, oracle, tree
from unibio.core.problem import Problem
from unibio.core.tree import PyTree
from unibio.hypergradients.singular import differentiable_in_z

_DISTANCES = (3e-1, 1e-1, 3e-2, 1e-2, 1e-3)  # from the shift a0, to fit powers of |y − a0|


class SampledRegion:
    """Random points around (x, y), and functions that evaluate the problem and its derivatives at such points.

    Points are flat numpy arrays: a in the space of x, b in the space of y. Every function takes (a, b) and uses all
    data; derivatives of second order are dense matrices. `within` lists the coordinates of y whose shift lies in the
    region; `f_has_limit` and `grad_g_has_limit` are true if df/dz and d∇_y g/dz have a limit at the shift in all of
    these coordinates.
    """

    def __init__(self, problem: Problem, x: PyTree, y: PyTree, region: float, samples: int, key: jax.Array) -> None:
        self.problem, self.x, self.y, self.key = problem, x, y, key
        self.p = float(problem.p)
        flat_x, self.to_x = tree.ravel(x)
        flat_y, self.to_y = tree.ravel(y)
        shift = tree.sub(y, coordinates.offset(y, problem.shift))
        self.shift = np.asarray(tree.ravel(shift)[0])
        dtype = flat_y.dtype
        self.eps = float(jnp.finfo(dtype).eps)
        self.within = np.flatnonzero(np.abs(self.shift - np.asarray(flat_y)) <= region)
        # At smaller distances from the shift, second derivatives are too small to be normal numbers.
        least = 2 * float(np.max(np.asarray(coordinates.floor(problem.p, dtype))))
        self.distances = [d for d in _DISTANCES if least <= d <= region]
        self.rng = np.random.default_rng(int(jax.random.randint(key, (), 0, 2**31 - 1)))
        self.xs, self.ys = (
            (np.asarray(centre) + region * self.rng.uniform(-1, 1, size=(samples, centre.size))).astype(dtype)
            for centre in (flat_x, flat_y)
        )
        offset = self.ys - self.shift
        near = np.abs(offset) < least
        self.ys = np.where(near, self.shift + np.where(offset < 0, -least, least), self.ys).astype(dtype)
        f, g = problem.f_batches.whole(), problem.g_batches.whole()

        def at(fn: Callable[[PyTree, PyTree], PyTree]) -> Callable[[Any, Any], jax.Array]:
            return jax.jit(lambda a, b: fn(self.to_x(a), self.to_y(b)))

        def ravel(value: PyTree) -> jax.Array:
            return tree.ravel(value)[0]

        def scale(y: PyTree) -> PyTree:
            return coordinates.scaling(y, problem.p, problem.shift)

        in_z = differentiable_in_z(problem, x, self.to_y(jnp.asarray(self.shift, dtype)))
        self.f_has_limit, self.grad_g_has_limit = (
            bool(np.asarray(ravel(entries))[self.within].all()) for entries in (in_z.f, in_z.grad_g)
        )
        self.g = at(lambda x, y: oracle.value_g(problem, x, y, g))
        self.grad_g = at(lambda x, y: ravel(oracle.grad_g(problem, x, y, g)))
        self.grad_x_f = at(lambda x, y: ravel(oracle.grads_f(problem, x, y, f)[0]))
        self.df_dz = at(lambda x, y: ravel(tree.mul(scale(y), oracle.grads_f(problem, x, y, f)[1])))
        self.hessian = at(lambda x, y: linear.dense(oracle.hessian_g(problem, x, y, g), y))
        self.scaling = at(lambda x, y: ravel(scale(y)))
        self.cross = at(lambda x, y: linear.dense(lambda v: oracle.cross_g(problem, x, y, v, g), y).T)

    def generalised(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The generalised Hessian d∇_y g/dz = D H, with D = diag(dy/dz)."""
        return np.asarray(self.scaling(a, b))[:, None] * np.asarray(self.hessian(a, b))

    def extreme(self, quantity: Callable[[Any, Any], float], largest: bool) -> tuple[float, tuple[Any, Any]]:
        """The largest or the smallest value of a quantity over all points, and its point."""
        values = [quantity(a, b) for a, b in zip(self.xs, self.ys, strict=True)]
        k = worst(values, largest)
        return values[k], (self.xs[k], self.ys[k])

    def near_shift(self, distance: float) -> list[tuple[np.ndarray, np.ndarray]]:
        """Random points with some coordinates of y at this distance from the shift.

        There is one point for each of at most eight coordinates in `within`, and one in which all of `within` are at
        this distance.
        """
        chosen = list(self.rng.permutation(self.within)[:8])
        points = []
        for which in [[i] for i in chosen] + ([list(self.within)] if len(self.within) > 1 else []):
            a, b = self.xs[self.rng.integers(len(self.xs))], self.ys[self.rng.integers(len(self.ys))].copy()
            b[which] = self.shift[which] + distance * self.rng.choice([-1, 1], size=len(which))
            points.append((a, b))
        return points


def worst(values: list[float], largest: bool) -> int:
    """The index of the largest or the smallest value. A value that is NaN or infinite counts as the worst."""
    scores = np.where(np.isfinite(values), values, np.inf if largest else -np.inf)
    return int(np.argmax(scores) if largest else np.argmin(scores))


def trend(
    sampled: SampledRegion, quantity: Callable[[np.ndarray, np.ndarray], float], largest: bool
) -> tuple[float, float]:
    """How a quantity behaves towards the shift: the power of the distance that it follows, and its limit.

    The power is the slope of log(worst value) against log(distance), fitted to the three smallest distances at which
    the quantity is finite; the limit is the worst value at the smallest of them. Both are NaN if these distances do not
    span a factor of ten, because the shift lies outside the region or cannot be approached in this precision.
    """
    if not len(sampled.within):
        return math.nan, math.nan
    state = sampled.rng.bit_generator.state
    found = []
    for distance in sampled.distances:
        sampled.rng.bit_generator.state = state  # each distance gets the same random points, only closer
        values = [quantity(a, b) for a, b in sampled.near_shift(distance)]
        found.append(float(np.max(values) if largest else np.min(values)))  # NaN if one value is NaN
    seen = np.flatnonzero(np.isfinite(found))[-3:]
    distances, positive = np.asarray(sampled.distances)[seen], np.maximum(np.asarray(found)[seen], 1e-300)
    if not spans_a_decade(distances):
        return math.nan, math.nan
    return float(np.polyfit(np.log(distances), np.log(positive), 1)[0]), found[seen[-1]]


def spans_a_decade(distances: Sequence[float] | np.ndarray) -> bool:
    """Whether the largest of these distances is ten times the smallest, which is needed to fit a power law."""
    return len(distances) > 1 and max(distances) > 9.9 * min(distances)


def norm(matrix: ArrayLike, order: int = 2) -> float:
    """The spectral norm of a matrix or the Euclidean norm of a vector; with order −2 the smallest singular value. It is
    NaN if an entry is not finite."""
    return float(np.linalg.norm(matrix, order)) if np.isfinite(matrix).all() else math.nan
