import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import lp_data

import unibio as ub
from unibio.core import oracle

P, C = 3.0, 0.05


def dense_f(x, y, data):
    features, targets = data
    return jnp.mean(jnp.abs(features @ y - targets) ** P) / P


def dense_g(x, y, data):
    features, targets = data
    losses = jax.nn.sigmoid(x) * jnp.abs(features @ y - targets) ** P
    return jnp.mean(losses) + C * jnp.sum(jnp.abs(y) ** P)


@pytest.fixture(params=[7, 20, 60, 61])
def setting(request):
    train, validation, weights = lp_data(1, n=61, m=61, d=4)
    datasets = [ub.Dataset(pair, batch_size=10, chunk_size=request.param) for pair in (train, validation)]
    lower = ub.problems.lp_regression(train, validation, P, C)
    problem = ub.Problem(lower.f, lower.g, P, f_batches=datasets[1], g_batches=datasets[0])
    y = jnp.array([0.3, -1.0, 0.7, 0.2])
    v = jnp.array([1.0, 0.5, -0.3, 2.0])
    return problem, jnp.asarray(weights), y, v, jax.tree.map(jnp.asarray, (train, validation))


@pytest.mark.slow
def test_streamed_oracles_equal_the_derivatives_of_the_full_functions(setting):
    problem, x, y, v, (train, validation) = setting
    whole_f, whole_g = problem.f_batches.whole(), problem.g_batches.whole()
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)
    close(oracle.value_f(problem, x, y, whole_f), dense_f(x, y, validation))
    close(oracle.value_g(problem, x, y, whole_g), dense_g(x, y, train))
    grad_x, grad_y = oracle.grads_f(problem, x, y, whole_f)
    close(grad_x, 0.0)
    close(grad_y, jax.grad(dense_f, 1)(x, y, validation))
    close(oracle.grad_g(problem, x, y, whole_g), jax.grad(dense_g, 1)(x, y, train))
    hessian = jax.hessian(dense_g, 1)(x, y, train)
    close(oracle.hvp_g(problem, x, y, v, whole_g), hessian @ v)
    close(oracle.hessian_g(problem, x, y, whole_g)(v), hessian @ v)
    cross = jax.jacobian(jax.grad(dense_g, 1), 0)(x, y, train)  # (d, n)
    close(oracle.cross_g(problem, x, y, v, whole_g), cross.T @ v)


@pytest.mark.slow
def test_a_batch_is_the_function_on_its_rows(setting):
    problem, x, y, v, (train, _) = setting
    batch = problem.g_batch(jax.random.key(0), x, y)
    rows = jax.tree.map(lambda a: a[batch.index], train)
    expected = jax.grad(dense_g, 1)(x[batch.index], y, rows)
    np.testing.assert_allclose(oracle.grad_g(problem, x, y, batch), expected, rtol=1e-12)
    product = jax.hessian(dense_g, 1)(x[batch.index], y, rows) @ v
    np.testing.assert_allclose(oracle.hessian_g(problem, x, y, batch)(v), product, rtol=1e-12)
    cross = oracle.cross_g(problem, x, y, v, batch)
    assert set(np.flatnonzero(cross)) == set(np.asarray(batch.index).tolist())


@pytest.mark.slow
def test_batches_are_unbiased(setting):
    problem, x, y, _, (train, _) = setting
    keys = jax.random.split(jax.random.key(3), 4000)
    gradients = jax.vmap(lambda key: oracle.grad_g(problem, x, y, problem.g_batch(key, x, y)))(keys)
    error = np.asarray(gradients.mean(0) - jax.grad(dense_g, 1)(x, y, train))
    assert np.all(np.abs(error) < 5 * np.asarray(gradients.std(0)) / np.sqrt(4000))


def test_samples_are_counted(setting):
    problem, x, y, _, _ = setting
    assert oracle.samples(None) == 1
    assert oracle.samples(problem.g_batch(jax.random.key(0), x, y)) == 10
    assert oracle.samples(problem.g_batches.whole()) == 61


def test_the_cross_term_never_goes_back_to_y():
    """Forward in y, reverse in x: X v is a product, X' r is not needed."""
    features, targets = np.ones((30, 5)), np.ones(30)
    problem = ub.problems.lp_regression((features, targets), (features, targets), 4.0)
    x, y = jnp.zeros(30), jnp.ones(5)
    assert isinstance(problem.g_batches, ub.Dataset)
    batch = problem.g_batches.rows(0, 30)
    jaxpr = jax.make_jaxpr(lambda x, y, v: oracle.cross_g(problem, x, y, v, batch))(x, y, y)
    shapes = [tuple(eqn.outvars[0].aval.shape) for eqn in jaxpr.eqns if eqn.primitive.name == "dot_general"]
    assert shapes, "the products are in the outermost jaxpr"
    assert all(shape == (30,) for shape in shapes)
