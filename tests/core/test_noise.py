import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.core import coordinates, oracle

X = {"u": jnp.array([0.3, -0.5])}
Y = {"v": jnp.array([0.7, -0.4, 1.1])}
B = np.array([[1.0, 0.3], [0.2, -1.0], [0.5, 0.5]])


def f(x, y, batch):
    assert batch is None
    return jnp.sum(y["v"] ** 2) + jnp.sum(x["u"])


def g(x, y, batch):
    assert batch is None
    return jnp.sum(y["v"] ** 4) / 4 - jnp.dot(y["v"], jnp.asarray(B) @ x["u"])


def problem(**variances):
    noise = ub.Noise(**variances)
    return ub.Problem(f, g, 4.0, f_batches=noise, g_batches=noise)


VARIANCE, DRAWS = 2.5, 4000


def squares(differences):
    return np.sum(np.asarray(differences) ** 2, axis=1)


def check_variance(differences):
    """E‖noise‖² = VARIANCE within five standard errors, mean 0."""
    norms = squares(differences)
    assert abs(norms.mean() - VARIANCE) < 5 * norms.std() / np.sqrt(DRAWS)
    error = np.asarray(differences).std(axis=0) / np.sqrt(DRAWS)
    assert np.all(np.abs(np.asarray(differences).mean(axis=0)) < 5 * error)


def draws(field, evaluate):
    """evaluate(batch) for many realisations, minus the exact value."""
    noisy = problem(**{field: VARIANCE})
    keys = jax.random.split(jax.random.key(0), DRAWS)
    values = jax.vmap(lambda key: evaluate(noisy, noisy.g_batch(key, X, Y)))(keys)
    return np.asarray(values) - np.asarray(evaluate(noisy, None))


def test_grad_y_g():
    check_variance(draws("grad_y_g", lambda q, b: oracle.grad_g(q, X, Y, b)["v"]))


def test_grad_x_f():
    check_variance(draws("grad_x_f", lambda q, b: oracle.grads_f(q, X, Y, b)[0]["u"]))


def test_grad_z_f_is_gaussian_in_z():
    d = coordinates.scaling(Y, 4.0, 0.0)["v"]
    check_variance(draws("grad_z_f", lambda q, b: d * oracle.grads_f(q, X, Y, b)[1]["v"]))


@pytest.mark.slow
def test_hess_z_is_a_matrix_in_z():
    d = coordinates.scaling(Y, 4.0, 0.0)["v"]

    def matrix(q, b):
        return jax.vmap(lambda v: d * oracle.hvp_g(q, X, Y, {"v": v}, b)["v"])(jnp.eye(3)).ravel()

    check_variance(draws("hess_z", matrix))


def test_cross_is_a_matrix():
    def matrix(q, b):
        return jax.vmap(lambda v: oracle.cross_g(q, X, Y, {"v": v}, b)["u"])(jnp.eye(3)).ravel()

    check_variance(draws("cross", matrix))


@pytest.mark.slow
def test_two_evaluations_of_one_batch_see_the_same_noise():
    noisy = problem(grad_y_g=1.0, hess_z=1.0, cross=1.0, grad_z_f=1.0, grad_x_f=1.0)
    batch = noisy.g_batch(jax.random.key(5), X, Y)
    elsewhere = jax.tree.map(lambda a: a + 0.5, Y)
    noise_here = oracle.grad_g(noisy, X, Y, batch)["v"] - oracle.grad_g(noisy, X, Y, None)["v"]
    noise_there = oracle.grad_g(noisy, X, elsewhere, batch)["v"] - oracle.grad_g(noisy, X, elsewhere, None)["v"]
    np.testing.assert_allclose(noise_here, noise_there, rtol=1e-12)
    linear = oracle.hessian_g(noisy, X, Y, batch)(Y)["v"]
    np.testing.assert_allclose(linear, oracle.hvp_g(noisy, X, Y, Y, batch)["v"], rtol=1e-12)
    again = noisy.g_batch(jax.random.key(5), X, Y)
    np.testing.assert_array_equal(batch.hess_z, again.hess_z)


def test_noise_on_f_vanishes_where_the_coordinate_is_singular():
    noisy = problem(grad_z_f=100.0)
    batch = noisy.f_batch(jax.random.key(1), X, Y)
    zero = {"v": jnp.zeros(3)}
    np.testing.assert_array_equal(oracle.grads_f(noisy, X, zero, batch)[1]["v"], 0.0)


@pytest.mark.slow
def test_without_a_key_there_is_no_noise():
    noisy, exact = problem(grad_z_f=100.0, grad_x_f=100.0, cross=100.0), ub.Problem(f, g, 4.0)
    value, _ = ub.hypergradient(noisy, X, Y)
    np.testing.assert_array_equal(value["u"], ub.hypergradient(exact, X, Y)[0]["u"])


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_a_variance_must_be_nonnegative(bad):
    with pytest.raises(ValueError, match=r"Noise\(cross=…\) must be finite and ≥ 0.*variance"):
        ub.Noise(cross=bad)
