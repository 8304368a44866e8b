"""The lower level of `minimise`: y*(x) by truncated Newton, v = H⁻¹∇_y f by conjugate gradients, f and ∇Φ.

Every oracle call of `minimise` is made here, and counted. The control runs on the host, around compiled programs on
vectors.
"""

import math
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import coordinates, curvature, oracle
from unibio.core.curvature import Pairs
from unibio.core.flat import Layout
from unibio.core.problem import Problem
from unibio.core.programs import compiled
from unibio.core.protocols import Calls
from unibio.core.tree import PyTree
from unibio.hypergradients.lagrangian import lagrangian_value

PAIRS = 100  # products H u that are remembered
Layouts = tuple[Layout, Layout]


class Spent(Exception):
    """The budget does not allow the oracle call that was about to be made."""


class Budget:
    """Counts what is spent, and refuses the next oracle call when nothing is left.

    `most` bounds the calls (samples) and `seconds` the time of computing; compilation does not count. A program is
    not interrupted: seconds may be exceeded by one run of conjugate gradients, calls by one oracle call.
    """

    def __init__(self, most: float = math.inf, seconds: float = math.inf) -> None:
        self.most, self.most_seconds = most, seconds
        self.calls = np.zeros(4, np.int64)
        self.seconds = self.compile_seconds = 0.0

    @property
    def left(self) -> float:
        """Calls that may still be made."""
        return self.most - self.calls.sum()

    def check(self) -> None:
        """Raises `Spent` if nothing is left."""
        if self.left <= 0 or self.seconds >= self.most_seconds:
            raise Spent

    def run(self, program: Callable[..., Any], *args: PyTree, **static: Hashable) -> Any:
        """program(*args) on the clock."""
        out, seconds, compiling = compiled.quick(program, *args, **static)
        self.seconds += seconds
        self.compile_seconds += compiling
        return out

    def spend(self, kind: str, calls: int) -> None:
        """Counts calls of an oracle."""
        self.calls[Calls._fields.index(kind)] += calls


class Low(NamedTuple):
    """A point of the lower level: y, g, r = ∇_y g, ‖r‖ and ‖y‖."""

    y: jax.Array
    g: float
    r: jax.Array
    size: float
    length: float


