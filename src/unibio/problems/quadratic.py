"""A strongly convex quadratic with everything in closed form, the p = 2 end of the scale."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core.checks import real_array
from unibio.core.problem import Problem


class _QuadraticUpper(eqx.Module):
    target: jax.Array

    def __call__(self, x: jax.Array, y: jax.Array, batch: Any) -> jax.Array:
        return jnp.sum((y - self.target) ** 2) / 2 + jnp.sum(x**2) / 20


class _QuadraticLower(eqx.Module):
    hessian: jax.Array
    coupling: jax.Array

    def __call__(self, x: jax.Array, y: jax.Array, batch: Any) -> jax.Array:
        return jnp.dot(y, self.hessian @ y) / 2 - jnp.dot(y, self.coupling @ x)


def quadratic(hessian: Any, coupling: Any, target: Any) -> Problem:
    """f = ½‖y − t‖² + ‖x‖²/20, g = ½yᵀHy − yᵀBx; y*(x) = H⁻¹Bx, ∇Φ(x) = x/10 + BᵀH⁻¹(H⁻¹Bx − t)."""
    arrays = {"hessian": hessian, "coupling": coupling, "target": target}
    hessian, coupling, target = (real_array(name, value) for name, value in arrays.items())
    return Problem(_QuadraticUpper(target), _QuadraticLower(hessian, coupling), 2.0)
