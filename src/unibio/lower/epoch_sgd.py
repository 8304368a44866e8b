"""Epoch-SGD with shrinking balls, Algorithm 1 of the paper."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, tree
from unibio.core.coordinates import order
from unibio.core.projections import into_ball
from unibio.core.protocols import Draw, Gradient
from unibio.core.tree import Number, PyTree

ONE_STEP = (
    "An epoch ends at the mean of its points before each update, so that one of a single step ends where it began."
)


class Schedule(NamedTuple):
    """The numbers of every step, as arrays of length T, where k is the epoch of the step.

    `step_size` is γ_k, `radius` D_k and `weight` 1/T_k; `last` says whether the step ends its epoch, and `taken`
    whether it is made at all. `total` is the number of steps that are made.
    """

    step_size: jax.Array
    radius: jax.Array
    weight: jax.Array
    last: jax.Array
    taken: jax.Array
    total: jax.Array


class EpochSGD(eqx.Module):
    """SGD in epochs, each longer, with a smaller step, in a smaller ball around its start.

        w ← Π_{B(w_1, D_k)}(w − γ_k∇ψ(w; π))   T_k times, then w_1 ← mean of the T_k points before each update
        T_k = ⌊T_1·2^{τ(k−1)}⌋,  γ_k = γ_1/2^{k−1},  D_k = D_1/2^{(k−1)/p},  τ = 2(p−1)/p

    Epoch k runs while the real lengths add up to at most T. A ball of fixed size and τ = 2 need no p.

    Arguments:
        steps: T, the most gradients to take.
        step_size: γ_1.
        first_epoch: T_1, a real number in [2, T].
        radius: D_1.
        largest_radius: R. The corrected radii are D_k = min{R, D_1/2^{(k−1)/p}} with R ≥ ‖w_1 − w*‖ and
            D_1 = (pG/μ)^{1/(p−1)}·ι^{1/p}; with the paper's minimum inside D_1, w* can leave the ball.
        tau: instead of 2(p−1)/p.
        shrink: whether balls shrink.
        spend: lengthen the epochs that run until they use all of T (up to 70 % of it is left over otherwise).

    Reference: Algorithm 1 of Bilevel Optimization with Lower-Level Uniform Convexity (ICLR 2026), after
    Hazan and Kale, Beyond the Regret Minimization Barrier (JMLR 2014). Different here: T_k comes from the real T_1,
    not from rounding again and again.
    """

    steps: int = eqx.field(static=True, default=100)
    step_size: float = eqx.field(default=1.0, converter=checks.as_real)
    first_epoch: float = eqx.field(default=5.0, converter=checks.as_real)
    radius: float = eqx.field(default=1.0, converter=checks.as_real)
    largest_radius: float | None = eqx.field(default=None, converter=checks.as_real)
    tau: float | None = eqx.field(default=None, converter=checks.as_real)
    shrink: bool = eqx.field(static=True, default=True)
    spend: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        checks.whole_number("steps", self.steps, low=1)
        checks.step_sizes(self, "step_size", "radius", "largest_radius")
        remedy = f"It is T_1, the length of the first epoch. {ONE_STEP}"
        checks.number("first_epoch", self.first_epoch, low=2.0, remedy=remedy)
        if self.tau is not None:
            checks.number("tau", self.tau, low=1.0, remedy="The paper's 2(p−1)/p lies in [1, 2).")
        if not checks.is_traced(self.first_epoch) and float(self.first_epoch) > self.steps:
            raise ValueError(
                f"steps={self.steps} is less than first_epoch={float(self.first_epoch):g}, so that no epoch fits: "
                f"raise steps or lower first_epoch."
            )

    def schedule(self, p: Number | None) -> Schedule:
        """Every step's numbers, as arrays of length T; p may be traced."""
        dtype = jnp.result_type(self.step_size, float) if p is None else jnp.result_type(p, float)
        tau = self.tau if self.tau is not None else 2 * (order(p) - 1) / order(p)
        first, tau, most = (jnp.asarray(value, dtype) for value in (self.first_epoch, tau, self.steps))
        eps = jnp.finfo(dtype).eps
        # τ ≥ 1 and T_1 ≥ 2: k epochs take more than 2^k − 1 steps. An exact integer must not be rounded down.
        k = jnp.arange((self.steps + 1).bit_length() - 1, dtype=dtype)
        real = first * jnp.exp2(tau * k)
        slack = jnp.maximum(1e-9, 8 * eps * jnp.minimum(real, most))
        runs = jnp.cumsum(real) <= most + slack
        length = real * (most / jnp.sum(jnp.where(runs, real, 0.0))) if self.spend else real
        end = jnp.cumsum(jnp.where(runs, jnp.floor(length + slack), 0.0).astype(jnp.int32), dtype=jnp.int32)
        if self.spend:
            is_last = runs & ~jnp.append(runs[1:], False)
            end = jnp.where(is_last, self.steps, end)
        end = jnp.minimum(end, self.steps)
        start = jnp.append(jnp.int32(0), end[:-1])
        radius: Any = self.radius / jnp.exp2(k / order(p)) if self.shrink else self.radius
        if self.largest_radius is not None:
            radius = jnp.minimum(radius, self.largest_radius)

        # A mask (epochs, steps) with one true entry per step taken: under vmap, indexing by epoch would be slow.
        step = jnp.arange(self.steps, dtype=jnp.int32)[None, :]
        here = (start[:, None] <= step) & (step < end[:, None])

        def each(numbers: PyTree) -> jax.Array:
            column = jnp.broadcast_to(jnp.asarray(numbers, dtype), k.shape)[:, None]
            return jnp.sum(jnp.where(here, column, 0.0), axis=0)

        return Schedule(
            each(self.step_size / jnp.exp2(k)),
            each(radius),
            each(1 / jnp.maximum(end - start, 1).astype(dtype)),
            jnp.any(here & (step + 1 == end[:, None]), axis=0),
            jnp.any(here, axis=0),
            jnp.max(end),
        )

    def __call__(self, gradient: Gradient, draw: Draw, y: PyTree, p: Number | None) -> tuple[PyTree, jax.Array]:
        schedule = tree.cast(self.schedule(p), tree.dtype(y))

        def step(carry: PyTree, inputs: PyTree) -> Any:
            w, centre, mean = carry
            numbers, realisation = inputs
            # Beyond the last epoch γ = 0 and nothing moves; the cond only saves the gradients.
            slope = jax.lax.cond(numbers.taken, gradient, lambda w, _: tree.zeros_like(w), w, realisation)
            mean = tree.axpy(numbers.weight, w, mean)
            w = into_ball(tree.axpy(-numbers.step_size, slope, w), centre, numbers.radius)
            return (
                tree.where(numbers.last, mean, w),
                tree.where(numbers.last, mean, centre),
                tree.where(numbers.last, tree.zeros_like(mean), mean),
            ), None

        each = schedule._replace(total=None)
        carry, _ = jax.lax.scan(step, (y, y, tree.zeros_like(y)), (each, draw(self.steps)), length=self.steps)
        return carry[0], schedule.total
