"""`minimise` among the solvers of a comparison."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub


def test_it_is_run_once_and_every_seed_gets_the_same_rows():
    problem = ub.problems.example3(4.0)
    solvers: dict[str, Any] = {"minimise": ub.minimise, "SOBA": ub.SOBA(0.1, 0.1)}
    found = ub.compare(problem, solvers, 1.0, 1.0, seeds=[3, 5], max_calls=60, measurements=4)
    assert found.solvers == ["minimise", "SOBA"]
    first, second = (found.lane("minimise", seed) for seed in (3, 5))
    alone = ub.minimise(problem, 1.0, 1.0, max_calls=60)
    for name, values in first.items():
        if name != "seed":
            np.testing.assert_array_equal(values, second[name])
    assert first["calls"][-1] == sum(alone.calls)
    np.testing.assert_allclose(first["phi"][-1], jnp.sin(jnp.sin(alone.x)), rtol=1e-9)  # measured by Truth, at x
    assert (np.diff(first["calls"]) > 0).all()


def test_it_may_be_given_steps():
    found = ub.compare(ub.problems.example1(), {"minimise": ub.minimise}, 1.0, 1.0, seeds=[0], steps=2)
    assert found.lane("minimise", 0)["step"].tolist() == [0, 1, 2]


def test_there_is_nothing_to_tune():
    solver: Any = ub.minimise
    with pytest.raises(ValueError, match="nothing to tune"):
        ub.tune(ub.problems.example1(), solver, 1.0, 1.0, seeds=[0], steps=2)
