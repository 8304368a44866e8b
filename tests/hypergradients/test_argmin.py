import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import lp_data, lp_gradient, lp_lower

import unibio as ub


@pytest.mark.parametrize("p", [2.0, 2.5, 4.0, 8.0, 20.0])
@pytest.mark.parametrize("x", [0.0, 0.3, np.pi / 2, np.pi])
@pytest.mark.slow
def test_a_loss_of_the_users_own(p, x):
    """exp(y*^(p−1)) with y*^(p−1) = sin x, in both modes; at x = 0 and π the Hessian vanishes."""
    solution = ub.argmin(ub.problems.example3(p))

    def loss(x):
        return jnp.exp(ub.spow(solution(x, 0.5), p - 1))

    expected = np.cos(x) * np.exp(np.sin(x))
    assert float(loss(x)) == pytest.approx(np.exp(np.sin(x)), rel=1e-10)
    assert float(jax.grad(loss)(x)) == pytest.approx(expected, abs=1e-8)
    assert float(jax.jvp(loss, (x,), (1.0,))[1]) == pytest.approx(expected, abs=1e-8)
    assert float(jax.jit(jax.grad(loss))(x)) == pytest.approx(expected, abs=1e-8)


def test_float32_at_the_singular_point():
    solution = ub.argmin(ub.problems.example1())
    slope = jax.grad(lambda x: solution(x, jnp.float32(0.5)) ** 3)(jnp.float32(0.0))
    assert slope.dtype == jnp.float32
    assert float(slope) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
def test_regression_in_both_modes():
    train, validation, weights = lp_data(0)
    problem = ub.problems.lp_regression(train, validation, 4.0, 1e-2)
    x = jnp.asarray(weights)

    def loss(x):
        w = ub.argmin(problem)(x, jnp.zeros(8))
        return jnp.mean((jnp.asarray(validation[0]) @ w - jnp.asarray(validation[1])) ** 4) / 4

    w = lp_lower(weights, train, 4.0, 1e-2)
    expected = lp_gradient(w, weights, train, validation, 4.0, 1e-2)
    np.testing.assert_allclose(jax.grad(loss)(x), expected, rtol=1e-7, atol=1e-13)
    direction = jnp.asarray(np.random.default_rng(0).normal(size=60))
    assert float(jax.jvp(loss, (x,), (direction,))[1]) == pytest.approx(float(expected @ direction), rel=1e-7)
    jacobian = jax.jacfwd(lambda x: ub.argmin(problem)(x, jnp.zeros(8)))(x)
    assert jacobian.shape == (8, 60)


@pytest.mark.slow
def test_derivative_by_a_number_inside_the_problem():
    """A leaf of g carries a tangent too: here the regulariser's weight c, y*(c) = (1/c)^(1/3)."""

    def minimiser(c):
        lower = jax.tree_util.Partial(scaled_quartic, c)
        return ub.argmin(ub.Problem(unused, lower, 4.0))(0.0, 0.5)

    assert float(minimiser(2.0)) == pytest.approx(0.5 ** (1 / 3), rel=1e-10)
    assert float(jax.grad(minimiser)(2.0)) == pytest.approx(-(2.0 ** (-4 / 3)) / 3, rel=1e-8)


def unused(x, y, batch):
    return y


def scaled_quartic(c, x, y, batch):
    return c * y**4 / 4 - y + 0.0 * x


@pytest.mark.slow
def test_nested_trees_under_vmap():
    def lower(x, y, batch):
        return jnp.sum(y["u"] ** 4) / 4 + jnp.sum(y["v"] ** 2) - jnp.sum(y["u"]) * x["a"] - jnp.sum(y["v"]) * x["b"]

    problem = ub.Problem(lambda x, y, batch: jnp.sum(y["u"]), lower, 4.0)
    y0 = {"u": jnp.ones(2), "v": jnp.ones(3)}

    def loss(a, b):
        y = ub.argmin(problem)({"a": a, "b": b}, y0)
        return jnp.sum(y["u"] ** 3) + jnp.sum(y["v"])

    a, b = jnp.array([0.5, 0.0, -1.0]), jnp.array([1.0, 2.0, 3.0])
    by_a, by_b = jax.vmap(jax.grad(loss, argnums=(0, 1)))(a, b)
    np.testing.assert_allclose(by_a, 2.0, rtol=1e-6)
    np.testing.assert_allclose(by_b, 1.5, rtol=1e-6)


def test_the_start_has_no_influence():
    solution = ub.argmin(ub.problems.example3(4.0))
    assert jax.grad(lambda y0: solution(1.0, y0))(0.3) == 0.0
    np.testing.assert_allclose(solution(1.0, 0.3), solution(1.0, -2.0), rtol=1e-12)


def test_an_unsolvable_lower_level_is_nan():
    downhill = ub.Problem(unused, lambda x, y, batch: y * x, p=2.0)
    value, slope = jax.value_and_grad(lambda x: ub.argmin(downhill)(x, 0.0))(1.0)
    assert np.isnan(value)
    assert np.isnan(slope)


@pytest.mark.slow
def test_degenerate_coordinates_beside_regular_ones():
    """Newton's lengthened steps bring y to 1e-28, far closer to the minimiser than the rounding of the path; beside a
    regular coordinate this must not look like a flat g, and become NaN."""
    problem = ub.Problem(
        lambda x, y, b: jnp.sum(y["a"]),
        lambda x, y, b: jnp.sum(y["a"] ** 4) / 4 - y["a"] @ jnp.sin(x) + jnp.sum((y["c"] - 1) ** 2) / 2,
        p=4.0,
    )
    y0, x = {"a": jnp.full(3, 0.4), "c": jnp.zeros(2)}, jnp.zeros(3)
    _, info = ub.Newton()(problem, x, y0)
    assert info.status == ub.Status.ok
    assert float(info.error) < 1e-12
    jacobian = jax.jacfwd(lambda x: ub.argmin(problem)(x, y0)["a"] ** 3)(x)
    assert np.allclose(jacobian, np.eye(3), atol=1e-6)


def test_argmin_passes_nan_on():
    problem = ub.Problem(unused, lambda x, y, b: (y - x) ** 2, 2.0)
    assert np.isnan(jax.grad(lambda x: ub.argmin(problem)(x, 0.5) * jnp.nan)(1.0))


@pytest.mark.slow
def test_the_reference_has_no_derivative_and_says_so():
    problem = ub.Problem(unused, lambda x, y, b: y**2 / 2 - y * jnp.sqrt(x), 2.0)
    for derivative in (jax.grad, jax.jacfwd):
        with pytest.raises(TypeError, match=r"use unibio\.argmin"):
            derivative(lambda x: ub.lower_solution(problem, x, 1.0))(1.0)
    assert float(jax.grad(lambda x: ub.argmin(problem)(x, 1.0))(1.0)) == pytest.approx(0.5)
    frozen = jax.grad(lambda x: x * ub.lower_solution(problem, jax.lax.stop_gradient(x), 1.0))(4.0)
    assert float(frozen) == pytest.approx(2.0)


def test_the_gradient_of_argmin_compiles_once():
    problem = ub.problems.example1()
    slope = jax.grad(lambda x: ub.argmin(problem)(x, 0.5))
    slope(0.3)
    compiled = []

    def listener(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listener)
    slope(0.4)
    assert not compiled
