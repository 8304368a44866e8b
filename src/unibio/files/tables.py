"""Tables as CSV files that have the same bytes for the same numbers, and come back as they were."""

import csv
import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unibio.files.atomic import write_file

Row = dict[str, Any]
Rows = list[Row]
Tables = dict[str, Rows]


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


def select(rows: Sequence[Row], **wanted: Any) -> Rows:
    """The rows with these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def column(rows: Sequence[Row], name: str) -> list[Any]:
    """One column."""
    return [row[name] for row in rows]


def distinct(rows: Sequence[Row], name: str) -> list[Any]:
    """The values of a column, in the order of their first appearance."""
    return list(dict.fromkeys(row[name] for row in rows))
