"""What the parts of the package promise each other."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core.problem import Problem
from unibio.core.tree import PyTree


class Status(eqx.Enumeration):
    """How a computation ended; each status is its own message. Compare with `==`, under jit too."""

    ok: Any = "ok"
    max_steps: Any = "stopped at max_steps before the tolerance: raise max_steps, loosen rtol, or start closer"
    indefinite: Any = (
        "negative curvature: g is not convex in y at this point; the value is what was reached before it. "
        "Solve the lower level further, or use Neumann"
    )
    diverging: Any = (
        "the Neumann series diverges: its scale C is below half the largest eigenvalue; raise it or leave it out"
    )
    no_limit: Any = (
        "the Hessian is singular here and the hypergradient has no limit: f or ∇_y g is not differentiable "
        "in z = spow(y − shift, p−1). See unibio.differentiable_in_z; check p and shift"
    )
    stagnated: Any = "no further progress possible in this precision, short of the tolerance: use float64 or rescale g"
    zero: Any = (
        "x does not move: it is stationary, or f does not depend on x, through y neither (∇_y g not on x, or y where "
        "∇_y f = 0)"
    )
    not_finite: Any = "NaN or infinity appeared: x, y or the data are outside the range of this dtype"


def describe(status: Status) -> str:
    """The message of a status, in words."""
    return str(Status[status])  # type: ignore[misc]


_MOST = 2**31 - 1


def count(products: Any, samples: int) -> jax.Array:
    """products × samples as int32; what does not fit is 2³¹ − 1, it never wraps around."""
    products = jnp.asarray(products, jnp.int32)
    fits = products <= _MOST // max(1, samples)
    return jnp.where(fits, products * jnp.int32(min(samples, _MOST)), jnp.int32(_MOST))


def add_counts(a: Any, b: Any) -> jax.Array:
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


class HyperInfo(NamedTuple):
    """What a hypergradient estimate cost and how good it is.

    `residual` is relative and belongs to the linear system as the method sees it; `floored` is the number
    of coordinates moved to y_i = a0_i ± δ because the Hessian is singular there.
    """

    residual: jax.Array
    iterations: jax.Array
    calls: Calls
    status: Status
    floored: jax.Array


class LowerInfo(NamedTuple):
    """How the lower level was solved: ‖∇_y g‖, iterations, calls, status."""

    residual: jax.Array
    iterations: jax.Array
    calls: Calls
    status: Status


class Info(NamedTuple):
    """What one step of a solver reports: the norm of the direction x moved along (before any normalisation,
    so that it estimates ‖∇Φ‖ once the solver is under way), the calls it made, and how the hypergradient fared."""

    direction_norm: jax.Array
    calls: Calls
    status: Status = Status.ok


class BilevelSolver(Protocol):
    """An algorithm. Its state has at least x and y; its numbers are leaves, its sizes static."""

    def init(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> tuple[Any, Info]:
        """Checks what it needs of the problem (ValueError); the Info holds the calls of a warm start."""
        ...

    def step(self, problem: Problem, state: Any, key: jax.Array) -> tuple[Any, Info]:
        """One step; pure."""
        ...


class LowerSolver(Protocol):
    """Minimises a function known only by a stochastic gradient; it knows no bilevel problem.

    `gradient(y, realisation)` is the gradient on one sample, `draw(count)` gives that many stacked; p is the
    order of uniform convexity, or None. Returns y and how many gradients it took.
    """

    def __call__(
        self, gradient: Callable[[PyTree, Any], PyTree], draw: Callable[[int], Any], y: PyTree, p: Any
    ) -> tuple[PyTree, jax.Array]: ...


class Hypergradient(Protocol):
    """An estimator of ∇Φ(x) from a point (x, y) near (x, y*(x))."""

    def __call__(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array | None) -> tuple[PyTree, HyperInfo]: ...
