"""Turns sentence pairs into arrays of word numbers, with a table that has the vector of each word."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unibio.core import checks
from unibio.paper.data.snli import Pairs
from unibio.paper.data.vectors import Vectors

PADDING, UNKNOWN = 0, 1


class Vocabulary(NamedTuple):
    """The number of each word (0 is padding, 1 an unknown word), and the table of their vectors, scaled to variance 1
    over all entries."""

    numbers: dict[str, int]
    table: np.ndarray

    def encode(self, sentences: Sequence[Sequence[str]], length: int) -> np.ndarray:
        """Word numbers as an array (rows, length): longer sentences are cut, shorter ones padded with 0."""
        checks.whole_number("length", length, low=1)
        out = np.zeros((len(sentences), length), np.int32)
        for row, words in zip(out, sentences, strict=True):
            found = [self.numbers.get(word) or self.numbers.get(word.lower(), UNKNOWN) for word in words[:length]]
            row[: len(found)] = found
        return out

    def inputs(self, pairs: Pairs, lengths: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """The word numbers of all premises, lengths[0] words each, and of all hypotheses, lengths[1] words each."""
        return self.encode(pairs.premises, lengths[0]), self.encode(pairs.hypotheses, lengths[1])


def vocabulary(pairs: Sequence[Pairs], vectors: Vectors) -> Vocabulary:
    """Numbers the words of these pairs that have a vector, as they stand or in lower case.

    All other words share the number of the unknown word, whose vector is the mean of the others.
    """
    known = {word: i for i, word in enumerate(vectors.words)}
    numbers: dict[str, int] = {}
    for part in pairs:
        for word in itertools.chain(*part.premises, *part.hypotheses):
            form = word if word in known else word.lower()
            if form in known and form not in numbers:
                numbers[form] = len(numbers) + 2
    found = vectors.matrix[[known[form] for form in numbers]].astype(np.float32)
    scale = float(found.std()) or 1.0
    table = np.concatenate([np.zeros((1, found.shape[1])), found.mean(axis=0, keepdims=True) / scale, found / scale])
    return Vocabulary(numbers, table.astype(np.float32))
