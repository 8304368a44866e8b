"""The paper's five noisy oracles as a sampler: exact f and g, Gaussian noise on their derivatives."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, tree
from unibio.core.batches import AllSamples, Batch
from unibio.core.tree import PyTree


class Perturbation(NamedTuple):
    """One realisation of the noise. Matrices act on raveled y; a field is None where there is no noise."""

    grad_y_g: PyTree
    grad_x_f: PyTree
    grad_z_f: PyTree
    cross: jax.Array | None  # (size of x, size of y)
    hess_z: jax.Array | None  # (size of y, size of y), added to D·H


AnyBatch = Batch | AllSamples | Perturbation | None
"""What an oracle takes: a batch of samples, all of them, one realisation of noise, or None where f and g are exact."""


def visible(batch: AnyBatch) -> Any:
    """What f and g are called with. They do not see noise: the oracles add it to their derivatives."""
    return None if isinstance(batch, Perturbation) else batch


class Noise(eqx.Module):
    """Noise of the paper's assumption: each number is E‖noise‖² (Frobenius for the two matrices).

    f's y-gradient and the Hessian are disturbed in the coordinate z: D∇_y f + e and D H + E, so in the
    coordinate y the noise is D⁻¹e and D⁻¹E and vanishes where y_i = a0_i. Use one Noise for both levels:

    Example:
        >>> noise = Noise(grad_y_g=1.0, grad_z_f=1.0)
        >>> # Problem(f, g, p=4.0, f_batches=noise, g_batches=noise)

    Arguments:
        grad_y_g: variance of ∇_y g.
        grad_x_f: variance of ∇_x f.
        grad_z_f: variance of df/dz.
        cross: variance of ∇²_xy g.
        hess_z: variance of the generalised Hessian d∇_y g/dz.
    """

    grad_y_g: float | None = eqx.field(default=None, converter=checks.as_real)
    grad_x_f: float | None = eqx.field(default=None, converter=checks.as_real)
    grad_z_f: float | None = eqx.field(default=None, converter=checks.as_real)
    cross: float | None = eqx.field(default=None, converter=checks.as_real)
    hess_z: float | None = eqx.field(default=None, converter=checks.as_real)

    def __check_init__(self) -> None:
        for name in Perturbation._fields:
            value = getattr(self, name)
            if value is not None:
                checks.number(f"Noise({name}=…)", value, low=0.0, remedy="It is a variance.")

    def draw(self, key: jax.Array, count: int, x: PyTree, y: PyTree) -> Perturbation:
        # fold_in instead of split: what is None, or drawn and never looked at, costs nothing.
        key_yg, key_xf, key_zf, key_cross, key_hess = (jax.random.fold_in(key, i) for i in range(5))
        dx, dy, dtype = tree.size(x), tree.size(y), tree.dtype(x)
        return Perturbation(
            _tree_noise(key_yg, self.grad_y_g, count, y),
            _tree_noise(key_xf, self.grad_x_f, count, x),
            _tree_noise(key_zf, self.grad_z_f, count, y),
            _matrix_noise(key_cross, self.cross, (count, dx, dy), dtype),
            _matrix_noise(key_hess, self.hess_z, (count, dy, dy), dtype),
        )

    def batch(self, realisation: Perturbation) -> Perturbation:
        return realisation

    def whole(self) -> None:
        return None


def _tree_noise(key: jax.Array, variance: float | None, count: int, like: PyTree) -> PyTree:
    flat, unravel = tree.ravel(like)
    noise = _matrix_noise(key, variance, (count, flat.size), flat.dtype)
    return None if noise is None else jax.vmap(unravel)(noise)


def _matrix_noise(key: jax.Array, variance: float | None, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array | None:
    """Gaussian entries whose squares add up to `variance` in the mean, for each of shape[0] draws."""
    if variance is None:
        return None
    deviation = jnp.sqrt(jnp.asarray(variance, dtype) / math.prod(shape[1:]))
    return deviation * jax.random.normal(key, shape, dtype)
