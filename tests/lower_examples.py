"""Functions whose lower level has no minimiser, or one that is easily missed: for tests in either precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub


def separable_data():
    features = np.random.default_rng(0).normal(size=(30, 3))
    return np.sign(features @ np.ones(3))[:, None] * features


def separable(x, y, b):
    return jnp.mean(jax.nn.softplus(-jnp.asarray(separable_data(), y.dtype) @ y))


# name: g, start, what the message says
WITHOUT = {
    "exp": (lambda x, y, b: jnp.sum(jnp.exp(-y)), np.zeros(3), "no minimiser"),
    "separable logistic": (separable, np.zeros(3), "no minimiser"),
    "cos at its maximum": (lambda x, y, b: jnp.cos(y), 0.0, "negative curvature"),
    "1/(1+y²) from 3": (lambda x, y, b: 1 / (1 + y**2), 3.0, "no minimiser"),
    "y³ from 1": (lambda x, y, b: y**3, 1.0, "negative curvature|without bound"),
    "-y²": (lambda x, y, b: -(y**2), 1.0, "negative curvature|without bound"),
    "linear": (lambda x, y, b: y[0] ** 2 + y[1], np.ones(2), "without bound"),
    "two equal columns": (lambda x, y, b: (y[0] + y[1] - 1) ** 2, np.zeros(2), "flat"),
    "unused coordinate": (lambda x, y, b: (y[0] - 1) ** 2, np.zeros(2), "flat"),
    "not finite": (lambda x, y, b: jnp.log(y), -1.0, "NaN or infinity"),
}


def problem_without(name, dtype):
    g, y0, _ = WITHOUT[name]
    return ub.Problem(lambda x, y, b: jnp.sum(y), g), jnp.asarray(0.5, dtype), jnp.asarray(y0, dtype)


def check_refused(name, dtype):
    with pytest.raises(RuntimeError, match=WITHOUT[name][2]):
        ub.lower_solution(*problem_without(name, dtype))


def check_nan(name, dtype):
    """Under jit, and of argmin; the derivative too, although g does not know x."""
    problem, x, y0 = problem_without(name, dtype)
    assert np.all(np.isnan(jax.jit(ub.lower_solution)(problem, x, y0)))
    value, slope = jax.value_and_grad(lambda x: jnp.sum(ub.argmin(problem)(x, y0)))(x)
    assert np.isnan(value)
    assert np.isnan(slope)
    assert np.isnan(jax.jvp(lambda x: jnp.sum(ub.argmin(problem)(x, y0)), (x,), (x,))[1])


def check_uneven_scales(dtype):
    """½Σ s(y − x)²: the second coordinate hardly shows in g or ∇_y g, and is as well determined as the first."""
    s = jnp.asarray([1, 1e-9 if dtype == "float32" else 1e-18], dtype)
    problem = ub.Problem(lambda x, y, b: jnp.sum(y), lambda x, y, b: jnp.sum(s * (y - x) ** 2) / 2)
    x, y0 = jnp.asarray([-0.7, 1.3], dtype), jnp.zeros(2, dtype)
    tolerance = 100 * np.finfo(dtype).eps
    for solve in (ub.lower_solution, jax.jit(ub.lower_solution), lambda problem, x, y0: ub.argmin(problem)(x, y0)):
        np.testing.assert_allclose(solve(problem, x, y0), x, rtol=tolerance)
    np.testing.assert_allclose(jax.jacrev(lambda x: ub.argmin(problem)(x, y0))(x), np.eye(2), atol=tolerance)
