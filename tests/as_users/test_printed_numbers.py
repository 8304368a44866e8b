"""Docstrings and documentation show numbers; in float32 they must come out as printed."""

import contextlib
import doctest
import importlib
import io
import pkgutil
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import unibio as ub

DOCS = Path(__file__).parent.parent.parent / "docs"
MODULES = [m.name for m in pkgutil.walk_packages(ub.__path__, "unibio.") if "cli" not in m.name]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.slow
def test_docstrings(name):
    names = {"jax": jax, "jnp": jnp, **{n: getattr(ub, n) for n in ub.__all__}}
    result = doctest.testmod(importlib.import_module(name), extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_the_page_on_hypergradients():
    code = (DOCS / "hypergradients.md").read_text().split("```python\n")[1].split("```")[0]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "hypergradients.md", "exec"), {})
    assert "# " + out.getvalue().strip() in code
