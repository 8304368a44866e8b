"""The dependencies and extras in pyproject.toml are what the files import: nothing is missing, nothing is unused."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
MODULES = {
    "scikit-learn": "sklearn",
    "orbax-checkpoint": "orbax",
    "pytest-xdist": "xdist",
}  # where the module has another name
TOOLS = {"coverage", "ruff", "mypy", "pyarrow"}  # programs and plugins, which no file imports
FOLDERS = ("src", "tests", "scripts", "benchmarks", "examples")


def packages(requirements):
    """The distributions that a list of requirements names, those of `unibio[…]` included."""
    found = set()
    for requirement in requirements:
        parts = re.fullmatch(r"([\w-]+)(?:\[([\w,]+)\])?.*", requirement)
        assert parts, requirement
        name, extras = parts.groups()
        if name == "unibio":
            found |= {package for extra in extras.split(",") for package in packages(EXTRAS[extra])}
        else:
            found.add(name)
    return found


def modules(requirements):
    return {MODULES.get(name, name) for name in packages(requirements) - TOOLS}


def imported(folder):
    """The modules of other projects that the files of a folder import, anywhere in the file."""
    own = {"unibio"} | {path.stem for part in ("tests", "scripts", "benchmarks") for path in (ROOT / part).glob("**/*")}
    own -= set(MODULES.values())  # the folder tests/sklearn is called like what it tests
    names = set()
    for path in (ROOT / folder).glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    return names - own - sys.stdlib_module_names


@pytest.mark.parametrize(
    ("folder", "extra"),
    [("src", "test"), ("examples", "all"), ("scripts", "test"), ("tests", "test"), ("benchmarks", "compare")],
)
def test_what_a_folder_imports_is_listed(folder, extra):
    listed = modules([*PROJECT["dependencies"], *EXTRAS[extra]])
    assert imported(folder) - listed == set()


def test_the_core_is_small():
    assert packages(PROJECT["dependencies"]) == {"jax", "numpy", "equinox", "optax"}
    assert packages(EXTRAS["all"]) == packages(["unibio[cli,plot,sklearn,dist]"])


@pytest.mark.parametrize(
    ("extra", "folders"),
    [("cli", ["src"]), ("plot", ["src"]), ("sklearn", ["src"]), ("dist", ["src"]), ("tables", ["src"]),
     ("compare", FOLDERS), ("test", FOLDERS)],
)  # fmt: skip
def test_what_an_extra_lists_is_imported(extra, folders):
    used = set().union(*(imported(folder) for folder in folders))
    assert modules(EXTRAS[extra]) - used == set()


def test_every_extra_is_looked_at():
    assert EXTRAS.keys() == {"cli", "plot", "sklearn", "dist", "tables", "compare", "test", "all"}
