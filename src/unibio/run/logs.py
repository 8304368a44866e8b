"""Callbacks that write down a run while it goes on: `solve(…, callbacks=[JSONLines("log.jsonl"), Lines()])`."""

import json
import math
import os
import sys
import warnings
from pathlib import Path
from typing import Any, Protocol, TextIO

from unibio.core import checks, kinds
from unibio.files.atomic import check_regular, set_aside, write_bytes
from unibio.run.between import Between, View

Row = dict[str, Any]


class Stream(Protocol):
    """An object that text can be written to, such as sys.stderr."""

    def write(self, text: str, /) -> int: ...
    def flush(self) -> None: ...


class Teller(Protocol):
    """A function of what was last recorded."""

    def __call__(self, row: Row, /) -> None: ...


class Callback(Between):
    """Calls a function after every stretch of steps with a dictionary of the numbers that were last recorded: step,
    calls, seconds, direction_norm, restarts, and the metrics by name."""

    def __init__(self, function: Teller) -> None:
        self.function = function

    def begin(self, step: int, restarts: int) -> None:
        """Called before the first stretch, with the step from which the run goes on and how often it was restarted."""

    def __call__(self, row: Row) -> None:
        self.function(row)

    def after(self, view: View) -> None:
        if view.begins:
            self.begin(view.record.step, len(view.record.restarts))
        else:
            self(view.record.row())


class Lines(Callback):
    """One line of text for each stretch of steps, on stderr or on another stream."""

    def __init__(self, stream: TextIO | None = None) -> None:
        if stream is not None:
            kinds.is_a("stream", stream, Stream, "a stream of text such as sys.stdout")
        self.stream = stream

    def __call__(self, row: Row) -> None:
        text = "  ".join(f"{name} {value:.6g}" for name, value in row.items())
        print(text, file=self.stream or sys.stderr, flush=True)


class JSONLines(Callback):
    """A file with one JSON object a line, for each stretch of steps.

    A run that starts anew begins the file anew. One that goes on from a later step, or after a restart, continues it,
    without the lines that an interrupted run wrote beyond that point. A file in which some line is none of a log is
    kept under another name, which a warning tells. If the file cannot be written, a warning says so once, and the run
    goes on.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        checks.path("JSONLines(path)", path)
        self.path = Path(path)
        self._start: int | None = 0  # the step the run starts from, until its first row
        self._restarts = 0
        self._warned = False

    def begin(self, step: int, restarts: int) -> None:
        self._start, self._restarts = step, restarts

    def __call__(self, row: Row) -> None:
        try:
            self._write(row)
        except OSError as error:
            if not self._warned:
                warnings.warn(f"the log {self.path} cannot be written: {error}", RuntimeWarning, stacklevel=2)
            self._warned = True

    def _write(self, row: Row) -> None:
        if self._start is not None:
            check_regular(self.path)
            earlier = self._earlier(self._start) if self.path.exists() else []
            write_bytes(self.path, b"".join(earlier))
            self._start = None
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(json.dumps(row) + "\n")

    def _earlier(self, step: int) -> list[bytes]:
        """The lines of the file that belong to this run, which goes on from this step."""
        lines = self.path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]  # a killed run may leave half a line
        rows = [(line, _row(line)) for line in whole]
        if any(row is None for _, row in rows):
            kept = set_aside(self.path)
            warnings.warn(f"{self.path} has lines that no run has written; it is kept as {kept}", stacklevel=5)
        goes_on = step > 0 or self._restarts > 0  # also from step 0, if it has been restarted there
        return [line for line, row in rows if goes_on and row and row <= (self._restarts, step)]


def _row(line: bytes) -> tuple[float, float] | None:
    """The number of restarts and the step in a line of a log; None if it is no such line. A run writes them in this
    order: after a restart it counts from an earlier step again."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    numbers = (row.get("restarts", 0), row.get("step")) if isinstance(row, dict) else (None, None)
    ours = all(isinstance(number, (int, float)) and abs(number) < math.inf for number in numbers)
    return numbers if ours else None  # type: ignore[return-value]
