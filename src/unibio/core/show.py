"""How objects print: numbers to three digits, arrays by their shape."""

from collections.abc import Callable

import equinox as eqx
import jax
import numpy as np

from unibio.core.tree import PyTree


def number(value: PyTree) -> str:
    """A number to three digits; an array by its shape, and under `jit` what JAX calls it."""
    if isinstance(value, jax.core.Tracer) or np.ndim(value) > 0:
        return shapes(value)
    return f"{float(value):.3g}"


def shapes(variable: PyTree) -> str:
    """A tree with each array as its dtype and shape: `f32[500]`."""
    return eqx.tree_pformat(variable, width=10**6)


def quantity(count: int, name: str) -> str:
    """`1,200 steps`."""
    return f"{int(count):,} {name}{'' if int(count) == 1 else 's'}"


def function(fn: Callable[..., object]) -> str:
    """The name of a function, or of the class of an object that can be called."""
    inner = fn.func if isinstance(fn, jax.tree_util.Partial) else fn
    return getattr(inner, "__name__", type(inner).__name__)
