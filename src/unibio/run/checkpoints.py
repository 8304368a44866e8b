"""Checkpoints of a run: everything it needs to go on bitwise as if nothing had happened, in files that cannot lie.

A file is a line of JSON and raw arrays behind the SHA-256 of both: no pickle, nothing executable. It is written under
another name, flushed to disk and renamed, so that a crash leaves the older ones as they were.
"""

import dataclasses
import functools
import hashlib
import json
import os
import types
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import checks, oracle
from unibio.core.problem import Problem
from unibio.core.protocols import Calls
from unibio.core.tree import PyTree
from unibio.run.result import Outcome, Result, Table, write_file

_MAGIC = b"unibio checkpoint 1\n"
_DIGEST = 32
_SUFFIX = ".checkpoint"

Facts = dict[str, Any]
Anchor = tuple[int, Any] | None  # a step, and the state after so many


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """Where and how often `solve` keeps its state; a rerun of the same call goes on from the newest intact file.

    Arguments:
        folder: a folder of this run's own.
        every: steps between two checkpoints.
        keep: how many of the newest files stay.
    """

    folder: str | os.PathLike[str]
    every: int = 1000
    keep: int = 3

    def __post_init__(self) -> None:
        if not isinstance(self.folder, (str, os.PathLike)) or "\0" in str(self.folder):
            raise TypeError(f"Checkpoints(folder=…) must be a path; got {self.folder!r}.")
        checks.whole_number("every", self.every, low=1)
        checks.whole_number("keep", self.keep, low=1)

    def files(self) -> list[Path]:
        """The newest first."""
        return sorted(Path(self.folder).glob(f"step-*{_SUFFIX}"), reverse=True)

    def write(self, step: int, facts: Facts, state: Any, tables: dict[str, Table]) -> bool:
        """Whether it worked. A full disk does not end a run of days: it is warned of, and earlier files stay."""
        content = encode(facts, {"state": jax.tree.leaves(state), **{n: list(t.values()) for n, t in tables.items()}})
        try:
            write_file(Path(self.folder) / f"step-{step:012d}{_SUFFIX}", lambda file: file.write(content))
            for old in self.files()[self.keep :]:
                old.unlink(missing_ok=True)
        except OSError as error:
            message = (
                f"no checkpoint at step {step}: {error.strerror or error}. Earlier ones in {self.folder} are intact."
            )
            warnings.warn(message, RuntimeWarning, stacklevel=4)
            return False
        return True

    def newest(self, fingerprint: Facts) -> tuple[Facts, dict[str, list[np.ndarray]]] | None:
        """The newest intact checkpoint, if there is one. A damaged file is reported and passed over; one of another
        run is refused with what differs."""
        for leftover in Path(self.folder).glob(f".step-*{_SUFFIX}.*"):  # of a write that was killed
            leftover.unlink(missing_ok=True)
        for path in self.files():
            try:
                facts, arrays = decode(path.read_bytes())
            except (ValueError, OSError) as error:
                warnings.warn(f"{path} is passed over: {error}", RuntimeWarning, stacklevel=4)
                path.replace(path.with_name(path.name + ".damaged"))  # or it would outlive newer ones with lower steps
                continue
            differing = [name for name in fingerprint if facts["fingerprint"].get(name) != fingerprint[name]]
            if differing:
                raise ValueError(
                    f"{path} belongs to another run: {', '.join(differing)} differ"
                    f"{'s' if len(differing) == 1 else ''}. Use another folder, or delete this one."
                )
            return facts, arrays
        return None


