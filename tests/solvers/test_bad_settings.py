"""Settings that cannot work are refused with the remedy, before anything is compiled."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import unibio as ub

KEY = jax.random.key(0)
QUADRATIC = ub.problems.PROBLEMS["quadratic"]()
NOISY = ub.problems.PROBLEMS["example3"](variance=1.0)


def solve(solver, setting=QUADRATIC, **options):
    chosen: dict[str, Any] = {"steps": 2, "key": KEY} | options
    return ub.solve(setting.problem, solver, setting.x, setting.y, **chosen)


BAD = {
    "budget": (lambda: ub.EpochSGD(steps=4), r"steps=4 is less than first_epoch=5.*raise steps"),
    "no epoch": (lambda: ub.EpochSGD(first_epoch=0.5), r"first_epoch must be finite and ≥ 2"),
    "tau": (lambda: ub.EpochSGD(tau=0.5), r"tau must be finite and ≥ 1"),
    "radius": (lambda: ub.EpochSGD(radius=0.0), r"radius=…\) must be finite and > 0"),
    "lower step": (lambda: ub.SGD(step_size=-1.0), r"SGD\(step_size=…\) must be finite and > 0"),
    "period": (lambda: ub.UniBiO(0.1, period=0), r"period must be ≥ 1"),
    "momentum 1": (lambda: ub.UniBiO(0.1, momentum=1.0), r"momentum must be in \[0, 1\).*0\.9"),
    "momentum <0": (lambda: ub.MASOBA(0.1, 0.1, momentum=-0.1), r"momentum must be finite and ≥ 0"),
    "box": (lambda: ub.Box(1.0, 0.0), r"Box.*is empty"),
    "simplex": (lambda: ub.Simplex(0.0), r"Simplex\(total=…\) must be finite and > 0"),
    "weight": (lambda: ub.SUSTAIN(0.1, 0.1, upper_weight=2.0), r"upper_weight must be finite and > 0 and ≤ 1"),
    "no key": (lambda: solve(ub.SOBA(0.1, 0.1), key=None), r"solve needs key=…, e\.g\. key=jax\.random\.key\(0\)"),
    "steps": (lambda: solve(ub.SOBA(0.1, 0.1), steps=-1), r"steps must be ≥ 0"),
    "one-step epochs": (lambda: ub.BOREP(0.1, 0.1, lower_steps=1), r"lower_steps must be ≥ 2.*ends where it began"),
    "one-step first epoch": (lambda: ub.EpochSGD(1, first_epoch=1), r"first_epoch must be .*≥ 2.*ends where it began"),
    "noise": (lambda: solve(ub.SABA(0.1, 0.1), NOISY), r"SABA needs a finite sum for f.*is Noise.*use SOBA"),
    "exact": (lambda: solve(ub.SABA(0.1, 0.1)), r"SABA needs a finite sum for f.*is Full.*Dataset"),
    "lower has no p": (
        lambda: ub.solve(
            ub.Problem(QUADRATIC.problem.f, QUADRATIC.problem.g),
            ub.UniBiO(0.1),
            QUADRATIC.x,
            QUADRATIC.y,
            steps=1,
            key=KEY,
        ),
        r"states no p.*UniBiO\.without_p",
    ),
    "seeds": (
        lambda: ub.compare(QUADRATIC.problem, {}, QUADRATIC.x, QUADRATIC.y, seeds=[0], steps=1),
        "at least one solver",
    ),
    "how long": (
        lambda: ub.compare(QUADRATIC.problem, {"a": ub.SOBA(0.1, 0.1)}, QUADRATIC.x, QUADRATIC.y, seeds=[0]),
        r"either steps=… or max_calls=…",
    ),
    "unknown field": (
        lambda: ub.tune(
            QUADRATIC.problem, ub.SOBA(1, 1), QUADRATIC.x, QUADRATIC.y, seeds=[0], steps=1, grid={"lr": [0.1]}
        ),
        r"SOBA has no number 'lr' to tune; it has step_size, lower_step_size",
    ),
    "static field": (
        lambda: ub.tune(
            QUADRATIC.problem, ub.StocBiO(1, 1), QUADRATIC.x, QUADRATIC.y, seeds=[0], steps=1, grid={"terms": [3]}
        ),
        r"StocBiO has no number 'terms' to tune",
    ),
    "unknown deeper field": (
        lambda: ub.tune(
            QUADRATIC.problem, ub.UniBiO(1), QUADRATIC.x, QUADRATIC.y, seeds=[0], steps=1, grid={"lower.lr": [1.0]}
        ),
        r"EpochSGD has no number 'lr'",
    ),
    "unknown solver in steps": (
        lambda: ub.compare(
            QUADRATIC.problem, {"a": ub.SOBA(0.1, 0.1)}, QUADRATIC.x, QUADRATIC.y, seeds=[0], steps={"b": 1}
        ),
        r"steps must name every solver: \['a'\]; got \['b'\]",
    ),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", [name for name in ub.SOLVERS if name != "UniBiO"])
@pytest.mark.parametrize("steps", [(0.0, 0.1), (0.1, -0.1), (float("nan"), 0.1), (0.1, float("inf"))])
def test_step_sizes_must_be_positive(name, steps):
    with pytest.raises(ValueError, match=rf"{ub.SOLVERS[name].__name__}\(\w*step_size=…\) must be finite and > 0"):
        ub.SOLVERS[name](*steps)


WRONG_KIND = {
    "class": (lambda: solve(ub.SOBA), "solver must be an instance"),
    "lower": (lambda: ub.UniBiO(0.1, lower=0.1), r"lower must be EpochSGD\(\)"),  # type: ignore[arg-type]
    "hypergradient": (lambda: ub.UniBiO(0.1, hypergradient=ub.CG), r"hypergradient must be Neumann\(\)"),  # type: ignore[arg-type]
    "optimiser": (lambda: ub.UniBiO(0.1, optimiser="adam"), r"optimiser must be an optax transformation"),
    "optax": (lambda: ub.Optax(optax.adam), r"optimiser must be an optax transformation"),
    "a metric without a problem": (
        lambda: solve(ub.SOBA(0.1, 0.1), metrics=lambda state: {"x": state.x}),
        r"metric\(problem, state\); <lambda>\(state\) cannot be: too many positional arguments",
    ),
    "a metric that wants more": (
        lambda: solve(ub.SOBA(0.1, 0.1), metrics=lambda problem, state, key: {}),
        r"<lambda>\(problem, state, key\) cannot be: missing a required argument: 'key'",
    ),
    "a metric of words": (
        lambda: solve(ub.SOBA(0.1, 0.1), metrics=lambda problem, state: {"name": "b"}),
        r"metric 'name' must be one number; got str",
    ),
    "metric": (lambda: solve(ub.SOBA(0.1, 0.1), metrics=3), r"a metric must be a function"),
    "stop": (lambda: solve(ub.SOBA(0.1, 0.1), stop=ub.MaxCalls), r"stop must be Below"),
    "callback": (lambda: solve(ub.SOBA(0.1, 0.1), callbacks=["print"]), r"callbacks must be functions"),
    "key": (lambda: solve(ub.SOBA(0.1, 0.1), key=3), r"key must be one random key"),
    "period": (lambda: ub.UniBiO(0.1, period=2.0), r"period must be an int"),  # type: ignore[arg-type]
    "no step": (lambda: ub.SOBA(None, 0.1), r"SOBA\(step_size=…\) must be one real number"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("make", "message"), WRONG_KIND.values(), ids=WRONG_KIND)
def test_wrong_kind(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_saba_tells_which_batch_size_fits():
    data = (jnp.ones((10, 3)), jnp.ones(10))
    problem = ub.problems.lp_regression(data, data, 4.0, batch_size=4)
    with pytest.raises(ValueError, match=r"leaves 2 over that it would never see\. Use batch_size=2"):
        ub.solve(problem, ub.SABA(0.1, 0.1), jnp.zeros(10), jnp.zeros(3), steps=1, key=KEY)


def test_vrbo_tells_how_large_a_checkpoint_can_be():
    data = (jnp.ones((10, 3)), jnp.ones(10))
    problem = ub.problems.lp_regression(data, data, 4.0, batch_size=4)
    solver = ub.VRBO(0.1, 0.1, checkpoint_batches=3)
    with pytest.raises(ValueError, match=r"needs 3 × 4 samples, but f_batches has 10\. Use checkpoint_batches=2"):
        ub.solve(problem, solver, jnp.zeros(10), jnp.zeros(3), steps=1, key=KEY)


EXAMPLE3, SOBA = ub.problems.example3(4.0), ub.SOBA(0.1, 0.1)
REFUSED = {
    "step None": (lambda: ub.EpochSGD(step_size=None), TypeError, "step_size"),  # type: ignore[arg-type]
    "radius None": (lambda: ub.BOREP(0.1, 0.1, radius=None), TypeError, "radius"),  # type: ignore[arg-type]
    "multiplier None": (lambda: ub.F2SA(0.1, 0.1, multiplier=None), TypeError, "multiplier"),  # type: ignore[arg-type]
    "schedule": (lambda: ub.UniBiO(0.1, schedule=0.5), TypeError, "schedule must be a function"),  # type: ignore[arg-type]
    "project": (lambda: ub.UniBiO(0.1, project=3), TypeError, "project must be a function of x"),  # type: ignore[arg-type]
    "project class": (lambda: ub.UniBiO(0.1, project=ub.Box), TypeError, "project must be a function of x"),  # type: ignore[arg-type]
    "polyak": (
        lambda: solve(ub.UniBiO(0.1, lower=ub.SGD(1), optimiser=optax.polyak_sgd()), steps=1),
        ValueError,
        "needs more than a gradient",
    ),
    "trajectory steps": (lambda: ub.trajectory(EXAMPLE3, SOBA, 1.0, 1.0, 0, KEY), ValueError, "steps must be ≥ 1"),
    "trajectory key": (lambda: ub.trajectory(EXAMPLE3, SOBA, 1.0, 1.0, 2, None), ValueError, "needs key"),  # type: ignore[arg-type]
    "grid": (
        lambda: ub.tune(EXAMPLE3, SOBA, 1.0, 1.0, seeds=[0], steps=1, grid={"step_size": 0.1}),  # type: ignore[dict-item]
        ValueError,
        r"grid\['step_size'\] must be a list",
    ),
    "solve in jit": (
        lambda: jax.jit(lambda x: ub.solve(EXAMPLE3, SOBA, x, x, steps=1, key=KEY))(1.0),
        TypeError,
        "inside jit or vmap use trajectory",
    ),
}


@pytest.mark.parametrize(("make", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_by_name(make, error, message):
    with pytest.raises(error, match=message):
        make()
