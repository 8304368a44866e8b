"""Which run this is: what a checkpoint stores so that no other run is continued from it by mistake.

Three things are compared. `identity` digests what a run is given: start, key, and the numbers in problem and solver.
`next_step` is a probe: the program of a step, and the step that it makes from the state in the checkpoint; both are
computed again when a run is resumed. `circumstances` says under which versions and on which devices that was done: only
there are the same bits expected; elsewhere the probe must agree up to rounding.
"""

import functools
import hashlib
import platform
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import tree
from unibio.core.batches import Dataset, Sampler
from unibio.core.problem import Problem
from unibio.core.programs import compiled
from unibio.core.protocols import BilevelSolver, State
from unibio.core.tree import PyTree
from unibio.distributed.placement import on_mesh
from unibio.files.archive import Facts, plain
from unibio.run.programs import CAPACITY, advance

_SALTS = (1, 2, 3)


def identity(problem: Problem, solver: PyTree, x: PyTree, y: PyTree, key: jax.Array) -> Facts:
    """Digests of all that a run is given. Nothing in it depends on how many devices a mesh has."""
    return {
        "solver": f"{_settings(solver)} {digest(solver)}",
        "the problem's numbers or data": digest(problem),
        "how samples are drawn": [_drawing(problem.f_batches), _drawing(problem.g_batches)],
        "x0": digest(x),
        "y0": digest(y),
        "key": f"{key.dtype} {digest(key)}",
    }


class Origin(Mapping[str, Any]):
    """The `identity` of what a run is given, computed when somebody first asks for it: that takes some 1.7 s for 1 GB
    of data, and most runs are never asked. Until then it holds what it was given. Pickled it becomes a dict."""

    def __init__(self, *given: PyTree) -> None:
        self._given = given

    @functools.cached_property
    def facts(self) -> Facts:
        made = identity(*self._given)
        self._given = ()
        return made

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.facts)

    def __len__(self) -> int:
        return len(self.facts)

    def __reduce__(self) -> Any:
        return dict, (self.facts,)


def circumstances() -> Facts:
    """Versions, settings, devices and machine: where they are the same, the same program gives the same bits."""
    names = ("jax_enable_x64", "jax_default_prng_impl", "jax_threefry_partitionable", "jax_default_matmul_precision")
    return {
        "versions": [f"{name} {version(name)}" for name in ("unibio", "jax", "jaxlib")],
        "settings": [str(getattr(jax.config, name)) for name in names],
        "devices": [device.device_kind for device in jax.devices()],
        "machine": [platform.node(), platform.machine()],
    }


def next_step(solver: BilevelSolver, problem: Problem, state: State, key: jax.Array, step: int) -> tuple[Facts, float]:
    """The probe: step number `step` from this state, and the seconds that its compilation took.

    `program` digests the lowered program, in which every constant stands that f, g and the solver had when they were
    traced; `bits` digests the next state and the norm of the direction; `numbers` are norms and projections of them,
    for a comparison up to rounding.
    """
    args = (solver, problem, state, key, jnp.int32(step), jnp.int32(1))
    (after, log), _, compiling = compiled(advance, *args, capacity=CAPACITY)
    made = [*jax.tree.leaves(after), log.direction_norm[0]]
    return probe(compiled.digest(advance, *args, capacity=CAPACITY), made, tree.dtype(after.x)), compiling


