"""Checkpoints of a run: everything it needs to go on bitwise as if nothing had happened, in files that cannot lie.

A file is a line of JSON and raw arrays behind the SHA-256 of both: no pickle, nothing executable. It is written under
another name, flushed to disk and renamed, so that a crash leaves the older ones as they were.
"""

import dataclasses
import os
import re
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from unibio.core import checks
from unibio.core.protocols import Calls
from unibio.core.status import Status
from unibio.core.tree import PyTree
from unibio.files.archive import Facts, decode, encode
from unibio.files.atomic import write_bytes
from unibio.run import history_file
from unibio.run.identity import circumstances, compared
from unibio.run.record import Anchor, Record
from unibio.run.result import Result, joined, until

_SUFFIX = ".checkpoint"
_FORMAT = 2  # of what a file says of its run; others are refused
_NAME = re.compile(r"step-\d{12}\.checkpoint")


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
        if not isinstance(self.folder, (str, os.PathLike)) or "\0" in str(self.folder):
            raise TypeError(f"Checkpoints(folder=…) must be a path; got {self.folder!r}.")
        checks.whole_number("every", self.every, low=1)
        checks.whole_number("keep", self.keep, low=1)

    def files(self) -> list[Path]:
        """The checkpoints in the folder, the newest first. Files with other names are nobody's business here."""
        return sorted((path for path in Path(self.folder).glob("*") if _NAME.fullmatch(path.name)), reverse=True)

    def write(self, step: int, facts: Facts, state: Any) -> None:
        """One file, and without those that are no longer kept."""
        content = encode(facts, {"state": jax.tree.leaves(state)})
        write_bytes(Path(self.folder) / f"step-{step:012d}{_SUFFIX}", content)
        later = [path for path in self.files() if int(path.stem.removeprefix("step-")) > step]
        for old in later + self.files()[len(later) + self.keep :]:  # later: back-off has gone back behind them
            old.unlink(missing_ok=True)

    def newest(self, run: Facts) -> tuple[Facts, dict[str, Any]] | None:
        """The newest intact checkpoint, if there is one, with its history. A damaged file is reported and passed over;
        one of another run is refused with what differs."""
        for leftover in Path(self.folder).glob(f".step-*{_SUFFIX}.*"):  # of a write that was killed
            leftover.unlink(missing_ok=True)
        for path in self.files():
            try:
                facts, arrays = decode(path.read_bytes())
            except (ValueError, OSError) as error:
                warnings.warn(f"{path} is passed over: {error}", RuntimeWarning, stacklevel=4)
                path.replace(path.with_name(path.name + ".damaged"))  # or it would outlive newer ones with lower steps
                continue
            if facts.get("format") != _FORMAT:
                raise ValueError(
                    f"{path} was written by an older version of unibio, which stored too little to tell whether it "
                    "belongs to this run. Use another folder, delete this one, or finish the run with that version."
                )
            differing = [name for name in run if facts["run"].get(name) != run[name]]
            if differing:
                self.object_to(path, f"belongs to another run, which differs in {', '.join(differing)}")
            return self._with_history(facts, arrays)
        return None

    def object_to(self, path: Path, why: str) -> None:
        """Refuses a checkpoint, or warns of it."""
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
        tables = {name: joined(until([table], last[name])) for name, table in found.items()}
        return facts | {"intact": intact}, arrays | tables


