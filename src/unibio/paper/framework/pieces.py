"""An experiment of many independent pieces: done side by side, each kept on disk when it is finished.

FOLDER/NAME.csv is a piece's table and FOLDER/NAME.json says how it was made; a rerun uses it if that still fits.
"""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from unibio.files import tables
from unibio.files.tables import Row, Rows
from unibio.paper.framework.workers import as_completed, error_of, workers


class Piece(NamedTuple):
    """name, and a function of a module with its arguments, plain numbers and texts."""

    name: str
    fn: Callable[..., Rows]
    arguments: Row


def gather(
    pieces: Sequence[Piece], folder: Path | None, jobs: int, say: Callable[[str], None], data: str = ""
) -> dict[str, Rows]:
    """The table of every piece by its name. Interrupted, it has kept what is finished, if there is a folder.

    Arguments:
        data: stands for the files that pieces read; pieces kept with another one are made anew.
    """
    found = {piece.name: rows for piece in pieces if folder and (rows := _read(folder, piece, data)) is not None}
    due = [piece for piece in pieces if piece.name not in found]

    def finished(piece: Piece, rows: Rows) -> None:
        found[piece.name] = rows
        if folder:
            _write(folder, piece, rows, data)
        say(f"{piece.name} ({len(found)} of {len(pieces)})")

    if min(jobs, len(due)) <= 1:
        for piece in due:
            finished(piece, piece.fn(**piece.arguments))
    else:
        with workers(min(jobs, len(due))) as submit:
            running = {submit(_work, piece): piece for piece in due}
            errors = []
            for future in as_completed(set(running), lambda: None):
                error = error_of(future)
                if error is None:
                    finished(running[future], future.result())
                else:
                    errors.append(error)
            if errors:  # after the others, which are kept
                raise errors[0]
    return {piece.name: found[piece.name] for piece in pieces}


def _work(piece: Piece) -> Rows:
    return piece.fn(**piece.arguments)


def _read(folder: Path, piece: Piece, data: str) -> Rows | None:
    """None if it is not there, not whole, or was made with other arguments, data or versions."""
    try:
        facts = tables.read_json(folder / f"{piece.name}.json")
        if any(facts[name] != value for name, value in _facts(piece, data).items()):
            return None
        return tables.read(folder, facts["sha256"])[piece.name]
    except (ValueError, KeyError):
        return None


def _write(folder: Path, piece: Piece, rows: Rows, data: str) -> None:
    digests = tables.write(folder, {piece.name: rows})
    tables.write_json(folder / f"{piece.name}.json", _facts(piece, data) | {"sha256": digests})


def _facts(piece: Piece, data: str) -> Row:
    """How it is made, as JSON has it."""
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in piece.arguments.items()}
    versions = {name: version(name) for name in ("unibio", "jax", "numpy")}
    return {"arguments": plain, "data": data, "versions": versions}
