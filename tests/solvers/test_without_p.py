"""UniBiO without p: it runs with p stated too small, too large or not at all, and arrives at the same place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import lp_phi

import unibio as ub
from unibio.solvers.step_sizes import tunable

KEY = jax.random.key(0)


def restated(problem, p):
    """The same f and g, but another claim about p."""
    return ub.Problem(problem.f, problem.g, p, f_batches=problem.f_batches, g_batches=problem.g_batches)


@pytest.mark.parametrize("true_p", [4.0, 8.0])
@pytest.mark.slow
def test_example3(true_p):
    ends = []
    solver = ub.UniBiO.without_p(0.02)
    for stated in (None, 2.0, true_p, 12.0):
        problem = restated(ub.problems.example3(true_p), stated)
        result = ub.solve(problem, solver, 1.0, 1.0, steps=300, key=KEY)
        ends.append(float(result.x))
        assert abs(result.x + np.pi / 2) < 0.03  # where sin(sin x) is least, within a step and a half
    assert np.ptp(ends) < 0.04


def test_through_a_singular_point():
    """From x = 0, y = 0 exactly, where the Hessian vanishes and only the floor δ uses p."""
    for stated in (None, 2.5, 4.0, 12.0):
        problem = restated(ub.problems.example3(4.0), stated)
        result = ub.solve(problem, ub.UniBiO.without_p(0.02), 0.0, 0.0, steps=200, key=KEY)
        assert abs(result.x + np.pi / 2) < 0.03


@pytest.mark.slow
def test_lp_regression():
    data = ub.problems.corrupted_regression(100, 5)
    problem = ub.problems.lp_regression(data.train, data.validation, 4.0, batch_size=None)
    x, y = jnp.zeros(100), ub.lower_solution(problem, jnp.zeros(100), jnp.zeros(5))
    solver = ub.UniBiO.without_p(0.5, steps=50)
    start, ends = lp_phi(x, data.train, data.validation, 4.0, 1e-2), []
    for stated in (None, 2.0, 4.0, 8.0):
        result = ub.solve(restated(problem, stated), solver, x, y, steps=60, key=KEY)
        ends.append(lp_phi(np.asarray(result.x), data.train, data.validation, 4.0, 1e-2))
    assert max(ends) < 0.5 * start
    np.testing.assert_allclose(ends, ends[0], rtol=1e-6)


def test_what_needs_p_refuses():
    problem = restated(ub.problems.example3(4.0), None)
    for method in (ub.Neumann(), ub.CG(preconditioner=ub.Power())):
        with pytest.raises(ValueError, match=r"states no p.*CG\(preconditioner=Jacobi\(\)\)"):
            ub.hypergradient(problem, 1.0, 1.0, method)
    with pytest.raises(ValueError, match="states no p"):
        ub.EpochSGD()(lambda w, _: w, lambda count: None, jnp.ones(1), None)


def test_tuning_knows_that_there_is_no_lower_step_size():
    assert tunable(ub.UniBiO.without_p(0.1)) == ("step_size",)
    assert tunable(ub.UniBiO(0.1)) == ("step_size", "lower.step_size")
    assert tunable(ub.SOBA(0.1, 0.1)) == ("step_size", "lower_step_size")
