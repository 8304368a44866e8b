"""The first steps of every solver against plain numpy (references.py), on the same samples, to rounding."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from oracles import lp_data, lp_gradient, lp_hessian
from solvers import references as ref

import unibio as ub
from unibio.core import tree
from unibio.core.problem import prepare

P, C, N, D, BATCH, STEPS = 4.0, 0.1, 12, 3, 4, 3
KEY = jax.random.key(4)
KEY_START = jax.random.fold_in(KEY, jnp.uint32(2**32 - 1))
KEYS = [jax.random.fold_in(KEY, jnp.int32(t)) for t in range(STEPS)]
TRAIN, VALIDATION, X0 = lp_data(1, N, N, D, scale=0.7)
Y0 = np.array([0.6, -0.5, 0.4])
SLOTS = np.arange(N).reshape(-1, BATCH)


class Coupled(eqx.Module):
    """f + κ·mean x_i(X_val w)_i; κ is a leaf, so that all κ share one program."""

    f: Callable[..., jax.Array]
    kappa: float

    def __call__(self, x, y, batch):
        return self.f(x, y, batch) + self.kappa * jnp.mean(x[batch.index] * (batch.value[0] @ y))


PLAIN = ub.problems.lp_regression(TRAIN, VALIDATION, P, C, batch_size=BATCH)
F, G = PLAIN.f_batches, PLAIN.g_batches
LARGE_F, LARGE_G = (ub.Dataset(pair, 3 * BATCH) for pair in (VALIDATION, TRAIN))


def block(sampler, key, count):
    return np.asarray(sampler.draw(key, count, None, None))


def one(sampler, key):
    return block(sampler, key, 1)[0]


def uniform(key, high):
    return int(jax.random.randint(key, (), 0, high, jnp.int32))


def series_draws(key, terms, f=F, g=G):
    """`terms` of the series: one Hessian fewer. Its random length too, where it has one."""
    key_f, key_hessian, key_cross, key_length = jax.random.split(key, 4)
    return {
        "f": one(f, key_f),
        "hessian": block(g, key_hessian, terms - 1),
        "cross": one(g, key_cross),
        "length": uniform(key_length, terms),
    }


def unibio_draws(key, lower_steps, terms):
    """`terms` of the Neumann series, or None for CG, whose products share one batch."""
    key_lower, key_hyper = jax.random.split(key)
    key_f, key_hessian, key_cross = jax.random.split(key_hyper, 3)
    key_terms = jax.random.split(key_hessian, 3)[0]
    hessian = one(G, key_hessian) if terms is None else block(G, key_terms, terms - 1)
    return {
        "lower": block(G, key_lower, lower_steps),
        "f": one(F, key_f),
        "hessian": hessian,
        "cross": one(G, key_cross),
    }


def stocbio_draws(key, lower_steps, terms):
    key_lower, key_hyper = jax.random.split(key)
    return {"lower": block(G, key_lower, lower_steps), **series_draws(key_hyper, terms)}


def one_lower_draws(key, terms):
    key_lower, key_hyper = jax.random.split(key)
    return {"lower": one(G, key_lower), **series_draws(key_hyper, terms)}


def soba_draws(key):
    key_f, key_g = jax.random.split(key)
    return {"f": one(F, key_f), "g": one(G, key_g)}


def saba_draws(key):
    key_f, key_g = jax.random.split(key)
    return {"f": uniform(key_f, len(SLOTS)), "g": uniform(key_g, len(SLOTS))}


def vrbo_draws(key, lower_steps, terms):
    def both(key, f, g):
        key_lower, key_hyper = jax.random.split(key)
        return {"lower": one(g, key_lower), **series_draws(key_hyper, terms, f, g)}

    key_large, key_small = jax.random.split(key)
    small = [both(k, F, G) for k in jax.random.split(key_small, lower_steps + 1)]
    return {"large": both(key_large, LARGE_F, LARGE_G), "small": small}


def bo_rep_draws(key, lower_steps):
    key_lower, key_f, key_g = jax.random.split(key, 3)
    return {"lower": block(G, key_lower, lower_steps), "f": one(F, key_f), "g": one(G, key_g)}


def amigo_draws(key, lower_steps, linear_steps):
    key_lower, key_f, key_hessian, key_cross = jax.random.split(key, 4)
    return {
        "lower": block(G, key_lower, lower_steps),
        "f": one(F, key_f),
        "hessian": block(G, key_hessian, linear_steps),
        "cross": one(G, key_cross),
    }


def f2sa_draws(key, steps):
    key_z, key_y, key_f, key_x = jax.random.split(key, 4)
    key_fx, key_gy, key_gz = jax.random.split(key_x, 3)
    inner = {"z": block(G, key_z, steps), "y_g": block(G, key_y, steps), "y_f": block(F, key_f, steps)}
    return {**inner, "x_f": one(F, key_fx), "x_y": one(G, key_gy), "x_z": one(G, key_gz)}


class Case(NamedTuple):
    """A solver, its reference, what a step draws, and how many batches its warm start draws."""

    solver: Any
    reference: Callable[..., Any]
    draws: Callable[..., Any]
    warm: int = 0


def box(low, high):
    def project(x):
        inside = np.clip(x, low, high)
        assert 0 < np.sum(inside != x) < len(x)
        return inside

    return project


SGD_STEP = optax.sgd(1.0)
BALLS = ub.EpochSGD(steps=8, step_size=0.3, first_epoch=2, radius=0.05)
BALLS_REFERENCE = partial(ref.epoch_sgd, step=0.3, first=2, radius=0.05, steps=8, p=P)
FIXED_BALL = ub.EpochSGD(steps=10, step_size=0.3, first_epoch=2, radius=0.05, tau=2, shrink=False)
FIXED_BALL_REFERENCE = partial(ref.epoch_sgd, step=0.3, first=2, radius=0.05, steps=10, tau=2, shrink=False)
REFINEMENT = ub.EpochSGD(steps=8, step_size=0.3, first_epoch=2.5, radius=0.05)
REFINEMENT_REFERENCE = partial(ref.epoch_sgd, step=0.3, first=2.5, radius=0.05, steps=8, p=2)


NUMPY_UNIBIO = partial(ref.unibio, warm=BALLS_REFERENCE, lower=BALLS_REFERENCE, eta=lambda t: 0.2, beta=0.7, period=2)
NUMPY_SERIES = partial(ref.neumann, scale=6.0)

CASES = {
    "UniBiO": Case(
        ub.UniBiO(0.2, momentum=0.7, period=2, lower=BALLS, hypergradient=ub.Neumann(3, 6.0, ub.Horner(), ub.Power())),
        partial(NUMPY_UNIBIO, estimate=NUMPY_SERIES),
        partial(unibio_draws, lower_steps=8, terms=3),
        warm=8,
    ),
    "UniBiO with optax": Case(
        ub.UniBiO(
            0.9,
            momentum=0.6,
            period=2,
            lower=ub.SGD(2, 0.05),
            warm_start=ub.Optax(SGD_STEP, 3, 0.04),
            hypergradient=ub.Neumann(4, 6.0),
            schedule=optax.exponential_decay(1.0, 1, 0.5),
            optimiser=SGD_STEP,
            project=ub.Box(-0.5, 0.5),
        ),
        partial(
            ref.unibio,
            warm=partial(ref.sgd, step=0.04),
            lower=partial(ref.sgd, step=0.05),
            estimate=NUMPY_SERIES,
            eta=lambda t: 0.9 * 0.5**t,
            beta=0.6,
            period=2,
            move=lambda m: m,
            project=box(-0.5, 0.5),
        ),
        partial(unibio_draws, lower_steps=2, terms=4),
        warm=3,
    ),
    "UniBiO with CG": Case(
        ub.UniBiO(0.2, momentum=0.7, period=2, lower=FIXED_BALL, hypergradient=ub.CG(1e-14)),
        partial(NUMPY_UNIBIO, warm=FIXED_BALL_REFERENCE, lower=FIXED_BALL_REFERENCE, estimate=ref.solved),
        partial(unibio_draws, lower_steps=10, terms=None),
        warm=10,
    ),
    "StocBiO": Case(
        ub.StocBiO(0.3, 0.05, lower_steps=2, terms=3, neumann_step=0.08),
        partial(ref.stocbio, beta=0.3, alpha=0.05, eta=0.08),
        partial(stocbio_draws, lower_steps=2, terms=4),
    ),
    "TTSA": Case(
        ub.TTSA(0.3, 0.05, 4, neumann_step=0.08, upper_decay=0.5, lower_decay=0.25, project=ub.Box(-0.5, 0.5)),
        partial(ref.ttsa, alpha=0.3, a=0.5, beta=0.05, b=0.25, terms=4, step=0.08, project=box(-0.5, 0.5)),
        partial(one_lower_draws, terms=4),
    ),
    "SOBA": Case(
        ub.SOBA(0.3, 0.05, upper_decay=0.5, lower_decay=0.25),
        partial(ref.soba, gamma=0.3, a=0.5, rho=0.05, b=0.25),
        soba_draws,
    ),
    "SOBA with its decays": Case(ub.SOBA(0.3, 0.05), partial(ref.soba, gamma=0.3, a=0.5, rho=0.05, b=0.5), soba_draws),
    "SABA": Case(ub.SABA(0.3, 0.05), partial(ref.saba, gamma=0.3, rho=0.05, slots=SLOTS), saba_draws),
    "MA-SOBA": Case(
        ub.MASOBA(0.3, 0.05, linear_step_size=0.08, momentum=0.7),
        partial(ref.ma_soba, alpha=0.3, beta=0.05, gamma=0.08, theta=0.3),
        soba_draws,
    ),
    "SUSTAIN": Case(
        ub.SUSTAIN(0.3, 0.05, upper_weight=0.6, lower_weight=0.4, decay=0.25, terms=4, neumann_step=0.08),
        partial(ref.sustain, alpha=0.3, beta=0.05, r=0.25, eta_f=0.6, eta_g=0.4, terms=4, step=0.08),
        partial(one_lower_draws, terms=4),
    ),
    "VRBO": Case(
        ub.VRBO(0.3, 0.05, lower_steps=4, period=2, checkpoint_batches=3, terms=3, neumann_step=0.08),
        partial(ref.vrbo, alpha=0.3, beta=0.05, q=2, eta=0.08),
        partial(vrbo_draws, lower_steps=4, terms=4),
    ),
    "BO-REP": Case(
        ub.BOREP(0.2, 0.05, 0.08, momentum=0.7, period=2, lower_steps=3, radius=0.02, refinement=REFINEMENT),
        partial(
            ref.bo_rep,
            eta=0.2,
            beta=0.7,
            period=2,
            lower=partial(ref.epoch_sgd, step=0.05, first=3, radius=0.02, steps=3, p=2),
            refinement=REFINEMENT_REFERENCE,
            nu=0.08,
        ),
        partial(bo_rep_draws, lower_steps=3),
        warm=8,
    ),
    "AmIGO": Case(
        ub.AmIGO(0.3, 0.05, linear_step_size=0.08, lower_steps=2, linear_steps=3),
        partial(ref.amigo, gamma=0.3, alpha=0.05, beta=0.08),
        partial(amigo_draws, lower_steps=2, linear_steps=3),
    ),
    "F2SA": Case(
        ub.F2SA(0.3, 0.05, multiplier=1.5, lower_steps=2, upper_decay=0.75, lower_decay=0.5),
        partial(ref.f2sa, xi=0.3, a=0.75, gamma=0.05, c=0.5, lam=1.5),
        partial(f2sa_draws, steps=2),
    ),
}

# Compiling is all that takes time here, and the fastest code is not wanted.
QUICK = {"xla_backend_optimization_level": 0}
init = jax.jit(lambda solver, *args: solver.init(*args), compiler_options=QUICK)
step = jax.jit(lambda solver, *args: solver.step(*args), compiler_options=QUICK)


@pytest.mark.parametrize("name", ub.SOLVERS)
def test_no_solver_is_left_out(name):
    kinds = {type(case.solver) for case in CASES.values()}
    assert ub.SOLVERS[name] in kinds, f"write the steps of {name} in plain numpy in references.py, and a case above"


def test_the_closed_forms_are_those_of_the_full_batch_oracle():
    exact, rows = ref.Regression(TRAIN, VALIDATION, P, C, 0.0), np.arange(N)
    np.testing.assert_allclose(exact.hessian(X0, Y0, rows), lp_hessian(Y0, X0, TRAIN, P, C), rtol=1e-12)
    gradient = ref.solved(exact, X0, Y0, dict.fromkeys(("f", "hessian", "cross"), rows))
    np.testing.assert_allclose(gradient, lp_gradient(Y0, X0, TRAIN, VALIDATION, P, C), rtol=1e-11)


def test_the_samples_reach_every_case():
    batches = [soba_draws(key)["g"] for key in KEYS]
    assert any(len(set(rows)) < BATCH for rows in batches)  # a sample twice in one batch
    lengths = [CASES["TTSA"].draws(key)["length"] for key in KEYS]
    assert min(lengths) == 0  # no factor at all, and all of them
    assert max(lengths) == 3
    slots = [saba_draws(key) for key in KEYS]
    assert slots[0]["f"] == slots[2]["f"] != slots[1]["f"]  # read what was stored, after another slot was stored
    assert slots[0]["g"] == slots[1]["g"]


@pytest.mark.parametrize("kappa", [0.0, 0.3], ids=["lp", "coupled"])
@pytest.mark.parametrize("name", CASES)
def test_first_steps(name, kappa):
    case = CASES[name]
    problem = ub.Problem(Coupled(PLAIN.f, kappa), PLAIN.g, P, f_batches=F, g_batches=G)
    problem, x, y = prepare(problem, X0, Y0)
    solver = tree.cast(case.solver, jnp.float64)
    start = block(G, KEY_START, case.warm) if case.warm else None
    regression = ref.Regression(TRAIN, VALIDATION, P, C, kappa)
    expected = case.reference(regression, X0, Y0, start, [case.draws(key) for key in KEYS])
    state, _ = init(solver, problem, x, y, KEY_START)
    for key, wanted in zip(KEYS, expected, strict=True):
        state, info = step(solver, problem, state, key)
        np.testing.assert_allclose(info.direction_norm, np.linalg.norm(wanted.pop("d")), rtol=1e-10)
        for variable, value in wanted.items():
            assert np.all(np.isfinite(value))
            rounding = 1e-14 * np.max(np.abs(value))  # of entries that nearly cancel
            np.testing.assert_allclose(getattr(state, variable), value, rtol=1e-10, atol=rounding, err_msg=variable)


@pytest.mark.parametrize("name", ["StocBiO", "TTSA", "MA-SOBA", "SUSTAIN", "VRBO", "BO-REP", "AmIGO"])
def test_the_linear_systems_step_is_the_lower_one_unless_given(name):
    solver = CASES[name].solver
    field = "neumann_step" if hasattr(solver, "neumann_step") else "linear_step_size"

    def program(value):
        ours = dataclasses.replace(solver, **{field: value})

        def first_step(x, y):
            return ours.step(PLAIN, ours.init(PLAIN, x, y, KEY_START)[0], KEYS[0])

        return str(jax.make_jaxpr(first_step)(jnp.asarray(X0), jnp.asarray(Y0)))

    assert program(None) == program(solver.lower_step_size)
    assert program(None) != program(0.08)
