"""Code shown in the docs runs and does what the page says."""

import functools
import os
import re
import shutil
import subprocess
import sys
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


def test_files_that_pages_and_docstrings_name_exist():
    pages = [*DOCS.glob("*.md"), DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md", *PACKAGE.glob("**/*.py")]
    named = {path for page in pages for path in re.findall(r"\b(?:tests|scripts)/[\w/]+\.py", page.read_text("utf-8"))}
    assert len(named) > 5
    assert {path for path in named if not (DOCS.parent / path).exists()} == set()


def test_links_lead_somewhere():
    """Every link of the README and the pages to a file of the project, and to a heading of a page."""
    for page in [*DOCS.glob("*.md"), DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
            if not target.startswith(("http", "#")):
                assert (page.parent / target.split("#")[0]).exists(), f"{page.name}: {target}"


def test_the_readme_counts_the_verdicts_of_the_page():
    counts = re.search(r"\d+ confirmed, \d+ corrected, \d+ refuted", (DOCS / "paper_vs_us.md").read_text("utf-8"))
    assert counts
    assert counts[0].replace(" confirmed", " claims confirmed") in (DOCS.parent / "README.md").read_text("utf-8")


def test_names_that_the_tour_and_the_choices_use_exist():
    text = "".join((DOCS / name).read_text("utf-8") for name in ("tour.md", "choosing.md"))
    named = set(re.findall(r"\bub\.((?:[a-z_]+\.)?\w+)", text))
    assert len(named) > 30
    for name in named:
        assert functools.reduce(getattr, name.split("."), ub), name


def skeleton():
    """The code to copy of docs/adding_a_solver.md."""
    text = (DOCS / "adding_a_solver.md").read_text(encoding="utf-8")
    return text.split("## A skeleton to copy")[1].split("```python\n")[1].split("```")[0]


@pytest.mark.slow
def test_the_skeleton_of_a_solver_is_soba():
    names: dict[str, Any] = {"__name__": "skeleton"}
    exec(compile(skeleton(), "adding_a_solver.md", "exec"), names)
    problem, x, y = ub.problems.PROBLEMS["lp_regression"](n=20, d=3, batch_size=5)
    solvers = (names["Skeleton"](3.0, 0.01), ub.SOBA(3.0, 0.01, upper_decay=0.0, lower_decay=0.0))
    ours, soba = (ub.solve(problem, solver, x, y, steps=10, key=jax.random.key(0)) for solver in solvers)
    np.testing.assert_allclose(ours.x, soba.x, rtol=1e-12)
    assert ours.calls == soba.calls


@pytest.mark.slow
def test_a_solver_is_one_file_and_two_lines(tmp_path):
    """The skeleton, added as the page says to a copy of the package and its tests: every law is held for it."""
    source, tests = tmp_path / "unibio", tmp_path / "tests"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(DOCS.parent / "tests", tests, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(DOCS.parent / "pyproject.toml", tmp_path)
    (source / "solvers" / "skeleton.py").write_text('"""A skeleton."""\n\n' + skeleton(), encoding="utf-8")
    table = source / "solvers" / "__init__.py"
    text = table.read_text(encoding="utf-8")
    text = text.replace(
        "from unibio.solvers.soba", "from unibio.solvers.skeleton import Skeleton\nfrom unibio.solvers.soba"
    )
    table.write_text(
        text.replace('    "F2SA": F2SA,\n', '    "F2SA": F2SA,\n    "Skeleton": Skeleton,\n'), encoding="utf-8"
    )
    laws = sum("@every_solver" in part for part in (tests / "common" / "test_laws.py").read_text().split("\n\n\n"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "Skeleton", "-m", ""]
    command += [str(tests / "common" / "test_laws.py"), str(tests / "solvers" / "test_one_step.py")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(tests)])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    passed = int(re.findall(r"(\d+) passed", done.stdout)[0])
    assert laws <= passed, done.stdout
    assert re.findall(r"(\d+) failed", done.stdout) == ["1"], done.stdout  # what no law can know: is it that algorithm?
    assert "write the steps of Skeleton in plain numpy in references.py" in done.stdout
