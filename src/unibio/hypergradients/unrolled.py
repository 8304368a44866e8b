"""Differentiating through K steps of the lower level: slow, but independent of every linear solver."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, coordinates, oracle, tree
from unibio.core.noise import Noise
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, HyperInfo, Status, count
from unibio.core.tree import PyTree


class Unrolled(eqx.Module):
    """d/dx f(x, y_K(x)) for K gradient steps from the constant y_0 = y.

        y_{k+1} = y_k − γ∇_y g(x, y_k),   or in the coordinate z (`in_z=True`)
        z_{k+1} = z_k − γ∇_y g(x, y(z_k))

    In y the derivative converges like (1 − γλ(H))^K and never where H is singular; in z like
    (1 − γλ(D H))^K, also there. Use z for problems that are nearly ‖y‖_p^p, y for regression.

    Arguments:
        steps: K ≥ 1.
        step_size: γ > 0.
        in_z: which coordinate takes the steps.
        forward: forward mode, one pass per entry of x, instead of reverse mode.
    """

    steps: int = eqx.field(static=True)
    step_size: float = eqx.field(converter=checks.as_real)
    in_z: bool = eqx.field(static=True, default=False)
    forward: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        checks.whole_number("steps", self.steps, low=1)
        checks.number("step_size", self.step_size, low=0.0, strict=True)

    def __call__(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array | None) -> tuple[PyTree, HyperInfo]:
        if key is not None and isinstance(problem.f_batches, Noise) | isinstance(problem.g_batches, Noise):
            raise ValueError(
                "Unrolled differentiates f and g themselves, which Noise leaves exact. Drop the key, or use Neumann."
            )
        key_f, key_g = (None, None) if key is None else jax.random.split(key)
        f_batch = problem.f_batch(key_f, x, y)
        draws = None if key_g is None else problem.g_batches.draw(key_g, self.steps, x, y)
        y0 = jax.lax.stop_gradient(y)

        def phi(x: PyTree) -> tuple[jax.Array, PyTree]:
            y_last = self._descend(problem, x, y0, draws)
            return oracle.value_f(problem, x, y_last, f_batch), y_last

        if self.forward:
            flat, unravel = tree.ravel(x)
            gradient, y_last = jax.jacfwd(lambda flat: phi(unravel(flat)), has_aux=True)(flat)
            value = unravel(gradient)
        else:
            value, y_last = jax.grad(phi, has_aux=True)(x)
        g_batch = problem.g_batch(key_g, x, y)
        residual = tree.norm(oracle.grad_g(problem, x, y_last, g_batch))
        calls = Calls(grad_f=oracle.samples(f_batch)).plus(Calls(grad_g=count(self.steps + 1, oracle.samples(g_batch))))
        status = Status.where(tree.all_finite(value), Status.ok, Status.not_finite)
        return value, HyperInfo(residual, jnp.int32(self.steps), calls, status, jnp.int32(0))

    def _descend(self, problem: Problem, x: PyTree, y: PyTree, draws: Any) -> PyTree:
        """y_K."""

        def gradient(y: PyTree, draw: Any) -> PyTree:
            batch = problem.g_batches.whole() if draws is None else problem.g_batches.batch(draw)
            return oracle.grad_g(problem, x, y, batch)

        def step_y(y: PyTree, draw: Any) -> Any:
            return tree.axpy(-self.step_size, gradient(y, draw), y), None

        def step_z(z: PyTree, draw: Any) -> Any:
            y = coordinates.from_z(z, problem.p, problem.shift)
            return tree.axpy(-self.step_size, gradient(y, draw), z), None

        if not self.in_z:
            return jax.lax.scan(step_y, y, draws, length=self.steps)[0]
        z = coordinates.to_z(y, problem.p, problem.shift)
        z, _ = jax.lax.scan(step_z, z, draws, length=self.steps)
        return coordinates.from_z(z, problem.p, problem.shift)
