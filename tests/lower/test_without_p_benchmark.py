"""The vectorised loops of benchmarks/without_p.py are StagedSGD and EpochSGD on the same draws."""

import importlib.util
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub

PATH = Path(__file__).parents[2] / "benchmarks" / "without_p.py"
spec = importlib.util.spec_from_file_location("without_p_benchmark", PATH)
assert spec is not None
assert spec.loader is not None
benchmark = importlib.util.module_from_spec(spec)
spec.loader.exec_module(benchmark)

ORDERS = np.array([2.0, 4.0])
RNG = np.random.default_rng(0)


def one(lower, p, noise, y):
    end, count = lower(lambda w, e: jnp.sum(w**2) ** (p / 2 - 1) * w + e, lambda count: noise, jnp.asarray(y), p)
    return np.asarray(end), int(count)


def test_stages_and_search():
    budget, dim, seeds = 60, 3, 2
    plan = ub.StagedSGD(budget, 2.0)
    n, k = plan.stage_steps, plan.stages
    noise = RNG.normal(size=((k + 1) * n, seeds, dim))
    gradient, y = benchmark.power_of_norm(ORDERS), benchmark.start(ORDERS, seeds, dim)
    ends, _ = benchmark.stages(gradient, y, 2.0, noise[: k * n], budget)
    found, _, tried, _ = benchmark.search(gradient, y, 0.05, 8.0, noise, budget)
    for i, p in enumerate(ORDERS):
        end, _ = one(plan, p, noise[: k * n, 0], y[i, 0])
        np.testing.assert_allclose(ends[i, 0], end, rtol=1e-9)
        end, count = one(ub.StagedSGD(budget, 8.0, 0.05), p, noise[:, 1], y[i, 1])
        np.testing.assert_allclose(found[i, 1], end, rtol=1e-9)
        assert count == (tried[i, 1] + k) * n


@pytest.mark.parametrize("spend", [False, True])
def test_epoch_sgd(spend):
    p, noise, y = 4.0, RNG.normal(size=(60, 2, 1)), np.ones((3, 2, 1))
    lower = ub.EpochSGD(60, spend=spend)
    steps, radii = np.array([[0.1], [0.5], [2.0]]), np.array([[0.5], [1.0], [2.0]])
    ends = benchmark.epoch_sgd(benchmark.powers(p, 0.0), y, lower, p, steps, radii, noise)
    for j in range(3):
        scaled = ub.EpochSGD(60, float(steps[j, 0]), radius=float(radii[j, 0]), spend=spend)
        end, _ = one(scaled, p, noise[:, 1], y[j, 1])
        np.testing.assert_allclose(ends[j, 1], end, rtol=1e-9)
