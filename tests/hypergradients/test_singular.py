import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.core.status import Status


def quartic(x, y, batch):
    return y**4 / 4 - y * jnp.sin(x)


@pytest.mark.parametrize("p", [2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0])
@pytest.mark.parametrize("method", [ub.Exact(), ub.CG(), ub.Neumann(), ub.Unrolled(3, 1.0, in_z=True)], ids=repr)
@pytest.mark.slow
def test_float32_never_gives_nan(p, method):
    """Down to y = 0, through all the subnormal powers in between."""
    problem = ub.problems.example3(p)
    y = jnp.asarray(np.concatenate([[0.0], np.geomspace(1e-30, 1.0, 31), -np.geomspace(1e-30, 1.0, 31)]), jnp.float32)
    x = jnp.zeros_like(y)
    values, _ = jax.vmap(lambda x, y: ub.hypergradient(problem, x, y, method))(x, y)
    assert np.all(np.isfinite(values))
    assert values.dtype == jnp.float32
    # v = D∇_y f = cos(y^(p−1)) and A = −cos x. Unrolled sees y after three exact steps to 0: cos 0.
    expected = np.ones_like(y) if isinstance(method, ub.Unrolled) else np.cos(np.abs(np.asarray(y)) ** (p - 1))
    np.testing.assert_allclose(values, expected, atol=2e-5)


@pytest.mark.parametrize("p", [2.0, 4.0, 6.0, 12.0, 20.0])
@pytest.mark.slow
def test_without_p_the_jacobi_hypergradient_is_exact(p):
    problem = ub.problems.example3(p)
    for dtype, tolerance in ((jnp.float64, 1e-14), (jnp.float32, 1e-6)):
        for x in (0.0, 0.3, 2.0, np.pi / 2):
            y = jnp.asarray(np.abs(np.sin(x)) ** (1 / (p - 1)), dtype)
            value, _ = ub.hypergradient(problem, jnp.asarray(x, dtype), y, ub.CG(preconditioner=ub.Jacobi()))
            assert float(value) == pytest.approx(np.cos(x) * np.cos(np.sin(x)), abs=tolerance)


@pytest.mark.parametrize(
    ("upper", "exists"),
    [
        (lambda x, y, b: y**3, True),
        (lambda x, y, b: jnp.sin(y**3), True),
        (lambda x, y, b: ub.abs_pow(y, 3.5), True),  # fades: limit 0
        (lambda x, y, b: y**2, False),  # infinite, opposite signs
        (lambda x, y, b: y, False),  # infinite, same sign
        (lambda x, y, b: ub.abs_pow(y, 3.0), False),  # one-sided limits −1 and 1
    ],
)
@pytest.mark.slow
def test_the_limit_is_checked(upper, exists):
    problem = ub.Problem(upper, quartic, p=4.0)
    for method in (ub.CG(), ub.Exact(), ub.Neumann()):
        _, info = ub.hypergradient(problem, 0.0, 0.0, method)
        assert (info.status == Status.ok) == exists
        assert (info.status == Status.no_limit) != exists
        assert info.floored == 1
    answer = ub.differentiable_in_z(problem, 0.0, 0.0)
    assert bool(answer.f) == exists
    assert bool(answer.grad_g)
    away = ub.differentiable_in_z(problem, 0.0, 0.7)
    assert bool(away.f)
    assert bool(away.grad_g)


@pytest.mark.slow
def test_a_limit_that_depends_on_the_direction_is_reported():
    mixing = jnp.array([[1.0, 2.0], [-1.0, 0.5]])
    problem = ub.Problem(
        lambda x, y, b: jnp.sum(y**3), lambda x, y, b: jnp.sum((mixing @ y) ** 4) - jnp.sum(y) * jnp.sin(x), p=4.0
    )
    _, info = ub.hypergradient(problem, 0.0, jnp.zeros(2))
    assert info.status == Status.no_limit
    answer = ub.differentiable_in_z(problem, 0.0, jnp.zeros(2))
    assert np.all(answer.f)
    assert not np.all(answer.grad_g)


@pytest.mark.parametrize(("p", "f_ok", "g_ok"), [(4.0, True, True), (5.0, False, False), (3.0, True, True)])
def test_differentiability_depends_on_p(p, f_ok, g_ok):
    """f = y³, g = y⁴/4: fine for p = 4, infinite for p = 5; p = 3 gives limit 0, which is finite."""
    answer = ub.differentiable_in_z(ub.Problem(lambda x, y, b: y**3, quartic, p=p), 0.0, 0.0)
    assert (bool(answer.f), bool(answer.grad_g)) == (f_ok, g_ok)


@pytest.mark.slow
def test_the_papers_own_examples_are_differentiable():
    """The paper's growth condition asks for limit 0 and would reject them."""
    for problem in (ub.problems.example1(), ub.problems.example3(6.0), ub.problems.example4(3.5)):
        answer = ub.differentiable_in_z(problem, jnp.zeros(2), jnp.zeros(2))
        assert np.all(answer.f)
        assert np.all(answer.grad_g)


@pytest.mark.slow
def test_a_small_coordinate_of_a_regression_stays_where_it_is():
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(50, 3)), rng.normal(size=50)
    problem = ub.problems.lp_regression((features, targets), (features, targets), 4.0)
    w = jnp.array([0.0, 1.0, -0.5])
    value, info = ub.CG()(problem, jnp.zeros(50), w, None)
    assert info.floored == 0
    assert info.status == Status.ok
    assert int(info.calls.hvp) == (int(info.iterations) + 3) * 50  # a product for each unknown, which show the rows too
    np.testing.assert_allclose(value, ub.hypergradient(problem, jnp.zeros(50), w, ub.Exact())[0], rtol=1e-8)


@pytest.mark.slow
def test_a_shifted_singularity():
    problem = ub.Problem(
        lambda x, y, b: (y - 2.0) ** 3, lambda x, y, b: (y - 2.0) ** 4 / 4 - y * jnp.sin(x), p=4.0, shift=2.0
    )
    value, info = ub.hypergradient(problem, 0.0, 2.0)
    assert float(value) == pytest.approx(1.0, abs=1e-3)  # y − 2 = 1e-12 is only known to 4 digits
    assert info.floored == 1
    assert info.status == Status.ok
