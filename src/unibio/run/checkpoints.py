"""Checkpoints of a run: everything it needs to go on bitwise as if nothing had happened, in files that cannot lie.

A file is a line of JSON and raw arrays behind the SHA-256 of both: no pickle, nothing executable. It is written under
another name, flushed to disk and renamed, so that a crash leaves the older ones as they were.
"""

import dataclasses
import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import checks
from unibio.core.protocols import Calls
from unibio.core.tree import PyTree
from unibio.run.fingerprints import Facts, plain
from unibio.run.result import Outcome, Result, Table, write_file

_MAGIC = b"unibio checkpoint 1\n"
_DIGEST = 32
_SUFFIX = ".checkpoint"

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
            later = [path for path in self.files() if int(path.stem.removeprefix("step-")) > step]
            for old in later + self.files()[len(later) + self.keep :]:  # later: back-off has gone back behind them
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
            kept = facts["fingerprint"]
            differing = [name for name in fingerprint if not _same(kept.get(name), fingerprint[name])]
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

    def keep(self, result: Result, anchor: Anchor, halvings: int) -> None:
        """Writes the state, all that was recorded, where back-off would go back to, and how often it did."""
        tables = {"history": result.history, "metrics": result.metrics}
        facts = {
            "fingerprint": self.run,
            "steps": result.steps,
            "calls": list(result.calls),
            "seconds": result.seconds,
            "compile_seconds": result.compile_seconds,
            "columns": {name: list(table) for name, table in tables.items()},
            "anchor": None if anchor is None else anchor[0],
            "halvings": halvings,
        }
        self.files.write(result.steps, facts, (result.state, None if anchor is None else anchor[1]), tables)

    def resumed(self, wanted: PyTree) -> tuple[Result, Anchor, int] | None:
        """The run as the newest intact file has it, its state a tree like `wanted`, its anchor and halvings."""
        found = self.files.newest(self.run)
        if found is None:
            return None
        return self.result_of(*found, wanted)

    @staticmethod
    def result_of(facts: Facts, arrays: dict[str, list[Any]], wanted: PyTree) -> tuple[Result, Anchor, int]:
        """What a file holds, as the Result of a run that was interrupted, its anchor and halvings."""
        state, held = restored(arrays["state"], with_anchor(facts, wanted))
        anchor = None if held is None else (facts["anchor"], held)
        history, metrics = (dict(zip(facts["columns"][n], arrays[n], strict=True)) for n in ("history", "metrics"))
        calls = Calls(*facts["calls"])
        times = facts["seconds"], facts["compile_seconds"]
        result = Result(
            state.x, state.y, Outcome.interrupted, "", facts["steps"], calls, *times, history, metrics, state
        )
        return result, anchor, facts["halvings"]


def with_anchor(facts: Facts, wanted: PyTree) -> tuple[PyTree, PyTree]:
    """What a file's state looks like: the run's, and that of the anchor if there is one."""
    return wanted, None if facts["anchor"] is None else wanted


def encode(facts: Facts, groups: dict[str, list[Any]]) -> bytes:
    """JSON with the shape of every array, then their bytes."""
    arrays = {name: [plain(leaf) for leaf in leaves] for name, leaves in groups.items()}
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


def restored(arrays: list[Any], wanted: PyTree) -> PyTree:
    """The arrays as a tree like `wanted` (shapes), which must fit."""
    leaves, structure = jax.tree.flatten(wanted)
    made = []
    for array, leaf in zip(arrays, leaves, strict=True):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        made.append(jax.random.wrap_key_data(jnp.asarray(array)) if is_key else jnp.asarray(array))
    return jax.tree.unflatten(structure, made)


def _same(kept: Any, now: Any) -> bool:
    """Equal; the norms of a probe up to the rounding of another number of devices."""
    if isinstance(now, list) and isinstance(now[0], float):
        return isinstance(kept, list) and np.allclose(kept, now, rtol=1e-3, atol=0.0, equal_nan=True)
    return bool(kept == now)
