"""The loop: what it records, when it stops, how it ends."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.core import tree
from unibio.core.protocols import Info

KEY = jax.random.key(3)
SETTING = ub.problems.PROBLEMS["quadratic"]()
SOLVER = ub.StocBiO(0.3, 0.3, lower_steps=3, terms=5)


def run(steps=40, solver=SOLVER, **options):
    return ub.solve(*_swap(SETTING, solver), steps=steps, key=KEY, **options)


def _swap(setting, solver):
    return setting.problem, solver, setting.x, setting.y


def gradient(x):
    """∇Φ of the quadratic in closed form."""
    lower, upper = SETTING.problem.g, SETTING.problem.f
    hessian, coupling, target = (np.asarray(a) for a in (lower.hessian, lower.coupling, upper.target))
    inverse = np.linalg.inv(hessian) @ coupling
    return x / 10 + inverse.T @ (inverse @ x - target)


class Drift(NamedTuple):
    x: jax.Array
    y: jax.Array


class BlowUp(eqx.Module):
    """x grows by one each step and is NaN from step `at` on."""

    at: int

    def init(self, problem, x, y, key):
        return Drift(x, y), Info(jnp.zeros(()), ub.Calls(grad_g=7))

    def step(self, problem, state, key):
        x = jnp.where(state.x[0] >= self.at, jnp.nan, state.x + 1)
        return Drift(x, state.y), Info(x[0], ub.Calls(grad_f=2, hvp=3))


def test_history_has_a_row_per_step():
    result = run(steps=40)
    history = result.history
    assert result.status == "finished"
    assert result.steps == 40
    np.testing.assert_array_equal(history["step"], np.arange(40))
    # StocBiO: 3 lower gradients, one ∇f, 5 products, one cross term per step
    for name, each in {"grad_f": 1, "grad_g": 3, "hvp": 5, "cross": 1, "calls": 10}.items():
        np.testing.assert_array_equal(history[name], each * np.arange(1, 41))
    assert result.calls == ub.Calls(40, 120, 200, 40)
    assert np.all(np.diff(history["seconds"]) > 0)
    assert history["seconds"][-1] == pytest.approx(result.seconds)
    assert history["ok"].all()
    assert all(isinstance(column, np.ndarray) for column in history.values())


def test_truth_is_the_closed_form():
    result = run(steps=10, metrics=ub.Truth(), every=4)
    metrics = result.metrics
    assert metrics["step"].tolist() == [0, 4, 8, 10]
    assert metrics["calls"].tolist() == [0, 40, 80, 100]
    at_start = gradient(np.asarray(SETTING.x))
    assert metrics["gradient_norm"][0] == pytest.approx(np.linalg.norm(at_start), rel=1e-9)
    assert metrics["gradient_norm"][-1] == pytest.approx(np.linalg.norm(gradient(np.asarray(result.x))), rel=1e-9)
    y_star = ub.lower_solution(SETTING.problem, result.x, result.y)
    assert metrics["lower_error"][-1] == pytest.approx(float(jnp.linalg.norm(result.y - y_star)), rel=1e-9)
    assert metrics["phi"][-1] == pytest.approx(float(SETTING.problem.f(result.x, y_star, None)), rel=1e-12)


@pytest.mark.slow
def test_metrics_leave_the_trajectory_alone():
    plain, measured = run(steps=11), run(steps=11, metrics=[ub.Truth(ub.Exact())], every=2)
    np.testing.assert_array_equal(plain.x, measured.x)
    np.testing.assert_array_equal(plain.history["direction_norm"], measured.history["direction_norm"])


def test_accuracy():
    def apply(y, inputs):
        return inputs @ jnp.stack([y, -y], axis=1)

    inputs, labels = jnp.eye(3), jnp.array([0, 1, 0])
    result = run(steps=1, metrics=ub.Accuracy(apply, inputs, labels, name="test"))
    predicted = (np.asarray(result.y) < 0).astype(int)
    assert result.metrics["test"][-1] == pytest.approx(np.mean(predicted == labels))


def test_two_metrics_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two metrics have the same name"):
        run(steps=1, metrics=[ub.Truth(), ub.Truth()])


@pytest.mark.slow
def test_stop_below_a_tolerance():
    result = run(400, ub.AmIGO(0.5, 0.4), metrics=ub.Truth(), every=1, stop=ub.Below("gradient_norm", 1e-3))
    values = result.metrics["gradient_norm"]
    assert result.status == "ok"
    assert result.steps < 400
    assert values[-1] <= 1e-3 < values[-2]
    assert "Below" in result.message
    assert f"{result.steps} steps" in result.message


def test_stop_below_an_unknown_name():
    with pytest.raises(ValueError, match=r"nothing of this name is recorded.*metrics=Truth"):
        run(stop=ub.Below("gradient_norm", 1e-3))


@pytest.mark.parametrize("chunk", [1, 7, None])
def test_a_call_budget_ends_at_the_same_step_for_any_chunk(chunk):
    result = run(steps=40, stop=[ub.MaxCalls(95)], chunk=chunk)
    assert result.status == "budget"
    assert result.steps == 10
    assert sum(result.calls) == 100
    np.testing.assert_array_equal(result.x, run(steps=10).x)


def test_stop_after_seconds():
    result = run(steps=10**6, stop=ub.MaxSeconds(0.2))
    assert result.status == "budget"
    assert 0.2 <= result.seconds < 5
    assert result.steps < 10**6


@pytest.mark.parametrize("chunk", [1, 4, 100, None])
def test_divergence_keeps_the_last_finite_state(chunk):
    result = ub.solve(SETTING.problem, BlowUp(5), jnp.zeros(2), SETTING.y, steps=50, key=KEY, chunk=chunk)
    assert result.status == "diverged"
    assert result.steps == 5
    np.testing.assert_array_equal(result.x, [5.0, 5.0])
    assert result.calls == ub.Calls(10, 7, 15, 0)
    assert len(result.history["step"]) == 5
    assert "step 5" in result.message
    assert "x became NaN or infinite in step 5: lower step_size" in result.message


def test_a_real_divergence():
    result = run(steps=3000, solver=ub.SOBA(50.0, 50.0, upper_decay=0, lower_decay=0))
    assert result.status == "diverged"
    assert np.all(np.isfinite(result.x))
    assert np.all(np.isfinite(result.y))
    shorter = run(steps=result.steps, solver=ub.SOBA(50.0, 50.0, upper_decay=0, lower_decay=0))
    np.testing.assert_array_equal(result.x, shorter.x)


def test_a_warm_start_that_diverges():
    solver = ub.UniBiO(0.1, warm_start=ub.SGD(2000, 10.0), hypergradient=ub.CG())
    result = run(steps=5, solver=solver)
    assert result.status == "diverged"
    assert result.steps == 0
    assert "warm start" in result.message
    np.testing.assert_array_equal(result.y, SETTING.y)


def test_another_number_of_steps_is_the_same_program():
    run(steps=3)
    assert run(steps=9).compile_seconds < 0.01
    assert run(steps=9, chunk=2).compile_seconds < 0.01


def test_a_bad_hypergradient_is_told():
    problem = ub.problems.example3(4.0)
    too_small = ub.UniBiO(0.01, hypergradient=ub.Neumann(terms=4, scale=0.1), lower=ub.SGD(1))
    result = ub.solve(problem, too_small, 1.0, 1.0, steps=5, key=KEY)
    assert not result.history["ok"].any()
    assert "5 of 5 steps" in result.message
    assert "grew without bound" in result.message
    assert "if scale was given, raise it" in result.message


def test_resume_goes_on_as_if_nothing_had_happened():
    options = {"metrics": ub.Truth(), "every": 5}
    whole, part = run(steps=30, **options), run(steps=12, **options)
    resumed = run(steps=30, resume=part, **options)
    np.testing.assert_array_equal(whole.x, resumed.x)
    assert resumed.calls == whole.calls
    for name in set(whole.history) - {"seconds"}:
        np.testing.assert_array_equal(whole.history[name], resumed.history[name])
    assert [s for s in resumed.metrics["step"].tolist() if s != 12] == whole.metrics["step"].tolist()
    with pytest.raises(ValueError, match="already taken 30 steps"):
        run(steps=20, resume=whole)


def test_callbacks_see_every_stretch():
    rows: list[dict[str, Any]] = []
    run(steps=20, chunk=6, callbacks=[rows.append])
    assert [row["step"] for row in rows] == [6, 12, 18, 20]
    assert rows[-1]["calls"] == 200


def test_nothing_is_printed_where_nobody_looks(capfd):
    run(steps=5)
    assert capfd.readouterr() == ("", "")


def test_compiling_is_apart_and_happens_once():
    def f(x, y, batch):
        return jnp.sum(y**2) + jnp.sum(x**2)

    problem = ub.Problem(f, SETTING.problem.g, 2.0)
    first, second = (
        ub.solve(problem, ub.SOBA(size, 0.1), SETTING.x, SETTING.y, steps=10, key=KEY) for size in (0.1, 0.2)
    )
    assert first.compile_seconds > 0.05
    assert second.compile_seconds < 0.1 * first.compile_seconds


def test_zero_steps_and_float32():
    x, y = SETTING.x.astype(jnp.float32), SETTING.y.astype(jnp.float32)
    result = ub.solve(SETTING.problem, SOLVER, x, y, steps=0, key=KEY)
    assert result.steps == 0
    assert result.x.dtype == jnp.float32
    assert ub.solve(SETTING.problem, SOLVER, x, y, steps=3, key=KEY).x.dtype == jnp.float32


def test_save_and_load(tmp_path):
    result = run(steps=7, metrics=ub.Truth(), every=3)
    nested = {"b": [np.arange(3.0), (np.ones((2, 2)),)], "a": np.float64(2.0)}
    result = dataclasses.replace(result, x=nested)
    path = result.save(tmp_path / "deep" / "run.npz")
    loaded = ub.Result.load(path)
    assert tree.same_structure(loaded.x, nested)
    assert jax.tree.all(jax.tree.map(np.array_equal, loaded.x, nested))
    assert (loaded.status, loaded.message, loaded.steps, loaded.calls) == (
        result.status,
        result.message,
        7,
        result.calls,
    )
    for name, values in result.history.items():
        np.testing.assert_array_equal(loaded.history[name], values)
    np.testing.assert_array_equal(loaded.metrics["gradient_norm"], result.metrics["gradient_norm"])
    assert [p.name for p in path.parent.iterdir()] == ["run.npz"]
    with pytest.raises(ValueError, match="no solver state"):
        run(steps=9, resume=loaded)


def test_damaged_files_are_refused(tmp_path):
    path = run(steps=2).save(tmp_path / "run.npz")
    good = path.read_bytes()
    for bad in (b"", good[: len(good) // 2], b"not a result"):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=r"not a result written by Result\.save"):
            ub.Result.load(path)
    with pytest.raises(FileNotFoundError):
        ub.Result.load(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="x contains a Drift"):
        dataclasses.replace(run(steps=1), x=Drift(jnp.ones(1), jnp.ones(1))).save(tmp_path / "odd.npz")
    assert not (tmp_path / "odd.npz").exists()


def test_trajectory_is_the_bare_run():
    state, log = jax.jit(lambda key: ub.trajectory(SETTING.problem, SOLVER, SETTING.x, SETTING.y, 12, key))(KEY)
    result = run(steps=12)
    np.testing.assert_allclose(state.x, result.x, rtol=1e-13)
    np.testing.assert_allclose(log.direction_norm, result.history["direction_norm"], rtol=1e-12)


EXAMPLE3, SOBA = ub.problems.example3(4.0), ub.SOBA(0.1, 0.1)


def size(problem, state):
    return {"size": state.x}


def descend(solver=SOBA, problem=EXAMPLE3, steps=20, **options):
    return ub.solve(problem, solver, 1.0, 1.0, steps=steps, key=KEY, **options)


def test_resume_knows_what_was_measured_last():
    part = descend(metrics=size)
    rule = ub.Below("size", -100.0)
    assert descend(steps=40, metrics=size, stop=rule, resume=part).status == "finished"


def test_resume_with_other_metrics_keeps_both():
    def other(problem, state):
        return {"other": state.y}

    part = descend(metrics=size, every=10)
    both = descend(steps=40, metrics=[other], every=10, resume=part).metrics
    assert np.isnan(both["other"][:3]).all()
    assert np.isnan(both["size"][3:]).all()
    assert np.isfinite(both["other"][3:]).all()


def test_the_end_is_measured_also_when_a_rule_ends_it():
    result = descend(steps=1000, metrics=size, every=50, stop=ub.MaxCalls(300))
    assert result.metrics["step"].tolist() == [0, 50, 75]


def test_a_trajectory_without_refreshes_has_a_gradient():
    slope = jax.jit(jax.grad(lambda a: ub.trajectory(EXAMPLE3, ub.StocBiO(a, 0.1), 1.0, 1.0, 3, KEY)[0].x))(0.1)
    h = 1e-5
    ends = [float(ub.trajectory(EXAMPLE3, ub.StocBiO(0.1 + s, 0.1), 1.0, 1.0, 3, KEY)[0].x) for s in (-h, h)]
    assert float(slope) == pytest.approx((ends[1] - ends[0]) / (2 * h), rel=1e-6)


def test_a_huge_chunk_costs_nothing():
    assert descend(steps=3, chunk=10**9).steps == 3


def test_the_reason_of_a_bad_number_is_told():
    def f(x, y, batch):
        return jnp.where(x > 0.9, y, jnp.nan) * y

    problem = ub.Problem(f, EXAMPLE3.g, 4.0)
    result = descend(ub.UniBiO(0.05, lower=ub.SGD(5), hypergradient=ub.Neumann(terms=1, scale=1.0)), problem)
    assert result.status == "diverged"
    assert "NaN or infinity appeared" in result.message


def test_notes_survive_a_resume():
    solver = ub.UniBiO(1e-3, lower=ub.SGD(1), hypergradient=ub.Neumann(terms=5, scale=1e-3))
    part = descend(solver, steps=3)
    assert "3 of 3 steps, first in step 0: numbers grew without bound" in part.message
    assert "4 of 4 steps, first in step 0: numbers grew without bound" in descend(solver, steps=4, resume=part).message


def test_resume_is_checked():
    part = descend(ub.AmIGO(0.1, 0.1), steps=2)
    with pytest.raises(ValueError, match="another solver"):
        descend(ub.StocBiO(0.1, 0.1), resume=part)
    with pytest.raises(TypeError, match="resume must be a Result"):
        descend(resume="part")


BAD_METRICS = {
    "shape": (lambda problem, state: {"v": jnp.ones(3)}, ValueError, r"'v' must be one number; got shape \(3,\)"),
    "reserved": (lambda problem, state: {"step": state.x}, ValueError, "may not be called 'step'"),
    "no dictionary": (lambda problem, state: state.x, TypeError, "must return a dictionary"),
}


@pytest.mark.parametrize(("metric", "error", "message"), BAD_METRICS.values(), ids=BAD_METRICS)
def test_metrics_are_checked(metric, error, message):
    with pytest.raises(error, match=message):
        descend(metrics=metric, steps=1)


def test_a_metric_in_plain_python_sees_numpy_arrays():
    def largest(state):
        assert isinstance(state.x, np.ndarray)
        return {"largest": max(state.x.tolist())}

    result = run(metrics=ub.metrics.OnHost(largest, names=("largest",)), every=40)
    assert result.metrics["largest"].tolist() == [float(max(SETTING.x)), float(max(result.x))]
    compared = ub.compare(
        *_of_one_solver(), metrics=ub.metrics.OnHost(largest, names=("largest",)), seeds=range(2), steps=3
    )
    assert set(compared.table["largest"].shape) == set(compared.table["step"].shape)


def test_a_metric_in_plain_python_that_returns_other_names_is_refused():
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"returned \['other'\], not \['largest'\]"):
        run(metrics=ub.metrics.OnHost(lambda state: {"other": 1.0}, names=("largest",)), steps=1)
    with pytest.raises(TypeError, match="names must be the names of the numbers"):
        ub.metrics.OnHost(lambda state: {}, names=())


def _of_one_solver():
    return SETTING.problem, {"StocBiO": SOLVER}, SETTING.x, SETTING.y


def test_a_model_with_functions_among_its_leaves_is_explained():
    class F(eqx.Module):
        model: eqx.nn.MLP

        def __call__(self, x, y, batch):
            return jnp.sum(self.model(y))

    mlp = eqx.nn.MLP(2, 1, 4, 1, key=KEY)
    problem = ub.Problem(F(mlp), lambda x, y, batch: jnp.sum((y - x) ** 2), 2.0)
    with pytest.raises(TypeError, match=r"problem\.f\.model.*no array.*equinox\.partition"):
        ub.solve(problem, SOBA, jnp.ones(2), jnp.ones(2), steps=1, key=KEY)


def test_bfloat16_is_not_saved_as_rubbish(tmp_path):
    x = jnp.ones(2, jnp.bfloat16)
    result = descend(steps=1)
    with pytest.raises(ValueError, match="dtype bfloat16"):
        ub.Result(x, x, result.status, "", 1, result.calls, 0.0, 0.0, {}, {}).save(tmp_path / "x.npz")
