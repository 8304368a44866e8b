"""Tables as CSV files that have the same bytes for the same numbers, and come back as they were."""

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unibio.files.atomic import write_bytes

Row = dict[str, Any]  # the value in each column
Rows = list[Row]  # a table, row by row; all rows have the same columns
Tables = dict[str, Rows]  # tables by name


def as_csv(rows: Sequence[Row]) -> str:
    """Numbers as Python writes them (the shortest text that reads back as the same float), a line for each row."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([repr(float(v)) if isinstance(v, float) else v for v in row.values()] for row in rows)
    return out.getvalue()


def from_csv(text: str) -> Rows:
    """Reads the rows of a CSV text. Entries are texts, but a column in which all can be read as whole numbers holds
    int, and one in which all can be read as numbers holds float."""
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


def write(path: Path, facts: Row, tables: Tables) -> None:
    """Writes each table to NAME.csv in the folder of `path`, and then `path`, a JSON file with the facts and the
    SHA-256 of every table."""
    digests = {}
    for name, rows in tables.items():
        content = as_csv(rows).encode()
        write_bytes(path.with_name(f"{name}.csv"), content)
        digests[f"{name}.csv"] = hashlib.sha256(content).hexdigest()
    write_json(path, facts | {"sha256": digests})


def read(path: Path) -> tuple[Row, Tables]:
    """Reads what `write` wrote and returns (facts, tables by name). Raises a ValueError that names the file if one is
    missing or was changed."""
    facts, tables = read_json(path), {}
    digests = facts.pop("sha256", None)
    if not isinstance(digests, dict) or not all(Path(name).name == name for name in digests):
        raise ValueError(f"{path.name} is damaged")
    for name, digest in digests.items():
        content = _content(path.with_name(name))
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"{name} is damaged")
        try:
            tables[name.removesuffix(".csv")] = from_csv(content.decode())
        except (ValueError, csv.Error):  # its checksum is right, so somebody has made it by other means
            raise ValueError(f"{name} is damaged") from None
    return facts, tables


def write_json(path: Path, value: Row) -> None:
    """Writes one JSON object, indented."""
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Row:
    """Reads one JSON object. Raises a ValueError that says what is wrong with the file."""
    try:
        value = json.loads(_content(path))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} is damaged")
    return value


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        raise ValueError(f"{path.name} is missing") from None


def as_rows(table: Mapping[str, np.ndarray]) -> Rows:
    """The rows of a table of columns, as plain numbers and texts."""
    lines = zip(*(values.tolist() for values in table.values()), strict=True)
    return [dict(zip(table, line, strict=True)) for line in lines]


def as_columns(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """The columns of a table of rows."""
    return {name: np.asarray(column(rows, name)) for name in rows[0]}


def select(rows: Sequence[Row], **wanted: Any) -> Rows:
    """The rows in which these columns have these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def column(rows: Sequence[Row], name: str) -> list[Any]:
    """The values of one column, row by row."""
    return [row[name] for row in rows]


def distinct(rows: Sequence[Row], name: str) -> list[Any]:
    """The values of a column, in the order of their first appearance."""
    return list(dict.fromkeys(row[name] for row in rows))