class Keeper:
    """A run's own use of its checkpoints."""

    def __init__(self, files: Checkpoints, run: Facts) -> None:
        self.files = files
        self.run = run

    def next(self, step: int) -> int:
        """The next step with a checkpoint."""
        return (step // self.files.every + 1) * self.files.every

    def keep(self, result: Result, anchor: Anchor) -> None:
        """Writes the state, all that was recorded, and where back-off would go back to."""
        tables = {"history": result.history, "metrics": result.metrics}
        facts = {
            "fingerprint": self.run,
            "steps": result.steps,
            "calls": list(result.calls),
            "seconds": result.seconds,
            "compile_seconds": result.compile_seconds,
            "columns": {name: list(table) for name, table in tables.items()},
            "anchor": None if anchor is None else anchor[0],
        }
        self.files.write(result.steps, facts, (result.state, None if anchor is None else anchor[1]), tables)

    def resumed(self, wanted: PyTree) -> tuple[Result, Anchor] | None:
        """The run as the newest intact file has it, its state a tree like `wanted`, and its anchor."""
        found = self.files.newest(self.run)
        if found is None:
            return None
        facts, arrays = found
        state, held = restored(arrays["state"], (wanted, None if facts["anchor"] is None else wanted))
        anchor = None if held is None else (facts["anchor"], held)
        history, metrics = (dict(zip(facts["columns"][n], arrays[n], strict=True)) for n in ("history", "metrics"))
        calls = Calls(*facts["calls"])
        times = facts["seconds"], facts["compile_seconds"]
        result = Result(
            state.x, state.y, Outcome.interrupted, "", facts["steps"], calls, *times, history, metrics, state
        )
        return result, anchor


def encode(facts: Facts, groups: dict[str, list[Any]]) -> bytes:
    """JSON with the shape of every array, then their bytes."""
    arrays = {name: [_plain(leaf) for leaf in leaves] for name, leaves in groups.items()}
    shapes = {name: [(str(a.dtype), a.shape) for a in leaves] for name, leaves in arrays.items()}
    head = json.dumps(facts | {"arrays": shapes}).encode() + b"\n"
    body = head + b"".join(a.tobytes() for leaves in arrays.values() for a in leaves)
    return _MAGIC + hashlib.sha256(body).digest() + body


def decode(content: bytes) -> tuple[Facts, dict[str, list[np.ndarray]]]:
    """What `encode` wrote, or a ValueError."""
    start = len(_MAGIC) + _DIGEST
    if content[: len(_MAGIC)] != _MAGIC or hashlib.sha256(content[start:]).digest() != content[len(_MAGIC) : start]:
        raise ValueError("it is damaged or no checkpoint.")
    end = content.index(b"\n", start)
    facts = json.loads(content[start:end])
    place = end + 1
    groups: dict[str, list[np.ndarray]] = {}
    for name, shapes in facts.pop("arrays").items():
        groups[name] = []
        for kind, shape in shapes:
            dtype = jnp.dtype(kind)
            size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            groups[name].append(np.frombuffer(content[place : place + size], dtype).reshape(shape))
            place += size
    return facts, groups


def _plain(leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf, order="C")


def restored(arrays: list[np.ndarray], wanted: PyTree) -> PyTree:
    """The arrays as a tree like `wanted` (shapes), which must fit."""
    leaves, structure = jax.tree.flatten(wanted)
    made = []
    for array, leaf in zip(arrays, leaves, strict=True):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        made.append(jax.random.wrap_key_data(jnp.asarray(array)) if is_key else jnp.asarray(array))
    return jax.tree.unflatten(structure, made)


def fingerprint(problem: Problem, solver: Any, x: PyTree, y: PyTree, key: jax.Array) -> Facts:
    """What makes a run this one: solver and problem with their numbers and data, functions by name and bytecode, start
    and key, a probe (f, g and their gradients at the start on the first batch, bitwise), versions and settings."""
    return {
        "solver": _described(solver),
        "the functions f and g": [_code(problem.f), _code(problem.g)],
        "the problem's numbers or data": _bytes(problem),
        "x0": _bytes(x),
        "y0": _bytes(y),
        "key": f"{key.dtype} {_bytes(key)}",
        "f, g or their gradients at the start": _bytes(_probe(problem, x, y, key)),
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

    return values(problem, x, y, key)


def _bytes(variable: PyTree) -> str:
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(variable):
        array = _plain(leaf)
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
        return [value.__module__, value.__qualname__, value.__code__, value.__defaults__, value.__kwdefaults__, *cells]
    if isinstance(value, types.CodeType):
        return [value.co_code, value.co_names, value.co_consts]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, type):
        return [value.__module__, value.__qualname__]
    if dataclasses.is_dataclass(value):
        return [*(getattr(value, field.name) for field in dataclasses.fields(value)), *_methods(type(value))]
    return [getattr(value, "__qualname__", None), *_methods(type(value))]


def _methods(kind: type) -> list[Any]:
    """The functions that a class defines itself (equinox wraps them)."""
    found = (getattr(member, "method", member) for member in vars(kind).values())
    return [member for member in found if isinstance(member, types.FunctionType)]
