"""Experiments whose work consists of many independent pieces. Each piece is saved to disk as soon as it is finished.

Several processes may run the same experiment side by side. Each goes through the pieces in another order and reads
from the disk those that another process has finished.
"""

import contextlib
import functools
import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import NamedTuple

from unibio.files.store import Store, Table
from unibio.files.tables import Row, Rows, as_columns, as_rows
from unibio.paper.framework.study import Options, Progress, child


class Piece(NamedTuple):
    """A part of an experiment's work that is computed and saved apart from the others.

    `fn(**arguments)` computes its table. `name` is its own within the experiment. `arguments` holds numbers, texts and
    tuples of them, because it decides under which name the table is saved, so that a later run can tell whether the
    table is the one it needs.
    """

    name: str
    fn: Callable[..., Rows]
    arguments: Row


def gather(pieces: Sequence[Piece], options: Options, progress: Progress, data: str = "") -> dict[str, Rows]:
    """The table of every piece, by the name of the piece.

    Finished pieces are saved in `options.folder`, if that is given: after an interruption the same call computes only
    the others.

    Arguments:
        options: `folder` is where the pieces are saved; `turn` chooses the order in which they are computed.
        data: a digest of the files that pieces read. Pieces that were saved with another digest are computed again.
    """
    store = Store(options.folder or None)
    versions = {name: version(name) for name in ("unibio", "jax", "numpy")}
    found: dict[str, Rows] = {}

    def facts(piece: Piece) -> Row:
        return {"piece": piece.name, "arguments": piece.arguments, "data": data, "versions": versions}

    def make(piece: Piece) -> Table:
        rows = piece.fn(**piece.arguments)
        progress(f"{piece.name} ({len(found) + 1} of {len(pieces)})")
        return as_columns(rows)

    shuffled = random.Random(options.turn).sample(pieces, len(pieces))
    for piece in {0: pieces, 1: pieces[::-1]}.get(
        options.turn, shuffled
    ):  # from both ends: two processes meet in the middle
        found[piece.name] = as_rows(store.table(functools.partial(facts, piece), functools.partial(make, piece)))
    return {piece.name: found[piece.name] for piece in pieces}


@contextlib.contextmanager
def helpers(name: str, options: Options) -> Iterator[None]:
    """A context in which `options.jobs` − 1 other processes run the same experiment, each in another order. They are
    ended when the context is left."""
    turns = range(1, options.jobs) if options.folder and not options.turn else ()
    commands = [child("", name, options._replace(turn=turn)) for turn in turns]
    made: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            made.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL, start_new_session=True))  # fmt: skip
        yield
    finally:
        for process in made:
            process.kill()
            process.communicate()
