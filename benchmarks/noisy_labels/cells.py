"""The cells of the comparison on noisy labels: which there are, how one is measured, and the files they are kept in."""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from noisy_labels.data import KINDS, Cell, Task, load, make, trusted_counts
from noisy_labels.methods import LINEAR_ONLY, NEED_TRUSTED, Answer
from unibio.files import tables
from unibio.files.atomic import write_bytes

Measured = dict[str, Any]  # the fields of a Cell, and `methods`: for each method its numbers
KEYS, COLUMNS = ("data", "kind", "rate", "trusted", "seed"), ("accuracy", "AUROC", "AP", "seconds")
DIGITS = 6  # of the numbers in a packed file


def planned(sets: list[str], rates: list[float], trusted: list[int], seeds: list[int]) -> Iterator[Cell]:
    """Seeds outermost. 3 seeds at rates 0 and .1; without noise the kinds are the same. `trusted`: which of the levels
    0, 1, 2 (none, 50, 200)."""
    sizes = {name: len(load(name)[1]) for name in sets}
    for seed, name, kind, rate in itertools.product(seeds, sets, KINDS, rates):
        if (rate < 0.2 and seed - min(seeds) >= 3) or (rate == 0 and kind != "symmetric"):
            continue
        counts = trusted_counts(sizes[name])
        for level in trusted:
            if level < len(counts):
                yield Cell(name, kind, rate, counts[level], seed)


def measure(cell: Cell, methods: Mapping[str, Callable[[Task], Answer]]) -> dict[str, dict[str, float]]:
    """Every method that the cell has what it needs for."""
    task, out = make(cell), {}
    wrong = task.labels.values[task.noisy] != task.truth[task.noisy]
    for name, method in methods.items():
        if (cell.trusted == 0 and name in NEED_TRUSTED) or (cell.data.endswith("(network)") and name in LINEAR_ONLY):
            continue
        began = time.process_time()
        answer = method(task)
        row = {"seconds": time.process_time() - began}
        row["accuracy"] = float(np.mean(answer.logits.argmax(axis=1) == task.test_labels))
        if wrong.any() and answer.suspicion is not None:
            row["AUROC"] = float(roc_auc_score(wrong, answer.suspicion))
            row["AP"] = float(average_precision_score(wrong, answer.suspicion))
        out[name] = row
    return out


def read(folder: Path) -> list[Measured]:
    """All cells in the folder: a JSON file for each that `run` has measured, CSV files with many."""
    found = [cell for path in sorted(folder.glob("*.csv")) for cell in _unpacked(path)]
    found += [json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")]
    by_key = {tuple(cell[key] for key in KEYS): cell for cell in found}
    return [by_key[key] for key in sorted(by_key)]


def pack(folder: Path, path: Path) -> int:
    """Writes all cells of the folder to one CSV file, a line for each method, numbers with six digits after the point.
    Returns how many cells there are."""
    cells = read(folder)
    lines = [
        {key: cell[key] for key in KEYS}
        | {"method": method}
        | {name: round(values[name], DIGITS) if name in values else None for name in COLUMNS}
        for cell in cells
        for method, values in cell["methods"].items()
    ]
    write_bytes(path, tables.as_csv(lines).encode())
    return len(cells)


def _unpacked(path: Path) -> list[Measured]:
    lines = tables.from_csv(path.read_text("utf-8"))
    cells: dict[tuple[Any, ...], Measured] = {}
    for line in lines:
        keys = {key: line[key] for key in KEYS}
        cell = cells.setdefault(tuple(keys.values()), keys | {"methods": {}})
        cell["methods"][line["method"]] = {name: float(line[name]) for name in COLUMNS if line[name] != ""}
    return list(cells.values())
