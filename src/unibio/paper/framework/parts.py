"""The folder of one study: its tables, and how and how fast they were made."""

from pathlib import Path
from typing import Any, NamedTuple

from unibio.files.tables import Row, Tables, read, read_json, write, write_json

_RESULT, _TIMES = "result.json", "seconds.json"


class Part(NamedTuple):
    """What one experiment left in its folder: how it was made, and its tables."""

    facts: Row
    tables: Tables


def write_part(folder: Path, facts: Row, tables: Tables, clock: Tables, seconds: float) -> None:
    """The tables and `facts` in result.json, equal between two runs; apart from them the times, which are not."""
    write_json(folder / _RESULT, facts | {"sha256": write(folder, tables)})
    write_json(folder / _TIMES, {"seconds": seconds, "sha256": write(folder, clock)})


def read_part(folder: Path) -> Part:
    """What `write_part` wrote, if every file is as it was; else a ValueError that says which is not."""
    facts, times = (read_json(folder / name) for name in (_RESULT, _TIMES))
    if not _is_complete(facts):
        raise ValueError(f"{_RESULT} is damaged")
    digests = {**facts.pop("sha256"), **times["sha256"]}
    return Part(facts, read(folder, digests))


def _is_complete(facts: Row) -> bool:
    """Whether it names tables, and has the options and versions that the report shows."""
    options: Any = facts.get("options")
    kinds = isinstance(options, dict) and isinstance(facts.get("versions"), dict) and bool(facts["sha256"])
    return kinds and {"seeds", "seed", "full"} <= options.keys() and isinstance(options.get("settings", {}), dict)
