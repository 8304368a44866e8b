"""Reads and writes the folder of one study: its tables, the options and versions they were made with, and the times."""

from pathlib import Path

from unibio.files.tables import Row, Tables, read, read_json, write

_RESULT, _TIMES = "result.json", "seconds.json"
FIGURES = ("figure.svg", "figure.pdf", "figure.png")
NARROW = "figure-narrow.svg"  # the same figure for a phone, its panels below each other


def write_part(folder: Path, facts: Row, tables: Tables, clock: Tables, seconds: float) -> None:
    """Writes the tables and, in result.json, `facts` and the checksums. Times are written apart: `seconds`, those of
    the whole study, to seconds.json, and the table in `clock`, if there is one, to seconds.csv. So all other files are
    the same in every run with the same options."""
    write(folder / _RESULT, facts, tables)
    write(folder / _TIMES, {"seconds": seconds}, clock)


def read_part(folder: Path) -> tuple[Row, Tables]:
    """Reads the folder of one study that `write_part` wrote.

    Returns (facts, tables): `facts` is what result.json says of the run, with its options and versions; `tables` has
    every table by name, the table of times included if there is one. Raises a ValueError that names the file if a file
    is missing or was changed.
    """
    facts = read_json(folder / _RESULT)
    options, versions = facts.get("options"), facts.get("versions")  # the report shows both, so they must be there
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


def written(folder: Path) -> set[str]:
    """The names of the files in a folder that `write_part` and the drawing have made, as far as they can be read."""
    names = {_RESULT, _TIMES, *FIGURES, NARROW}
    for name in (_RESULT, _TIMES):
        try:
            names |= set(read_json(folder / name).get("sha256", ()))
        except ValueError:
            continue
    return names
