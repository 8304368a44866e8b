"""What makes a run this one and no other, so that no checkpoint of another is taken for its own."""

import dataclasses
import dis
import functools
import hashlib
import inspect
import sysconfig
import types
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import oracle, tree
from unibio.core.problem import Problem
from unibio.core.tree import PyTree
from unibio.run.placement import on_mesh

Facts = dict[str, Any]


def fingerprint(problem: Problem, solver: Any, x: PyTree, y: PyTree, key: jax.Array) -> Facts:
    """What makes a run this one: solver and problem with their numbers and data, functions by name and bytecode, start
    and key, a probe (f, g and their gradients at the start and beside it on the first batch, bitwise), versions and
    settings. Of a user's own functions and objects their globals and attributes count too.

    Nothing in it depends on how many devices a mesh has: arrays on it are summed up where they lie (`_checksums`), and
    of the probe, which rounding changes, only the norms are kept."""
    probe = _probe(problem, x, y, key)
    return {
        "solver": _described(solver),
        "the functions f and g": [_code(problem.f), _code(problem.g)],
        "the problem's numbers or data": _bytes(problem),
        "x0": _bytes(x),
        "y0": _bytes(y),
        "key": f"{key.dtype} {_bytes(key)}",
        "f, g or their gradients at the start": _sizes(probe) if on_mesh((x, y)) else _bytes(probe),
        "versions": [f"{name} {version(name)}" for name in ("unibio", "jax", "jaxlib")],
        "JAX's settings": jax_settings(),
    }


def jax_settings() -> list[str]:
    """Backend and settings that change what a program computes."""
    names = ("jax_enable_x64", "jax_default_prng_impl", "jax_threefry_partitionable", "jax_default_matmul_precision")
    return [jax.default_backend(), *(str(getattr(jax.config, name)) for name in names)]


def _probe(problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> PyTree:
    @jax.jit
    def values(problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> PyTree:
        first = [source.batch(jax.tree.map(lambda leaf: leaf[0], source.draw(key, 1, x, y)))
                 for source in (problem.f_batches, problem.g_batches)]  # fmt: skip
        return (
            oracle.value_f(problem, x, y, first[0]),
            oracle.value_g(problem, x, y, first[1]),
            oracle.grads_f(problem, x, y, first[0]),
            oracle.grad_g(problem, x, y, first[1]),
        )

    beside = jax.tree.map(lambda leaf: leaf + jnp.asarray(0.125, leaf.dtype), (x, y))  # at 0 too much vanishes
    return values(problem, x, y, key) + values(problem, *beside, key)


def _sizes(probe: PyTree) -> list[float]:
    return [float(tree.norm(part)) for part in probe]


@jax.jit
def _checksums(array: jax.Array) -> jax.Array:
    """Two sums mod 2³² over an array's 32-bit words, each mixed with its place: the same however it is cut."""
    floating = jnp.issubdtype(array.dtype, jnp.floating)
    words = jax.lax.bitcast_convert_type(array, f"uint{8 * array.dtype.itemsize}") if floating else array
    parts = [words.astype(jnp.uint32)]
    if array.dtype.itemsize == 8:
        parts.append((words >> jnp.asarray(32, words.dtype)).astype(jnp.uint32))
    place = jnp.zeros(array.shape, jnp.uint32)
    for axis, size in enumerate(array.shape):
        place = place * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, array.shape, axis)
    sums = [jnp.sum(_mixed(word + _mixed(place + jnp.uint32(salt))), dtype=jnp.uint32)
            for salt in (1, 2) for word in parts]  # fmt: skip
    return jnp.stack(sums)


def _mixed(word: jax.Array) -> jax.Array:
    """Each bit depends on all (the finaliser of MurmurHash3)."""
    word = (word ^ (word >> jnp.uint32(16))) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> jnp.uint32(13))) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> jnp.uint32(16))


