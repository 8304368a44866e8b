"""UniBiO, Algorithm 2 of the paper."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from unibio.core import checks, kinds, tree
from unibio.core.problem import Problem, as_pytree
from unibio.core.protocols import Calls, GuidedLowerSolver, Hypergradient, Info, LowerSolver, Projection, Schedule
from unibio.core.tree import PyTree
from unibio.hypergradients.implicit import CG
from unibio.hypergradients.neumann import Neumann
from unibio.hypergradients.preconditioners import Jacobi
from unibio.lower.epoch_sgd import EpochSGD
from unibio.lower.staged_sgd import StagedSGD
from unibio.solvers.lower_level import refresh


class State(NamedTuple):
    """x_t, y_t, m_{t−1}, the state of the optax transformation if there is one, t; and if the lower solver is guided by
    it, how far the last refresh moved y."""

    x: PyTree
    y: PyTree
    momentum: PyTree
    optimiser: Any
    t: jax.Array
    moved: jax.Array | None = None


class UniBiO(eqx.Module):
    """Normalised momentum above, a lower level that is refreshed now and then below.

        y_0 = lower(g(x_0, ·))                            once, the warm start
        y ← lower(g(x_t, ·)) from the current y           if t + 1 is a multiple of I
        m_t = β m_{t−1} + (1−β) ĥ(x_t, y),  m_{−1} = 0
        x_{t+1} = P(x_t − η·s(t)·m_t/‖m_t‖)               no move where m_t = 0

    | symbol | field |
    |---|---|
    | η, s, β, I | `step_size`, `schedule` (t ↦ factor, e.g. an optax schedule), `momentum`, `period` |
    | lower | `lower` (for the warm start `warm_start`, if given): `EpochSGD`, `StagedSGD`, `SGD`, `Optax` |
    | ĥ | `hypergradient`: `Neumann()` as in the paper, `CG()` in practice |
    | P | `project`: a function of x such as `Box(0, 1)` |
    | m/‖m‖ | replaced by `optimiser`, an optax transformation fed with m_t: x_{t+1} = P(x_t + η·s(t)·update) |

    Steps have the length η·s(t), however small the gradient is, so with a constant step x ends by jumping to and fro
    across a minimiser. A schedule that falls to 0 ends that: for 500 steps, for example,
    `schedule=optax.linear_schedule(1.0, 0.0, 250, 250)`, which is 1 for 250 steps and falls to 0 in the next 250.

    Reference: Algorithm 2 of Bilevel Optimization with Lower-Level Uniform Convexity (ICLR 2026), whose steps count
    from 1 where ours count from 0. Different here: the series is summed in Horner's order and as D H (see
    docs/paper_vs_us.md).
    """

    step_size: float = eqx.field(converter=checks.as_real)
    momentum: float = eqx.field(default=0.9, converter=checks.as_real)
    period: int = eqx.field(static=True, default=2)
    lower: LowerSolver = EpochSGD()
    warm_start: LowerSolver | None = None
    hypergradient: Hypergradient = Neumann()
    schedule: Schedule | None = eqx.field(static=True, default=None)
    optimiser: optax.GradientTransformation | None = eqx.field(static=True, default=None)
    project: Projection | None = eqx.field(default=None, converter=as_pytree)

    def __check_init__(self) -> None:
        checks.step_sizes(self, "step_size")
        checks.fraction("momentum", self.momentum)
        checks.whole_number("period", self.period, low=1)
        kinds.is_a("lower", self.lower, LowerSolver, "EpochSGD(), StagedSGD(), SGD() or Optax(…)")
        if self.warm_start is not None:
            kinds.is_a("warm_start", self.warm_start, LowerSolver, "EpochSGD(), StagedSGD(), SGD() or Optax(…)")
        kinds.is_a("hypergradient", self.hypergradient, Hypergradient, "Neumann(), CG(), Exact() or Unrolled(…)")
        if self.optimiser is not None:
            checks.optimiser("optimiser", self.optimiser)
        if self.schedule is not None:
            kinds.is_a("schedule", self.schedule, Schedule, "a function t ↦ factor, such as an optax schedule")
        if self.project is not None:
            kinds.is_a("project", self.project, Projection, "a function of x, such as Box(0, 1)")

    @classmethod
    def without_p(
        cls, step_size: float, steps: int = 100, radius: float = 1000.0, guess: float = 0.001, **others: Any
    ) -> "UniBiO":
        """Settings for unknown p: `StagedSGD(steps, radius, guess)`, which needs neither p nor a lower step size, and
        for the hypergradient CG with the Hessian's diagonal.

        `radius` must be at least the distance from y to the minimiser at every refresh, and `guess` is the first radius
        that is tried. Both may be far off: the search for the radius doubles it, and each doubling costs one stage.
        docs/without_p.md has what is proved, and what not knowing p costs.
        """
        lower = StagedSGD(steps, radius, guess)
        return cls(step_size, lower=lower, hypergradient=CG(preconditioner=Jacobi()), **others)

    def init(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> tuple[State, Info]:
        y_new, calls = refresh(self.lower if self.warm_start is None else self.warm_start, problem, x, y, key)
        moved = tree.norm(tree.sub(y_new, y)) if isinstance(self.lower, GuidedLowerSolver) else None
        optimiser = None if self.optimiser is None else self.optimiser.init(x)
        state = State(x, y_new, tree.zeros_like(x), optimiser, jnp.int32(0), moved)
        return state, Info(jnp.zeros((), tree.dtype(x)), calls)

    def _refresh(
        self, problem: Problem, x: PyTree, y: PyTree, moved: jax.Array | None, key: jax.Array
    ) -> tuple[PyTree, jax.Array | None, Calls]:
        """y, how far it has moved if that matters, and the calls."""
        lower = self.lower
        if moved is not None and isinstance(lower, GuidedLowerSolver):
            lower = lower.guided(moved)
        y_new, calls = refresh(lower, problem.counting(lambda t: t // self.period), x, y, key)
        return y_new, None if moved is None else tree.norm(tree.sub(y_new, y)), calls

    def step(self, problem: Problem, state: State, key: jax.Array) -> tuple[State, Info]:
        key_lower, key_hyper = jax.random.split(key)
        x, t = state.x, state.t
        # A loop of at most one round: under vmap a cond would solve the lower level at every step.
        y, moved, lower_calls = tree.compute_if_any(
            (t + 1) % self.period == 0,
            lambda x, y, moved: self._refresh(problem, x, y, moved, key_lower),
            (state.y, state.moved, jax.tree.map(jnp.int32, Calls())),
            x,
            state.y,
            state.moved,
        )
        estimate, info = self.hypergradient(problem, x, y, key_hyper)
        m = tree.axpy(self.momentum, state.momentum, tree.scale(1 - self.momentum, estimate))
        unit, norm = tree.direction(m)
        if self.optimiser is None:
            direction, optimiser = tree.scale(-1.0, unit), None
        else:
            direction, optimiser = checks.optimiser_step(self.optimiser, m, state.optimiser, x)
        factor = 1.0 if self.schedule is None else checks.returned("schedule(t)", self.schedule(t), norm)
        x = tree.axpy(self.step_size * factor, direction, x)
        if self.project is not None:
            x = checks.returned("project(x)", self.project(x), x)
        return State(x, y, m, optimiser, t + 1, moved), Info(norm, lower_calls.plus(info.calls), info.status)
