"""The estimated error of the hypergradient against its true error, from dense solves at the lower solution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.core import curvature
from unibio.core.flat import Layout
from unibio.solvers.newton_cg import change_of_hypergradient


def f(x, y, batch):
    return jnp.sum(jnp.sin(y) * jnp.asarray([1.0, -2.0, 0.5])) + jnp.sum(x * y)


def g(x, y, batch):
    return jnp.sum(jnp.cosh(y - x)) + 0.3 * y[0] * y[1] + jnp.sum(y**2)


X = jnp.asarray([0.3, -0.7, 1.1])


def hessian(y):
    return jax.hessian(g, argnums=1)(X, y, None)


def hypergradient(y, v):
    fx = jax.grad(f)(X, y, None)
    return fx - jax.jacobian(jax.grad(g, argnums=1))(X, y, None).T @ v


def multiplier(y):
    return jnp.linalg.solve(hessian(y), jax.grad(f, argnums=1)(X, y, None))


@pytest.mark.parametrize("off", ["y", "v", "both"])
def test_it_is_twice_the_true_error(off):
    star = jnp.zeros(3)
    for _ in range(50):
        star = star - jnp.linalg.solve(hessian(star), jax.grad(g, argnums=1)(X, star, None))
    y = star + (1e-4 * jnp.asarray([0.6, -0.5, 0.62]) if off != "v" else 0.0)
    v = multiplier(y) + (1e-4 * jnp.asarray([0.3, 0.8, -0.2]) if off != "y" else 0.0)
    pairs = curvature.empty(8, 3, y.dtype)
    for vector in np.linalg.eigh(hessian(star))[1].T:
        pairs = curvature.add(pairs, jnp.asarray(vector), hessian(star) @ vector)
    h, r = hypergradient(y, v), jax.grad(g, argnums=1)(X, y, None)
    error = jnp.linalg.norm(h - hypergradient(star, multiplier(star)))
    layouts = Layout.of(X), Layout.of(y)
    estimate = change_of_hypergradient(ub.Problem(f, g), X, y, v, r, h, pairs, layouts=layouts)
    np.testing.assert_allclose(estimate, 2 * error, rtol=1e-2)
