"""Reads word vectors from GloVe's text files and from npz files."""

import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unibio.paper.data.utf8 import lines


class Vectors(NamedTuple):
    """words[i] has the vector matrix[i]."""

    words: list[str]
    matrix: np.ndarray


def read(path: str | Path, keep: Iterable[str] | None = None) -> Vectors:
    """Reads a text file with lines `word 0.1 −0.2 …` or an npz with arrays `words` and `vectors`; only these
    words, if `keep` is given."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path} with word vectors.")
    wanted = None if keep is None else set(keep)
    return (_from_npz if path.suffix == ".npz" else _from_text)(path, wanted)


def _from_npz(path: Path, wanted: set[str] | None) -> Vectors:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            words, matrix = stored["words"], stored["vectors"]
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is not an npz file with arrays `words` and `vectors` ({error}).") from None
    if not np.issubdtype(matrix.dtype, np.floating):
        raise ValueError(f"{path}: vectors must be floating numbers; got {matrix.dtype}.")
    if matrix.ndim != 2 or words.shape != matrix.shape[:1]:
        raise ValueError(f"{path}: {words.shape} words and vectors of shape {matrix.shape} do not fit together.")
    rows = [i for i, word in enumerate(words) if wanted is None or str(word) in wanted]
    return Vectors([str(words[i]) for i in rows], matrix[rows].astype(np.float32))


def _from_text(path: Path, wanted: set[str] | None) -> Vectors:
    words, rows, width = [], [], 0
    for number, line in enumerate(lines(path), 1):
        word, *numbers = line.rstrip("\n").split(" ")
        width = width or len(numbers)
        if len(numbers) != width or width < 2:
            raise ValueError(f"{path}, line {number}: {len(numbers)} numbers instead of {width}. Is the file cut off?")
        if wanted is not None and word not in wanted:
            continue
        try:
            rows.append(np.asarray(numbers, np.float32))
        except ValueError:
            raise ValueError(f"{path}, line {number}: not all entries are numbers.") from None
        words.append(word)
    if not words:
        raise ValueError(f"{path} has none of the words wanted.")
    return Vectors(words, np.stack(rows))