class Keeper:
    """A run's own use of its checkpoints. The history lies in a file of its own, which grows from checkpoint to
    checkpoint, so that a long run does not write all of it each time; after a back-off a new one is begun."""

    def __init__(self, files: Checkpoints, run: Facts) -> None:
        self.files = files
        self.run = run
        self.found: Facts | None = None  # what the file says that this run was resumed from
        self.generation: int | None = None  # of the history file: the halvings with which it was begun
        self.length, self.taken, self.writes = 0, (0, 0), 0

    def next(self, step: int) -> int:
        """The next step with a checkpoint."""
        return (step // self.files.every + 1) * self.files.every

    def keep(self, record: Record, state: Any, anchor: Anchor, probe: Facts) -> None:
        """Writes the state, what was recorded since the last time, where back-off would go back to, and the probe."""
        self._write(record, (state, None if anchor is None else anchor[1]), anchor, probe)

    def _write(self, record: Record, state: Any, anchor: Anchor, probe: Facts) -> None:
        """A full disk does not end a run of days: it is warned of, and earlier files stay."""
        if record.halvings != self.generation:
            self.generation, self.length, self.taken, self.writes = record.halvings, 0, (0, 0), 0
        path = Path(self.files.folder) / f"history-{self.generation}.log"
        taken = len(record.pieces), len(record.rows)
        new = {
            "history": joined(record.pieces[self.taken[0] :]),
            "metrics": joined(record.rows[self.taken[1] :]),
        }
        try:
            length = history_file.append(path, self.length, new)
            facts = {
                "format": _FORMAT,
                "run": self.run,
                "circumstances": circumstances(),
                "next_step": probe,
                "steps": record.step,
                "calls": [int(count) for count in record.calls],
                "seconds": record.seconds,
                "compile_seconds": record.compile_seconds,
                "history": [path.name, length],
                "anchor": None if anchor is None else anchor[0],
                "halvings": record.halvings,
            }
            self.files.write(record.step, facts, state)
        except OSError as error:
            why = f"{error.strerror or error}. Earlier ones in {self.files.folder} are intact."
            warnings.warn(f"no checkpoint at step {record.step}: {why}", RuntimeWarning, stacklevel=4)
            return
        self.length, self.taken, self.writes = length, taken, self.writes + 1
        if self.writes == self.files.keep:  # no checkpoint that is left needs an older one
            for other in path.parent.glob("history-*.log"):
                if other != path:
                    other.unlink(missing_ok=True)

    def resumed(self, wanted: PyTree) -> tuple[Result, Anchor, int] | None:
        """The run as the newest intact file has it, its state a tree like `wanted`, its anchor and halvings."""
        found = self.files.newest(self.run)
        if found is None:
            return None
        return self.result_of(*found, wanted)

    def check(self, probe: Facts) -> None:
        """Refuses, or warns of, a checkpoint whose next step is not the one that this run would make from it."""
        assert self.found is not None  # there was a checkpoint
        path = Path(self.files.folder) / f"step-{self.found['steps']:012d}{_SUFFIX}"
        kept, where = self.found["next_step"], self.found["circumstances"]
        objection, warning = compared(kept, probe, where, circumstances())
        if objection:
            self.files.object_to(path, f"belongs to another run: {objection}")
        if warning:
            warnings.warn(f"{path} was {warning}.", RuntimeWarning, stacklevel=3)

    def result_of(self, facts: Facts, arrays: dict[str, Any], wanted: PyTree) -> tuple[Result, Anchor, int]:
        """What a file holds, as the Result of a run that was interrupted, its anchor and halvings."""
        self.found = facts
        if facts["intact"]:
            self.generation, self.length, self.taken = facts["halvings"], facts["history"][1], (1, 1)
        state, held = restored(arrays["state"], with_anchor(facts, wanted))
        anchor = None if held is None else (facts["anchor"], held)
        totals = facts["steps"], Calls(*facts["calls"]), facts["seconds"], facts["compile_seconds"]
        result = Result(state.x, state.y, Status.interrupted, "", *totals, arrays["history"], arrays["metrics"], state)
        return result, anchor, facts["halvings"]


def with_anchor(facts: Facts, wanted: PyTree) -> tuple[PyTree, PyTree]:
    """What a file's state looks like: the run's, and that of the anchor if there is one."""
    return wanted, None if facts["anchor"] is None else wanted


def restored(arrays: list[Any], wanted: PyTree) -> PyTree:
    """The arrays as a tree like `wanted` (shapes), which must fit."""
    leaves, structure = jax.tree.flatten(wanted)
    made = []
    for array, leaf in zip(arrays, leaves, strict=True):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        made.append(jax.random.wrap_key_data(jnp.asarray(array)) if is_key else jnp.asarray(array))
    return jax.tree.unflatten(structure, made)
