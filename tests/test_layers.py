"""Imports point one way, and each file of the package belongs to a layer."""

import ast
from pathlib import Path

import unibio

ROOT = Path(unibio.__file__).parent
ALLOWED = {
    "core": {"core"},
    "lower": {"core", "lower"},
    "hypergradients": {"core", "lower", "hypergradients"},
    "problems": {"core", "lower", "hypergradients", "problems"},
    "data": {"core", "run", "data"},
    "run": {"core", "lower", "hypergradients", "run"},
    "theory": {"core", "lower", "hypergradients", "theory"},
    "experiments": {
        "data",
        "core",
        "lower",
        "hypergradients",
        "problems",
        "run",
        "theory",
        "solvers",
        "comparison",
        "experiments",
    },
    "solvers": {"core", "lower", "hypergradients", "solvers"},
    "comparison": {"core", "run", "comparison"},
    "cli": {"cli", "experiments", "theory", "problems", "solvers", "comparison", "run", "data"},
}


def imported_layers(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "unibio":
                yield parts[1]


def test_imports_point_one_way():
    seen = 0
    for path in ROOT.glob("*/**/*.py"):
        layer = path.relative_to(ROOT).parts[0]
        wrong = set(imported_layers(path)) - ALLOWED[layer]
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"
        seen += 1
    assert seen > 15


def test_public_names_exist():
    assert sorted(unibio.__all__, key=str) == sorted(set(unibio.__all__), key=str)
    assert all(hasattr(unibio, name) for name in unibio.__all__)
