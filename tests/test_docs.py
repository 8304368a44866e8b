"""Code shown in the docs runs and does what the page says."""

from pathlib import Path

import jax
import numpy as np
import pytest

import unibio as ub

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.slow
def test_the_skeleton_of_a_solver_is_soba():
    text = (DOCS / "adding_a_solver.md").read_text()
    code = text.split("## A skeleton to copy")[1].split("```python\n")[1].split("```")[0]
    names = {"__name__": "skeleton"}
    exec(compile(code, "adding_a_solver.md", "exec"), names)
    problem, x, y = ub.problems.PROBLEMS["lp_regression"](n=20, d=3, batch_size=5)
    solvers = (names["Skeleton"](3.0, 0.01), ub.SOBA(3.0, 0.01, upper_decay=0.0, lower_decay=0.0))
    ours, soba = (ub.solve(problem, solver, x, y, steps=10, key=jax.random.key(0)) for solver in solvers)
    np.testing.assert_allclose(ours.x, soba.x, rtol=1e-12)
    assert ours.calls == soba.calls
