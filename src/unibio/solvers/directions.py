"""Directions of descent for `minimise`, with and without a set that x is confined to, as compiled programs."""

from typing import Any

import jax
import jax.numpy as jnp

from unibio.core import curvature
from unibio.core.curvature import Pairs
from unibio.core.flat import Layout
from unibio.core.tree import PyTree

Layouts = tuple[Layout, Layout]
PAIRS = 40  # steps that are remembered


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
    return curvature.add(pairs, s, t), numbers
