"""Code shown in the docs runs and does what the page says."""

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import unibio as ub

DOCS = Path(__file__).parent.parent / "docs"
PACKAGE = Path(ub.__file__).parent


def test_the_tree_in_the_design_page_is_the_tree():
    """Every file that it names exists, and none is missing but those of the folders that it describes as a whole."""
    tree = (DOCS / "design.md").read_text(encoding="utf-8").split("```\nsrc/unibio/")[1].split("```")[0]
    named = set(re.findall(r"\w+\.py", tree))
    files = {path.relative_to(PACKAGE) for path in PACKAGE.glob("**/*.py") if not path.name.startswith("__")}
    whole = (Path("solvers"), Path("paper/studies"), Path("paper/claims"))
    assert named - {path.name for path in files} == set()
    assert {path for path in files if path.name not in named and path.parent not in whole} == set()
    assert {path.parts[0] for path in files} == set(re.findall(r"^[├└]── (\w+)/", tree, re.MULTILINE))


@pytest.mark.slow
def test_the_skeleton_of_a_solver_is_soba():
    text = (DOCS / "adding_a_solver.md").read_text()
    code = text.split("## A skeleton to copy")[1].split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {"__name__": "skeleton"}
    exec(compile(code, "adding_a_solver.md", "exec"), names)
    problem, x, y = ub.problems.PROBLEMS["lp_regression"](n=20, d=3, batch_size=5)
    solvers = (names["Skeleton"](3.0, 0.01), ub.SOBA(3.0, 0.01, upper_decay=0.0, lower_decay=0.0))
    ours, soba = (ub.solve(problem, solver, x, y, steps=10, key=jax.random.key(0)) for solver in solvers)
    np.testing.assert_allclose(ours.x, soba.x, rtol=1e-12)
    assert ours.calls == soba.calls
