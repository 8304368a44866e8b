"""What is cleaned in the hyper-cleaning study: SNLI, the embedded grammar, or digits, with noise on training labels."""

import functools
import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import checks
from unibio.paper.cleaning.nli_rnn import NLI
from unibio.paper.data import digits, noise, snli, text, toy_nli, vectors

Samples = tuple[Any, np.ndarray]  # inputs, labels


class Size(NamedTuple):
    """How many samples of each kind, the network's hidden size, and samples in a batch."""

    train: int = 2000
    validation: int = 500
    tuning: int = 500
    test: int = 1000
    hidden: int = 24
    batch: int = 128


class Task(NamedTuple):
    """Training labels are as a learner sees them; `truth` is for evaluation. All other labels are clean."""

    source: str
    apply: Any
    features: Any  # (params, inputs) ↦ what the last layer sees
    init: Callable[[jax.Array], Any]
    train: Samples
    truth: np.ndarray
    validation: Samples
    tuning: Samples
    test: Samples
    batch: int

    @property
    def corrupted(self) -> np.ndarray:
        """Which training labels are wrong."""
        return self.train[1] != self.truth


def load(data: str, size: Size, rate: float, seed: int) -> Task:
    """data: "toy" (the embedded grammar), "digits", or a folder with SNLI and a file of vectors (`snli_folders`).

    The seed chooses the noise (symmetric) and, except for SNLI, the samples.
    """
    for name, count in size._asdict().items():
        checks.whole_number(name, count, low=1)
    if data in ("toy", "digits"):
        parts = (_toy if data == "toy" else _digits)(size, seed)
    else:
        stamps = tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in files(data))
        parts = _snli(Path(data), size, stamps)
    source, apply, features, init, (inputs, truth), validation, tuning, test = parts
    classes = int(truth.max()) + 1
    seen = noise.flip(truth, noise.symmetric(rate, classes), seed=seed).labels
    return Task(source, apply, features, init, (inputs, seen), truth, validation, tuning, test, size.batch)


def _toy(size: Size, seed: int) -> Any:
    counts = size[:4]
    pairs = toy_nli.generate(sum(counts), seed=1000 + seed)
    words = text.vocabulary([pairs], toy_nli.vectors(50))
    inputs = words.inputs(pairs, (16, 14))
    model = NLI(jnp.asarray(words.table))
    return "an embedded grammar (not natural language)", *_network(model, size), *_cut((inputs, pairs.labels), counts)


def _digits(size: Size, seed: int) -> Any:
    split = digits.load(size.train, size.validation + size.tuning, seed)
    held = _cut(split.validation, (size.validation, size.tuning))
    init = functools.partial(_dense_start, size.hidden)
    return "scikit-learn's digits", _dense, _dense_features, init, split.train, *held, split.test


def _dense_start(hidden: int, key: jax.Array) -> Any:
    first, second = jax.random.split(key)
    return {
        "w": jax.random.normal(first, (64, hidden), jnp.float32) / 8,
        "b": jnp.zeros(hidden, jnp.float32),
        "v": jax.random.normal(second, (hidden, 10), jnp.float32) / np.float32(np.sqrt(hidden)),
        "c": jnp.zeros(10, jnp.float32),
    }


def _dense(params: Any, inputs: jax.Array) -> jax.Array:
    """One hidden layer."""
    return _dense_features(params, inputs) @ params["v"] + params["c"][None]


def _dense_features(params: Any, inputs: jax.Array) -> jax.Array:
    return jnp.tanh(inputs @ params["w"] + params["b"][None])


VECTORS = ("glove_6b_50d.npz", "glove.6B.50d.txt", "glove.840B.300d.txt", "spacy_md_300d.npz")
LENGTHS = 20, 12  # words of a premise and of a hypothesis that are read: 87 and 91 % of SNLI's are not longer


@functools.lru_cache(maxsize=2)
def _snli(folder: Path, size: Size, stamps: Any) -> Any:
    """The first training pairs; validation and tuning: dev in a fixed random order; the first test pairs.

    `stamps` stands for the files: others are read anew.
    """
    parts = {split: snli.read(folder / "snli", split) for split in snli.SPLITS}
    held = size.validation + size.tuning
    for split, wanted in (("train", size.train), ("dev", held), ("test", size.test)):
        if len(parts[split].labels) < wanted:
            raise ValueError(f"{folder / 'snli'} has {len(parts[split].labels):,} pairs in {split}, not {wanted:,}.")
    found = _vectors(folder)
    wanted_words = {form for part in parts.values() for s in (*part.premises, *part.hypotheses) for w in s
                    for form in (w, w.lower())}  # fmt: skip
    words = text.vocabulary(list(parts.values()), vectors.read(found, wanted_words))
    table = {split: (words.inputs(pairs, LENGTHS), pairs.labels) for split, pairs in parts.items()}
    order = np.random.default_rng(0).permutation(len(parts["dev"].labels))
    train, test = _take(table["train"], np.arange(size.train)), _take(table["test"], np.arange(size.test))
    start = min(1000, len(order) - size.tuning)  # the same tuning pairs for every number of validation pairs
    tuning = _take(table["dev"], order[start : start + size.tuning])
    validation = _take(table["dev"], np.delete(order, np.s_[start : start + size.tuning])[: size.validation])
    model = NLI(jnp.asarray(words.table))
    return f"SNLI, {found.name}", *_network(model, size), train, validation, tuning, test


def _vectors(folder: Path) -> Path:
    for name in VECTORS:
        if (path := folder / "vectors" / name).is_file():
            return path
    raise ValueError(f"{folder / 'vectors'} has no word vectors: looked for {', '.join(VECTORS)}.")


def files(data: str) -> list[Path]:
    """What `load` reads."""
    if data in ("toy", "digits"):
        return []
    folder = Path(data)
    return [*(path for split in snli.SPLITS for path in snli.files(folder / "snli", split)), _vectors(folder)]


def digest(data: str) -> str:
    """Of the names and the content of these files; "" if there are none."""
    paths, found = files(data), hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            found.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest() if paths else ""


def _network(model: NLI, size: Size) -> tuple[Any, Any, Any]:
    return model, model.features, functools.partial(NLI.init, model, hidden=size.hidden)


def _take(samples: Samples, rows: np.ndarray) -> Samples:
    return jax.tree.map(lambda a: a[rows], samples[0]), samples[1][rows]


def _cut(samples: Samples, counts: tuple[int, ...]) -> list[Samples]:
    ends = np.cumsum([0, *counts])
    return [_take(samples, np.arange(a, b)) for a, b in itertools.pairwise(ends)]
