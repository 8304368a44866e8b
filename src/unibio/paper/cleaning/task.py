"""The data of the hyper-cleaning study: SNLI, pairs from a small grammar, or digits, with noise on training labels."""

import functools
import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import checks
from unibio.core.tree import PyTree
from unibio.paper.cleaning.nli_rnn import NLI
from unibio.paper.data import digits, noise, snli, text, toy_nli, vectors

Samples = tuple[Any, np.ndarray]  # inputs, labels
Source = tuple[str, Any, list[Samples]]  # a description, the network, the samples to train, validate, tune and test


class Size(NamedTuple):
    """How many samples of each kind, the network's hidden size, and samples in a batch."""

    train: int = 2000
    validation: int = 500
    tuning: int = 500
    test: int = 1000
    hidden: int = 24
    batch: int = 128


class Task(NamedTuple):
    """Data, a network, and the noise: the labels in `train` are those that a learner sees, some of them wrong; `truth`
    holds the right ones, for evaluation alone. All other labels are right."""

    source: str
    apply: Any
    features: Any  # (params, inputs) ↦ the input of the last layer
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
    """Loads a task.

    Arguments:
        data: "toy" (pairs from the embedded grammar), "digits", or a folder with the folders snli/ and vectors/.
        rate: the chance that a training label is replaced by another class, each of them alike.
        seed: chooses the noise and, except for SNLI, the samples.
    """
    for name, count in size._asdict().items():
        checks.whole_number(name, count, low=1)
    if data in ("toy", "digits"):
        source, network, parts = (_toy if data == "toy" else _digits)(size, seed)
    else:
        stamps = tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in files(data))
        source, network, parts = _snli(Path(data), size, stamps)
    (inputs, truth), validation, tuning, test = parts
    seen = noise.flip(truth, noise.symmetric(rate, int(truth.max()) + 1), seed=seed)
    init = functools.partial(network.init, hidden=size.hidden)
    return Task(source, network, network.features, init, (inputs, seen), truth, validation, tuning, test, size.batch)


def _toy(size: Size, seed: int) -> Source:
    pairs = toy_nli.generate(sum(size[:4]), seed=1000 + seed)
    words = text.vocabulary([pairs], toy_nli.vectors(50))
    parts = _cut((words.inputs(pairs, (16, 14)), pairs.labels), size)
    return "an embedded grammar (not natural language)", NLI(jnp.asarray(words.table)), parts


def _digits(size: Size, seed: int) -> Source:
    samples = digits.load(seed)
    if sum(size[:3]) >= len(samples[1]):
        raise ValueError(f"train, validation and tuning must leave some of the {len(samples[1])} digits for the test.")
    return "scikit-learn's digits", Dense(), _cut(samples, size)


class Dense(eqx.Module):
    """One hidden layer between the 64 pixels of a digit and its class."""

    def init(self, key: jax.Array, hidden: int) -> dict[str, jax.Array]:
        first, second = jax.random.split(key)
        return {
            "w": jax.random.normal(first, (64, hidden), jnp.float32) / 8,
            "b": jnp.zeros(hidden, jnp.float32),
            "v": jax.random.normal(second, (hidden, 10), jnp.float32) / np.float32(np.sqrt(hidden)),
            "c": jnp.zeros(10, jnp.float32),
        }

    def __call__(self, params: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
        return self.features(params, inputs) @ params["v"] + params["c"][None]

    def features(self, params: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
        return jnp.tanh(inputs @ params["w"] + params["b"][None])


VECTORS = ("glove_6b_50d.npz", "glove.6B.50d.txt", "glove.840B.300d.txt", "spacy_md_300d.npz")
LENGTHS = 20, 12  # words to which premises and hypotheses are cut; 87 and 91 % of SNLI's are not longer


@functools.lru_cache(maxsize=2)
def _snli(folder: Path, size: Size, stamps: Any) -> Source:
    """SNLI: the first pairs of train and of test; validation and tuning pairs come from dev in a fixed random order.

    `stamps` (paths, sizes and times of the files) is part of the key of the cache: files that changed are read again.
    """
    parts = {split: snli.read(folder / "snli", split) for split in snli.SPLITS}
    held = size.validation + size.tuning
    for split, wanted in (("train", size.train), ("dev", held), ("test", size.test)):
        if len(parts[split].labels) < wanted:
            raise ValueError(f"{folder / 'snli'} has {len(parts[split].labels):,} pairs in {split}, not {wanted:,}.")
    found = _vectors(folder)
    forms = {word for part in parts.values() for word in itertools.chain(*part.premises, *part.hypotheses)}
    words = text.vocabulary(list(parts.values()), vectors.read(found, forms | {word.lower() for word in forms}))
    table = {split: (words.inputs(pairs, LENGTHS), pairs.labels) for split, pairs in parts.items()}
    order = np.random.default_rng(0).permutation(len(parts["dev"].labels))
    start = min(1000, len(order) - size.tuning)  # the same tuning pairs for every number of validation pairs
    tuned = np.s_[start : start + size.tuning]
    cut = [
        take(table["train"], np.arange(size.train)),
        take(table["dev"], np.delete(order, tuned)[: size.validation]),
        take(table["dev"], order[tuned]),
        take(table["test"], np.arange(size.test)),
    ]
    return f"SNLI, {found.name}", NLI(jnp.asarray(words.table)), cut


def _vectors(folder: Path) -> Path:
    for name in VECTORS:
        if (path := folder / "vectors" / name).is_file():
            return path
    raise ValueError(f"{folder / 'vectors'} has no word vectors: looked for {', '.join(VECTORS)}.")


def files(data: str) -> list[Path]:
    """The files that `load` reads."""
    if data in ("toy", "digits"):
        return []
    folder = Path(data)
    return [*(path for split in snli.SPLITS for path in snli.files(folder / "snli", split)), _vectors(folder)]


def digest(data: str) -> str:
    """A SHA-256 of the names and the content of the files that `load` reads; "" if it reads none."""
    paths, found = files(data), hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            found.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest() if paths else ""


def take(samples: PyTree, rows: np.ndarray | jax.Array | slice) -> Any:
    """These rows of every array in the tree."""
    return jax.tree.map(lambda a: a[rows], samples)


def _cut(samples: Samples, size: Size) -> list[Samples]:
    """Cuts off the training, validation and tuning samples, in this order; the rest is for the test."""
    ends = itertools.accumulate(size[:3])
    return [take(samples, slice(a, b)) for a, b in itertools.pairwise([0, *ends, None])]
