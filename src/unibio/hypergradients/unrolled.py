"""Differentiating through K steps of the lower level: slow, but independent of every linear solver."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, coordinates, linear, oracle, tree
from unibio.core.noise import Noise
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, Evaluation, HyperInfo, count
from unibio.core.status import Status
from unibio.core.streams import Site
from unibio.core.tree import PyTree
from unibio.hypergradients.implicit import not_assessed


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
        f_batch = problem.f_batch(key_f, x, y, Site.upper)
        draws = None if key_g is None else problem.g_draws(key_g, self.steps, x, y, Site.hessian)
        y0 = jax.lax.stop_gradient(y)

        def phi(x: PyTree, y0: PyTree, change: PyTree) -> tuple[jax.Array, PyTree]:
            y_last = tree.add(self._descend(problem, x, y0, draws), change)
            return oracle.value_f(problem, x, y_last, f_batch), y_last

        # The derivative by the start y_0 fades as the derivative by x converges: what is left of it, of the derivative
        # by y_K, is the residual. Forwards, it is what is left of one fixed direction.
        unchanged, passes = tree.zeros_like(y0), 1
        if self.forward:
            flat, unravel = tree.ravel(x)
            gradient, y_last = jax.jacfwd(lambda flat: phi(unravel(flat), y0, unchanged), has_aux=True)(flat)
            value = unravel(gradient)
            whole = jax.tree.map(lambda leaf: leaf[0], linear.probes(y0, 1))
            _, left = jax.jvp(lambda y0: self._descend(problem, x, y0, draws), (y0,), (whole,))
            passes = 2
        else:
            (value, left, whole), y_last = jax.grad(phi, argnums=(0, 1, 2), has_aux=True)(x, y0, unchanged)
        residual = jnp.where(tree.norm(left) == 0, 0.0, tree.norm(left) / tree.norm(whole))
        gradients = count(passes * self.steps, self._samples(problem, draws))
        calls = Calls(grad_f=oracle.samples(f_batch)).plus(Calls(grad_g=gradients))
        status = Status.where(tree.all_finite(value), Status.ok, Status.not_finite)
        distance = self._floored(problem, y_last)
        floored = tree.count_true(jax.tree.map(lambda d: d > 0, distance))
        at = Evaluation(y_last, distance, None)
        return value, HyperInfo(residual, jnp.int32(self.steps), calls, status, floored, at, *not_assessed(value))

    def _floored(self, problem: Problem, y: PyTree) -> PyTree:
        """How far from the shift the coordinates are kept that z = 0 would put there; 0 for all others."""
        if not self.in_z:
            return tree.zeros_like(y)
        floors = coordinates.floors(y, problem.p, problem.shift)
        offset = coordinates.offset(y, problem.shift)
        return jax.tree.map(
            lambda t, d: jnp.where((jnp.abs(t) <= 1.01 * d) & (problem.p > 2), jnp.abs(t), jnp.zeros_like(t)),
            offset,
            floors,
        )

    def _samples(self, problem: Problem, draws: PyTree) -> int:
        first = jax.tree.map(lambda leaf: leaf[0], draws)
        return oracle.samples(problem.g_batches.whole() if draws is None else problem.g_batches.batch(first))

    def _descend(self, problem: Problem, x: PyTree, y: PyTree, draws: PyTree) -> PyTree:
        """The last of K steps, y_K."""

        def gradient(y: PyTree, draw: PyTree) -> PyTree:
            batch = problem.g_batches.whole() if draws is None else problem.g_batches.batch(draw)
            return oracle.grad_g(problem, x, y, batch)

        def step_y(y: PyTree, draw: PyTree) -> Any:
            return tree.axpy(-self.step_size, gradient(y, draw), y), None

        def step_z(z: PyTree, draw: PyTree) -> Any:
            y = coordinates.from_z(z, problem.p, problem.shift)
            return tree.axpy(-self.step_size, gradient(y, draw), z), None

        if not self.in_z:
            return jax.lax.scan(step_y, y, draws, length=self.steps)[0]
        z = coordinates.to_z(y, problem.p, problem.shift)
        z, _ = jax.lax.scan(step_z, z, draws, length=self.steps)
        return coordinates.from_z(z, problem.p, problem.shift)
