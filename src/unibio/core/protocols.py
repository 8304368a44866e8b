"""The interfaces between the parts of the package: what each takes and returns."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from unibio.core import kinds, show
from unibio.core.problem import Problem
from unibio.core.status import Status
from unibio.core.tree import Number, PyTree

Gradient = Callable[[PyTree, Any], PyTree]  # what a lower solver calls: (point, realisation of the samples) -> gradient
Draw = Callable[[int], Any]  # gives that number of realisations (see `core.batches`), stacked along a first axis

_MOST = 2**31 - 1


def count(products: Number, samples: int) -> jax.Array:
    """products × samples as int32. A number that does not fit becomes 2³¹ − 1; it never wraps around."""
    products = jnp.asarray(products, jnp.int32)
    fits = products <= _MOST // max(1, samples)
    return jnp.where(fits, products * jnp.int32(min(samples, _MOST)), jnp.int32(_MOST))


def add_counts(a: Number, b: Number) -> jax.Array:
    """a + b as int32, at most 2³¹ − 1."""
    a, b = jnp.asarray(a, jnp.int32), jnp.asarray(b, jnp.int32)
    return jnp.where(a > _MOST - b, jnp.int32(_MOST), a + b)


class Calls(NamedTuple):
    """Samples shown to each oracle in one computation: the fair x-axis of a comparison. int32, at most 2³¹ − 1."""

    grad_f: Any = 0
    grad_g: Any = 0
    hvp: Any = 0
    cross: Any = 0

    def plus(self, other: "Calls") -> "Calls":
        """The sum of both, as arrays."""
        return Calls(*(add_counts(a, b) for a, b in zip(self, other, strict=True)))


class Evaluation(NamedTuple):
    """Where a hypergradient was evaluated: `y` is the given one, with the coordinates moved by `distance` whose row of
    the Hessian vanishes (0 for the others); `v` solves H v = ∇_y f there, or is None for `Unrolled`. `matrix` is H
    there if the method has built it, for those who assess the estimate; `unibio.hypergradient` leaves it out."""

    y: PyTree
    distance: PyTree
    v: PyTree
    matrix: jax.Array | None = None


class HyperInfo(NamedTuple):
    """How a hypergradient estimate was found, what it cost, and how good it is.

    `residual` is the relative residual of the linear system as the method sees it (for `Unrolled`, how much of the
    start is left after its steps), `floored` the number of coordinates of y that were moved because their row of the
    Hessian vanishes, and `at` says where to and what v is.

    The last three say how good the estimate is. `unibio.hypergradient` computes them on all data; they are NaN where a
    solver asked, which does not pay for them, or where random batches or noise were drawn, which they do not cover.

    - `lower_residual`: how far y is from minimising g, between 0 (at the minimiser) and 1. With r = ∇_y g and
      h = diag(∇²_yy g) it is a/(a + b), a² = Σ r_i²/h_i, b² = Σ h_i y_i²: about the length of a Newton step relative to
      y, and the same number when g or any coordinate of y is measured in other units.
    - `condition`: the condition number of the Hessian scaled to a unit diagonal, as far as a few dozen steps of CG see
      it: a lower bound, usually within a factor of four.
    - `error`: an estimate of ‖value − ∇Φ(x)‖, not a bound. It covers y off y*(x), the linear system, rounding, and
      the distance to a singular point.
    """

    residual: jax.Array
    iterations: jax.Array
    calls: Calls
    status: Status
    floored: jax.Array
    at: Evaluation
    lower_residual: jax.Array
    condition: jax.Array
    error: jax.Array

    def __repr__(self) -> str:
        numbers = {name: show.number(getattr(self, name)) for name in ("error", "lower_residual", "condition")}
        told = ", ".join(f"{name} {value}" for name, value in numbers.items())
        return f"HyperInfo({self.status!r}: {told}, residual {show.number(self.residual)})"


class LowerInfo(NamedTuple):
    """How the lower level was solved.

    `residual` is ‖∇_y g‖ at the returned y, `iterations` the number of steps, `calls` the samples shown to each oracle,
    `status` how it ended, and `error` how far y may be from y*(x), an estimate of ‖y − y*(x)‖.
    """

    residual: jax.Array
    iterations: jax.Array
    calls: Calls
    status: Status
    error: jax.Array


class Info(NamedTuple):
    """What one step of a solver reports.

    `direction_norm` is the norm of the direction along which x moved, before any normalisation, so that it estimates
    ‖∇Φ‖ once the solver is under way. `calls` are the samples that the step showed to each oracle, and `status` is that
    of its hypergradient.
    """

    direction_norm: jax.Array
    calls: Calls
    status: Status = Status.ok


class State(Protocol):
    """The state of a solver: x, y and whatever else its next step needs, as a pytree."""

    @property
    def x(self) -> PyTree: ...
    @property
    def y(self) -> PyTree: ...


@kinds.part
class BilevelSolver(Protocol):
    """An algorithm. Its state has at least x and y; its numbers are leaves, its sizes static."""

    def init(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> tuple[Any, Info]:
        """Checks what it needs of the problem (ValueError); the Info holds the calls of a warm start."""
        ...

    def step(self, problem: Problem, state: Any, key: jax.Array) -> tuple[Any, Info]:
        """One step, a pure function."""
        ...


@kinds.part
class LowerSolver(Protocol):
    """Minimises a function known only by a stochastic gradient; it knows no bilevel problem.

    `gradient(y, realisation)` is the gradient on one sample, `draw(count)` gives that many stacked; p is the
    order of uniform convexity, or None. Returns y and how many gradients it took.
    """

    def __call__(self, gradient: Gradient, draw: Draw, y: PyTree, p: Number | None) -> tuple[PyTree, jax.Array]: ...


@runtime_checkable
class GuidedLowerSolver(LowerSolver, Protocol):
    """A lower solver that does its work better if it is told how far its last call moved y, in the Euclidean norm."""

    def guided(self, moved: jax.Array) -> LowerSolver:
        """The lower solver for the next call."""
        ...


@kinds.part
class Hypergradient(Protocol):
    """An estimator of ∇Φ(x) from a point (x, y) near (x, y*(x))."""

    def __call__(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array | None) -> tuple[PyTree, HyperInfo]: ...


class Projection(Protocol):
    """Brings x back into a set."""

    def __call__(self, x: PyTree, /) -> PyTree: ...


class Schedule(Protocol):
    """A factor for the step size of step t."""

    def __call__(self, t: jax.Array, /) -> Any: ...


class Watch(Protocol):
    """What `trajectory` notes of each state: a tree of arrays."""

    def __call__(self, state: Any, /) -> PyTree: ...
