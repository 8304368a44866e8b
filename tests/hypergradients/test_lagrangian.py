"""The value of the Lagrangian has an error of second order where f alone has one of first order."""

import jax
import jax.numpy as jnp
import numpy as np

import unibio as ub
from unibio.core import oracle
from unibio.hypergradients.lagrangian import lagrangian_value


def f(x, y, batch):
    return jnp.sum(jnp.sin(y) * jnp.asarray([1.0, -2.0, 0.5])) + jnp.sum(x * y)


def g(x, y, batch):
    return jnp.sum(jnp.cosh(y - x)) + 0.3 * y[0] * y[1] + jnp.sum(y**2)


PROBLEM, X = ub.Problem(f, g), jnp.asarray([0.3, -0.7, 1.1])


def value(x, y, v):
    return lagrangian_value(f(x, y, None), v, jax.grad(g, argnums=1)(x, y, None))


def hessian(y):
    return jax.hessian(lambda y: g(X, y, None))(y)


def slope(lengths, errors):
    return np.polyfit(np.log(lengths), np.log(errors), 1)[0]


def test_the_slopes_are_two_and_one():
    star = ub.lower_solution(PROBLEM, X, jnp.zeros(3))
    truth = f(X, star, None)
    direction = jnp.asarray([0.6, -0.5, 0.62])
    lengths, plain, lagrangian = 10.0 ** -np.arange(2, 4.5, 0.5), [], []
    for length in lengths:
        y = star + length * direction
        v = jnp.linalg.solve(hessian(y), jax.grad(f, argnums=1)(X, y, None))
        plain.append(abs(f(X, y, None) - truth))
        lagrangian.append(abs(value(X, y, v) - truth))
    assert abs(slope(lengths, plain) - 1) < 0.1
    assert abs(slope(lengths, lagrangian) - 2) < 0.1


def test_the_gradient_at_fixed_y_and_v_is_the_hypergradient():
    y, v = jnp.asarray([0.1, 0.2, 0.3]), jnp.asarray([1.0, -1.0, 2.0])
    gradient = jax.grad(lambda x: value(x, y, v))(X)
    h = jax.grad(f)(X, y, None) - oracle.cross_g(PROBLEM, X, y, v, None)
    np.testing.assert_allclose(gradient, h, rtol=1e-12)
