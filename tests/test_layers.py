"""Imports point one way, each file of the package belongs to a room, and `import unibio` loads the library alone."""

import subprocess
import sys
from graphlib import CycleError
from pathlib import Path

import import_graph
import pytest

import unibio

ROOT = Path(unibio.__file__).parent
# What a room may import: a new arrow is a decision, to be made here.
ALLOWED = {
    "core": set(),
    "files": set(),
    "lower": {"core"},
    "distributed": {"core"},
    "hypergradients": {"core", "lower"},
    "problems": {"core", "lower", "hypergradients"},
    "solvers": {"core", "lower", "hypergradients"},
    "run": {"core", "lower", "hypergradients", "solvers", "files", "distributed"},
    "comparison": {"core", "solvers", "files", "distributed", "run"},
    "cleaning": {"core"},
    "sklearn": {"core", "files", "run", "cleaning"},
}
LIBRARY = frozenset(ALLOWED)
ALLOWED |= {"paper": {*LIBRARY}, "__init__": {*LIBRARY - {"sklearn"}, "paper"}, "cli": {*LIBRARY, "paper", "__init__"}}


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_imports_point_one_way():
    found = import_graph.graph(ROOT)
    assert found.keys() == ALLOWED.keys()
    assert {name: room.imports - ALLOWED[name] for name, room in found.items() if room.imports - ALLOWED[name]} == {}
    assert set(import_graph.in_order(found)) == ALLOWED.keys()  # no circle


def test_the_front_loads_no_paper_and_no_room_loads_the_front():
    found = import_graph.graph(ROOT)
    assert "paper" not in found["__init__"].loads
    assert [name for name, room in found.items() if {"__init__", "cli"} & room.imports] == ["cli"]


def test_the_drawing_in_the_design_page_is_the_current_one():
    assert import_graph.main(["--check"]) == 0, "run: python scripts/import_graph.py --write"


def test_the_library_uses_no_internals_of_jax():
    """What defines operations of JAX's own kind belongs to the paper's network."""
    users = {
        path.relative_to(ROOT).parts[0]
        for path in ROOT.glob("**/*.py")
        if any(name.startswith(("jax.interpreters", "jax.extend")) for name, _ in import_graph.imports(path, ROOT))
    }
    assert users == {"paper"}


def test_importing_unibio_loads_the_library_alone():
    """JAX loads jax.interpreters itself and equinox jax.extend: what counts is what we load beyond them."""
    run("""
import sys, jax, equinox, optax
before = set(sys.modules)
import unibio
new = set(sys.modules) - before
loaded = [name for name in new if name.startswith(("unibio.paper", "unibio.cli", "jax.interpreters", "jax.extend"))]
loaded += [name for name in ("matplotlib", "sklearn", "pandas", "orbax", "typer", "rich") if name in sys.modules]
assert not loaded, loaded
assert unibio.theory.modulus(4.0, 1) > 0
assert "unibio.paper.theory" in sys.modules
""")


def test_a_comparison_on_the_command_line_loads_no_paper():
    run("""
import sys
from unibio.cli import main
sys.argv = ["unibio", "compare", "SOBA", "--steps", "2", "--seeds", "1"]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
assert "unibio.comparison" in sys.modules
loaded = [name for name in sys.modules if name.startswith("unibio.paper")]
assert not loaded, loaded
""")


def test_public_names_exist():
    assert sorted(unibio.__all__, key=str) == sorted(set(unibio.__all__), key=str)
    assert all(hasattr(unibio, name) for name in unibio.__all__)


def package(folder, files):
    for name, text in files.items():
        path = folder / "made" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "made"


def test_the_graph_of_a_small_package(tmp_path):
    files = {
        "__init__.py": "from made import low\nfrom made.mid.deep import name\n",
        "low/__init__.py": "",
        "low/one.py": "import os, numpy\nfrom made.low import two\n",
        "mid/__init__.py": "import made.low.one as one\n",
        "mid/deep.py": "from .. import low\nfrom ..low.one import os\nfrom . import other\nfrom .other import name\n",
        "top/in/side.py": (
            "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    from made.low import one\nelse:\n    import made.mid\n"
            "def f():\n    from made import mid, far\n"
            "class C:\n    from made.beside import name\n"
        ),
        "far/__init__.py": "try:\n    from ..top.inside import side\nexcept ImportError:\n    pass\n",
        "beside/__init__.py": "f = lambda: __import__('made.top')\n",
        "beside/made_up.py": "import madeira.low\n",
    }
    found = import_graph.graph(package(tmp_path, files))
    assert {name: (room.loads, room.later) for name, room in found.items()} == {
        "low": (set(), set()),
        "mid": ({"low"}, set()),
        "top": ({"mid", "beside"}, {"low", "far"}),
        "far": ({"top"}, set()),
        "beside": (set(), set()),
        "__init__": ({"low", "mid"}, set()),
    }
    with pytest.raises(CycleError):
        import_graph.in_order(found)
    found["far"].loads.clear()
    order = import_graph.in_order(found)
    assert all(order.index(other) < order.index(name) for name, room in found.items() for other in room.imports)
    assert set(import_graph.arrows(found)) == {
        ("mid", "low"), ("top", "mid"), ("top", "beside"), ("top", "far"), ("__init__", "mid"),
    }  # fmt: skip


def test_a_page_out_of_date_is_found_and_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(import_graph, "PAGE", tmp_path / "design.md")
    import_graph.PAGE.write_text(f"before\n{import_graph.BEGIN}\nold\n{import_graph.END}\nafter ←\n", encoding="utf-8")
    assert import_graph.main(["--check"]) == 1
    assert "--write" in capsys.readouterr().err
    assert import_graph.main(["--write"]) == 0
    assert import_graph.main(["--check"]) == 0
    text = import_graph.PAGE.read_text(encoding="utf-8")
    assert text.startswith("before\n<!--")
    assert text.endswith("-->\nafter ←\n")
    assert "old" not in text
    assert "| `lower` | core |" in text
    import_graph.PAGE.write_text("no marks", encoding="utf-8")
    with pytest.raises(ValueError, match="needs the marks"):
        import_graph.main(["--check"])


def test_rooms_that_import_each_other_are_named(monkeypatch, capsys):
    circle = {"a": import_graph.Room({"b"}), "b": import_graph.Room(later={"a"}), "__init__": import_graph.Room()}
    monkeypatch.setattr(import_graph, "graph", lambda: circle)
    assert import_graph.main([]) == 1
    assert "in a circle: a ← b ← a" in capsys.readouterr().err
