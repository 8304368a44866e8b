"""An experiment of many independent pieces, each kept on disk when it is finished.

Several processes may run the same experiment side by side: each goes through the pieces in another order, and what one
has finished, the others find.
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
from unibio.paper.framework.study import Options, Say, child


class Piece(NamedTuple):
    """name, and a function of a module with its arguments, plain numbers and texts."""

    name: str
    fn: Callable[..., Rows]
    arguments: Row


def gather(pieces: Sequence[Piece], options: Options, say: Say, data: str = "") -> dict[str, Rows]:
    """The table of every piece by its name. Interrupted, it has kept what is finished, if there is a folder.

    Arguments:
        options: says in which folder, and by `turn` in which order.
        data: stands for the files that pieces read; pieces kept with another one are made anew.
    """
    store = Store(options.folder or None)
    versions = {name: version(name) for name in ("unibio", "jax", "numpy")}
    found: dict[str, Rows] = {}

    def facts(piece: Piece) -> Row:
        return {"piece": piece.name, "arguments": piece.arguments, "data": data, "versions": versions}

    def make(piece: Piece) -> Table:
        rows = piece.fn(**piece.arguments)
        say(f"{piece.name} ({len(found) + 1} of {len(pieces)})")
        return as_columns(rows)

    shuffled = random.Random(options.turn).sample(pieces, len(pieces))
    for piece in {0: pieces, 1: pieces[::-1]}.get(options.turn, shuffled):  # two processes meet in the middle
        found[piece.name] = as_rows(store.table(functools.partial(facts, piece), functools.partial(make, piece)))
    return {piece.name: found[piece.name] for piece in pieces}


@contextlib.contextmanager
def helpers(name: str, options: Options) -> Iterator[None]:
    """Inside, `options.jobs` − 1 other processes run the same experiment, each in another order."""
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