def probe(program: str, made: list[jax.Array], dtype: jnp.dtype) -> Facts:
    """The facts of a probe: the digest of a program and what it made, in variables of this dtype."""
    floats = [leaf for leaf in made if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return {
        "program": program,
        "bits": digest(made),
        "numbers": [number for leaf in floats for number in np.asarray(_numbers(leaf), float).tolist()],
        "float64": dtype == jnp.float64,
    }


def compared(stored: Facts, now: Facts, stored_where: Facts, here: Facts) -> tuple[str, str]:
    """Compares the probe in a checkpoint with the one computed now. Returns (objection, warning): why the checkpoint
    belongs to another run, and what differs without harm; each is "" if there is nothing to say.

    `stored_where` and `here` are the circumstances under which the two probes were computed.
    """
    elsewhere = ", ".join(name for name in here if stored_where.get(name) != here[name])
    same_lowering = all(stored_where.get(name) == here[name] for name in ("versions", "settings", "devices"))
    if same_lowering and stored["program"] != now["program"]:
        return "a step is another program: f, g, the solver, or a constant that they use has changed", ""
    if stored["bits"] == now["bits"]:
        return "", ""
    if not elsewhere:
        return "the next step from its state comes out differently", ""
    tolerance = 1e-6 if now["float64"] else 1e-3
    if len(stored["numbers"]) != len(now["numbers"]):
        return "the next step from its state has other variables", ""
    if not np.allclose(stored["numbers"], now["numbers"], rtol=tolerance, atol=tolerance**2, equal_nan=True):
        return f"the next step from its state differs by more than {tolerance:g}, also in {elsewhere}", ""
    return "", f"written under other circumstances ({elsewhere}): the next step agrees to {tolerance:g}, not to the bit"


def digest(variable: PyTree) -> str:
    """SHA-256 of all arrays of a tree, in hexadecimal. Of an array on a mesh only checksums enter it, which each device
    computes of its own part, because collecting the array in one place could fill the memory."""
    made = hashlib.sha256()
    for leaf in jax.tree.leaves(variable):
        if on_mesh(leaf):
            made.update(f"{leaf.dtype}{leaf.shape}".encode() + np.asarray(_checksums(leaf)).tobytes())
        else:
            array = plain(leaf)
            made.update(f"{array.dtype}{array.shape}".encode())
            made.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)  # without a copy
    return made.hexdigest()


def _settings(solver: PyTree) -> str:
    """Class and static settings of a solver and its parts. Functions in it are named, not described."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(jax.tree.structure(solver)))


def _drawing(sampler: Sampler) -> str:
    if not isinstance(sampler, Dataset):
        return type(sampler).__qualname__
    return f"batches of {sampler.batch_size}, replace={sampler.replace}, stream={sampler.stream}"


@jax.jit
def _numbers(variable: PyTree) -> jax.Array:
    """The norm of a variable, and the projections of variable/norm on three fixed vectors of ±1."""
    norm = tree.norm(variable)
    safe = jnp.where(norm > 0, norm, jnp.ones_like(norm))
    sums = [
        sum(jnp.sum(leaf / safe * _signs(leaf, salt)) for leaf in jax.tree.leaves(variable)) for salt in _SALTS
    ]  # fmt: skip
    return jnp.stack([norm, *sums])


def _signs(array: jax.Array, salt: int) -> jax.Array:
    odd = _mixed(_places(array.shape) + jnp.uint32(salt)) & jnp.uint32(1)
    return jnp.where(odd == 1, jnp.ones((), array.dtype), -jnp.ones((), array.dtype))


@jax.jit
def _checksums(array: jax.Array) -> jax.Array:
    """Two sums mod 2³² over an array's 32-bit words, each mixed with its place: the same however it is cut."""
    floating = jnp.issubdtype(array.dtype, jnp.floating)
    words = jax.lax.bitcast_convert_type(array, f"uint{8 * array.dtype.itemsize}") if floating else array
    parts = [words.astype(jnp.uint32)]
    if array.dtype.itemsize == 8:
        parts.append((words >> jnp.asarray(32, words.dtype)).astype(jnp.uint32))
    place = _places(array.shape)
    sums = [jnp.sum(_mixed(word + _mixed(place + jnp.uint32(salt))), dtype=jnp.uint32)
            for salt in (1, 2) for word in parts]  # fmt: skip
    return jnp.stack(sums)


def _places(shape: tuple[int, ...]) -> jax.Array:
    """The number of each entry, counted row by row, mod 2³²."""
    place = jnp.zeros(shape, jnp.uint32)
    for axis, size in enumerate(shape):
        place = place * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
    return place


def _mixed(word: jax.Array) -> jax.Array:
    """A hash of each 32-bit word, in which every bit depends on all bits of the word: the finaliser of MurmurHash3."""
    word = (word ^ (word >> jnp.uint32(16))) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> jnp.uint32(13))) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> jnp.uint32(16))
