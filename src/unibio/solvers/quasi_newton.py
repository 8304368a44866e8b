"""min_x Φ(x) on all data, without settings: quasi-Newton above, truncated Newton below, everything warm-started.

In short, with r = ∇_y g, h = ∇_x f − A v ≈ ∇Φ and Φ̂ = f − ⟨v, r⟩ (see `hypergradients.lagrangian`):

    trial x' = x − a·B h      B: L-BFGS of the last 40 pairs (Δx, Δh)
    until Φ̂(x') is good to a tenth of the predicted decrease:
        y ← Newton steps on g(x', ·) until ‖r‖ is a fraction of what it was
        v ← v + CG(∇_y f − H v)
    accept x' if Φ̂ fell by a tenth of what the slope predicts, else shorten a

Every residual is reduced by a ratio from its warm start, so that errors shrink with the steps and there is no absolute
tolerance. The control runs on the host, around the compiled programs at the end of this file.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import coordinates, curvature, oracle, tree
from unibio.core.curvature import Pairs
from unibio.core.flat import Layout
from unibio.core.problem import Problem
from unibio.core.programs import compiled
from unibio.core.protocols import Calls
from unibio.core.status import Status
from unibio.core.tree import PyTree

UPPER_PAIRS, LOWER_PAIRS = 40, 100
LOOSE = 0.3  # CG stops when its last step gained less than this share of its mean step's gain
RUNNING = -1  # in place of a status code
_UPPER_FLOOR, _LOWER_FLOOR = 1e-4, 1e-8  # curvature below this share of ‖B s‖ is not remembered


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


class Point(NamedTuple):
    """x, and what is known there; all are vectors. y ≈ y*(x), v ≈ H⁻¹∇_y f, r = ∇_y g, h ≈ ∇Φ."""

    x: jax.Array
    y: jax.Array
    v: jax.Array
    r: jax.Array
    h: jax.Array


class Control(NamedTuple):
    """The numbers that the control remembers from step to step."""

    phi: Any  # Φ̂
    norm: Any  # ‖h‖
    phi0: Any  # Φ̂ and ‖h‖ at the start
    norm0: Any
    scale: Any  # by how much Φ̂ changes along the first step: the unit in which an unbounded fall is measured
    tightness: Any  # of CG
    step: Any  # the longest step in x that is trusted
    refined: Any  # how often in a row y, v and h had to be refined because no step was accepted
    radius: Any  # the longest Newton step in y that is trusted
    lower_step: Any  # the last Newton step in y
    far: Any  # a y of this length is beyond all minimisers
    error: Any  # of h
    phi_error: Any


class State(eqx.Module):
    """Where a run of the method stands."""

    point: Point
    upper: Pairs
    lower: Pairs
    control: Control
    code: jax.Array  # of the status, or RUNNING
    layouts: tuple[Layout, Layout] = eqx.field(static=True)

    @property
    def x(self) -> PyTree:
        return self.layouts[0].tree(self.point.x)

    @property
    def y(self) -> PyTree:
        return self.layouts[1].tree(self.point.y)

    @property
    def v(self) -> PyTree:
        return self.layouts[1].tree(self.point.v)


class _Low(NamedTuple):
    """A point of the lower level: y, g, r = ∇_y g, ‖r‖ and ‖y‖."""

    y: jax.Array
    g: float
    r: jax.Array
    size: float
    length: float


class _Lower:
    """y*(x) by truncated Newton, v = H⁻¹∇_y f by CG, f and ∇Φ: every oracle call is made here, and counted.

    Newton's systems and the multiplier's are solved by one CG with one memory of curvature, which preconditions it: all
    its products are with nearly the same matrix.
    """

    def __init__(self, problem: Problem, layouts: tuple[Layout, Layout], budget: Budget, pairs: Pairs) -> None:
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

    def at(self, x: jax.Array, y: jax.Array, s: jax.Array) -> _Low:
        """g and ∇_y g at (x, y + s)."""
        y, r, numbers = self.program(lower_at, x, y, s)
        self.budget.spend("grad_g", self.g_samples)
        g, size, length = numbers.tolist()
        return _Low(y, g, r, size, length)

    def upper(self, x: jax.Array, y: jax.Array, v: jax.Array, r: jax.Array) -> tuple[float, float, Any, Any]:
        """f, Φ̂ = f − ⟨v, r⟩, ∇_x f and ∇_y f."""
        fx, fy, numbers = self.program(upper_at, x, y, v, r)
        self.budget.spend("grad_f", self.f_samples)
        f, inner = numbers.tolist()
        return f, f - inner, fx, fy

    def hypergradient(
        self, x: jax.Array, y: jax.Array, v: jax.Array, fx: jax.Array, old: jax.Array, project: PyTree
    ) -> Any:
        """h = ∇_x f − A v, how far from stationary it makes x (‖h‖ if x is free), ‖h − old‖, and the rounding in h."""
        h, numbers = self.program(hypergradient_at, x, y, v, fx, old, project)
        self.budget.spend("cross", self.g_samples)
        return h, *numbers.tolist()

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

    def solve(self, x: jax.Array, low: _Low, target: float, tightness: float) -> tuple[_Low, bool]:
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

    def multiplier(self, x: jax.Array, low: _Low, v: jax.Array, fy: jax.Array, tightness: float) -> Any:
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


class _Trial(NamedTuple):
    """A new x: whether it is accepted, Φ̂ there, and, unless Φ̂ alone refused it, the point and its ‖h‖."""

    accepted: bool
    phi: float
    point: Point | None = None
    norm: float = math.nan
    error: float = math.nan  # of Φ̂


class _Known(NamedTuple):
    """What was found out at a point, and is not asked again while neither x nor y has moved."""

    here: _Low
    gone: Any  # the coordinates of y on which g does not seem to depend
    floor: float  # the ‖r‖ that rounding of y makes
    upper: Any = None  # f, Φ̂, ∇_x f, ∇_y f


class _Step:
    """One step of the method under way."""

    def __init__(self, problem: Problem, state: State, tolerance: float, project: PyTree, budget: Budget) -> None:
        self.low = _Lower(problem, state.layouts, budget, state.lower)
        self.point, self.memory = state.point, state.upper
        self.dtype = np.dtype(state.point.x.dtype)
        self.c = Control(*(float(number) for number in state.control))
        self.known: _Known | None = None
        self.ahead: _Low | None = None
        self.change = math.nan  # of h, by the last tightening of y and v
        self.low.radius, self.low.step = self.c.radius, self.c.lower_step
        self.layouts, self.tolerance, self.project, self.budget = state.layouts, tolerance, project, budget

    def state(self, status: Status | None) -> State:
        """The state to go on from."""
        control = self.c._replace(radius=self.low.radius, lower_step=self.low.step)
        numbers = Control(*(jnp.asarray(np.asarray(number, self.dtype)) for number in control))
        code = jnp.int32(RUNNING if status is None else int(status.code))
        return State(self.point, self.memory, self.low.pairs, numbers, code, self.layouts)

    def number(self, value: float) -> Any:
        """As an argument of a program."""
        return self.dtype.type(value)

    def settle(self, ratio: float, tightness: float) -> Status | None:
        """Improves y, so that ‖r‖ falls by `ratio` and y is near y*(x), then v and h. The defect it found, if any."""
        low, (x, y, v, _, old) = self.low, self.point
        if self.known is None or self.known.here.y is not y:
            y, gone, floor = low.regular(x, y)
            self.known = _Known(low.at(x, y, low.none), gone, floor)
        here, there = self.lowered(self.known, ratio, tightness)
        if self.known.upper is None or here is not self.known.here:
            self.known = self.known._replace(here=here, upper=low.upper(x, here.y, v, here.r))
        f, _, fx, fy = self.known.upper
        v, inner, _ = low.multiplier(x, here, v, fy, tightness)
        h, norm, change, rounding = low.hypergradient(x, here.y, v, fx, old, self.project)
        phi, first = f - inner, math.isnan(self.c.norm)
        self.point, self.change = Point(x, here.y, v, here.r, h), change
        errors = {"error": 2 * change + rounding, "phi_error": abs(phi - self.c.phi) + 4 * low.eps * abs(phi)}
        self.c = self.c._replace(phi=phi, norm=norm, **errors)
        if low.concave:
            return Status.not_convex
        if not there:
            return Status.no_minimiser
        flat = math.isnan(self.c.norm0) and bool(jnp.any(self.known.gone & (fy != 0)))
        return (Status.ill_conditioned if first else Status.no_minimiser) if flat else None

    def lowered(self, known: _Known, ratio: float, tightness: float) -> tuple[_Low, bool]:
        """A point with ‖r‖ smaller by `ratio` and y near y*(x), and whether there seems to be a minimiser."""
        low, here = self.low, known.here
        target, start, first = max(ratio * here.size, known.floor), here.size, 0.0
        while True:
            here, reached = low.solve(self.point.x, here, target, tightness)
            near = float(self.budget.run(reach, low.pairs, here.r)) <= 0.01 * max(1.0, here.length)
            # Without a minimiser r falls for ever while Newton's steps do not shrink.
            shrinking = low.step <= 0.8 * first or not first
            there = here.length <= self.c.far and (near or here.size > 1e-10 * start or shrinking)
            if not reached or near or not there:
                return here, there
            target, first = 0.1 * here.size, first or low.step

    def start(self) -> Status | None:
        """The first h, which is the yardstick of the tolerance and must be right."""
        defect = self.settle(0.3, 0.3)
        for _ in range(6):
            if defect is not None:
                break
            defect = self.settle(0.1, 0.1)
            if not self.change > 0.5 * self.c.norm:
                break
        c = self.c
        if defect is None and not math.isfinite(c.phi + c.norm):
            defect = Status.not_finite
        if defect is None and c.norm == 0:
            defect = Status.stationary
        self.c = c._replace(phi0=c.phi, norm0=c.norm)
        return defect

    def first_step(self) -> None:
        """How far the first step may go: the length along −h over which ∇_y g at fixed y is about linear in x, at most
        .3 max(√d, ‖x‖)."""
        x, y, _, r, h = self.point
        length = 0.3 * max(math.sqrt(x.size), float(jnp.linalg.norm(x)))

        def moved(length: float) -> _Low:
            d, _ = self.budget.run(downhill, self.project, x, h, self.number(length), layouts=self.layouts)
            return self.low.at(self.along(d, 1.0), y, self.low.none)

        now = moved(length)
        for _ in range(30):
            then = moved(length / 4)
            if self.budget.run(is_linear, r, now.r, then.r):
                break
            length, now = length / 4, then
        self.ahead = now  # where the first trial begins
        self.c = self.c._replace(step=length, scale=max(abs(self.c.phi), self.c.norm * length))

    def advance(self) -> Status | None:
        """One step; the status if it was the last."""
        c = self.c
        if c.norm <= self.tolerance * c.norm0:
            verdict = self.verdict()
            if verdict is not None:
                return verdict
        if c.phi < c.phi0 - 1e10 * c.scale:
            return Status.unbounded
        if math.isnan(c.step):
            self.first_step()
            c = self.c
        direction, slope, length = self.direction()
        if not length > 0:
            return Status.stagnated
        a, fails = min(1.0, c.step / length), 0
        while True:
            trial = self.attempt(self.along(direction, a), -a * slope)
            if trial.accepted or fails == 2:
                break
            fails += 1
            excess = trial.phi - c.phi - a * slope
            best = -0.5 * a * a * slope / excess if 0 < excess < math.inf else 0.0
            a = min(max(best, 0.1 * a), 0.5 * a)
        if not trial.accepted:
            return self.refine(a * length)
        self.accept(trial, -a * slope, fails)
        return None

    def along(self, d: jax.Array, a: float) -> jax.Array:
        """x + a·d, in the set that x is confined to."""
        x: jax.Array = self.budget.run(moved_along, self.project, self.point.x, d, self.number(a), layouts=self.layouts)
        return x

    def direction(self) -> tuple[jax.Array, float, float]:
        """A direction of descent d, ⟨h, d⟩ and ‖d‖: quasi-Newton if that is one, else a step along −h."""
        x, h = self.point.x, self.point.h
        if self.memory.number > 0:
            program = quasi_newton_direction if self.project is None else confined_direction
            d, numbers = self.budget.run(program, self.project, self.memory, x, h, layouts=self.layouts)
            slope, length = numbers.tolist()
            if slope < -1e-6 * self.c.norm * length:
                return d, slope, length
            self.memory = curvature.empty(UPPER_PAIRS, self.layouts[0].size, self.dtype)
        d, numbers = self.budget.run(downhill, self.project, x, h, self.number(self.c.step), layouts=self.layouts)
        slope, length = numbers.tolist()
        return d, slope, length

    def attempt(self, x: jax.Array, predicted: float) -> _Trial:
        """Tries this x, where the slope predicts a decrease of Φ. Where rounding drowns it, ‖h‖ has to fall instead."""
        c, old, rounding = self.c, self.point, 500 * self.low.eps * abs(self.c.phi)
        drowned = self.drowned(predicted)
        limit = math.inf if drowned else c.phi - 0.1 * predicted
        phi, e, made = self.value(x, max(predicted, rounding), limit)
        self.low.concave = False
        if made is None:
            return _Trial(False, phi)
        y, v, r, fx = made
        h, norm, _, _ = self.low.hypergradient(x, y, v, fx, old.h, self.project)
        accepted = math.isfinite(norm) and (norm < c.norm if drowned else phi <= limit)
        return _Trial(accepted, phi, Point(x, y, v, r, h), norm, e)

    def drowned(self, predicted: float) -> bool:
        """Whether rounding hides this decrease of Φ̂."""
        return predicted <= 500 * self.low.eps * abs(self.c.phi)

    def value(self, x: jax.Array, predicted: float, limit: float) -> tuple[float, float, Any]:
        """Φ̂ at x, good to a tenth of the predicted decrease, its error, and y, v, r, ∇_x f there: None if Φ̂ is above
        the limit, or not to be had."""
        low, v = self.low, self.point.v
        here, self.ahead = self.ahead or low.at(x, self.point.y, low.none), None
        target = 0.3 * here.size
        while True:
            here, reached = low.solve(x, here, target, self.c.tightness)
            f, phi, fx, fy = low.upper(x, here.y, v, here.r)
            if low.concave or not phi <= limit:
                return (phi if reached else math.inf), math.nan, None
            v, inner, e = low.multiplier(x, here, v, fy, self.c.tightness)
            if e <= 0.1 * predicted:
                return f - inner, e, (here.y, v, here.r, fx)
            if not reached:
                return math.inf, e, None
            target = here.size * max(min(0.3, 0.05 * predicted / e), 1e-3)

    def accept(self, trial: _Trial, predicted: float, fails: int) -> None:
        """Goes on from there: a new pair, and how tight CG and how long a step may be."""
        c, old, new = self.c, self.point, trial.point
        assert new is not None
        self.memory, numbers = self.budget.run(remembered, self.memory, old.x, new.x, old.h, new.h)
        along_sum, along_change, moved = numbers.tolist()
        # Φ̂ is right to second order in the errors and h to first: where the trapezoid rule fails, h is too rough.
        rough = abs(trial.phi - c.phi - 0.5 * along_sum) > 0.3 * abs(0.5 * along_change)
        tightness = max(c.tightness / 4, 1e-4) if rough else min(1.5 * c.tightness, LOOSE)
        step = c.step
        if fails:
            step = 2 * moved
        elif (-0.5 * along_sum if self.drowned(predicted) else c.phi - trial.phi) > 0.5 * predicted:
            step = max(step, 4 * moved)
        self.point = new
        self.c = c._replace(phi=trial.phi, norm=trial.norm, tightness=tightness, step=step, refined=0.0,
                            error=math.nan, phi_error=trial.error)  # fmt: skip

    def refine(self, length: float) -> Status | None:
        """After three refusals y, v or h is not good enough: improves them, at most six times in a row."""
        c = self.c
        if c.refined == 6:
            return Status.stagnated
        self.c = c._replace(refined=c.refined + 1, tightness=max(c.tightness / 10, 1e-6), step=length)
        if c.refined:
            self.memory = curvature.empty(UPPER_PAIRS, self.layouts[0].size, self.dtype)
        return self.settle(0.1, self.c.tightness)

    def verdict(self) -> Status | None:
        """A small ‖h‖ is believed when better y and v agree. None if ‖h‖ is not small after all."""
        goal = self.tolerance * self.c.norm0
        for _ in range(4):
            defect = self.settle(0.01, 0.01)
            if defect is not None:
                return defect
            if self.c.norm > goal:
                return None
            if self.change <= 0.5 * goal:
                return Status.ok
        return Status.stagnated


class QuasiNewton(eqx.Module):
    """The method. It is no `BilevelSolver`, because its steps run on the host and are counted there.

    Arguments:
        tolerance: ‖∇Φ‖ relative to its start at which the method ends.
        project: the projection on a convex set that x is confined to, or None. Then ‖x − P(x − ∇Φ)‖ takes the place of
            ‖∇Φ‖.
    """

    tolerance: Any
    project: PyTree = None

    def init(self, x: PyTree, y: PyTree) -> State:
        """A state without oracle calls, with which the first step begins."""
        layouts = Layout.of(x), Layout.of(y)
        flat_x, flat_y = layouts[0].vector(x), layouts[1].vector(y)
        dtype, none = flat_x.dtype, jnp.zeros_like(flat_y)
        length, nan = jnp.maximum(1.0, tree.norm(flat_y)), math.nan
        numbers = Control(nan, nan, nan, nan, nan, LOOSE, nan, 0.0, length, 0.0, 1e12 * length, nan, nan)
        control = Control(*(jnp.asarray(number, dtype) for number in numbers))
        point = Point(flat_x, flat_y, none, none, jnp.full_like(flat_x, nan))
        upper = curvature.empty(UPPER_PAIRS, layouts[0].size, dtype)
        lower = curvature.empty(LOWER_PAIRS, layouts[1].size, dtype)
        return State(point, upper, lower, control, jnp.int32(RUNNING), layouts)

    def step(self, problem: Problem, state: State, budget: Budget) -> State:
        """The next state; the first step finds out where it stands, the others move x. If the budget does not last, the
        state is the given one with the status `budget`."""
        step = _Step(problem, state, float(self.tolerance), self.project, budget)
        try:
            return step.state(step.start() if math.isnan(step.c.norm0) else step.advance())
        except Spent:
            return dataclasses.replace(state, code=jnp.int32(int(Status.budget.code)))


# ---------------------------------------------------------------- the compiled programs, on vectors


Layouts = tuple[Layout, Layout]


def lower_at(problem: Problem, x: jax.Array, y: jax.Array, s: jax.Array, layouts: Layouts) -> tuple[Any, Any, Any]:
    """y + s, ∇_y g there, and g, ‖∇_y g‖, ‖y + s‖."""
    y = y + s
    g, r = oracle.value_and_grad_g(problem, layouts[0].tree(x), layouts[1].tree(y), problem.g_batches.whole())
    r = layouts[1].vector(r)
    return y, r, jnp.stack([g, curvature.norm(r), curvature.norm(y)])


def upper_at(
    problem: Problem, x: jax.Array, y: jax.Array, v: jax.Array, r: jax.Array, layouts: Layouts
) -> tuple[Any, Any, Any]:
    """∇_x f, ∇_y f, and f, ⟨v, r⟩."""
    whole = problem.f_batches.whole()
    f, (fx, fy) = oracle.value_and_grads_f(problem, layouts[0].tree(x), layouts[1].tree(y), whole)
    return layouts[0].vector(fx), layouts[1].vector(fy), jnp.stack([f, jnp.dot(v, r)])


def hypergradient_at(
    problem: Problem, x: jax.Array, y: jax.Array, v: jax.Array, fx: jax.Array, old: jax.Array, project: PyTree,
    layouts: Layouts,
) -> tuple[Any, Any]:  # fmt: skip
    """h = ∇_x f − A v; ‖h‖, or ‖x − P(x − h)‖ if x is confined, ‖h − old‖, and about how large the rounding in h is."""
    trees = layouts[0].tree(x), layouts[1].tree(y), layouts[1].tree(v)
    h = fx - layouts[0].vector(oracle.cross_g(problem, *trees, problem.g_batches.whole()))
    move = h if project is None else x - confined(project, x - h, layouts[0])
    rounding = 8 * jnp.finfo(h.dtype).eps * (curvature.norm(fx) + curvature.norm(h - fx))
    return h, jnp.stack([curvature.norm(move), curvature.norm(h - old), rounding])


def evaluated_at(problem: Problem, x: jax.Array, y: jax.Array, v: jax.Array, project: PyTree, layouts: Layouts) -> Any:
    """What f, g and their derivatives are at a point: every oracle once, for a checkpoint to be recognised by."""
    _, r, numbers = lower_at(problem, x, y, jnp.zeros_like(y), layouts)
    fx, fy, _ = upper_at(problem, x, y, v, r, layouts)
    return r, numbers, fy, hypergradient_at(problem, x, y, v, fx, fx, project, layouts)


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


def confined(project: PyTree, x: jax.Array, layout: Layout) -> jax.Array:
    """The projection of x; x itself if there is none."""
    return x if project is None else layout.vector(project(layout.tree(x)))


def moved_along(project: PyTree, x: jax.Array, d: jax.Array, a: jax.Array, layouts: Layouts) -> jax.Array:
    """x + a·d, projected."""
    return confined(project, x + a * d, layouts[0])


def downhill(project: PyTree, x: jax.Array, h: jax.Array, length: jax.Array, layouts: Layouts) -> tuple[Any, Any]:
    """d = P(x − length·h/‖h‖) − x, and ⟨h, d⟩, ‖d‖."""
    step = -length / curvature.norm(h) * h
    d = step if project is None else confined(project, x + step, layouts[0]) - x
    return d, jnp.stack([jnp.dot(h, d), curvature.norm(d)])


def is_linear(r: jax.Array, now: jax.Array, then: jax.Array) -> jax.Array:
    """Whether the change of r over a quarter of a length is about a quarter of its change over all of it."""
    return curvature.norm(now - r - 4 * (then - r)) <= 0.5 * curvature.norm(now - r)


def reach(pairs: Pairs, r: jax.Array) -> jax.Array:
    """‖B⁻¹r‖, about how far y is from y*(x)."""
    return curvature.norm(curvature.inverse_product(pairs, r))


def quasi_newton_direction(
    project: None, pairs: Pairs, x: jax.Array, h: jax.Array, layouts: Layouts
) -> tuple[Any, Any]:
    """d = −B⁻¹h, and ⟨h, d⟩, ‖d‖."""
    d = -curvature.inverse_product(pairs, h)
    return d, jnp.stack([jnp.dot(h, d), curvature.norm(d)])


def confined_direction(project: PyTree, pairs: Pairs, x: jax.Array, h: jax.Array, layouts: Layouts) -> tuple[Any, Any]:
    """d that about minimises ⟨h, d⟩ + ½⟨d, B d⟩ where x + d lies in the set, and ⟨h, d⟩, ‖d‖.

    No oracle is called for it: at most 200 projected gradient steps on the model, each of Barzilai and Borwein's length
    and then shortened to the model's least value on it (Schmidt et al. 2009).
    """
    product = curvature.product(pairs)
    zero = jnp.zeros_like(x)

    def toward(d: jax.Array, slope: jax.Array, length: jax.Array) -> jax.Array:
        return confined(project, x + d - length * slope, layouts[0]) - x - d

    def body(at: tuple[Any, ...]) -> tuple[Any, ...]:
        number, d, slope, length, _ = at
        step = toward(d, slope, length)
        turned = product(step)
        curved, fall = jnp.dot(step, turned), -jnp.dot(slope, step)
        share = jnp.clip(fall / jnp.where(curved > 0, curved, 1.0), 0.0, 1.0)
        square = jnp.dot(step, step)
        length = jnp.where(curved > 0, square / jnp.where(curved > 0, curved, 1.0), length)
        return number + 1, d + share * step, slope + share * turned, length, curvature.norm(step) / length

    unit = curvature.scale(pairs)
    first = curvature.norm(toward(zero, h, unit)) / unit
    start = jnp.int32(0), zero, h, unit, first
    _, d, _, _, _ = jax.lax.while_loop(lambda at: (at[0] < 200) & (at[4] > 0.01 * first), body, start)
    return d, jnp.stack([jnp.dot(h, d), curvature.norm(d)])


def remembered(pairs: Pairs, old_x: jax.Array, x: jax.Array, old_h: jax.Array, h: jax.Array) -> tuple[Any, Any]:
    """The memory with the pair of this step s, and ⟨h + h', s⟩, ⟨h' − h, s⟩, ‖s‖."""
    s, t = x - old_x, h - old_h
    numbers = jnp.stack([jnp.dot(old_h + h, s), jnp.dot(t, s), curvature.norm(s)])
    return curvature.add(pairs, s, t, _UPPER_FLOOR), numbers


class _CG(NamedTuple):
    """Conjugate gradients on the way: `total` is the decrease of the quadratic model so far, p the last direction, and
    rz = ⟨r, M r⟩ before it was taken."""

    steps: jax.Array
    u: jax.Array
    r: jax.Array
    p: jax.Array
    rz: jax.Array
    total: jax.Array
    pairs: Pairs
    steepest: jax.Array
    concave: jax.Array
    going: jax.Array


def conjugate_gradients(
    problem: Problem, x: jax.Array, y: jax.Array, b: jax.Array, start: jax.Array, probe: jax.Array, pairs: Pairs,
    tightness: jax.Array, radius: jax.Array, most: jax.Array, layouts: Layouts,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """u = start + an approximate solution of H(u − start) = b − H start of at most length `radius`, at most `most`
    products; every product becomes a pair. Also the number of products, whether the curvature was negative somewhere,
    ‖u − start‖, ⟨u, probe⟩ and ⟨u − start, probe⟩.

    It ends when steps·(last gain) ≤ tightness·(sum of gains), a gain being the decrease of the quadratic model, or at
    the boundary, and goes to the boundary where the curvature is not positive.
    """
    whole = problem.g_batches.whole()
    hessian = oracle.hessian_g(problem, layouts[0].tree(x), layouts[1].tree(y), whole)

    def product(u: jax.Array) -> jax.Array:
        return layouts[1].vector(hessian(layouts[1].tree(u)))

    warm = jnp.any(start != 0) & (most > 0)
    residual = jax.lax.cond(warm, lambda: b - product(start), lambda: b)
    preconditioner = pairs
    steepest = jnp.max(jnp.linalg.norm(pairs.t, axis=1))
    most = most - jnp.int32(warm)
    rounding = 4 * jnp.finfo(b.dtype).eps * curvature.norm(residual)

    noise = max(1e-8, 8 * float(jnp.finfo(b.dtype).eps))  # below this share of ‖H q‖ a curvature is rounding

    def body(at: _CG) -> _CG:
        z = curvature.inverse_product(preconditioner, at.r)
        rz = jnp.dot(at.r, z)
        p = z + jnp.where(at.steps > 0, rz / at.rz, 0.0) * at.p
        q = p / curvature.norm(p)
        hq = product(q)
        c, slope = jnp.dot(q, hq), jnp.dot(at.r, q)
        steepest = jnp.maximum(at.steepest, curvature.norm(hq))
        length = jnp.where(c > 0, slope / jnp.where(c > 0, c, 1.0), jnp.inf)
        inside = jnp.isfinite(length) & (curvature.norm(at.u + length * q) <= radius)
        toward = q * jnp.sign(slope)
        middle = jnp.dot(at.u, toward)
        reach = jnp.sqrt(jnp.maximum(middle**2 + radius**2 - jnp.dot(at.u, at.u), 0.0)) - middle
        bounded = jnp.isfinite(radius) & jnp.isfinite(slope)
        edge = jnp.where(bounded, at.u + reach * toward, at.u)
        gain = length * slope
        steps, total = at.steps + 1, jnp.where(inside, at.total + gain, at.total)
        r = jnp.where(inside, at.r - length * hq, at.r)
        going = inside & (steps.astype(gain.dtype) * gain > tightness * total) & (steps < most)
        return _CG(
            steps, jnp.where(inside, at.u + length * q, edge), r, p, rz, total,
            curvature.add(at.pairs, q, hq, _LOWER_FLOOR), steepest,
            at.concave | (c < -noise * steepest), going & (curvature.norm(r) > rounding),
        )  # fmt: skip

    zero, size = jnp.zeros((), b.dtype), curvature.norm(residual)
    first = _CG(
        jnp.int32(0), jnp.zeros_like(b), residual, jnp.zeros_like(b), zero, zero, pairs, steepest, jnp.asarray(False),
        (size > 0) & jnp.isfinite(size) & (most > 0),
    )  # fmt: skip
    last = jax.lax.while_loop(lambda at: at.going, body, first)
    u = start + last.u
    numbers = [
        last.steps + jnp.int32(warm), last.concave, curvature.norm(last.u), jnp.dot(u, probe), jnp.dot(last.u, probe),
    ]  # fmt: skip
    return u, last.pairs, jnp.stack([jnp.asarray(number, b.dtype) for number in numbers])
