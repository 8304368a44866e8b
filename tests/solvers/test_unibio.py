"""What UniBiO can be told: constraints, schedules, optax, a warm start of its own; and that it can do nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unibio as ub

KEY = jax.random.key(0)
PROBLEM, X, Y = ub.problems.PROBLEMS["quadratic"]()
LOWER = ub.SGD(30, 0.3)


def fade(t):
    return 0.97 ** t.astype(float)


def solve(solver, problem=PROBLEM, x=X, y=Y, steps=200):
    return ub.solve(problem, solver, x, y, steps=steps, key=KEY)


def gradient(x):
    lower, upper = PROBLEM.g, PROBLEM.f
    inverse = np.linalg.inv(lower.hessian) @ np.asarray(lower.coupling)
    return np.asarray(x) / 10 + inverse.T @ (inverse @ np.asarray(x) - np.asarray(upper.target))


@pytest.mark.parametrize("project", [ub.Box(0.0, 0.2), lambda x: optax.projections.projection_box(x, 0.0, 0.2)])
@pytest.mark.slow
def test_a_box_is_kept_and_its_solution_found(project):
    solver = ub.UniBiO(0.2, lower=LOWER, hypergradient=ub.CG(), schedule=fade, project=project)
    result = solve(solver)
    x, slope = np.asarray(result.x), gradient(result.x)
    assert np.all((x >= 0) & (x <= 0.2))
    for value, s in zip(x, slope, strict=True):  # first-order conditions, coordinate by coordinate
        if value == 0:
            assert s > 0
        elif value == pytest.approx(0.2):
            assert s < 0
        else:
            assert abs(s) < 1e-2
    assert np.any((x == 0) | (x == pytest.approx(0.2)))


def test_a_simplex_over_a_tree():
    tree = {"a": jnp.array([0.9]), "b": jnp.array([0.5, -0.2])}
    projected = ub.Simplex(2.0)(tree)
    flat = np.concatenate([np.asarray(projected["a"]), np.asarray(projected["b"])])
    assert flat.sum() == pytest.approx(2.0)
    assert flat.min() >= 0
    # the projection onto a simplex subtracts one number from all and cuts at 0
    moved = np.array([0.9, 0.5, -0.2]) - flat
    np.testing.assert_allclose(moved, moved[0])


def test_on_a_simplex():
    solver = ub.UniBiO(0.2, lower=LOWER, hypergradient=ub.CG(), schedule=fade, project=ub.Simplex())
    x = np.asarray(solve(solver).x)
    slope = gradient(x)
    assert x.sum() == pytest.approx(1.0)
    held = x > 1e-6
    assert np.ptp(slope[held]) < 1e-2 if held.sum() > 1 else np.all(slope[~held] >= slope[held] - 1e-9)


def test_optax_in_place_of_the_normalised_step():
    """With optax.sgd, β = 0 and exact inner solutions it is gradient descent on Φ."""
    solver = ub.UniBiO(
        0.3, momentum=0.0, period=1, lower=ub.SGD(400, 0.4), hypergradient=ub.Exact(), optimiser=optax.sgd(1.0)
    )
    result = solve(solver, steps=5)
    x = np.asarray(X)
    for _ in range(5):
        x = x - 0.3 * gradient(x)
    np.testing.assert_allclose(result.x, x, rtol=1e-9)


def test_a_schedule_does_not_recompile_for_another_step_size():
    first = solve(ub.UniBiO(0.2, lower=LOWER, hypergradient=ub.CG(), schedule=fade), steps=3)
    second = solve(ub.UniBiO(0.1, lower=LOWER, hypergradient=ub.CG(), schedule=fade), steps=3)
    assert second.compile_seconds < 0.01
    assert np.any(first.x != second.x)


@pytest.mark.slow
def test_where_there_is_nothing_to_do():
    """∇Φ = 0 everywhere: no direction, no NaN, no move."""
    problem = ub.Problem(lambda x, y, batch: 0.0 * jnp.sum(y), PROBLEM.g, 2.0)
    result = solve(ub.UniBiO(0.2, lower=LOWER, hypergradient=ub.CG()), problem, steps=4)
    np.testing.assert_array_equal(result.x, X)
    assert result.status == "finished"


def test_the_lower_level_is_refreshed_every_period():
    solver = ub.UniBiO(0.1, period=3, lower=ub.SGD(5, 0.3), warm_start=ub.SGD(11, 0.3), hypergradient=ub.Exact())
    result = solve(solver, steps=8)
    # the warm start, then refreshes at t = 2 and 5, which are the paper's steps 3 and 6
    np.testing.assert_array_equal(result.history["grad_g"], 11 + 5 * np.array([0, 0, 1, 1, 1, 2, 2, 2]))
    starts = {steps: solve(solver, steps=steps).y for steps in (1, 2, 3, 5)}
    np.testing.assert_array_equal(starts[1], starts[2])
    np.testing.assert_array_equal(starts[3], starts[5])
    assert np.any(starts[2] != starts[3])


def test_the_momentum_starts_at_0_and_the_first_step_is_along_the_first_estimate():
    solver = ub.UniBiO(0.1, momentum=0.9, lower=ub.SGD(400, 0.4), hypergradient=ub.Exact())
    result = solve(solver, steps=1)
    slope = gradient(X)
    assert result.history["direction_norm"][0] == pytest.approx(0.1 * np.linalg.norm(slope), rel=1e-8)
    np.testing.assert_allclose(result.x, np.asarray(X) - 0.1 * slope / np.linalg.norm(slope), rtol=1e-8)
