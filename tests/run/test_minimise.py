"""`minimise`: every status, bad input, and that it is a run like others: resumed bitwise, counted, logged."""

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.core.programs import compiled


def near(x, y, batch):
    return jnp.sum((y - x) ** 2) / 2


def to_target(x, y, batch):
    return jnp.sum((y - 1.3) ** 2)


def solve(f, g=near, x=0.5, y=0.0, n=2, **options):
    return ub.minimise(ub.Problem(f, g), jnp.full(n, x), jnp.full(n, y), **options)


def rosenbrock(x, y, batch):
    return 100 * (y[1] - y[0] ** 2) ** 2 + (1 - y[0]) ** 2


HESSIAN = jnp.asarray([[2.0, 0.3, 0.0], [0.3, 1.5, 0.2], [0.0, 0.2, 1.0]])
COUPLING = jnp.asarray([[1.0, 0.5], [-0.3, 0.8], [0.2, -0.4]])
TARGET = jnp.asarray([1.0, -1.0, 0.5])


def test_ok_on_a_quadratic_in_closed_form():
    problem = ub.problems.quadratic(HESSIAN.tolist(), COUPLING.tolist(), TARGET.tolist())
    result = ub.minimise(problem, jnp.ones(2), jnp.zeros(3))
    assert result.status == "ok", result.message
    gradient, info = ub.hypergradient(problem, result.x, ub.lower_solution(problem, result.x, result.y))
    start, _ = ub.hypergradient(problem, jnp.ones(2), ub.lower_solution(problem, jnp.ones(2), jnp.zeros(3)))
    assert info.status == "ok"
    assert jnp.linalg.norm(gradient) <= 1.01e-6 * jnp.linalg.norm(start)
    np.testing.assert_allclose(result.gradient_norm, jnp.linalg.norm(gradient), rtol=1e-3)
    assert result.gradient_error < result.gradient_norm


def test_ok_where_the_lower_hessian_is_singular():
    result = ub.minimise(ub.problems.example3(6.0), 0.0, 0.0)
    assert result.status == "ok", result.message
    np.testing.assert_allclose(result.x, -jnp.pi / 2, atol=1e-5)
    np.testing.assert_allclose(result.phi, -jnp.sin(1.0), rtol=1e-9)


def test_p_and_shift_change_nothing_and_samples_are_counted():
    data = ub.problems.corrupted_regression(60, 4)
    stated = ub.problems.lp_regression(data.train, data.validation, 4.0)
    silent = ub.Problem(stated.f, stated.g, f_batches=stated.f_batches, g_batches=stated.g_batches)
    results = [ub.minimise(problem, jnp.zeros(60), jnp.zeros(4)) for problem in (stated, silent)]
    assert results[0].status == "ok"
    np.testing.assert_array_equal(results[0].x, results[1].x)
    calls = results[0].calls
    assert all(count % samples == 0 for count, samples in zip(calls, (30, 60, 60, 60), strict=True))
    assert results[0].history["calls"][-1] == sum(calls)
    assert (np.diff(results[0].history["phi"]) <= 1e-12).all()


def test_variables_are_trees():
    def f(x, y, batch):
        return jnp.sum((y["w"] - 1.3) ** 2) + y["b"] ** 2

    def g(x, y, batch):
        return jnp.sum((y["w"] - x[0]) ** 2) + (y["b"] - x[1]) ** 2

    result = ub.minimise(ub.Problem(f, g), (jnp.zeros((2, 2)), jnp.asarray(1.0)), {"w": jnp.ones((2, 2)), "b": 0.5})
    assert result.status == "ok"
    np.testing.assert_allclose(result.x[0], jnp.full((2, 2), 1.3), atol=1e-5)
    np.testing.assert_allclose(result.y["b"], 0.0, atol=1e-5)
    assert result.v.keys() == {"w", "b"}


def test_float32():
    x, y = jnp.asarray([-1.2, 1.0], jnp.float32), jnp.zeros(2, jnp.float32)
    result = ub.minimise(ub.Problem(rosenbrock, near), x, y)
    assert result.status == "ok"
    assert result.x.dtype == jnp.float32
    x = result.x.astype(jnp.float64)
    assert jnp.linalg.norm(jax.grad(rosenbrock, argnums=1)(x, x, None)) < 1.1e-3 * 233


