"""Compiled programs, kept by what they compute: one for each function, structure and shape, and seconds of compilation
apart from those of running."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from unibio.core import checks
from unibio.core.tree import PyTree


class Programs:
    """The last `most` programs that were used.

    JAX keeps what it knows of a function as long as the function lives, and ours live for ever: a problem with new
    functions, such as fresh lambdas, would cost 5 MB each time. So each program is compiled from a wrapper of its own,
    and all of it goes when the program does.
    """

    def __init__(self, most: int = 128) -> None:
        self.programs: OrderedDict[Any, tuple[Any, Any]] = OrderedDict()  # lowered, compiled
        self.most = most
        self.compile_seconds = 0.0  # of all programs so far

    def __call__(self, fn: Callable[..., Any], *args: PyTree, **static: Any) -> tuple[Any, float, float]:
        """Calls fn(*args, **static) and waits for the result. Returns it, the seconds it ran, and the seconds that
        compilation took."""
        args = jax.tree.map(jnp.asarray, args)
        began = time.perf_counter()
        _, program = self._program(fn, args, static)
        ready = time.perf_counter()
        self.compile_seconds += ready - began
        out = jax.block_until_ready(program(*args))
        return out, time.perf_counter() - ready, ready - began

    def digest(self, fn: Callable[..., Any], *args: PyTree, **static: Any) -> str:
        """SHA-256 of the program that a call with these arguments runs, as it is before the compiler changes it."""
        lowered, _ = self._program(fn, jax.tree.map(jnp.asarray, args), static)
        return hashlib.sha256(lowered.as_text().encode()).hexdigest()

    def _program(self, fn: Callable[..., Any], args: PyTree, static: dict[str, Any]) -> tuple[Any, Any]:
        leaves, structure = jax.tree.flatten(args)
        shapes = tuple((leaf.shape, leaf.dtype, leaf.sharding) for leaf in leaves)
        name = (fn, tuple(sorted(static.items())), structure, shapes, jax.config.read("jax_enable_x64"))
        if name not in self.programs:
            lowered = jax.jit(_wrapped(fn, static)).lower(*args)
            self.programs[name] = lowered, lowered.compile()
        self.programs.move_to_end(name)
        while len(self.programs) > self.most:
            self.programs.popitem(last=False)
        return self.programs[name]


def _wrapped(fn: Callable[..., Any], static: dict[str, Any]) -> Callable[..., Any]:
    def wrapper(*args: PyTree) -> Any:
        return fn(*args, **static)

    wrapper.__name__ = getattr(fn, "__name__", type(fn).__name__)  # which names the program
    return wrapper


compiled = Programs()  # those of this process


def computed(fn: Callable[..., Any], *args: PyTree, **static: Any) -> Any:
    """fn(*args, **static) by a compiled program; under somebody's jit, vmap or grad it becomes part of theirs."""
    if any(checks.is_traced(leaf) for leaf in jax.tree.leaves(args)):
        return fn(*args, **static)
    return compiled(fn, *args, **static)[0]
