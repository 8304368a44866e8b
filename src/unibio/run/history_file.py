"""The history of a run on disk: blocks of rows, appended one after the other, each behind its own checksum.

A checkpoint names a file and how many of its bytes belong to it. What a killed run appended beyond them is cut off by
the next block.
"""

import os
from pathlib import Path

from unibio.files.archive import decode, encode
from unibio.files.atomic import write_bytes
from unibio.run.result import Table, joined

Tables = dict[str, Table]

_SIZE = 8  # bytes before a block that tell its length


def append(path: Path, at: int, tables: Tables) -> int:
    """Writes the tables as one block at byte `at`, flushed to disk, and returns the new length of the file."""
    content = encode({}, tables)
    block = len(content).to_bytes(_SIZE, "big") + content
    if at == 0:
        write_bytes(path, block)
        return len(block)
    with path.open("r+b") as file:
        file.truncate(at)
        file.seek(at)
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return at + len(block)


def read(path: Path, length: int) -> tuple[Tables, bool]:
    """Reads the blocks in the first `length` bytes. Returns the tables `history` and `metrics` with the rows of all
    intact blocks, and whether every block was intact."""
    content = path.read_bytes()[:length] if path.exists() else b""
    blocks: list[Tables] = []
    place, intact = 0, len(content) == length
    while place < len(content):
        end = place + _SIZE + int.from_bytes(content[place : place + _SIZE], "big")
        try:
            blocks.append(_checked(decode(content[place + _SIZE : end])[1]))
        except ValueError:
            intact = False
        place = end
    return {name: joined([block[name] for block in blocks]) for name in ("history", "metrics")}, intact


_NEEDED = {"history": {"step", "calls", "direction_norm", "status"}, "metrics": {"step"}}


def _checked(block: Tables) -> Tables:
    """The block, if it has both tables, each with columns of numbers, as many in each."""
    for name, needed in _NEEDED.items():
        table = block.get(name)
        if not isinstance(table, dict) or (table and not needed <= table.keys()):
            raise ValueError(f"it has no table {name}")
        if any(column.dtype.kind not in "biuf" or column.ndim != 1 for column in table.values()):
            raise ValueError(f"the table {name} has columns that hold no numbers")
        if len({len(column) for column in table.values()}) > 1:
            raise ValueError(f"the table {name} has columns of different lengths")
    return block