def double_well(x, y, batch):
    return jnp.sum(y**4 / 4 - y**2 / 2 - x * y)


STATUSES = {
    "ok": (rosenbrock, near, -1.2, {}),
    "stagnated": (lambda x, y, batch: jnp.sum(jnp.abs(y - 1.3)), near, 0.5, {}),
    "no_minimiser": (to_target, lambda x, y, batch: jnp.sum(jnp.log1p(jnp.exp(-y * (1 + x**2)))), 1.0, {}),
    "not_convex": (to_target, lambda x, y, batch: (y[0] - x[0]) ** 2 - (y[1] - x[1]) ** 2, 0.5, {}),
    "ill_conditioned": (to_target, lambda x, y, batch: jnp.sum(x**2), 0.5, {}),
    "unbounded": (lambda x, y, batch: jnp.sum(y**3), near, -1.0, {}),
    "budget": (rosenbrock, near, -1.2, {"max_calls": 50}),
    "stationary": (to_target, near, 1.3, {}),
    "not_finite": (lambda x, y, batch: jnp.sum(jnp.sqrt(-1 - y**2)), near, 0.5, {}),
}


@pytest.mark.parametrize("status", STATUSES)
def test_every_status(status):
    f, g, x, options = STATUSES[status]
    result = solve(f, g, x, **options)
    assert result.status == status, (result, result.message)
    assert str(status) in repr(result)
    assert sum(result.calls) < 20_000
    assert len(result.message) > 20
    if status in ("not_convex", "no_minimiser", "ill_conditioned"):
        assert np.isnan(result.phi)


def test_a_linear_lower_level_has_no_minimiser():
    result = solve(to_target, lambda x, y, batch: jnp.sum(y * (1 + x**2)))
    assert result.status == "no_minimiser"


class Scaled(eqx.Module):
    """fn(x/unit, y) times a scale, both leaves: another scale is the same program."""

    fn: Callable[..., jax.Array] = eqx.field(static=True)
    scale: jax.Array
    unit: jax.Array

    def __call__(self, x, y, batch):
        return self.scale * self.fn(x / self.unit, y, batch)


def curved(x, y, batch):
    return jnp.sum((y - x) ** 2) / 2 + jnp.sum((y - x) ** 4) + y[0] * y[1] / 4


def scaled(f_scale=1.0, g_scale=1.0, unit=1.0):
    f = Scaled(rosenbrock, jnp.asarray(f_scale), jnp.asarray(unit))
    g = Scaled(curved, jnp.asarray(g_scale), jnp.asarray(unit))
    return ub.minimise(ub.Problem(f, g), unit * jnp.asarray([-1.2, 1.0]), jnp.zeros(2))


def test_units_of_f_g_and_x():
    plain = scaled()
    assert plain.status == "ok"
    for powers in ((2.0**20, 1.0), (1.0, 2.0**-20), (2.0**-20, 2.0**20)):
        other = scaled(*powers)
        np.testing.assert_array_equal(other.x, plain.x)
        assert other.calls == plain.calls
        np.testing.assert_array_equal(other.history["gradient_norm"], powers[0] * plain.history["gradient_norm"])
    for powers in ((1e6, 1.0), (1.0, 1e-6), (1e-6, 1e6)):
        other = scaled(*powers)
        assert other.status == "ok"
        assert abs(sum(other.calls) - sum(plain.calls)) <= 0.05 * sum(plain.calls)
    for unit in (1e-3, 1e3):
        other = scaled(unit=unit)
        assert other.status == "ok"
        np.testing.assert_allclose(other.x / unit, plain.x, atol=1e-3)
        assert sum(other.calls) <= 3 * sum(plain.calls)