def plain(leaf: Any) -> np.ndarray:
    """An array on the host; a key as its numbers."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf, order="C")


def _bytes(variable: PyTree) -> str:
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(variable):
        if on_mesh(leaf):  # gathering it could fill the memory
            digest.update(f"{leaf.dtype}{leaf.shape}".encode() + np.asarray(_checksums(leaf)).tobytes())
            continue
        array = plain(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def _described(solver: Any) -> str:
    """The class, its static settings and its numbers."""
    digest = hashlib.sha256(_bytes(solver).encode())
    _add(digest, solver, {})
    return f"{type(solver).__qualname__} {digest.hexdigest()}"


def _code(fn: Any) -> str:
    """A function by its qualified name, its bytecode and what it closes over; an object by its class and fields."""
    digest = hashlib.sha256()
    _add(digest, fn, {})
    name = getattr(fn, "__qualname__", type(fn).__qualname__)
    return f"{getattr(fn, '__module__', '')}.{name} {digest.hexdigest()}"


def _add(digest: Any, value: Any, seen: dict[int, Any]) -> None:
    """Feeds a digest with what a value is, never with where it lies in memory."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        digest.update(f"{type(value).__name__}:{value!r};".encode())
    elif isinstance(value, (jax.Array, np.ndarray, np.generic)):
        digest.update(_bytes(value).encode())
    elif isinstance(value, (list, tuple, frozenset, set, dict)):
        unordered = isinstance(value, (set, frozenset, dict))
        parts = sorted(value.items() if isinstance(value, dict) else value, key=repr) if unordered else value
        digest.update(f"{type(value).__name__}({len(value)}".encode())
        for part in parts:
            _add(digest, part, seen)
    elif id(value) not in seen:
        seen[id(value)] = value  # kept alive, so that no other object gets its id
        digest.update(f"{type(value).__module__}.{type(value).__qualname__}".encode())
        for part in _parts(value):
            _add(digest, part, seen)


def _parts(value: Any) -> list[Any]:
    """What makes a function, a method, a partial or an object of a class the one it is."""
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        parts = [value.__module__, value.__qualname__, value.__code__, value.__defaults__, value.__kwdefaults__]
        return [*parts, *cells, *_globals(value)]
    if isinstance(value, types.CodeType):
        return [value.co_code, value.co_names, value.co_consts]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.ModuleType):
        return [value.__name__]
    if isinstance(value, type):
        return [value.__module__, value.__qualname__, *filter(_is_users, _methods(value))]
    if inspect.getattr_static(value, "__wrapped__", None) is not None:  # by jax.jit and the like
        return [value.__wrapped__]
    if dataclasses.is_dataclass(value):
        return [*(getattr(value, field.name) for field in dataclasses.fields(value)), *_methods(type(value))]
    own = vars(value) if any(map(_is_users, _methods(type(value)))) and hasattr(value, "__dict__") else None
    return [getattr(value, "__qualname__", None), *_methods(type(value)), own]


def _globals(fn: types.FunctionType) -> list[Any]:
    """What a user's function reads from its module; a library's is known by its version."""
    names = _global_names(fn.__code__) if _is_users(fn) else []
    return [(name, fn.__globals__[name]) for name in names if name in fn.__globals__]


def _global_names(code: types.CodeType) -> list[str]:
    inner = [name for part in code.co_consts if isinstance(part, types.CodeType) for name in _global_names(part)]
    read = [step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    return sorted({*read, *inner})


_LIBRARIES = (*(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")), str(Path(__file__).parents[1]))


def _is_users(fn: types.FunctionType) -> bool:
    """Neither Python's nor an installed package's nor ours."""
    file = str(fn.__globals__.get("__file__") or fn.__code__.co_filename)
    return not file.startswith((*_LIBRARIES, "<frozen")) and not {"site-packages", "dist-packages"} & {
        *Path(file).parts
    }


def _methods(kind: type) -> list[Any]:
    """The functions that a class defines itself (equinox wraps them)."""
    found = (getattr(member, "method", member) for member in vars(kind).values())
    return [member for member in found if isinstance(member, types.FunctionType)]
