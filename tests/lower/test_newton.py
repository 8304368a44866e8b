import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import lp_data, lp_lower

import unibio as ub
from unibio.core import oracle, tree
from unibio.core.status import Status
from unibio.lower.verdict import sample_gradients


@pytest.mark.slow
def test_the_regression_oracle():
    train, validation, weights = lp_data(0)
    problem = ub.problems.lp_regression(train, validation, 4.0, 1e-2)
    w = ub.lower_solution(problem, jnp.asarray(weights), jnp.zeros(8))
    digits = [0.14748835, -0.17641819, 0.60851041, 0.10285094, -0.51885824, 0.41215564, 1.20606823, 0.91541035]
    np.testing.assert_allclose(w, digits, atol=5e-9)
    phi = oracle.value_f(problem, jnp.asarray(weights), w, problem.f_batches.whole())
    assert float(phi) == pytest.approx(0.01224529859214536, rel=1e-12)


@pytest.mark.parametrize("p", [2.0, 2.5, 3.0, 4.0, 6.0, 8.0])
@pytest.mark.parametrize(("n", "d"), [(60, 8), pytest.param(20, 50, marks=pytest.mark.slow)])
def test_against_an_independent_newton(p, n, d):
    train, validation, weights = lp_data(3, n=n, m=n, d=d)
    problem = ub.problems.lp_regression(train, validation, p, 1e-2)
    ours = ub.lower_solution(problem, jnp.asarray(weights), jnp.zeros(d))
    np.testing.assert_allclose(ours, lp_lower(weights, train, p, 1e-2), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("p", [2.0, 3.0, 4.0, 8.0, 12.0, 20.0])
@pytest.mark.parametrize("x", [0.0, 1e-6, 0.5, np.pi / 2, np.pi])
@pytest.mark.parametrize("y0", [0.0, 1e-3, 1.0, -3.0])
def test_degenerate_minimisers(p, x, y0):
    problem = ub.problems.example3(p)
    y = ub.lower_solution(problem, x, y0)
    assert abs(np.sign(y) * np.abs(y) ** (p - 1) - np.sin(x)) <= 1e-12


@pytest.mark.parametrize("p", [3.0, 6.0, 20.0])
@pytest.mark.slow
def test_the_promised_gradient_norm_in_many_dimensions(p):
    rng = np.random.default_rng(0)
    coupling = rng.normal(size=(40, 40)) / 7
    problem = ub.problems.coupled_example3(p, coupling)
    x = jnp.asarray(np.where(np.arange(40) < 20, 0.0, rng.normal(size=40)))
    y = ub.lower_solution(problem, x, jnp.asarray(rng.normal(size=40)))
    assert float(tree.norm(oracle.grad_g(problem, x, y, problem.g_batches.whole()))) <= 1e-12


def test_the_mean_size_of_sample_gradients():
    train, validation, weights = lp_data(2, n=30, d=3)
    problem = ub.problems.lp_regression(train, validation, 4.0, 0.1)
    w = jnp.array([0.5, -1.0, 0.2])
    s, r = 1 / (1 + np.exp(-weights)), train[0] @ np.asarray(w) - train[1]
    each = (s * 4 * r**3)[:, None] * train[0] + 0.4 * np.asarray(w) ** 3
    sizes = sample_gradients(problem, jnp.asarray(weights), w)
    np.testing.assert_allclose(sizes, np.abs(each).mean(axis=0), rtol=1e-12)


def test_an_unsolvable_lower_level_is_reported():
    downhill = ub.Problem(lambda x, y, b: y, lambda x, y, b: y + 0.0 * x, p=2.0)
    with pytest.raises(RuntimeError, match=r"‖∇_y g‖ = 1 .*"):
        ub.lower_solution(downhill, 1.0, 0.0)
    inside = jax.jit(lambda x: ub.lower_solution(downhill, x, 0.0))(1.0)
    assert np.isnan(inside)


@pytest.mark.slow
def test_info_and_float32():
    problem = ub.problems.example3(jnp.float32(4.0))
    y, info = ub.Newton()(problem, jnp.float32(0.7), jnp.float32(2.0))
    assert y.dtype == jnp.float32
    assert info.status == Status.ok
    assert float(y) == pytest.approx(np.sin(0.7) ** (1 / 3), rel=1e-6)
    # One gradient a step, and those that judge the end: ten for rounding, two or six for each distance looked at.
    assert int(info.iterations) + 1 + 10 + 8 <= int(info.calls.grad_g) <= int(info.iterations) + 200
    assert int(info.calls.hvp) > int(info.iterations)


def test_many_problems_at_once():
    xs = jnp.linspace(-3, 3, 11)
    ys = jax.vmap(lambda x: ub.lower_solution(ub.problems.example3(6.0), x, 0.5))(xs)
    np.testing.assert_allclose(np.sign(ys) * np.abs(ys) ** 5, np.sin(xs), atol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("scale", [1e-15, 1e-8, 1.0, 1e8])
@pytest.mark.slow
def test_the_lower_level_in_any_unit(scale, dtype):
    problem = ub.Problem(lambda x, y, b: y**3 + x, lambda x, y, b: jnp.asarray(scale, y.dtype) * (y - x) ** 2, 2.0)
    y = ub.lower_solution(problem, jnp.asarray(2.0, dtype), jnp.asarray(0.0, dtype))
    assert float(y) == pytest.approx(2.0, rel=1e-5 if dtype == jnp.float32 else 1e-13)


@pytest.mark.parametrize("y0", [0.0, 1e3])
@pytest.mark.parametrize("d", [10, 50])
@pytest.mark.slow
def test_a_condition_number_of_1e8(d, y0):
    rng = np.random.default_rng(0)
    q, _ = np.linalg.qr(rng.normal(size=(d, d)))
    hessian = q * np.geomspace(1, 1e8, d) @ q.T
    hessian = (hessian + hessian.T) / 2
    problem = ub.problems.quadratic(hessian, np.eye(d), np.zeros(d))
    x = rng.normal(size=d)
    y = ub.lower_solution(problem, jnp.asarray(x), jnp.full(d, y0))
    np.testing.assert_allclose(y, np.linalg.solve(hessian, x), atol=1e-7)


@pytest.mark.slow
def test_many_unknowns_use_cg():
    rng = np.random.default_rng(0)
    coupling = rng.normal(size=(150, 150)) / 12
    problem = ub.problems.coupled_example3(4.0, coupling)
    x = rng.normal(size=150)
    y = ub.lower_solution(problem, jnp.asarray(x), jnp.ones(150))
    np.testing.assert_allclose(np.asarray(y) ** 3, coupling @ np.sin(x), atol=1e-12)