def test_tolerance():
    loose, tight = (solve(rosenbrock, x=-1.2, tolerance=tolerance) for tolerance in (1e-2, 1e-8))
    assert loose.status == tight.status == "ok"
    assert sum(loose.calls) < sum(tight.calls)
    assert loose.gradient_norm <= 1e-2 * loose.history["gradient_norm"][0]
    assert tight.gradient_norm <= 1e-8 * tight.history["gradient_norm"][0]


@pytest.mark.parametrize("most", [1, 2, 7, 33, 61, 120])
def test_the_budget_of_calls_is_exceeded_by_less_than_one_oracle_call(most):
    data = ub.problems.corrupted_regression(20, 3)
    problem = ub.problems.lp_regression(data.train, data.validation, 4.0)
    result = ub.minimise(problem, jnp.zeros(20), jnp.zeros(3), max_calls=20 * most)
    assert result.status == "budget"
    assert 20 * most <= sum(result.calls) < 20 * most + 20


def test_seconds():
    result = solve(rosenbrock, x=-1.2, max_seconds=1e-9)
    assert result.status == "budget"
    assert "seconds" in result.message
    assert sum(result.calls) == 1


def test_a_run_that_is_resumed_is_the_same_bit_for_bit(tmp_path):
    files = ub.Checkpoints(tmp_path / "run", every=2)
    whole = solve(rosenbrock, x=-1.2)

    def stop(problem, state, row):
        return row["step"] >= 7

    first = solve(rosenbrock, x=-1.2, callbacks=[ub.stop.StopWhen(stop)], checkpoint=files)
    assert first.status == "budget"
    assert first.steps == 7
    again = solve(rosenbrock, x=-1.2, checkpoint=files)
    assert again.status == "ok"
    for name in ("x", "y", "v"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))
    assert again.calls == whole.calls
    for name, values in whole.history.items():
        if name != "seconds":
            np.testing.assert_array_equal(again.history[name], values)
    finished = solve(rosenbrock, x=-1.2, checkpoint=files)
    assert finished.status == "ok"
    assert finished.calls == whole.calls


def test_a_spent_budget_is_raised_by_the_next_call(tmp_path):
    files = ub.Checkpoints(tmp_path / "run", every=2)
    assert solve(rosenbrock, x=-1.2, checkpoint=files, max_calls=100).status == "budget"
    again, whole = solve(rosenbrock, x=-1.2, checkpoint=files), solve(rosenbrock, x=-1.2)
    assert again.status == "ok"
    np.testing.assert_array_equal(again.x, whole.x)
    assert sum(again.calls) >= sum(whole.calls)  # the step that the budget cut off was paid twice


def test_another_problem_is_not_continued(tmp_path):
    files = ub.Checkpoints(tmp_path / "run", every=2)
    solve(rosenbrock, x=-1.2, checkpoint=files, max_calls=100)
    with pytest.raises(ValueError, match="another run"):
        solve(to_target, x=-1.2, checkpoint=files)
    with pytest.raises(ValueError, match="another run"):
        solve(rosenbrock, x=-1.0, checkpoint=files)


def test_a_signal_interrupts_and_the_same_call_goes_on(tmp_path):
    files, whole = ub.Checkpoints(tmp_path / "run", every=1000), solve(rosenbrock, x=-1.2)

    def kill(row):
        if row["step"] == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    first = solve(rosenbrock, x=-1.2, callbacks=kill, checkpoint=files)
    assert first.status == "interrupted"
    again = solve(rosenbrock, x=-1.2, checkpoint=files)
    assert again.status == "ok"
    np.testing.assert_array_equal(again.x, whole.x)


def test_logs_and_rules(tmp_path):
    rows: list[Any] = []
    path = tmp_path / "log.jsonl"
    goal = ub.stop.Below("gradient_norm", 1.0)
    result = solve(rosenbrock, x=-1.2, callbacks=[rows.append, ub.logs.JSONLines(path), goal])
    assert result.status == "ok"  # of the rule, which says so in the message
    assert "Below" in result.message
    assert len(rows) == result.steps == len(path.read_text().splitlines())
    assert rows[-1]["phi"] == result.phi == json.loads(path.read_text().splitlines()[-1])["phi"]


