"""Any optax optimiser for the lower level."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from unibio.core import checks, tree
from unibio.core.protocols import Draw, Gradient
from unibio.core.tree import Number, PyTree


class Optax(eqx.Module):
    """`steps` updates of an optax optimiser, started afresh at every call.

    Arguments:
        optimiser: e.g. `optax.adam(1.0)`; compared by identity, so make it once.
        steps: number of gradients.
        step_size: a factor on the updates; unlike a number inside the optimiser it can change without recompiling.
    """

    optimiser: optax.GradientTransformation = eqx.field(static=True)
    steps: int = eqx.field(static=True, default=10)
    step_size: float = eqx.field(default=1.0, converter=checks.as_real)

    def __check_init__(self) -> None:
        checks.whole_number("steps", self.steps, low=1)
        checks.number("Optax(step_size=…)", self.step_size, low=0.0, strict=True)
        checks.optimiser("optimiser", self.optimiser)

    def __call__(self, gradient: Gradient, draw: Draw, y: PyTree, p: Number | None) -> tuple[PyTree, jax.Array]:
        def step(carry: PyTree, realisation: PyTree) -> Any:
            w, state = carry
            update, state = checks.optimiser_step(self.optimiser, gradient(w, realisation), state, w)
            return (tree.axpy(self.step_size, update, w), state), None

        (w, _), _ = jax.lax.scan(step, (y, self.optimiser.init(y)), draw(self.steps), length=self.steps)
        return w, jnp.int32(self.steps)
