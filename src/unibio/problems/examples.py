"""Problems whose Φ and ∇Φ are known in closed form: Examples 1, 3 and 4 of the paper, Example 3 in d dimensions with
coupled coordinates, and a quadratic, which is strongly convex (p = 2). spow(y, a) = sign(y)|y|^a, entry by entry."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

from unibio.core import checks
from unibio.core.batches import Sampler
from unibio.core.checks import as_real
from unibio.core.coordinates import abs_pow, spow
from unibio.core.noise import AnyBatch
from unibio.core.problem import Problem
from unibio.core.tree import Number


class _SineUpper(eqx.Module):
    """Σ_i sin(clip(spow(y_i, p−1), −π/2, π/2)): Example 3's f, for every p, not only even ones."""

    p: Any = eqx.field(converter=as_real)

    def __call__(self, x: jax.Array, y: jax.Array, batch: AnyBatch) -> jax.Array:
        half_pi = jnp.asarray(jnp.pi / 2, y.dtype)
        return jnp.sum(jnp.sin(jnp.clip(spow(y, self.p - 1), -half_pi, half_pi)))


class _PowerUpper(eqx.Module):
    """Σ_i spow(y_i, p−1): f of Examples 1 and 4."""

    p: Any = eqx.field(converter=as_real)

    def __call__(self, x: jax.Array, y: jax.Array, batch: AnyBatch) -> jax.Array:
        return jnp.sum(spow(y, self.p - 1))


class _PowerLower(eqx.Module):
    """‖y‖_p^p/p − yᵀB sin x, where B is the coupling, if there is one, and else the identity."""

    p: Any = eqx.field(converter=as_real)
    coupling: jax.Array | None = None

    def __call__(self, x: jax.Array, y: jax.Array, batch: AnyBatch) -> jax.Array:
        sine = jnp.sin(x)
        product = jnp.sum(y * sine) if self.coupling is None else jnp.dot(y, self.coupling @ sine)
        return jnp.sum(abs_pow(y, self.p)) / self.p - product


class _QuadraticUpper(eqx.Module):
    target: jax.Array

    def __call__(self, x: jax.Array, y: jax.Array, batch: AnyBatch) -> jax.Array:
        return jnp.sum((y - self.target) ** 2) / 2 + jnp.sum(x**2) / 20


class _QuadraticLower(eqx.Module):
    hessian: jax.Array
    coupling: jax.Array

    def __call__(self, x: jax.Array, y: jax.Array, batch: AnyBatch) -> jax.Array:
        return jnp.dot(y, self.hessian @ y) / 2 - jnp.dot(y, self.coupling @ x)


def example1(f_batches: Sampler | None = None, g_batches: Sampler | None = None) -> Problem:
    """Example 1 of the paper: f = y³ and g = y⁴/4 − y sin x, uniformly convex of order p = 4 in y; Φ(x) = sin x.

    x and y are scalars, or vectors of one length (then f, g and Φ are sums over the coordinates). f and g are exact;
    pass a `Noise` as `f_batches` and `g_batches` to disturb their derivatives.
    """
    return example4(4.0, f_batches, g_batches)


def example3(p: Number, f_batches: Sampler | None = None, g_batches: Sampler | None = None) -> Problem:
    """Example 3 of the paper: f = sin(spow(y, p−1)) where |y|^(p−1) ≤ π/2, beyond that its end values ±1, and
    g = |y|^p/p − y sin x; Φ(x) = sin(sin x).

    x and y are scalars, or vectors of one length (then f, g and Φ are sums over the
    coordinates).
    """
    checks.number("p", p, low=2.0)
    return Problem(_SineUpper(p), _PowerLower(p), p, f_batches=f_batches, g_batches=g_batches)


def example4(p: Number, f_batches: Sampler | None = None, g_batches: Sampler | None = None) -> Problem:
    """f = Σ spow(y_i, p−1), g = ‖y‖_p^p/p − Σ y_i sin x_i; Φ(x) = Σ sin x_i. x and y: vectors of one length."""
    checks.number("p", p, low=2.0)
    return Problem(_PowerUpper(p), _PowerLower(p), p, f_batches=f_batches, g_batches=g_batches)


def coupled_example3(
    p: Number, coupling: ArrayLike, f_batches: Sampler | None = None, g_batches: Sampler | None = None
) -> Problem:
    """Example 3 with B = `coupling`, a matrix: f = Σ f_3(y_i) with the f_3 of Example 3, g = ‖y‖_p^p/p − yᵀB sin x.
    Every assumption of the paper holds, and ∇Φ depends on y.

    y* = spow(B sin x, 1/(p−1)); Φ(x) = Σ_i sin((B sin x)_i) while |(B sin x)_i| ≤ π/2.
    """
    checks.number("p", p, low=2.0)
    lower = _PowerLower(p, checks.matrix("coupling", coupling))
    return Problem(_SineUpper(p), lower, p, f_batches=f_batches, g_batches=g_batches)


def quadratic(hessian: ArrayLike, coupling: ArrayLike, target: ArrayLike) -> Problem:
    """f = ½‖y − t‖² + ‖x‖²/20, g = ½yᵀHy − yᵀBx; y*(x) = H⁻¹Bx, ∇Φ(x) = x/10 + BᵀH⁻¹(H⁻¹Bx − t)."""
    h = checks.matrix("hessian", hessian)
    b, t = checks.matrix("coupling", coupling, h.shape[0]), checks.real_array("target", target)
    if h.shape[0] != h.shape[1] or t.shape != h.shape[:1]:
        raise ValueError(f"hessian must be square and target a vector of its size; got shapes {h.shape} and {t.shape}.")
    return Problem(_QuadraticUpper(t), _QuadraticLower(h, b), 2.0)
