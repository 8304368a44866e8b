"""Compiled programs, kept by what they compute: one for each function, structure and shape, and seconds of compilation
apart from those of running."""

import functools
import hashlib
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from unibio.core import checks
from unibio.core.tree import PyTree

Options = dict[str, str | bool]  # of XLA's compiler
# XLA's older code generator for fused loops, fewer of LLVM's optimisations, and two LLVM modules instead of 32: a
# program takes half the time to compile, and no longer to run.
LEAN: Options = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": "2",
    "xla_backend_optimization_level": "1",
}
# None of LLVM's optimisations, and one module: a seventh of the time to compile, and up to three times as long to run.
QUICK: Options = {**LEAN, "xla_cpu_parallel_codegen_split_count": "1", "xla_backend_optimization_level": "0"}
_PLACES = re.compile(r"sdy\.sharding = #sdy\.sharding<[^>]*>")
_SMALL = 100_000  # numbers in the arguments: up to so many, a program that answers a question is compiled by QUICK


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
        # Several threads may ask at once. It is not held while a program is compiled, so that two may be; if both are
        # the same, one of them is kept.
        self._lock = threading.Lock()

    def __call__(self, fn: Callable[..., Any], *args: PyTree, **static: Hashable) -> tuple[Any, float, float]:
        """Calls fn(*args, **static) and waits for the result. Returns it, the seconds it ran, and the seconds that
        compilation took."""
        call = _call(fn, args, static)
        began = time.perf_counter()
        program = self._find(call, LEAN, keep=True)
        return self._run(call, program, began)

    def quick(self, fn: Callable[..., Any], *args: PyTree, **static: Hashable) -> tuple[Any, float, float]:
        """The same for programs that answer a question, where most of the wait is for the compiler if data are few."""
        call = _call(fn, args, static)
        began = time.perf_counter()
        program = self._find(call, QUICK if sum(leaf.size for leaf in call.leaves) <= _SMALL else LEAN, keep=False)
        return self._run(call, program, began)

    def digest(self, fn: Callable[..., Any], *args: PyTree, **static: Hashable) -> str:
        """SHA-256 of the program that a call with these arguments runs, as it is before the compiler changes it, and
        without the notes on how arguments and results lie on a mesh: on one device they are written in several ways."""
        call = _call(fn, args, static)
        found = self.programs.get(call.name(LEAN, keep=True), (None, None))[0] or lowered(fn, call.args, static)
        return hashlib.sha256(_PLACES.sub("", found.as_text()).encode()).hexdigest()

    def _run(self, call: "_Call", program: Any, began: float) -> tuple[Any, float, float]:
        ready = time.perf_counter()
        with self._lock:
            self.compile_seconds += ready - began
        out = jax.block_until_ready(program(*call.args))
        return out, time.perf_counter() - ready, ready - began

    def _find(self, call: "_Call", options: Options, keep: bool) -> Any:
        """The compiled program. Only those of runs are asked for their digest, so that what they are lowered from is
        kept; it holds what f and g close over."""
        name = call.name(options, keep)
        found = self.programs.get(name)
        if found is None:
            made = lowered(call.fn, call.args, call.static)
            found = made if keep else None, _compiled(made, options)
        with self._lock:
            found = self.programs.setdefault(name, found)
            self.programs.move_to_end(name)
            while len(self.programs) > self.most:
                self.programs.popitem(last=False)
        return found[1]


class ClosedOver(TypeError):
    """f or g uses a value that is being traced by somebody's jit, vmap or grad, and that no argument brings."""


# What JAX's own cache of programs looks at beside functions and arguments.
_SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_threefry_partitionable",
    "jax_default_prng_impl",
    "jax_default_device",
    "jax_debug_nans",
)


class _Call(NamedTuple):
    """What is called with what. `leaves` (arrays) and `structure` are those of `args`."""

    fn: Callable[..., Any]
    args: PyTree
    static: dict[str, Hashable]
    leaves: list[jax.Array]
    structure: Any

    def name(self, options: Options, keep: bool) -> Hashable:
        """What tells a program from others."""
        # Random keys have no weak type.
        shapes = tuple(
            (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False), leaf.sharding) for leaf in self.leaves
        )
        settings = tuple(getattr(jax.config, setting) for setting in _SETTINGS)
        static = tuple(sorted(self.static.items()))
        return self.fn, static, self.structure, shapes, settings, options is LEAN, keep


def _call(fn: Callable[..., Any], args: PyTree, static: dict[str, Hashable]) -> _Call:
    leaves, structure = jax.tree.flatten(args)
    if not all(isinstance(leaf, jax.Array) for leaf in leaves):
        leaves = [leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf) for leaf in leaves]
        args = jax.tree.unflatten(structure, leaves)
    return _Call(fn, args, static, leaves, structure)


def lowered(fn: Callable[..., Any], args: PyTree, static: dict[str, Hashable]) -> jax.stages.Lowered:
    """The program of a call with these arguments before compilation; JAX keeps nothing of it."""
    traced = jax.jit(_wrapped(fn, static)).trace(*args)
    if any(checks.is_traced(value) for value in getattr(traced, "_consts", ())):
        raise ClosedOver(
            "f or g closes over a value that jit, vmap or grad is tracing: hand it in by x, by the data, or as a field "
            "of an equinox Module."
        )
    return traced.lower()


def _compiled(program: jax.stages.Lowered, options: Options) -> jax.stages.Compiled:
    if jax.config.values["jax_disable_most_optimizations"]:
        options = QUICK
    if jax.default_backend() == "cpu":
        try:
            return program.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError:  # this compiler does not know the options; any other error comes again
            return program.compile()
    return program.compile()


def _wrapped(fn: Callable[..., Any], static: dict[str, Hashable]) -> Callable[..., Any]:
    def wrapper(*args: PyTree) -> Any:
        return fn(*args, **static)

    wrapper.__name__ = getattr(fn, "__name__", type(fn).__name__)  # which names the program
    return wrapper


compiled = Programs()  # those of this process


def computed(fn: Callable[..., Any], *args: PyTree, **static: Hashable) -> Any:
    """fn(*args, **static), the answer to a question, by a compiled program; under somebody's jit, vmap or grad it
    becomes part of theirs."""
    if any(map(checks.is_traced, jax.tree.leaves(args))):
        return fn(*args, **static)
    try:
        return compiled.quick(fn, *args, **static)[0]
    except ClosedOver:
        return fn(*args, **static)


def kept_jit(fn: Callable[..., Any], most: int = 32) -> Callable[..., Any]:
    """`jax.jit(fn)` for functions that others trace and differentiate, which a compiled program cannot be. JAX would
    keep what it knows of every problem with new functions, so here too each structure of the arguments has a wrapper of
    its own, and the last `most` of them are kept."""

    @functools.lru_cache(most)
    def made(structure: Hashable) -> Callable[..., Any]:
        return jax.jit(_wrapped(fn, {}))

    def call(*args: PyTree) -> Any:
        return made(jax.tree.structure(args))(*args)

    return functools.wraps(fn)(call)
