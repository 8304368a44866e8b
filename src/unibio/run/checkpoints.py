"""Checkpoints of a run: everything that it needs to go on as if nothing had happened, in checksummed files.

A file is a line of JSON and raw arrays behind the SHA-256 of both: no pickle, nothing executable. It is written under
another name, flushed to disk and renamed, so that a crash leaves the older ones as they were.
"""

import contextlib
import dataclasses
import errno
import os
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import checks
from unibio.core.protocols import Calls, State
from unibio.core.status import Status
from unibio.core.tree import PyTree
from unibio.files.archive import Facts, decode, encode
from unibio.files.atomic import write_bytes
from unibio.run import checkpoint_facts, history_file
from unibio.run.between import Between, End, View
from unibio.run.identity import circumstances, compared, next_step
from unibio.run.record import Anchor, Record
from unibio.run.result import Result
from unibio.run.rows import length, up_to

_SUFFIX = ".checkpoint"
_FORMAT = 3  # of the JSON in a checkpoint; files in another format are refused
_NAME = re.compile(r"step-\d{12}\.checkpoint")
_UNFINISHED = re.compile(
    r"\.step-\d{12}\.checkpoint\.[a-z0-9_]+|\.history-\d+\.log\.[a-z0-9_]+"
)  # of a write that was killed
_PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EAGAIN, errno.EINTR, errno.EFBIG}


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """Where and how often `solve` keeps its state; a rerun of the same call goes on from the newest intact file.

    Arguments:
        folder: a folder of this run's own.
        every: steps between two checkpoints.
        keep: how many of the newest files stay.
        strict: whether a checkpoint of a run that differs from this one is refused; if not, a warning says what
            differs, and the run goes on from it.
    """

    folder: str | os.PathLike[str]
    every: int = 1000
    keep: int = 3
    strict: bool = True

    def __post_init__(self) -> None:
        checks.path("Checkpoints(folder=…)", self.folder)
        checks.flag("strict", self.strict)
        checks.whole_number("every", self.every, low=1, high=checks.LONGEST)
        checks.whole_number("keep", self.keep, low=1, high=checks.LONGEST)

    def files(self) -> list[Path]:
        """The checkpoints in the folder, the newest first. Files with other names are ignored."""
        return sorted((path for path in Path(self.folder).glob("*") if _NAME.fullmatch(path.name)), reverse=True)

    def write(self, step: int, facts: Facts, state: State) -> None:
        """Writes the checkpoint of this step, and deletes those that are no longer kept."""
        content = encode(facts, {"state": jax.tree.leaves(state)})
        write_bytes(Path(self.folder) / f"step-{step:012d}{_SUFFIX}", content)
        later = [path for path in self.files() if int(path.stem.removeprefix("step-")) > step]
        for old in later + self.files()[len(later) + self.keep :]:  # later: back-off has gone back behind them
            old.unlink(missing_ok=True)

    def newest(self, identity: Facts) -> tuple[Facts, dict[str, Any]] | None:
        """Reads the newest intact checkpoint; None if there is none.

        Returns (facts, arrays). `facts` is what the file says of its run; its entry `intact` says whether the whole
        history could be read. `arrays` holds the state, the history and the metrics. A damaged file is renamed to
        ….damaged, a warning says so, and the next newest one is tried. A file in another format is always refused. With
        `strict=False` a checkpoint of another run is used, and a warning says what differs; else
        one of another run is refused with what differs."""
        for leftover in Path(self.folder).glob(".*"):
            if _UNFINISHED.fullmatch(leftover.name):
                with contextlib.suppress(OSError):  # where nothing may be deleted, it stays
                    leftover.unlink(missing_ok=True)
        for path in self.files():
            try:
                facts, arrays = self._read(path)
            except (_Damaged, OSError) as error:
                warnings.warn(f"{path} is passed over: {error}", RuntimeWarning, stacklevel=4)
                with contextlib.suppress(OSError):  # it would outlive newer ones with lower steps
                    path.replace(path.with_name(path.name + ".damaged"))
                continue
            differing = [name for name in identity if facts["run"].get(name) != identity[name]]
            if differing:
                self.object_to(path, f"belongs to another run, which differs in {', '.join(differing)}")
            return self._with_history(facts, arrays)
        return None

    def _read(self, path: Path) -> tuple[Facts, dict[str, Any]]:
        """What a file holds. Raises `_Damaged` if that is no checkpoint."""
        try:
            facts, arrays = decode(path.read_bytes())
            if facts.get("format") == _FORMAT:
                checkpoint_facts.check(facts, arrays)
                return facts, arrays
        except ValueError as error:
            raise _Damaged(str(error)) from None
        raise ValueError(
            f"{path} was written by an older version of unibio, which stored too little to tell whether it "
            "belongs to this run. Use another folder, delete this one, or finish the run with that version."
        )

    def check_writable(self) -> None:
        """Raises an OSError if no file can be made in the folder, for a reason that will not go away by itself."""
        try:
            Path(self.folder).mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.folder, prefix=".unibio.")
            os.close(handle)
            os.unlink(name)
        except OSError as error:
            if error.errno not in _PASSING:
                raise OSError(
                    f"checkpoints cannot be written into {self.folder}: {error.strerror or error}. Choose a folder "
                    "that you may write to, or leave out checkpoint=…"
                ) from None

    def object_to(self, path: Path, why: str) -> None:
        """Raises an error that says why this checkpoint is not used; with `strict=False` only warns."""
        if self.strict:
            raise ValueError(
                f"{path} {why}. Use another folder, delete this one, or pass Checkpoints(…, strict=False) to go on "
                "from it all the same."
            )
        warnings.warn(f"{path} {why}; the run goes on from it (strict=False).", RuntimeWarning, stacklevel=4)

    def _with_history(self, facts: Facts, arrays: dict[str, Any]) -> tuple[Facts, dict[str, Any]]:
        name, length = facts["history"]
        path, steps = Path(self.folder) / name, facts["steps"]
        found, intact = history_file.read(path, length)
        if not intact:
            message = f"{path} is damaged: some of the history before step {steps} is lost."
            warnings.warn(message, RuntimeWarning, stacklevel=5)
        last = {"history": steps - 1, "metrics": steps}
        tables = {name: up_to(table, last[name]) for name, table in found.items()}
        return facts | {"intact": intact}, arrays | tables