class Lower:
    """y*(x) by truncated Newton, v = H⁻¹∇_y f by CG, f and ∇Φ: every oracle call is made here, and counted.

    Newton's systems and the multiplier's are solved by one CG with one memory of curvature, which preconditions it: all
    its products are with nearly the same matrix.
    """

    def __init__(self, problem: Problem, layouts: Layouts, budget: Budget, pairs: Pairs) -> None:
        self.problem, self.layouts, self.budget, self.pairs = problem, layouts, budget, pairs
        self.radius, self.step, self.concave = 1.0, 0.0, False
        self.f_samples, self.g_samples = (
            oracle.samples(sampler.whole()) for sampler in (problem.f_batches, problem.g_batches)
        )
        self.eps = float(jnp.finfo(pairs.s.dtype).eps)
        self.none = jnp.zeros(layouts[1].size, pairs.s.dtype)

    def program(self, fn: Callable[..., Any], *args: PyTree) -> Any:
        self.budget.check()
        return self.budget.run(fn, self.problem, *args, layouts=self.layouts)

    def at(self, x: jax.Array, y: jax.Array, s: jax.Array) -> Low:
        """g and ∇_y g at (x, y + s)."""
        y, r, numbers = self.program(lower_at, x, y, s)
        self.budget.spend("grad_g", self.g_samples)
        g, size, length = numbers.tolist()
        return Low(y, g, r, size, length)

    def upper(self, x: jax.Array, y: jax.Array, v: jax.Array, r: jax.Array) -> tuple[float, float, Any, Any]:
        """f, Φ̂ = f − ⟨v, r⟩, ∇_x f and ∇_y f."""
        fx, fy, numbers = self.program(upper_at, x, y, v, r)
        self.budget.spend("grad_f", self.f_samples)
        f, phi = numbers.tolist()
        return f, phi, fx, fy

    def hypergradient(self, x: jax.Array, y: jax.Array, v: jax.Array, fx: jax.Array, project: PyTree) -> Any:
        """h = ∇_x f − A v, and how far from stationary it makes x (‖h‖ if x is free)."""
        h, norm = self.program(hypergradient_at, x, y, v, fx, project)
        self.budget.spend("cross", self.g_samples)
        return h, norm.item()

    def hypergradient_error(self, x: jax.Array, y: jax.Array, v: jax.Array, r: jax.Array, h: jax.Array) -> float:
        """By how much h may be off: twice what better y and v change, as far as the memory of curvature knows them."""
        error = self.program(change_of_hypergradient, x, y, v, r, h, self.pairs)
        self.budget.spend("grad_f", self.f_samples)
        self.budget.spend("hvp", self.g_samples)
        self.budget.spend("cross", self.g_samples)
        return float(error)

    def cg(
        self, x: jax.Array, y: jax.Array, b: jax.Array, start: jax.Array, r: jax.Array, tightness: float,
        radius: float = math.inf,
    ) -> tuple[jax.Array, float, float, float]:  # fmt: skip
        """u ≈ H⁻¹b from this start, the length of u − start, ⟨u, r⟩ and ⟨u − start, r⟩."""
        most = min(self.none.size + 11, math.ceil(min(self.budget.left, 1e12) / self.g_samples))
        dtype = self.none.dtype
        u, self.pairs, numbers = self.program(
            conjugate_gradients, x, y, b, start, r, self.pairs, dtype.type(tightness), dtype.type(radius),
            np.int32(most),
        )  # fmt: skip
        products, concave, length, inner, gained = numbers.tolist()
        self.budget.spend("hvp", int(products) * self.g_samples)
        self.concave |= bool(concave)
        return u, length, inner, gained

    def solve(self, x: jax.Array, low: Low, target: float, tightness: float) -> tuple[Low, bool]:
        """Newton steps until ‖r‖ ≤ target; whether it was reached. A step must lower g, or ‖r‖ once rounding drowns
        the decrease of g."""
        fails = 0
        for _ in range(60):
            if low.size <= target or self.concave:
                break
            s, length, slope, _ = self.cg(x, low.y, -low.r, self.none, low.r, tightness, self.radius)
            if not length > 0:
                break
            new = self.at(x, low.y, s)
            drowned = abs(slope) <= 500 * self.eps * abs(low.g)
            lower = new.size < low.size if drowned else new.g <= low.g + 1e-4 * slope
            if lower and math.isfinite(new.g + new.size):
                low, fails, self.step = new, 0, length
                self.radius = max(self.radius, 4 * length)
            elif drowned or fails == 12:
                break
            else:
                self.radius, fails = length / 4, fails + 1
        return low, low.size <= target and not self.concave

    def multiplier(self, x: jax.Array, low: Low, v: jax.Array, fy: jax.Array, tightness: float) -> Any:
        """A better v, ⟨v, r⟩, and |⟨change of v, r⟩|."""
        v, _, inner, gained = self.cg(x, low.y, fy, v, low.r, tightness)
        return v, inner, abs(gained)

    def regular(self, x: jax.Array, y: jax.Array) -> tuple[jax.Array, Any, float]:
        """y, moved off coordinates where a row of H vanishes: there v is a limit 0/0. Also those where it still does,
        and the ‖r‖ that rounding of y makes."""
        for distance in (1e-4, 1e-3, 1e-2, 1e-1):
            y, gone, some, floor = self.program(off_singular, x, y, self.none.dtype.type(distance))
            self.budget.spend("hvp", self.g_samples)
            if not some:
                break
        return y, gone, float(floor)


# ---------------------------------------------------------------- the compiled programs, on vectors


def lower_at(problem: Problem, x: jax.Array, y: jax.Array, s: jax.Array, layouts: Layouts) -> tuple[Any, Any, Any]:
    """y + s, ∇_y g there, and g, ‖∇_y g‖, ‖y + s‖."""
    y = y + s
    g, r = oracle.value_and_grad_g(problem, layouts[0].tree(x), layouts[1].tree(y), problem.g_batches.whole())
    r = layouts[1].vector(r)
    return y, r, jnp.stack([g, curvature.norm(r), curvature.norm(y)])


def upper_at(
    problem: Problem, x: jax.Array, y: jax.Array, v: jax.Array, r: jax.Array, layouts: Layouts
) -> tuple[Any, Any, Any]:
    """∇_x f, ∇_y f, and f, Φ̂."""
    whole = problem.f_batches.whole()
    f, (fx, fy) = oracle.value_and_grads_f(problem, layouts[0].tree(x), layouts[1].tree(y), whole)
    return layouts[0].vector(fx), layouts[1].vector(fy), jnp.stack([f, lagrangian_value(f, v, r)])


