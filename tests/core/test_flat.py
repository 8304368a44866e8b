"""Trees as vectors and back."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from unibio.core.flat import Layout


def test_there_and_back():
    tree: dict[str, Any] = {"a": jnp.arange(6.0).reshape(2, 3), "b": (jnp.asarray(7.0), jnp.arange(2.0))}
    layout = Layout.of(tree)
    assert layout.size == 9
    assert layout.vector(tree).shape == (9,)
    again = layout.tree(layout.vector(tree))
    assert again.keys() == tree.keys()
    np.testing.assert_array_equal(again["a"], tree["a"])
    np.testing.assert_array_equal(again["b"][1], tree["b"][1])
    assert again["b"][0].shape == ()


def test_equal_trees_have_equal_layouts():
    assert Layout.of({"a": jnp.ones(2)}) == Layout.of({"a": jnp.zeros(2)})
    assert hash(Layout.of({"a": jnp.ones(2)})) == hash(Layout.of({"a": jnp.zeros(2)}))
    assert Layout.of({"a": jnp.ones(2)}) != Layout.of({"a": jnp.ones(3)})
