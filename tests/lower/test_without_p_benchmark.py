"""The vectorised stages and search of benchmarks/without_p.py are StagedSGD on the same draws."""

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
    end, count = lower(lambda w, e: jnp.sum(w**2) ** (p / 2 - 1) * w + e, lambda count: noise[:count], y, p)
    return np.asarray(end), int(count)


@pytest.mark.parametrize("last", [False, True])
def test_stages_and_search(last):
    dim, seeds, plan = 3, 2, ub.StagedSGD(100, 2.0, last_stage=last)
    n, k = plan.stage_steps, plan.stages
    noise = jnp.asarray(RNG.normal(size=((k + 1) * n + plan.last_steps, 1, seeds, dim)))
    gradient, y = benchmark.power_of_norm(ORDERS), benchmark.start(ORDERS, seeds, dim)
    ends, _ = benchmark.stages(gradient, y, 2.0, lambda t: noise[t], plan)
    found, _, tried, _ = benchmark.search(gradient, y, 0.05, 8.0, lambda t: noise[t], plan)
    for i, p in enumerate(ORDERS):
        end, _ = one(plan, p, noise[:, 0, 0], y[i, 0])
        np.testing.assert_allclose(ends[i, 0], end, rtol=1e-8)
        end, count = one(ub.StagedSGD(100, 8.0, 0.05, last_stage=last), p, noise[:, 0, 1], y[i, 1])
        np.testing.assert_allclose(found[i, 1], end, rtol=1e-8)
        assert count == (tried[i, 1] + k) * n + plan.last_steps
