import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub


@pytest.mark.parametrize("p", [2.0, 3.5, 4.0, 7.0])
def test_examples_have_their_closed_forms(p):
    x = jnp.array([0.4, -1.1, 2.5])
    for problem, phi_slope in (
        (ub.problems.example4(p), np.cos(x)),
        (ub.problems.example3(p), np.cos(x) * np.cos(np.sin(x))),
    ):
        y = ub.lower_solution(problem, x, jnp.ones(3))
        np.testing.assert_allclose(np.sign(y) * np.abs(y) ** (p - 1), np.sin(x), atol=1e-12)
        np.testing.assert_allclose(ub.hypergradient(problem, x, y)[0], phi_slope, rtol=1e-9)


def test_example1():
    y = ub.lower_solution(ub.problems.example1(), 0.7, 0.1)
    assert float(y) == pytest.approx(np.cbrt(np.sin(0.7)), rel=1e-12)
    assert float(ub.hypergradient(ub.problems.example1(), 0.7, y)[0]) == pytest.approx(np.cos(0.7), rel=1e-9)


def test_example3_is_constant_outside():
    problem = ub.problems.example3(4.0)
    assert float(problem.f(0.0, jnp.asarray(3.0), None)) == 1.0
    assert float(problem.f(0.0, jnp.asarray(-3.0), None)) == -1.0


@pytest.mark.slow
def test_coupling():
    rng = np.random.default_rng(0)
    coupling = rng.normal(size=(3, 4)) / 4
    x = rng.normal(size=4)
    problem = ub.problems.coupled_example3(6.0, coupling)
    y = ub.lower_solution(problem, jnp.asarray(x), jnp.ones(3))
    z = coupling @ np.sin(x)
    np.testing.assert_allclose(np.sign(y) * np.abs(y) ** 5, z, atol=1e-12)
    expected = np.cos(x) * (coupling.T @ np.cos(z))
    np.testing.assert_allclose(ub.hypergradient(problem, jnp.asarray(x), y)[0], expected, rtol=1e-8)


def test_quadratic():
    rng = np.random.default_rng(1)
    a = rng.normal(size=(5, 5))
    hessian, coupling, target = a @ a.T + np.eye(5), rng.normal(size=(5, 2)), rng.normal(size=5)
    x = rng.normal(size=2)
    problem = ub.problems.quadratic(hessian, coupling, target)
    y = ub.lower_solution(problem, jnp.asarray(x), jnp.zeros(5))
    np.testing.assert_allclose(y, np.linalg.solve(hessian, coupling @ x), rtol=1e-10)
    expected = x / 10 + coupling.T @ np.linalg.solve(hessian, np.linalg.solve(hessian, coupling @ x) - target)
    np.testing.assert_allclose(ub.hypergradient(problem, jnp.asarray(x), y)[0], expected, rtol=1e-8)


@pytest.mark.parametrize("p", [4, np.int64(4), jnp.int32(4)])
@pytest.mark.slow
def test_whole_numbers_are_numbers(p):
    x = jnp.array([0.5, 1.0])
    y = jnp.cbrt(jnp.sin(x))
    for problem in (ub.problems.example4(p), ub.problems.example3(p), ub.problems.coupled_example3(p, np.eye(2))):
        value, _ = ub.hypergradient(problem, x, y)
        assert np.all(np.isfinite(value))
    assert jax.grad(lambda y: ub.spow(y, 3))(2.0) == 12.0
    assert jax.grad(lambda y: ub.abs_pow(y, 3))(-2.0) == -12.0
