"""Defects found by reviewers of the solvers and the loop, each held by a test."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unibio as ub
from unibio.core.protocols import Info

PROBLEM, KEY, SOBA = ub.problems.example3(4.0), jax.random.key(0), ub.SOBA(0.1, 0.1)


def size(problem, state):
    return {"size": state.x}


def solve(solver=SOBA, problem=PROBLEM, steps=20, **options):
    return ub.solve(problem, solver, 1.0, 1.0, steps=steps, key=KEY, **options)


def test_a_budget_between_float_coincidences_ends():
    solver = {"T": ub.TTSA(0.1, 0.1)}
    contest = ub.compare(PROBLEM, solver, 1.0, 1.0, seeds=[114, 115, 116], max_calls=700, measurements=30, metrics=size)
    steps = contest.lane("T", 114)["step"]
    assert np.all(np.diff(steps) > 0)


class Idle(eqx.Module):
    """Reports no calls."""

    def init(self, problem, x, y, key):
        return ub.solvers.stocbio.State(x, y), Info(jnp.zeros(()), ub.Calls())

    step = lambda self, problem, state, key: (state, Info(jnp.zeros(()), ub.Calls()))


def test_a_solver_without_calls_has_no_budget():
    with pytest.raises(ValueError, match="Idle reports no calls"):
        ub.compare(PROBLEM, {"idle": Idle()}, 1.0, 1.0, seeds=[0], max_calls=10, metrics=size)


def test_resume_knows_what_was_measured_last():
    part = solve(metrics=size)
    rule = ub.Below("size", -100.0)
    assert solve(steps=40, metrics=size, stop=rule, resume=part).status == "finished"


def test_resume_with_other_metrics_keeps_both():
    def other(problem, state):
        return {"other": state.y}

    part = solve(metrics=size, every=10)
    both = solve(steps=40, metrics=[other], every=10, resume=part).metrics
    assert np.isnan(both["other"][:3]).all()
    assert np.isnan(both["size"][3:]).all()
    assert np.isfinite(both["other"][3:]).all()


def test_the_end_is_measured_also_when_a_rule_ends_it():
    result = solve(steps=1000, metrics=size, every=50, stop=ub.MaxCalls(300))
    assert result.metrics["step"].tolist() == [0, 50, 75]


@pytest.mark.slow
def test_vrbo_pays_for_a_checkpoint_under_noise():
    noise = ub.Noise(grad_y_g=0.1, grad_x_f=0.1)
    problem = ub.Problem(PROBLEM.f, PROBLEM.g, 4.0, f_batches=noise, g_batches=noise)
    few, many = (
        solve(ub.VRBO(0.01, 0.01, period=2, terms=2, checkpoint_batches=n), problem, steps=2).calls for n in (1, 10)
    )
    assert (many.grad_f - few.grad_f, many.grad_g - few.grad_g, many.hvp - few.hvp) == (9, 9, 18)


def test_a_diverged_lane_is_worst_whatever_its_metric_says():
    table = {"accuracy": np.asarray([[0.5, 0.5]]), "finite": np.asarray([[True, False]]), "calls": np.zeros((1, 2))}
    assert ub.Final("accuracy", share=0.5)(table) == (np.inf,)


def test_nothing_to_choose_from():
    def hopeless(problem, state):
        return {"q": state.x * jnp.nan}

    with pytest.raises(ValueError, match=r"none of the 25 settings.*NaN everywhere"):
        ub.tune(PROBLEM, SOBA, 1.0, 1.0, seeds=[0], steps=2, metrics=hopeless, criterion=ub.Final("q"))


def test_a_trajectory_without_refreshes_has_a_gradient():
    slope = jax.jit(jax.grad(lambda a: ub.trajectory(PROBLEM, ub.StocBiO(a, 0.1), 1.0, 1.0, 3, KEY)[0].x))(0.1)
    h = 1e-5
    ends = [float(ub.trajectory(PROBLEM, ub.StocBiO(0.1 + s, 0.1), 1.0, 1.0, 3, KEY)[0].x) for s in (-h, h)]
    assert float(slope) == pytest.approx((ends[1] - ends[0]) / (2 * h), rel=1e-6)


def test_a_huge_chunk_costs_nothing():
    assert solve(steps=3, chunk=10**9).steps == 3


def test_the_reason_of_a_bad_number_is_told():
    def f(x, y, batch):
        return jnp.where(x > 0.9, y, jnp.nan) * y

    problem = ub.Problem(f, PROBLEM.g, 4.0)
    result = solve(ub.UniBiO(0.05, lower=ub.SGD(5), hypergradient=ub.Neumann(terms=1, scale=1.0)), problem)
    assert result.status == "diverged"
    assert "NaN or infinity appeared" in result.message


def test_notes_survive_a_resume():
    solver = ub.UniBiO(1e-3, lower=ub.SGD(1), hypergradient=ub.Neumann(terms=5, scale=1e-3))
    part = solve(solver, steps=3)
    assert "3 of 3 steps, first in step 0: numbers grew without bound" in part.message
    assert "4 of 4 steps, first in step 0: numbers grew without bound" in solve(solver, steps=4, resume=part).message


def test_resume_is_checked():
    part = solve(ub.AmIGO(0.1, 0.1), steps=2)
    with pytest.raises(ValueError, match="another solver"):
        solve(ub.StocBiO(0.1, 0.1), resume=part)
    with pytest.raises(TypeError, match="resume must be a Result"):
        solve(resume="part")


BAD_METRICS = {
    "shape": (lambda problem, state: {"v": jnp.ones(3)}, ValueError, r"'v' must be one number; got shape \(3,\)"),
    "reserved": (lambda problem, state: {"step": state.x}, ValueError, "may not be called 'step'"),
    "no dictionary": (lambda problem, state: state.x, TypeError, "must return a dictionary"),
}


@pytest.mark.parametrize(("metric", "error", "message"), BAD_METRICS.values(), ids=BAD_METRICS)
def test_metrics_are_checked(metric, error, message):
    with pytest.raises(error, match=message):
        solve(metrics=metric, steps=1)


def test_a_boolean_metric_comes_back_from_disk(tmp_path):
    def right(problem, state):
        return {"right": state.x > 0}

    contest = ub.compare(PROBLEM, {"a": SOBA}, 1.0, 1.0, seeds=[0], steps=2, metrics=right, measurements=1)
    loaded = ub.Comparison.load(contest.save(tmp_path))
    assert loaded.table["right"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("seeds", [[0, 0], [-1], [2**32], 3, [], [0.5]])
def test_seeds_are_checked(seeds):
    with pytest.raises(ValueError, match="seeds must"):
        ub.compare(PROBLEM, {"a": SOBA}, 1.0, 1.0, seeds=seeds, steps=2)


REFUSED = {
    "step None": (lambda: ub.EpochSGD(step_size=None), TypeError, "step_size"),  # type: ignore[arg-type]
    "radius None": (lambda: ub.BOREP(0.1, 0.1, radius=None), TypeError, "radius"),  # type: ignore[arg-type]
    "multiplier None": (lambda: ub.F2SA(0.1, 0.1, multiplier=None), TypeError, "multiplier"),  # type: ignore[arg-type]
    "schedule": (lambda: ub.UniBiO(0.1, schedule=0.5), TypeError, "schedule must be a function"),  # type: ignore[arg-type]
    "project": (lambda: ub.UniBiO(0.1, project=3), TypeError, "expected a function"),  # type: ignore[arg-type]
    "project class": (lambda: ub.UniBiO(0.1, project=ub.Box), TypeError, "expected a function"),  # type: ignore[arg-type]
    "polyak": (
        lambda: solve(ub.UniBiO(0.1, lower=ub.SGD(1), optimiser=optax.polyak_sgd()), steps=1),
        ValueError,
        "needs more than a gradient",
    ),
    "trajectory steps": (lambda: ub.trajectory(PROBLEM, SOBA, 1.0, 1.0, 0, KEY), ValueError, "steps must be ≥ 1"),
    "trajectory key": (lambda: ub.trajectory(PROBLEM, SOBA, 1.0, 1.0, 2, None), ValueError, "needs key"),  # type: ignore[arg-type]
    "grid": (
        lambda: ub.tune(PROBLEM, SOBA, 1.0, 1.0, seeds=[0], steps=1, grid={"step_size": 0.1}),  # type: ignore[dict-item]
        ValueError,
        r"grid\['step_size'\] must be a list",
    ),
    "solve in jit": (
        lambda: jax.jit(lambda x: ub.solve(PROBLEM, SOBA, x, x, steps=1, key=KEY))(1.0),
        TypeError,
        "inside jit or vmap use trajectory",
    ),
}


@pytest.mark.parametrize(("make", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_by_name(make, error, message):
    with pytest.raises(error, match=message):
        make()


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
    result = solve(steps=1)
    with pytest.raises(ValueError, match="dtype bfloat16"):
        ub.Result(x, x, result.status, "", 1, result.calls, 0.0, 0.0, {}, {}).save(tmp_path / "x.npz")
