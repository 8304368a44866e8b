"""min_x Φ(x) on all data, without settings: quasi-Newton above, truncated Newton below, everything warm-started.

In short, with r = ∇_y g, h = ∇_x f − A v ≈ ∇Φ and Φ̂ = f − ⟨v, r⟩ (see `hypergradients.lagrangian`):

    trial x' = x − a·B h      B: L-BFGS of the last 40 pairs (Δx, Δh)
    until Φ̂(x') is good to a tenth of the predicted decrease:
        y ← Newton steps on g(x', ·) until ‖r‖ is a fraction of what it was
        v ← v + CG(∇_y f − H v)
    accept x' if Φ̂ fell by a tenth of what the slope predicts, else shorten a

Every residual is reduced by a ratio from its warm start, so that errors shrink with the steps and there is no absolute
tolerance. The control runs on the host, around the compiled programs of `newton_cg` and `directions`.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import curvature, tree
from unibio.core.curvature import Pairs
from unibio.core.flat import Layout
from unibio.core.problem import Problem
from unibio.core.status import Status
from unibio.core.tree import PyTree
from unibio.solvers import directions, newton_cg
from unibio.solvers.newton_cg import Budget, Low, Lower, Spent

LOOSE = 0.3  # CG stops when its last step gained less than this share of its mean step's gain
RUNNING = -1  # in place of a status code


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
    layouts: newton_cg.Layouts = eqx.field(static=True)

    @property
    def x(self) -> PyTree:
        return self.layouts[0].tree(self.point.x)

    @property
    def y(self) -> PyTree:
        return self.layouts[1].tree(self.point.y)

    @property
    def v(self) -> PyTree:
        return self.layouts[1].tree(self.point.v)


class _Trial(NamedTuple):
    """A new x: whether it is accepted, Φ̂ there, and, unless Φ̂ alone refused it, the point and its ‖h‖."""

    accepted: bool
    phi: float
    point: Point | None = None
    norm: float = math.nan
    error: float = math.nan  # of Φ̂


class _Known(NamedTuple):
    """What was found out at a point, and is not asked again while neither x nor y has moved."""

    here: Low
    gone: Any  # the coordinates of y on which g does not seem to depend
    floor: float  # the ‖r‖ that rounding of y makes
    upper: Any = None  # f, Φ̂, ∇_x f, ∇_y f


class _Step:
    """One step of the method under way."""

    def __init__(self, problem: Problem, state: State, tolerance: float, project: PyTree, budget: Budget) -> None:
        self.low = Lower(problem, state.layouts, budget, state.lower)
        self.point, self.memory = state.point, state.upper
        self.dtype = np.dtype(state.point.x.dtype)
        self.c = Control(*(float(number) for number in state.control))
        self.known: _Known | None = None
        self.ahead: Low | None = None
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

    def lowered(self, known: _Known, ratio: float, tightness: float) -> tuple[Low, bool]:
        """A point with ‖r‖ smaller by `ratio` and y near y*(x), and whether there seems to be a minimiser."""
        low, here = self.low, known.here
        target, start, first = max(ratio * here.size, known.floor), here.size, 0.0
        while True:
            here, reached = low.solve(self.point.x, here, target, tightness)
            near = float(self.budget.run(newton_cg.reach, low.pairs, here.r)) <= 0.01 * max(1.0, here.length)
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

        def moved(length: float) -> Low:
            d, _ = self.budget.run(directions.downhill, self.project, x, h, self.number(length), layouts=self.layouts)
            return self.low.at(self.along(d, 1.0), y, self.low.none)

        now = moved(length)
        for _ in range(30):
            then = moved(length / 4)
            if self.budget.run(directions.is_linear, r, now.r, then.r):
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
        x: jax.Array = self.budget.run(
            directions.moved_along, self.project, self.point.x, d, self.number(a), layouts=self.layouts
        )
        return x

    def direction(self) -> tuple[jax.Array, float, float]:
        """A direction of descent d, ⟨h, d⟩ and ‖d‖: quasi-Newton if that is one, else a step along −h."""
        x, h = self.point.x, self.point.h
        if self.memory.number > 0:
            program = directions.quasi_newton_direction if self.project is None else directions.confined_direction
            d, numbers = self.budget.run(program, self.project, self.memory, x, h, layouts=self.layouts)
            slope, length = numbers.tolist()
            if slope < -1e-6 * self.c.norm * length:
                return d, slope, length
            self.memory = curvature.empty(directions.PAIRS, self.layouts[0].size, self.dtype)
        d, numbers = self.budget.run(
            directions.downhill, self.project, x, h, self.number(self.c.step), layouts=self.layouts
        )
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
        self.memory, numbers = self.budget.run(directions.remembered, self.memory, old.x, new.x, old.h, new.h)
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
            self.memory = curvature.empty(directions.PAIRS, self.layouts[0].size, self.dtype)
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
        upper = curvature.empty(directions.PAIRS, layouts[0].size, dtype)
        lower = curvature.empty(newton_cg.PAIRS, layouts[1].size, dtype)
        return State(point, upper, lower, control, jnp.int32(RUNNING), layouts)

    def step(self, problem: Problem, state: State, budget: Budget) -> State:
        """The next state; the first step finds out where it stands, the others move x. If the budget does not last, the
        state is the given one with the status `budget`."""
        step = _Step(problem, state, float(self.tolerance), self.project, budget)
        try:
            return step.state(step.start() if math.isnan(step.c.norm0) else step.advance())
        except Spent:
            return dataclasses.replace(state, code=jnp.int32(int(Status.budget.code)))
