"""The folder of one study: its tables, and how and how fast they were made."""

from pathlib import Path
from typing import Any, NamedTuple

from unibio.files.tables import Row, Tables, read, read_json, write

_RESULT, _TIMES = "result.json", "seconds.json"


class Part(NamedTuple):
    """What one experiment left in its folder: how it was made, and its tables."""

    facts: Row
    tables: Tables


def write_part(folder: Path, facts: Row, tables: Tables, clock: Tables, seconds: float) -> None:
    """The tables and `facts` in result.json, equal between two runs; apart from them the times, which are not."""
    write(folder / _RESULT, facts, tables)
    write(folder / _TIMES, {"seconds": seconds}, clock)


def read_part(folder: Path) -> Part:
    """What `write_part` wrote, if every file is as it was; else a ValueError that says which is not."""
    facts = read_json(folder / _RESULT)
    options: Any = facts.get("options")  # the report shows them
    complete = isinstance(options, dict) and isinstance(facts.get("versions"), dict) and bool(facts.get("sha256"))
    if not complete or not {"seeds", "seed", "full"} <= options.keys() or type(options.get("settings", {})) is not dict:
        raise ValueError(f"{_RESULT} is damaged")
    facts, tables = read(folder / _RESULT)
    return Part(facts, tables | read(folder / _TIMES)[1])