class _Damaged(Exception):
    """A file is no checkpoint, or was changed."""


class Keeper(Between):
    """Writes the checkpoints of a run, and reads them when it is resumed. The history lies in a file of its own, which
    grows from checkpoint to checkpoint, so that a long run does not write all of it each time; after a restart a new
    one is begun.

    Arguments:
        files: where the checkpoints are, and how often they are written.
        identity: digests of what the run was given (see `identity.identity`).
        key: the run's key, for the probe: the next step, which is stored too and computed again on resuming.
    """

    def __init__(self, files: Checkpoints, identity: Facts, key: jax.Array) -> None:
        self.files, self.identity, self.key = files, identity, key
        self.found: Facts | None = None  # what the file says that this run was resumed from
        self.generation: int | None = None  # of the history file: the restarts with which it was begun
        self.length, self.taken, self.writes = 0, (0, 0), 0
        self.on_disk: int | None = None  # the step of the newest checkpoint
        self.failure = ""  # why the last write failed; "" if it did not
        self._told: set[str] = set()  # the reasons that a warning has named

    def limit(self, step: int) -> int:
        return (step // self.files.every + 1) * self.files.every

    def after(self, view: View) -> End | None:
        due = view.end is not None or view.record.step == view.steps or view.record.step % self.files.every == 0
        if due and not view.begins and view.state is not None:
            self.store(view)
        if view.end is None or view.end.status != Status.interrupted:
            return None
        return view.end._replace(why=f"{view.end.why}; {self._where_to_go_on(view.record.step)}")

    def _where_to_go_on(self, step: int) -> str:
        """What the same call will do after an interruption at this step."""
        if self.on_disk == step:
            return "the same call goes on from there"
        where = "from the start" if self.on_disk is None else f"from step {self.on_disk}"
        return f"no checkpoint could be written there ({self.failure}): the same call goes on {where}"

    def store(self, view: View) -> None:
        """Writes the state, what was recorded since the last time, where back-off would go back to, and the probe."""
        anchor = view.record.anchor
        self._write(view.record, (view.state, None if anchor is None else anchor.state), self.probe(view))

    def probe(self, view: View) -> Facts:
        """The next step from this state (see `identity`)."""
        facts, compiling = next_step(view.solver, view.problem, view.state, self.key, view.record.step)
        view.record.spent_compiling(compiling)
        return facts

    def _write(self, record: Record, states: PyTree, probe: Facts) -> None:
        """Writes both files. If that fails (the disk is full, say), a warning says so and the run goes on: earlier
        files stay."""
        if len(record.restarts) != self.generation:
            self.generation, self.length, self.taken, self.writes = len(record.restarts), 0, (0, 0), 0
        path = Path(self.files.folder) / f"history-{self.generation}.log"
        taken = len(record.history), len(record.metrics)
        new = {
            "history": record.history.since(self.taken[0]),
            "metrics": record.metrics.since(self.taken[1]),
        }
        try:
            length = history_file.append(path, self.length, new)
            facts = {
                "format": _FORMAT,
                "run": self.identity,
                "circumstances": circumstances(),
                "next_step": probe,
                "steps": record.step,
                "calls": [int(count) for count in record.calls],
                "seconds": record.seconds,
                "compile_seconds": record.compile_seconds,
                "history": [path.name, length],
                "anchor": None if record.anchor is None else record.anchor.step,
                "restarts": record.restarts,
            }
            self.files.write(record.step, facts, states)
        except OSError as error:
            self._failed(record.step, error.strerror or str(error))
            return
        self.on_disk, self.failure = record.step, ""
        self.length, self.taken, self.writes = length, taken, self.writes + 1
        if self.writes == self.files.keep:  # no checkpoint that is left needs an older one
            for other in path.parent.iterdir():
                if other != path and checkpoint_facts.is_history(other.name):
                    other.unlink(missing_ok=True)

    def _failed(self, step: int, why: str) -> None:
        """Takes note of a write that failed. Each reason is told once."""
        self.failure = why
        if why in self._told:
            return
        self._told.add(why)
        text = f"no checkpoint at step {step}: {why}."
        if self.on_disk is not None:
            text += f" Earlier ones in {self.files.folder} are intact; the newest is that of step {self.on_disk}."
        text += " The run goes on, and tries again at the next one."
        warnings.warn(text, RuntimeWarning, stacklevel=5)

    def resumed(self, wanted: PyTree) -> tuple[Result, Anchor | None] | None:
        """The run as the newest intact checkpoint has it, and the anchor for back-off; None if there is no checkpoint.
        The state is a tree with the structure, shapes and dtypes of `wanted`."""
        found = self.files.newest(self.identity)
        if found is None:
            return None
        return self.result_of(*found, wanted)

    def check(self, view: View) -> None:
        """Refuses, or warns of, a checkpoint whose next step is not the one that this run would make from it."""
        assert self.found is not None  # there was a checkpoint
        probe = self.probe(view)
        path = Path(self.files.folder) / f"step-{self.found['steps']:012d}{_SUFFIX}"
        stored, where = self.found["next_step"], self.found["circumstances"]
        objection, warning = compared(stored, probe, where, circumstances())
        if objection:
            self.files.object_to(path, f"belongs to another run: {objection}")
        if warning:
            warnings.warn(f"{path} was {warning}.", RuntimeWarning, stacklevel=3)

    def result_of(self, facts: Facts, arrays: dict[str, Any], wanted: PyTree) -> tuple[Result, Anchor | None]:
        """What a file holds, as the Result of a run that was interrupted, and its anchor."""
        self.found, self.on_disk = facts, facts["steps"]
        if facts["intact"]:
            self.generation, self.length = len(facts["restarts"]), facts["history"][1]
            self.taken = length(arrays["history"]), length(arrays["metrics"])
        state, held = restored(arrays["state"], with_anchor(facts, wanted))
        anchor = None if held is None else Anchor(facts["anchor"], held)
        totals = facts["steps"], Calls(*facts["calls"]), facts["seconds"], facts["compile_seconds"]
        tables = arrays["history"], arrays["metrics"]
        restarts = tuple(facts["restarts"])
        return Result(state.x, state.y, Status.interrupted, "", *totals, *tables, state, restarts), anchor


def with_anchor(facts: Facts, wanted: PyTree) -> tuple[PyTree, PyTree]:
    """The structure of what a checkpoint holds: the state of the run, and that of the anchor if there is one."""
    return wanted, None if facts["anchor"] is None else wanted


def restored(arrays: list[Any], wanted: PyTree) -> PyTree:
    """The arrays as a tree like `wanted` (shapes and dtypes), which must fit."""
    leaves, structure = jax.tree.flatten(wanted)
    if len(arrays) != len(leaves):
        raise ValueError(_MISFIT)
    return jax.tree.unflatten(structure, [_restored(*pair) for pair in zip(arrays, leaves, strict=True)])


_MISFIT = (
    "the newest checkpoint holds the state of another solver, or of variables of another shape. Use another folder, or "
    "delete the checkpoint."
)


def _restored(array: np.ndarray | jax.Array, leaf: jax.ShapeDtypeStruct) -> jax.Array:
    """The array as the run expects it. Shape and dtype are compared first: JAX may not be able to read others."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    stored = jax.eval_shape(jax.random.key_data, leaf) if is_key else leaf
    if array.shape != stored.shape or array.dtype != stored.dtype:
        raise ValueError(_MISFIT)
    made = jnp.asarray(array)
    if not is_key:
        return made
    key = jax.random.wrap_key_data(made)
    if key.dtype != leaf.dtype:
        raise ValueError(_MISFIT)
    return key
