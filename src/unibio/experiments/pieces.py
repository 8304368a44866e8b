"""An experiment of many independent pieces: done side by side, each kept on disk when it is finished.

FOLDER/NAME.csv is a piece's table and FOLDER/NAME.json says how it was made; a rerun uses it if that still fits.
"""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from unibio.experiments import tables
from unibio.experiments.tables import Row, Rows
from unibio.experiments.workers import as_completed, error_of, workers


class Piece(NamedTuple):
    """name, and a function of a module with its arguments, plain numbers and texts."""

    name: str
    fn: Callable[..., Rows]
    arguments: Row


def gather(pieces: Sequence[Piece], folder: Path | None, jobs: int, say: Callable[[str], None]) -> dict[str, Rows]:
    """The table of every piece by its name. Interrupted, it has kept what is finished, if there is a folder."""
    found = {piece.name: rows for piece in pieces if folder and (rows := _read(folder, piece)) is not None}
    due = [piece for piece in pieces if piece.name not in found]

    def finished(piece: Piece, rows: Rows) -> None:
        found[piece.name] = rows
        if folder:
            _write(folder, piece, rows)
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


def _read(folder: Path, piece: Piece) -> Rows | None:
    """None if it is not there, not whole, or was made with other arguments."""
    try:
        facts = tables.read_json(folder / f"{piece.name}.json")
        if facts["arguments"] != _plain(piece) or facts["versions"] != _versions():
            return None
        return tables.read(folder, facts["sha256"])[piece.name]
    except (ValueError, KeyError):
        return None


def _write(folder: Path, piece: Piece, rows: Rows) -> None:
    digests = tables.write(folder, {piece.name: rows})
    tables.write_json(
        folder / f"{piece.name}.json", {"arguments": _plain(piece), "versions": _versions(), "sha256": digests}
    )


def _versions() -> Row:
    return {name: version(name) for name in ("unibio", "jax", "numpy")}


def _plain(piece: Piece) -> Row:
    """The arguments as JSON has them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in piece.arguments.items()}