def test_another_number_in_the_problem_compiles_nothing():
    solve(rosenbrock, x=-1.2)
    before = len(compiled.programs), compiled.compile_seconds
    solve(rosenbrock, x=-1.1, tolerance=1e-4)
    assert (len(compiled.programs), compiled.compile_seconds) == pytest.approx(before, abs=0.05)
    assert len(compiled.programs) == before[0]


def nearest_in_simplex(point):
    """By bisection for the shift λ with Σ max(point − λ, 0) = 1."""
    low, high = point.min() - 1, point.max()
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(point - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(point - low, 0)


def test_a_box_and_a_simplex():
    target = np.asarray([2.0, 0.4, -1.0, 0.7])
    problem, x = ub.Problem(lambda x, y, batch: jnp.sum((y - target) ** 2), near), jnp.zeros(4)
    box = ub.minimise(problem, x, x, project=ub.Box(0.0, 1.0))
    assert box.status == "ok", box.message
    np.testing.assert_allclose(box.x, np.clip(target, 0, 1), atol=1e-6)
    simplex = ub.minimise(problem, x, x, project=ub.Simplex())
    assert simplex.status == "ok", simplex.message
    np.testing.assert_allclose(simplex.x, nearest_in_simplex(target), atol=1e-6)


@pytest.mark.parametrize("project", [ub.Box(-0.5, 0.6), ub.Simplex()])
def test_a_correlated_quadratic_in_a_set_satisfies_the_optimality_conditions(project):
    rng = np.random.default_rng(3)
    a = rng.normal(size=(6, 6))
    h, c = jnp.asarray(a @ a.T + 0.1 * np.eye(6)), jnp.asarray(3 * rng.normal(size=6))
    result = ub.minimise(ub.Problem(lambda x, y, batch: 0.5 * y @ h @ y - c @ y, near), jnp.zeros(6), jnp.zeros(6),
                         project=project)  # fmt: skip
    assert result.status == "ok", result.message
    np.testing.assert_array_equal(project(result.x), result.x)
    gradient = h @ result.x - c
    gap = jnp.linalg.norm(result.x - project(result.x - gradient))
    np.testing.assert_allclose(result.gradient_norm, gap, atol=1e-8)
    slow = jnp.zeros(6)  # the same by 20,000 steps of projected gradient descent
    for _ in range(2):
        slow = jax.lax.fori_loop(0, 10_000, lambda _, x: project(x - 0.02 * (h @ x - c)), slow)
    np.testing.assert_allclose(result.x, slow, atol=1e-5)


def test_noise_is_refused_with_advice():
    noise = ub.Noise(grad_y_g=1.0)
    with pytest.raises(ValueError, match=r"(?s)Noise.*solve"):
        ub.minimise(ub.problems.example3(4.0, noise, noise), 1.0, 1.0)


BAD: dict[str, dict[str, Any]] = {
    "x contains NaN": {"x": jnp.nan},
    "y contains NaN": {"y": jnp.inf},
    "tolerance must be": {"tolerance": 0.0},
    "tolerance must be <": {"tolerance": 1.0},
    "max_calls must be": {"max_calls": 0},
    "max_seconds must be": {"max_seconds": -1.0},
    "callbacks must be": {"callbacks": 3},
    "project must be": {"project": ub.Box},
    r"project\(x\)": {"project": lambda x: x[:1]},
    "checkpoint must be": {"checkpoint": "folder"},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused_by_name(message):
    with pytest.raises((ValueError, TypeError), match=message):
        solve(rosenbrock, **BAD[message])


def test_f_that_is_no_scalar():
    with pytest.raises(ValueError, match="scalar"):
        solve(lambda x, y, batch: y)


def test_not_inside_jit():
    with pytest.raises(TypeError, match="inside jit"):
        jax.jit(lambda x: ub.minimise(ub.Problem(rosenbrock, near), x, x).x)(jnp.ones(2))


def test_a_plot(tmp_path):
    pytest.importorskip("matplotlib")
    solve(to_target).plot(tmp_path / "run.svg")
    assert (tmp_path / "run.svg").stat().st_size > 1000
