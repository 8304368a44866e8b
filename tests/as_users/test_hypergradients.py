"""Hypergradients as users call them: a plain script, float32, at least two unknowns."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio import Status


def cubes(x, y, batch):
    return jnp.sum(y**3)


def quartic(x, y, batch):
    return jnp.sum(y**4) / 4 - y @ jnp.sin(x)


METHODS = {
    "CG": ub.CG(),
    "Exact": ub.Exact(),
    "Neumann": ub.Neumann(),
    "Unrolled": ub.Unrolled(3, 1.0, in_z=True),
}
# A compiled program costs seconds: the other preconditioners of CG are in the second tier.
PRECONDITIONED = {"Jacobi": ub.CG(preconditioner=ub.Jacobi()), "Power": ub.CG(preconditioner=ub.Power())}
every_method = pytest.mark.parametrize(
    "method",
    [
        *(pytest.param(method, id=name) for name, method in METHODS.items()),
        *(pytest.param(method, id=name, marks=pytest.mark.slow) for name, method in PRECONDITIONED.items()),
    ],
)
PARTLY = np.array([0.0, 0.8], np.float32)  # y, with a Hessian that vanishes in its first entry


def test_nothing_is_configured():
    assert not jax.config.read("jax_enable_x64")
    assert not jax.config.read("jax_disable_most_optimizations")
    assert jnp.zeros(2).dtype == jnp.float32


@pytest.mark.parametrize("p", [2.0, 4.0, 8.0, 20.0])
@every_method
def test_a_singular_point(method, p):
    value, info = ub.hypergradient(ub.problems.example4(p), jnp.zeros(2), jnp.zeros(2), method)
    np.testing.assert_allclose(value, 1.0, atol=2e-5)
    assert info.status == Status.ok
    assert info.error < 1e-3
    assert info.lower_residual == 0


def check_a_partly_singular_point(problem, method):
    y = jnp.asarray(PARTLY)
    value, info = ub.hypergradient(problem, jnp.arcsin(y**3), y, method)
    np.testing.assert_allclose(value, [1.0, np.sqrt(1 - 0.8**6)], rtol=1e-4)
    assert info.status == Status.ok


@every_method
def test_a_partly_singular_point(method):
    """The programs are those of `test_a_singular_point`."""
    check_a_partly_singular_point(ub.problems.example4(4.0), method)


@pytest.mark.parametrize(
    "name", ["CG", *(pytest.param(name, marks=pytest.mark.slow) for name in (METHODS | PRECONDITIONED) if name != "CG")]
)
def test_a_partly_singular_point_of_functions_of_ones_own(name):
    check_a_partly_singular_point(ub.Problem(cubes, quartic, p=4.0), (METHODS | PRECONDITIONED)[name])


@pytest.mark.slow
def test_no_preconditioner_says_so_or_is_right():
    y = jnp.array([0.0, 0.8])
    problem, method = ub.Problem(cubes, quartic, p=4.0), ub.CG(preconditioner=ub.Identity())
    value, info = ub.hypergradient(problem, jnp.arcsin(y**3), y, method)
    # A limit exists, so that `no_limit` would be false.
    assert info.status.name in ("ill_conditioned", "budget", "truncated") or abs(float(value[0]) - 1) < 1e-2


@pytest.mark.slow
def test_power_where_one_coordinate_is_below_the_floor():
    y = jnp.array([0.01, 0.97])
    method = ub.CG(preconditioner=ub.Power())
    value, info = ub.hypergradient(ub.problems.example4(20.0), jnp.arcsin(y**19), y, method)
    np.testing.assert_allclose(value, jnp.cos(jnp.arcsin(y**19)), rtol=1e-3)
    assert info.status == Status.ok


def test_tiny_units_at_a_regular_point():
    problem = ub.Problem(lambda x, y, b: 1e-20 * jnp.sum(y), lambda x, y, b: jnp.sum((y - x) ** 2) / 2, p=2.0)
    value, info = ub.hypergradient(problem, jnp.ones(2), jnp.ones(2))
    np.testing.assert_allclose(value, 1e-20, rtol=1e-5)
    assert info.status == Status.ok


@pytest.mark.parametrize(
    ("p", "shift"), [(2.0, 0.0), pytest.param(None, 0.0, marks=pytest.mark.slow), (4.0, 3.0), (20.0, 0.0)]
)
def test_p_and_shift_may_be_wrong(p, shift):
    """Only the preconditioner of `Power` and the coordinate of `Neumann` use them."""
    value, info = ub.hypergradient(ub.Problem(cubes, quartic, p=p, shift=shift), jnp.zeros(2), jnp.zeros(2))
    np.testing.assert_allclose(value, 1.0, atol=1e-4)
    assert info.status == Status.ok


class Kinked(eqx.Module):
    """Σ y³ + |y|³ over the coordinates with weight 1; the weights are leaves, so that one program serves all."""

    weights: jax.Array

    def __call__(self, x, y, batch):
        return jnp.sum(y**3) + jnp.sum(self.weights * jnp.abs(y) ** 3)


@pytest.mark.parametrize("kinked", [(0,), (2,), (5,), (2, 6), (0, 1, 2, 3, 4, 5, 6, 7)])
@pytest.mark.slow
def test_a_kink_in_any_coordinate_is_seen(kinked):
    problem = ub.Problem(Kinked(jnp.zeros(8).at[jnp.array(kinked)].set(1.0)), quartic, p=4.0)
    assert ub.hypergradient(problem, jnp.zeros(8), jnp.zeros(8))[1].status == Status.no_limit


@pytest.mark.slow
def test_a_slow_blow_up_is_seen():
    problem = ub.Problem(lambda x, y, b: jnp.sum(ub.spow(y, 2.95)), quartic, p=4.0)
    assert ub.hypergradient(problem, jnp.zeros(2), jnp.zeros(2))[1].status == Status.no_limit


@pytest.mark.slow
def test_the_bias_of_the_distance_is_reported():
    problem = ub.Problem(
        lambda x, y, b: jnp.sum(ub.spow(y, 19.0) * (1 + 10 * y)),
        lambda x, y, b: jnp.sum(ub.abs_pow(y, 20.0)) / 20 - y @ jnp.sin(x),
        p=20.0,
    )
    value, info = ub.hypergradient(problem, jnp.zeros(2), jnp.zeros(2))
    error = float(jnp.linalg.norm(value - 1))
    assert error > 0.1  # float32 cannot come nearer to 0 than 0.02
    assert info.status == Status.stagnated
    assert error / 2 < float(info.error) < 5 * error


@pytest.mark.slow
def test_the_readme_and_docstring_example():
    problem = ub.Problem(lambda x, y, batch: y**3, lambda x, y, batch: y**4 / 4 - y * jnp.sin(x), p=4.0)
    value, info = ub.hypergradient(problem, 0.0, 0.0)
    assert float(value) == pytest.approx(1.0, abs=1e-5)
    assert info.status == Status.ok


def test_argmin_from_zero():
    solution = ub.argmin(ub.problems.example1())
    slope = jax.grad(lambda x: jnp.sum(solution(x, jnp.zeros(2)) ** 3))(jnp.zeros(2))
    np.testing.assert_allclose(slope, 1.0, atol=1e-3)


def test_a_run_that_starts_at_a_singular_point_moves():
    solver = ub.UniBiO(0.1, hypergradient=ub.CG())
    result = ub.solve(
        ub.problems.example4(4.0),
        solver,
        jnp.zeros(2),
        jnp.zeros(2),
        steps=5,
        key=jax.random.key(0),
        metrics=ub.Truth(),
        stop=ub.Below("gradient_norm", 1e-3),
    )
    assert result.steps == 5
    assert result.metrics["gradient_norm"][0] == pytest.approx(np.sqrt(2), abs=1e-3)
    assert result.history["direction_norm"][0] == pytest.approx(0.1 * np.sqrt(2), abs=1e-4)  # momentum .9, from 0
    assert "norm 0" not in result.message
