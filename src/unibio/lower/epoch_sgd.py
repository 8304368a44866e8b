"""Epoch-SGD with shrinking balls, Algorithm 1 of the paper."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, tree
from unibio.core.coordinates import order
from unibio.core.tree import PyTree


class Schedule(NamedTuple):
    """For each step: γ_k, D_k, T_k, whether it ends its epoch, whether it is taken at all; and how many are."""

    step_size: jax.Array
    radius: jax.Array
    length: jax.Array
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
        first_epoch: T_1, a real number in [1, T].
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
        for name in ("step_size", "radius", "largest_radius"):
            if getattr(self, name) is not None:
                checks.number(f"EpochSGD({name}=…)", getattr(self, name), low=0.0, strict=True)
        checks.number("first_epoch", self.first_epoch, low=1.0, remedy="It is T_1, the length of the first epoch.")
        if self.tau is not None:
            checks.number("tau", self.tau, low=1.0, remedy="The paper's 2(p−1)/p lies in [1, 2).")
        if not checks.is_traced(self.first_epoch) and float(self.first_epoch) > self.steps:
            raise ValueError(
                f"steps={self.steps} is less than first_epoch={float(self.first_epoch):g}, so that no epoch fits: "
                f"raise steps or lower first_epoch."
            )

    def schedule(self, p: Any) -> Schedule:
        """Every step's numbers, as arrays of length T; p may be traced."""
        dtype = jnp.result_type(self.step_size, float) if p is None else jnp.result_type(p, float)
        tau = self.tau if self.tau is not None else 2 * (order(p) - 1) / p
        # τ ≥ 1 and T_1 ≥ 1: k epochs take at least 2^k − 1 steps.
        k = jnp.arange((self.steps + 1).bit_length() - 1, dtype=dtype)
        real = self.first_epoch * jnp.exp2(jnp.asarray(tau, dtype) * k)
        slack = jnp.maximum(1e-9, 8 * jnp.finfo(dtype).eps * real)  # an exact integer must not be rounded down
        sums = jnp.cumsum(real)
        runs = sums <= self.steps + slack
        epochs = jnp.sum(runs, dtype=jnp.int32)
        if self.spend:
            real = real * (self.steps / sums[epochs - 1])
        lengths = jnp.where(runs, jnp.floor(real + slack), 0).astype(jnp.int32)
        ends = jnp.cumsum(lengths)
        if self.spend:
            is_last = jnp.arange(k.size, dtype=jnp.int32) == epochs - 1
            lengths = lengths + jnp.where(is_last, self.steps - ends[epochs - 1], 0)
            ends = jnp.where(is_last, self.steps, ends)
        step_sizes = self.step_size / jnp.exp2(k)
        radii = jnp.full_like(k, self.radius) if not self.shrink else self.radius / jnp.exp2(k / order(p))
        if self.largest_radius is not None:
            radii = jnp.minimum(radii, self.largest_radius)

        step = jnp.arange(self.steps, dtype=jnp.int32)
        member = jnp.sum(step[:, None] >= ends[None, :], axis=1, dtype=jnp.int32)
        member = jnp.minimum(member, epochs - 1)
        total = ends[epochs - 1]
        return Schedule(
            step_sizes[member],
            radii[member],
            lengths[member].astype(dtype),
            step + 1 == ends[member],
            step < total,
            total,
        )

    def __call__(
        self, gradient: Callable[[PyTree, Any], PyTree], draw: Callable[[int], Any], y: PyTree, p: Any
    ) -> tuple[PyTree, jax.Array]:
        schedule = tree.cast(self.schedule(p), tree.dtype(y))

        def advance(carry: Any, numbers: Schedule, realisation: Any) -> Any:
            w, centre, total = carry
            total = tree.add(total, w)
            w = tree.axpy(-numbers.step_size, gradient(w, realisation), w)
            w = _into_ball(w, centre, numbers.radius)
            mean = tree.scale(1 / numbers.length, total)
            return (
                tree.where(numbers.last, mean, w),
                tree.where(numbers.last, mean, centre),
                tree.where(numbers.last, tree.zeros_like(total), total),
            )

        def step(carry: Any, inputs: Any) -> Any:
            numbers, realisation = inputs
            return jax.lax.cond(numbers.taken, advance, lambda carry, *_: carry, carry, numbers, realisation), None

        each = schedule._replace(total=None)
        carry, _ = jax.lax.scan(step, (y, y, tree.zeros_like(y)), (each, draw(self.steps)), length=self.steps)
        return carry[0], schedule.total


def _into_ball(w: PyTree, centre: PyTree, radius: jax.Array) -> PyTree:
    """The point of the ball nearest to w, in the Euclidean norm of the whole tree."""
    offset = tree.sub(w, centre)
    distance = tree.norm(offset)
    outside = distance > radius
    shrunk = tree.axpy(radius / jnp.where(outside, distance, 1.0), offset, centre)
    return tree.where(outside, shrunk, w)
