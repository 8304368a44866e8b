"""Reads SNLI in the three layouts in which one finds it: the official jsonl, three text files per split, and TSV."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unibio.paper.data.utf8 import lines

LABELS = ("entailment", "neutral", "contradiction")
SPLITS = ("train", "dev", "test")


class Pairs(NamedTuple):
    """Sentence pairs as lists of words, with labels 0, 1, 2 for LABELS, and how many lines were left out, by reason."""

    premises: list[list[str]]
    hypotheses: list[list[str]]
    labels: np.ndarray
    skipped: dict[str, int]


def read(folder: str | Path, split: str) -> Pairs:
    """Reads a split ("train", "dev" or "test") from a folder.

    The folder has snli_1.0_SPLIT.jsonl, or s1.SPLIT, s2.SPLIT and labels.SPLIT, or SPLIT.tsv.
    """
    paths = files(folder, split)
    triples = {".jsonl": _from_jsonl, ".tsv": _from_tsv}.get(paths[0].suffix, _from_three)(*paths)
    return _collect(triples, paths[0])


def files(folder: str | Path, split: str) -> list[Path]:
    """The files that `read` reads for a split."""
    folder = Path(folder)
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}; got {split!r}.")
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}: give the one with the SNLI files.")
    jsonl, tsv = folder / f"snli_1.0_{split}.jsonl", folder / f"{split}.tsv"
    three = [folder / f"{part}.{split}" for part in ("s1", "s2", "labels")]
    for found in ([jsonl], three, [tsv]):
        if all(path.is_file() for path in found):
            return found
    raise ValueError(
        f"{folder} has no {split} split: looked for {jsonl.name}, {', '.join(path.name for path in three)} "
        f"and {tsv.name}."
    )


Triple = tuple[str, str, str]


def _from_jsonl(path: Path) -> Iterator[Triple]:
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: not a sentence pair ({error}). Is the file whole?") from None
        triple = (row.get("gold_label"), _words(row, 1), _words(row, 2)) if isinstance(row, dict) else (None,)
        if not all(isinstance(text, str) for text in triple):
            raise ValueError(
                f"{path}, line {number}: not a sentence pair; it must have the texts gold_label, sentence1 and "
                "sentence2. Is the file whole?"
            )
        yield triple  # type: ignore[misc]


def _words(row: dict[str, Any], which: int) -> Any:
    """The words of a sentence, separated by spaces, from the binary parse if there is one; else the sentence itself."""
    parse = row.get(f"sentence{which}_binary_parse")
    if isinstance(parse, str) and parse:
        return " ".join(parse.replace("(", " ").replace(")", " ").split())
    return row.get(f"sentence{which}")


def _from_three(*paths: Path) -> Iterator[Triple]:
    first, second, labels = ([line.rstrip("\n") for line in lines(path)] for path in paths)
    if not len(first) == len(second) == len(labels):
        raise ValueError(
            f"{paths[0].parent}: {paths[0].name}, {paths[1].name} and {paths[2].name} have {len(first)}, {len(second)} "
            f"and {len(labels)} lines; they must have the same number. Is one of them cut off?"
        )
    yield from zip(labels, first, second, strict=True)


def _from_tsv(path: Path) -> Iterator[Triple]:
    rest = lines(path)
    header = next(rest, "").rstrip("\n").split("\t")
    names = ("gold_label", "sentence1", "sentence2")
    if not set(names) <= set(header):
        raise ValueError(f"{path} must begin with a line that names the columns {', '.join(names)}; got {header}.")
    places = [header.index(name) for name in names]
    for number, line in enumerate(rest, 2):
        cells = line.rstrip("\n").split("\t")
        if len(cells) != len(header):
            raise ValueError(
                f"{path}, line {number} has {len(cells)} columns separated by tabs, but the first line names "
                f"{len(header)}. If the file is cut off, get it again; if a sentence contains a tab, remove it."
            )
        label, first, second = (cells[place] for place in places)
        yield label, first, second


def _collect(triples: Iterator[Triple], path: Path) -> Pairs:
    """The pairs with a known label and two sentences that are not empty; the others are counted by their fault."""
    premises, hypotheses, labels = [], [], []
    skipped = {"no gold label": 0, "unknown label": 0, "empty sentence": 0}
    for label, first, second in triples:
        tokens = first.split(), second.split()
        if label.strip() == "-":
            skipped["no gold label"] += 1
        elif label.strip() not in LABELS:
            skipped["unknown label"] += 1
        elif not all(tokens):
            skipped["empty sentence"] += 1
        else:
            premises.append(tokens[0])
            hypotheses.append(tokens[1])
            labels.append(LABELS.index(label.strip()))
    if not labels:
        raise ValueError(f"{path} holds no labelled sentence pair (left out: {skipped}).")
    return Pairs(premises, hypotheses, np.asarray(labels, np.int32), skipped)
