"""Every example in a docstring runs."""

import doctest
import importlib
import pkgutil

import jax
import jax.numpy as jnp
import pytest

import unibio

MODULES = [m.name for m in pkgutil.walk_packages(unibio.__path__, "unibio.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    names = {"jax": jax, "jnp": jnp, **{n: getattr(unibio, n) for n in unibio.__all__}}
    result = doctest.testmod(module, extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
