"""Plain stochastic gradient descent for the lower level."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, tree
from unibio.core.protocols import Draw, Gradient
from unibio.core.tree import Number, PyTree


class SGD(eqx.Module):
    """w ← w − γ∇ψ(w; π), `steps` times.

    Arguments:
        steps: number of gradients.
        step_size: γ.
    """

    steps: int = eqx.field(static=True, default=10)
    step_size: Any = eqx.field(default=0.1, converter=checks.as_real)

    def __check_init__(self) -> None:
        checks.whole_number("steps", self.steps, low=1)
        checks.number("SGD(step_size=…)", self.step_size, low=0.0, strict=True)

    def __call__(self, gradient: Gradient, draw: Draw, y: PyTree, p: Number | None) -> tuple[PyTree, jax.Array]:
        def step(w: PyTree, realisation: PyTree) -> Any:
            return tree.axpy(-self.step_size, gradient(w, realisation), w), None

        w, _ = jax.lax.scan(step, y, draw(self.steps), length=self.steps)
        return w, jnp.int32(self.steps)
