"""Callbacks that write down a run as it goes: `solve(…, callbacks=[JSONLines("log.jsonl"), TensorBoard("runs")])`.

Each gets a row (a dictionary of numbers) after every stretch of steps. `solve` first calls `begin(step)` with the step
it starts from: at 0 a log is begun anew, later it goes on, without what an interrupted run wrote beyond that step. A
log that cannot be written is warned of once and does not end the run.
"""

import abc
import csv
import io
import json
import os
import struct
import sys
import time
import warnings
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from unibio.run.result import write_file

Row = dict[str, Any]


class Lines:
    """One line of text for each stretch, on stderr or on another stream."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream

    def __call__(self, row: Row) -> None:
        text = "  ".join(f"{name} {value:.6g}" for name, value in row.items())
        print(text, file=self.stream or sys.stderr, flush=True)


class _File(abc.ABC):
    """A log of one line per row, continued or begun at the first call."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._start: int | None = 0  # where the run starts, until its first row
        self._warned = False

    def begin(self, step: int) -> None:
        self._start = step

    def __call__(self, row: Row) -> None:
        try:
            self._write(row)
        except (OSError, ValueError, KeyError) as error:
            if not self._warned:
                warnings.warn(f"the log {self.path} cannot be written: {error}", RuntimeWarning, stacklevel=3)
            self._warned = True

    def _write(self, row: Row) -> None:
        if self._start is not None:
            old = self._read() if self._start and self.path.exists() else []
            earlier = [line for line in old if line["step"] <= self._start]
            write_file(self.path, lambda file: file.write(self._text(earlier, row).encode()))
            self._start = None
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(self._line(row))

    def _text(self, earlier: list[Row], row: Row) -> str:
        return "".join(self._line(old) for old in earlier)

    @abc.abstractmethod
    def _line(self, row: Row) -> str: ...

    @abc.abstractmethod
    def _read(self) -> list[Row]: ...


class JSONLines(_File):
    """A JSON object for each row."""

    def _line(self, row: Row) -> str:
        return json.dumps(row) + "\n"

    def _read(self) -> list[Row]:
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]  # a killed run may leave half a line


class CSVLog(_File):
    """Comma-separated values under the names of the first row; a number that comes later has no column."""

    def _text(self, earlier: list[Row], row: Row) -> str:
        self._names = list(earlier[0] if earlier else row)
        return _joined(self._names) + super()._text(earlier, row)

    def _line(self, row: Row) -> str:
        return _joined(
            [repr(row[name]) if isinstance(row.get(name), float) else row.get(name, "") for name in self._names]
        )

    def _read(self) -> list[Row]:
        with self.path.open(encoding="utf-8", newline="") as file:
            lines = [line for line in file if line.endswith("\n")]
        return [row | {"step": int(row["step"])} for row in csv.DictReader(lines)]


def _joined(values: list[Any]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(values)
    return out.getvalue()


class TensorBoard:
    """An event file for TensorBoard, a scalar for each number; nothing needs to be installed to write it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._path: Path | None = None
        self._start = 0
        self._warned = False

    def begin(self, step: int) -> None:
        self._path = None
        self._start = step

    def __call__(self, row: Row) -> None:
        try:
            self._write(row)
        except OSError as error:
            if not self._warned:
                warnings.warn(f"{self.folder} cannot be written: {error}", RuntimeWarning, stacklevel=3)
            self._warned = True

    def _write(self, row: Row) -> None:
        now = time.time()
        if self._path is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._path = self.folder / f"events.out.tfevents.{int(now)}.{os.getpid()}.unibio"
            self._append(_double(1, now) + _bytes(3, b"brain.Event:2"))
            if self._start:  # a session that starts here: TensorBoard drops what an earlier file has beyond
                step = _key(2, 0) + _varint(self._start + 1)
                self._append(_double(1, now) + step + _bytes(7, _key(1, 0) + _varint(1)))
        values = b"".join(
            _bytes(1, _bytes(1, name.encode()) + _key(2, 5) + struct.pack("<f", _single(value)))
            for name, value in row.items() if name != "step"
        )  # fmt: skip
        self._append(_double(1, now) + _key(2, 0) + _varint(int(row["step"])) + _bytes(5, values))

    def _append(self, event: bytes) -> None:
        """A TFRecord: length and content, each with its masked CRC-32C."""
        length = struct.pack("<Q", len(event))
        assert self._path is not None
        with self._path.open("ab") as file:
            file.write(length + _masked(length) + event + _masked(event))


def _single(value: Any) -> float:
    """As float32 has it: infinite beyond its range."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _double(field: int, value: float) -> bytes:
    return _key(field, 1) + struct.pack("<d", value)


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, 2) + _varint(len(content)) + content


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _table()


def _masked(content: bytes) -> bytes:
    """CRC-32C (Castagnoli) as TFRecords hold it: rotated by 15 bits, plus a constant."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
