"""Sentence pairs as arrays of word numbers, and the table of vectors that goes with them."""

import collections
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unibio.core import checks
from unibio.paper.data.snli import Pairs
from unibio.paper.data.vectors import Vectors

PADDING, UNKNOWN = 0, 1


class Vocabulary(NamedTuple):
    """Numbers of words (0 padding, 1 unknown), their vectors scaled to unit variance, and the words without one."""

    numbers: dict[str, int]
    table: np.ndarray
    missing: dict[str, int]

    def encode(self, sentences: Sequence[Sequence[str]], length: int) -> np.ndarray:
        """(rows, length), cut at `length` and padded with 0."""
        checks.whole_number("length", length, low=1)
        out = np.zeros((len(sentences), length), np.int32)
        for row, words in zip(out, sentences, strict=True):
            found = [self.numbers.get(word) or self.numbers.get(word.lower(), UNKNOWN) for word in words[:length]]
            row[: len(found)] = found
        return out

    def inputs(self, pairs: Pairs, lengths: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Both sentences of every pair, premises cut at lengths[0] words, hypotheses at lengths[1]."""
        return self.encode(pairs.premises, lengths[0]), self.encode(pairs.hypotheses, lengths[1])


def vocabulary(pairs: Sequence[Pairs], vectors: Vectors) -> Vocabulary:
    """The words of these pairs that have a vector, as they stand or in lower case; the others share the mean vector."""
    known = {word: i for i, word in enumerate(vectors.words)}
    numbers: dict[str, int] = {}
    missing: collections.Counter[str] = collections.Counter()
    for part in pairs:
        for word in itertools.chain(*part.premises, *part.hypotheses):
            form = word if word in known else word.lower()
            if form not in known:
                missing[word] += 1
            elif form not in numbers:
                numbers[form] = len(numbers) + 2
    found = vectors.matrix[[known[form] for form in numbers]].astype(np.float32)
    scale = float(found.std()) or 1.0
    table = np.concatenate([np.zeros((1, found.shape[1])), found.mean(axis=0, keepdims=True) / scale, found / scale])
    return Vocabulary(numbers, table.astype(np.float32), missing)
