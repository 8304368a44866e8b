"""Imports point one way, each file of the package belongs to a room, and `import unibio` loads the library alone."""

import ast
import subprocess
import sys
from pathlib import Path

import unibio

ROOT = Path(unibio.__file__).parent
LIBRARY = ("core", "lower", "hypergradients", "problems", "solvers", "files", "distributed", "run", "comparison")
ALLOWED = {
    "core": {"core"},
    "lower": {"core", "lower"},
    "hypergradients": {"core", "lower", "hypergradients"},
    "problems": {"core", "lower", "hypergradients", "problems"},
    "solvers": {"core", "lower", "hypergradients", "solvers"},
    "files": {"files"},
    "distributed": {"core", "distributed"},
    "run": {"core", "lower", "hypergradients", "solvers", "files", "distributed", "run"},
    "comparison": {"core", "solvers", "files", "distributed", "run", "comparison"},
    "paper": {*LIBRARY, "paper"},
    "cli": {*LIBRARY, "paper", "cli"},
}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_imports_point_one_way():
    seen = set()
    for path in ROOT.glob("*/**/*.py"):
        room = path.relative_to(ROOT).parts[0]
        rooms = {name.split(".")[1] for name in imported(path) if name.startswith("unibio.")}
        assert not rooms - ALLOWED[room], f"{path.relative_to(ROOT)} imports {rooms - ALLOWED[room]}"
        seen.add(room)
    assert seen == ALLOWED.keys()


def test_the_library_uses_no_internals_of_jax():
    """What defines operations of JAX's own kind belongs to the paper's network."""
    users = {
        path.relative_to(ROOT).parts[0]
        for path in ROOT.glob("**/*.py")
        if any(name.startswith(("jax.interpreters", "jax.extend")) for name in imported(path))
    }
    assert users == {"paper"}


def test_importing_unibio_loads_the_library_alone():
    code = """
import sys, unibio
loaded = [name for name in sys.modules if name.startswith(("unibio.paper", "unibio.cli"))]
loaded += [name for name in ("matplotlib", "sklearn", "pandas", "typer", "rich") if name in sys.modules]
assert not loaded, loaded
assert unibio.theory.modulus(4.0, 1) > 0
assert "unibio.paper.theory" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_public_names_exist():
    assert sorted(unibio.__all__, key=str) == sorted(set(unibio.__all__), key=str)
    assert all(hasattr(unibio, name) for name in unibio.__all__)
