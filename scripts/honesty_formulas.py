"""What `honesty.py` is built from: f and g as a user would write them, and what computes the truth without unibio.

The truth comes from damped Newton steps and Gaussian elimination, in long double or in numbers of mpmath.
"""

import types
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np

import unibio as ub

Long = np.longdouble
Array = Any  # of numpy, in the dtype under test, in long double, or of mpmath's numbers


class Formula(eqx.Module):
    """f or g as a formula with numbers. The numbers are leaves, so that a problem with other numbers does not
    recompile."""

    formula: Callable[..., jax.Array] = eqx.field(static=True)
    numbers: dict[str, Any]

    def __call__(self, x: jax.Array, y: jax.Array, batch: Any) -> jax.Array:
        return self.formula(types.SimpleNamespace(**self.numbers), x, y)


# ---------------------------------------------------------------- f and g, as a user would write them


def _t(n: Any, y: jax.Array) -> jax.Array:
    return (y - n.a0) / n.uy


def powers_g(n: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """g = Σ c|t|^p/p − tᵀB sin x, t = (y − a0)/unit."""
    t = _t(n, y)
    return n.sg * (jnp.sum(n.c * ub.abs_pow(t, n.p)) / n.p - jnp.dot(t, n.b @ jnp.sin(x / n.ux)))


def powers_f(n: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """f = Σ w z(1 + kz) + m sin z + qᵀx, z = spow(t, p−1)."""
    z = ub.spow(_t(n, y), n.p - 1)
    return n.sf * (jnp.sum(n.w * z * (1 + n.k * z) + n.m * jnp.sin(z)) + jnp.dot(n.q, x / n.ux))


def no_limit_f(n: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """f = Σ w z plus terms by which ∇Φ has no limit at t = 0: kinks k|t|^(p−1), powers m·spow(t, r) with another
    exponent, and a product of powers of two coordinates."""
    t = _t(n, y)
    first, second = jnp.dot(n.e1, t), jnp.dot(n.e2, t)
    own = n.w * ub.spow(t, n.p - 1) + n.k * ub.abs_pow(t, n.p - 1) + n.m * ub.spow(t, n.r)
    return jnp.sum(own) + n.mixed * ub.spow(first, n.r1) * ub.abs_pow(second, n.r2)


def regression_g(n: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """mean σ(x)|Xu − t|^p + c‖u‖_p^p, u = y/unit."""
    u = y / n.uy
    losses = jax.nn.sigmoid(x / n.ux) * ub.abs_pow(n.features @ u - n.targets, n.p)
    return n.sg * (jnp.mean(losses) + n.c * jnp.sum(ub.abs_pow(u, n.p)))


def regression_f(n: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """mean|Xu − t|^p/p on other samples."""
    return n.sf * jnp.mean(ub.abs_pow(n.features2 @ (y / n.uy) - n.targets2, n.p)) / n.p


def logistic_g(n: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """mean log(1 + exp(−labelled features·u)) + ½Σ exp(x)u²."""
    u = y / n.uy
    return n.sg * (jnp.mean(jax.nn.softplus(-n.features @ u)) + jnp.sum(jnp.exp(x / n.ux) * u**2) / 2)


def logistic_f(n: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """The same loss on other samples."""
    return n.sf * jnp.mean(jax.nn.softplus(-n.features2 @ (y / n.uy)))


def quadratic_g(n: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """½yᵀHy − yᵀBx."""
    return jnp.dot(y, n.h @ y) / 2 - jnp.dot(y, n.b @ x)


def quartic_g(n: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """½yᵀHy + Σ c y⁴/4 − yᵀ(Bx + e)."""
    return jnp.dot(y, n.h @ y) / 2 + jnp.sum(n.c * y**4) / 4 - jnp.dot(y, n.b @ x + n.e)


def squares_g(n: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """½‖Xy − Bx‖²."""
    return jnp.sum((n.features @ y - n.b @ x) ** 2) / 2


def quadratic_f(n: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """aᵀy + ½Σ k y² + qᵀx."""
    return jnp.dot(n.a, y) + jnp.sum(n.k * y**2) / 2 + jnp.dot(n.q, x)


def rotated_g(n: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """Σ|Ry|^p/p − (Ry)ᵀ sin x."""
    u = n.r @ y
    return jnp.sum(ub.abs_pow(u, n.p)) / n.p - jnp.dot(u, jnp.sin(x))


def rotated_f(n: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """Σ w·spow(Ry, p−1) + qᵀx."""
    return jnp.sum(n.w * ub.spow(n.r @ y, n.p - 1)) + jnp.dot(n.q, x)


# ---------------------------------------------------------------- the truth, without unibio


def norm(v: Array) -> Any:
    """‖v‖, without overflow."""
    return max(np.abs(v)) * np.sqrt(np.sum((np.asarray(v) / max(np.abs(v))) ** 2)) if np.any(v) else Long(0)


def spow(t: Array, a: Any) -> Array:
    """sign(t)|t|^a."""
    return np.sign(t) * np.abs(t) ** a


def rounded(numbers: dict[str, Any], dtype: str) -> tuple[dict[str, Array], Any]:
    """The numbers in the dtype, and the same in long double."""
    own = {name: np.asarray(value, dtype) for name, value in numbers.items()}
    return own, types.SimpleNamespace(**{name: value.astype(Long) for name, value in own.items()})


def solve(matrix: Array, b: Array) -> Array:
    """Gaussian elimination with pivots, in whatever numbers the arrays hold."""
    m, v = matrix.copy(), b.copy()
    for i in range(len(v)):
        pivot = i + int(np.argmax(np.abs(m[i:, i])))
        m[[i, pivot]], v[[i, pivot]] = m[[pivot, i]], v[[pivot, i]]
        factor = m[i + 1 :, i] / m[i, i]
        m[i + 1 :] -= factor[:, None] * m[i]
        v[i + 1 :] -= factor * v[i]
    for i in reversed(range(len(v))):
        v[i] = (v[i] - m[i, i + 1 :] @ v[i + 1 :]) / m[i, i]
    return v


def newton(derivatives: Callable[[Array], tuple[Any, Array, Array]], u: Array) -> tuple[Array, Array]:
    """The minimiser, up to rounding, by damped Newton steps, and the Hessian there."""
    last = Long(np.inf)
    for _ in range(300):
        value, gradient, hessian = derivatives(u)
        step, length = solve(hessian, gradient), Long(1)
        size = norm(step) / norm(u) if np.any(u) else last
        if size < 1e-12 and size >= last / 2:  # the steps do not get smaller any more: they are rounding
            return u, hessian
        while size > 1e-6 and length > 1e-9 and not derivatives(u - length * step)[0] <= value:
            length /= 2
        u, last = u - length * step, size
    raise ArithmeticError("Newton's method has not converged: the truth is not known")


def mp(v: Array) -> Array:
    """The same numbers as numbers of mpmath."""
    return np.vectorize(lambda e: mpmath.mpf(float(e)), otypes=[object])(v)


def is_positive(matrix: Array) -> bool:
    """Whether every pivot of the symmetric matrix is positive."""
    m = matrix.copy()
    for i in range(len(m)):
        if m[i, i] <= 0:
            return False
        m[i + 1 :] -= (m[i + 1 :, i] / m[i, i])[:, None] * m[i]
    return True


def sigmoid(s: Array) -> Array:
    """1/(1 + exp(−s))."""
    return 1 / (1 + np.exp(-s))


def regression_parts(n: Any, x: Array) -> tuple[Callable[..., Any], Callable[[Array], Array], Callable[..., Array]]:
    """Functions for ℓ_p regression: value, gradient and Hessian of g by u; ∇_u f; and the cross derivative times v."""

    weights, p, count = sigmoid(x / n.ux), n.p, len(n.targets)

    def derivatives(u: Array) -> tuple[Any, Array, Array]:
        r = n.features @ u - n.targets
        value = np.mean(weights * np.abs(r) ** p) + n.c * np.sum(np.abs(u) ** p)
        gradient = p * (n.features.T @ (weights * spow(r, p - 1)) / count + n.c * spow(u, p - 1))
        inner = n.features.T @ ((weights * np.abs(r) ** (p - 2))[:, None] * n.features) / count
        return value, gradient, p * (p - 1) * (inner + np.diag(n.c * np.abs(u) ** (p - 2)))

    def grad_f(u: Array) -> Array:
        return n.features2.T @ spow(n.features2 @ u - n.targets2, p - 1) / len(n.targets2)

    def cross(u: Array, v: Array) -> Array:
        return weights * (1 - weights) * p * spow(n.features @ u - n.targets, p - 1) * (n.features @ v) / count

    return derivatives, grad_f, cross


def logistic_parts(n: Any, x: Array) -> tuple[Callable[..., Any], Callable[[Array], Array], Callable[..., Array]]:
    """The same functions for logistic regression."""

    penalty, count = np.exp(x / n.ux), len(n.features)

    def derivatives(u: Array) -> tuple[Any, Array, Array]:
        s = sigmoid(-n.features @ u)
        value = np.mean(-np.log1p(-s)) + np.sum(penalty * u**2) / 2
        inner = n.features.T @ ((s * (1 - s))[:, None] * n.features) / count
        return value, -n.features.T @ s / count + penalty * u, inner + np.diag(penalty)

    def grad_f(u: Array) -> Array:
        return -n.features2.T @ sigmoid(-n.features2 @ u) / len(n.features2)

    return derivatives, grad_f, lambda u, v: penalty * u * v


# ---------------------------------------------------------------- random numbers


def order(rng: Any, low: float = 2.0, high: float = 20.0) -> float:
    """A random p between low and high: uniform, with a uniform logarithm, or a whole number."""
    kind = rng.integers(3)
    if kind == 0:
        return rng.uniform(low, high)
    return float(np.exp(rng.uniform(np.log(low), np.log(high)))) if kind == 1 else float(rng.integers(low, high + 1))


def log_uniform(rng: Any, low: float, high: float, size: Any = None) -> Any:
    """Random numbers between low and high whose logarithm is uniform."""
    return 10 ** rng.uniform(np.log10(low), np.log10(high), size)


def signed(rng: Any, low: float, high: float, size: Any = None) -> Any:
    """Random numbers whose absolute value is uniform between low and high, with random signs."""
    return rng.choice([-1.0, 1.0], size) * rng.uniform(low, high, size)


def orthogonal(rng: Any, d: int) -> Array:
    """A random orthogonal matrix."""
    return np.linalg.qr(rng.normal(size=(d, d)))[0]
