"""Tables as CSV files that have the same bytes for the same numbers, and come back as they were; folders of them."""

import csv
import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from unibio.run.result import write_file

Row = dict[str, Any]
Rows = list[Row]
Tables = dict[str, Rows]

FORMAT = 1  # of the files below; a folder of another format is not touched
MARKER, RESULT, TIMES = "unibio.json", "result.json", "seconds.json"


class Part(NamedTuple):
    """What one experiment left in its folder: how it was made, and its tables."""

    facts: Row
    tables: Tables


def as_csv(rows: Sequence[Row]) -> str:
    """Numbers as Python writes them (the shortest text that reads back as the same float), a line for each row."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([repr(float(v)) if isinstance(v, float) else v for v in row.values()] for row in rows)
    return out.getvalue()


def from_csv(text: str) -> Rows:
    """The rows; a column whose entries all read as whole numbers, or all as numbers, holds those."""
    names, *lines = csv.reader(io.StringIO(text))
    columns = [_numbers(list(column)) for column in zip(*lines, strict=True)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _numbers(texts: list[str]) -> list[Any]:
    for kind in (int, float):
        try:
            return [kind(text) for text in texts]
        except ValueError:
            continue
    return texts


def write(folder: Path, tables: Tables) -> dict[str, str]:
    """Writes NAME.csv for each table; returns the SHA-256 of each file by its name."""
    digests = {}
    for name, rows in tables.items():
        content = as_csv(rows).encode()
        write_file(folder / f"{name}.csv", lambda file, content=content: file.write(content))
        digests[f"{name}.csv"] = hashlib.sha256(content).hexdigest()
    return digests


def read(folder: Path, digests: dict[str, str]) -> Tables:
    """The tables, if every file is what was written; else a ValueError that says which is not."""
    tables = {}
    for name, digest in digests.items():
        try:
            content = (folder / name).read_bytes()
        except OSError:
            raise ValueError(f"{name} is missing") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"{name} is damaged")
        tables[name.removesuffix(".csv")] = from_csv(content.decode())
    return tables


def write_part(folder: Path, facts: Row, tables: Tables, clock: Tables, seconds: float) -> None:
    """The tables and `facts` in result.json, equal between two runs; apart from them the times, which are not."""
    write_json(folder / RESULT, facts | {"sha256": write(folder, tables)})
    write_json(folder / TIMES, {"seconds": seconds, "sha256": write(folder, clock)})


def read_part(folder: Path) -> Part:
    """What `write_part` wrote, if every file is as it was; else a ValueError that says which is not."""
    facts, times = (read_json(folder / name) for name in (RESULT, TIMES))
    if not _is_complete(facts):
        raise ValueError(f"{RESULT} is damaged")
    digests = {**facts.pop("sha256"), **times["sha256"]}
    return Part(facts, read(folder, digests))


def _is_complete(facts: Row) -> bool:
    """Whether it names tables, and has the options and versions that the report shows."""
    options: Any = facts.get("options")
    kinds = isinstance(options, dict) and isinstance(facts.get("versions"), dict) and bool(facts["sha256"])
    return kinds and {"seeds", "seed", "full"} <= options.keys() and isinstance(options.get("settings", {}), dict)


def write_json(path: Path, value: Row) -> None:
    """One JSON object, indented."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    write_file(path, lambda file: file.write(text.encode()))


def read_json(path: Path) -> Row:
    """The object, if it has digests of plain file names."""
    try:
        value = json.loads(path.read_bytes())
        sound = all(Path(name).name == name and isinstance(digest, str) for name, digest in value["sha256"].items())
    except OSError:
        raise ValueError(f"{path.name} is missing") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        sound = False
    if not sound:
        raise ValueError(f"{path.name} is damaged")
    return value


def is_ours(folder: Path, made_by: str) -> bool:
    """Whether `claim` marked it."""
    try:
        value = json.loads((folder / MARKER).read_bytes())
    except (OSError, ValueError):
        return False
    return value == {"made_by": made_by, "format": FORMAT}


def claim(folder: Path, made_by: str) -> None:
    """Makes the folder and marks it; one that holds anything else is refused before a byte is written."""
    try:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file; choose a folder.")
        if folder.is_dir() and any(folder.iterdir()) and not is_ours(folder, made_by):
            raise ValueError(
                f"{folder} holds files that `{made_by}` (format {FORMAT}) did not write, so nothing was written there: "
                "choose a new or empty folder."
            )
        write_json(folder / MARKER, {"made_by": made_by, "format": FORMAT})
    except OSError as error:
        raise OSError(f"cannot write into {folder}: {error.strerror or error}.") from None


def select(rows: Sequence[Row], **wanted: Any) -> Rows:
    """The rows with these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def column(rows: Sequence[Row], name: str) -> list[Any]:
    """One column."""
    return [row[name] for row in rows]


def distinct(rows: Sequence[Row], name: str) -> list[Any]:
    """The values of a column, in the order of their first appearance."""
    return list(dict.fromkeys(row[name] for row in rows))
