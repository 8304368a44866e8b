"""The folder of one study: its tables, and how and how fast they were made."""

from pathlib import Path

from unibio.files.tables import Row, Tables, read, read_json, write

_RESULT, _TIMES = "result.json", "seconds.json"


def write_part(folder: Path, facts: Row, tables: Tables, clock: Tables, seconds: float) -> None:
    """The tables and `facts` in result.json, equal between two runs; apart from them the times, which are not."""
    write(folder / _RESULT, facts, tables)
    write(folder / _TIMES, {"seconds": seconds}, clock)


def read_part(folder: Path) -> tuple[Row, Tables]:
    """What `write_part` wrote, if every file is as it was; else a ValueError that says which is not."""
    facts = read_json(folder / _RESULT)
    options, versions = facts.get("options"), facts.get("versions")  # the report shows them
    if not (
        isinstance(options, dict)
        and {"seeds", "seed", "full"} <= options.keys()
        and isinstance(options.get("settings", {}), dict)
        and isinstance(versions, dict)
        and "unibio" in versions
        and facts.get("sha256")
    ):
        raise ValueError(f"{_RESULT} is damaged")
    facts, tables = read(folder / _RESULT)
    return facts, tables | read(folder / _TIMES)[1]
