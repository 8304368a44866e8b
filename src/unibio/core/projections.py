"""Sets x may be confined to, where any function x ↦ x will do and two are ready made; and the ball of lower solvers."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from unibio.core import checks, tree
from unibio.core.tree import PyTree


class Box(eqx.Module):
    """low ≤ x_i ≤ high, the same two numbers for every entry.

    Example:
        >>> Box(0.0, 1.0)(jnp.array([-1.0, 0.5, 3.0])).tolist()
        [0.0, 0.5, 1.0]
    """

    low: Any = eqx.field(converter=checks.as_real)
    high: Any = eqx.field(converter=checks.as_real)

    def __check_init__(self) -> None:
        checks.number("Box(low=…)", self.low)
        checks.number("Box(high=…)", self.high)
        if not checks.is_traced(self.low) and not checks.is_traced(self.high) and not self.low <= self.high:
            raise ValueError(f"Box(low={self.low}, high={self.high}) is empty: low must be ≤ high.")

    def __call__(self, x: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.clip(leaf, self.low, self.high), x)


class Simplex(eqx.Module):
    """x_i ≥ 0 with sum `total`, over the whole tree.

    Example:
        >>> Simplex()(jnp.array([2.0, 0.0, 0.0])).tolist()
        [1.0, 0.0, 0.0]
    """

    total: Any = eqx.field(default=1.0, converter=checks.as_real)

    def __check_init__(self) -> None:
        checks.number("Simplex(total=…)", self.total, low=0.0, strict=True)

    def __call__(self, x: PyTree) -> PyTree:
        with jax.numpy_dtype_promotion("standard"):  # optax divides by an integer count
            return optax.projections.projection_simplex(x, self.total)


def into_ball(w: PyTree, centre: PyTree, radius: jax.Array) -> PyTree:
    """The point of the ball around `centre` that is nearest to w, in the Euclidean norm of the whole tree."""
    direction, distance = tree.direction(tree.sub(w, centre))
    return tree.where(distance > radius, tree.axpy(radius, direction, centre), w)
