"""Pytrees as vectors: for algorithms that keep many of them in a matrix."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from unibio.core.tree import PyTree


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a vector becomes a tree and back. Two trees of one structure and the same shapes have equal layouts, so that
    a compiled program may depend on it."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tree: PyTree) -> "Layout":
        leaves, structure = jax.tree.flatten(tree)
        return cls(structure, tuple(jnp.shape(leaf) for leaf in leaves))

    @property
    def size(self) -> int:
        """The length of the vector."""
        return sum(math.prod(shape) for shape in self.shapes)

    def vector(self, tree: PyTree) -> jax.Array:
        """All entries, one after the other."""
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])

    def tree(self, vector: jax.Array) -> PyTree:
        """The tree with these entries."""
        leaves, start = [], 0
        for shape in self.shapes:
            end = start + math.prod(shape)
            leaves.append(vector[start:end].reshape(shape))
            start = end
        return jax.tree.unflatten(self.structure, leaves)