def hypergradient_at(
    problem: Problem, x: jax.Array, y: jax.Array, v: jax.Array, fx: jax.Array, project: PyTree, layouts: Layouts
) -> tuple[Any, Any]:
    """h = ∇_x f − A v; and ‖h‖, or ‖x − P(x − h)‖ if x is confined."""
    trees = layouts[0].tree(x), layouts[1].tree(y), layouts[1].tree(v)
    h = fx - layouts[0].vector(oracle.cross_g(problem, *trees, problem.g_batches.whole()))
    return h, curvature.norm(h if project is None else x - layouts[0].vector(project(layouts[0].tree(x - h))))


def change_of_hypergradient(
    problem: Problem, x: jax.Array, y: jax.Array, v: jax.Array, r: jax.Array, h: jax.Array, pairs: Pairs,
    layouts: Layouts,
) -> Any:  # fmt: skip
    """2‖h' − h‖ plus about the rounding in h, where h' is h at y' = y − M r and v' = v + M(∇_y f − H v) taken at y'.

    That is one Newton step in y and one in v with M ≈ H⁻¹ from the pairs, so that the change is the error of h to first
    order: ∂_y h (y* − y) and A M ρ in one.
    """
    y = y - curvature.inverse_product(pairs, r)
    fx, fy, _ = upper_at(problem, x, y, v, r, layouts)
    trees = layouts[0].tree(x), layouts[1].tree(y), layouts[1].tree(v)
    residual = fy - layouts[1].vector(oracle.hvp_g(problem, *trees, problem.g_batches.whole()))
    better, _ = hypergradient_at(problem, x, y, v + curvature.inverse_product(pairs, residual), fx, None, layouts)
    rounding = 8 * jnp.finfo(h.dtype).eps * (curvature.norm(fx) + curvature.norm(better - fx))
    return 2 * curvature.norm(better - h) + rounding


def evaluated_at(problem: Problem, x: jax.Array, y: jax.Array, v: jax.Array, project: PyTree, layouts: Layouts) -> Any:
    """What f, g and their derivatives are at a point: every oracle once, for a checkpoint to be recognised by."""
    _, r, numbers = lower_at(problem, x, y, jnp.zeros_like(y), layouts)
    fx, fy, _ = upper_at(problem, x, y, v, r, layouts)
    return r, numbers, fy, hypergradient_at(problem, x, y, v, fx, project, layouts)


def off_singular(
    problem: Problem, x: jax.Array, y: jax.Array, distance: jax.Array, layouts: Layouts
) -> tuple[Any, Any, Any, Any]:
    """y with the coordinates moved whose row of H vanishes, as one product tells; which they are, and if any; and about
    ‖H e‖ for an error e in the last digit of y."""
    probe = 1 + 0.5 * jnp.sin(jnp.arange(y.size, dtype=y.dtype))
    trees = layouts[0].tree(x), layouts[1].tree(y), layouts[1].tree(probe)
    row = layouts[1].vector(oracle.hvp_g(problem, *trees, problem.g_batches.whole()))
    gone = jnp.abs(row) < coordinates.safe(y.dtype)
    floor = jnp.finfo(y.dtype).eps * curvature.norm(row) * curvature.norm(y) / curvature.norm(probe)
    return jnp.where(gone, y + distance * jnp.maximum(1.0, jnp.abs(y)), y), gone, gone.any(), floor


def reach(pairs: Pairs, r: jax.Array) -> jax.Array:
    """‖B⁻¹r‖, about how far y is from y*(x)."""
    return curvature.norm(curvature.inverse_product(pairs, r))


def conjugate_gradients(
    problem: Problem, x: jax.Array, y: jax.Array, b: jax.Array, start: jax.Array, probe: jax.Array, pairs: Pairs,
    tightness: jax.Array, radius: jax.Array, most: jax.Array, layouts: Layouts,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """u = start + an approximate solution of H(u − start) = b − H start by `curvature.solution`; its pairs. Also the
    number of products, whether the curvature was negative somewhere, ‖u − start‖, ⟨u, probe⟩ and ⟨u − start, probe⟩."""
    hessian = oracle.hessian_g(problem, layouts[0].tree(x), layouts[1].tree(y), problem.g_batches.whole())

    def product(u: jax.Array) -> jax.Array:
        return layouts[1].vector(hessian(layouts[1].tree(u)))

    warm = jnp.any(start != 0) & (most > 0)
    residual = jax.lax.cond(warm, lambda: b - product(start), lambda: b)
    found = curvature.solution(product, residual, pairs, tightness, radius, most - jnp.int32(warm))
    u = start + found.u
    numbers = [
        found.steps + jnp.int32(warm), found.concave, curvature.norm(found.u), jnp.dot(u, probe),
        jnp.dot(found.u, probe),
    ]  # fmt: skip
    return u, found.pairs, jnp.stack([jnp.asarray(number, b.dtype) for number in numbers])
