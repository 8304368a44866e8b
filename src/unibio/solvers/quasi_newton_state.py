"""Where a run of `minimise` stands: the state that is kept from step to step, and written into checkpoints."""

from typing import Any, NamedTuple

import equinox as eqx
import jax

from unibio.core.curvature import Pairs
from unibio.core.tree import PyTree
from unibio.solvers.newton_cg import Layouts

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
    layouts: Layouts = eqx.field(static=True)

    @property
    def x(self) -> PyTree:
        return self.layouts[0].tree(self.point.x)

    @property
    def y(self) -> PyTree:
        return self.layouts[1].tree(self.point.y)

    @property
    def v(self) -> PyTree:
        return self.layouts[1].tree(self.point.v)
