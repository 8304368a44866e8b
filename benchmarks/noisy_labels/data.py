"""The data of the comparison on noisy labels: tables, noise, and which rows are trusted."""

import dataclasses
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets

from unibio.cleaning import logistic, noise_matrix, recipe
from unibio.cleaning.linear import INTERCEPT, Linear
from unibio.cleaning.network import Network, mlp
from unibio.sklearn.scaling import Scaling

Array = np.ndarray
DESIGN, HELD_OUT, FURTHER = (
    ("digits", "breast cancer", "vehicle", "satellite"),
    ("wine", "pima", "vowel", "dna", "letter"),
    ("snli vectors", "digits (network)"),
)
KINDS, RATES, TEST, TRAIN = ("symmetric", "pair", "feature"), (0.0, 0.1, 0.2, 0.4), 4000, 2000


@dataclasses.dataclass(frozen=True)
class Cell:
    """One experiment."""

    data: str
    kind: str
    rate: float
    trusted: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.data} {self.kind} {self.rate:g} {self.trusted} {self.seed}.json".replace(" ", "_")


@dataclasses.dataclass(frozen=True)
class Task:
    """The data of a cell: a learner on the training rows, what is known of them, the truth, and a test set."""

    learner: Any
    labels: recipe.Labels
    truth: Array
    test_table: Array
    test_labels: Array

    @property
    def noisy(self) -> Array:
        return ~self.labels.trusted


def load(name: str) -> tuple[Array, Array]:
    if name.startswith("digits"):
        return datasets.load_digits(return_X_y=True)
    if name == "breast cancer":
        return datasets.load_breast_cancer(return_X_y=True)
    if name == "wine":
        return datasets.load_wine(return_X_y=True)
    folder = Path(os.environ["UNIBIO_DATA_DIR"])
    if name == "snli vectors":
        return snli_vectors(folder)
    file = np.load(folder / "tabular" / f"{name}.npz")
    return file["X"].astype(float), file["y"].astype(int)


def snli_vectors(folder: Path, pairs: int = 6000) -> tuple[Array, Array]:
    """Mean word vectors u, v of both sentences, |u − v| and u·v, for the first pairs of the development set."""
    stored = np.load(folder / "vectors" / "glove_6b_50d.npz")
    vectors = dict(zip(stored["words"].tolist(), stored["vectors"], strict=True))
    zero = np.zeros(50)

    def mean(sentence: str) -> Array:
        return np.mean([vectors.get(word.lower(), zero) for word in sentence.split()], axis=0)

    lines = (folder / "snli" / "dev.tsv").read_text("utf-8").splitlines()[1 : pairs + 1]
    parts = [line.split("\t") for line in lines]
    u, v = (np.array([mean(part[k]) for part in parts]) for k in (1, 2))
    labels = np.unique([part[0] for part in parts], return_inverse=True)[1]
    return np.hstack([u, v, np.abs(u - v), u * v]), labels


def trusted_counts(rows: int) -> list[int]:
    """0, 50 and 200, or a fifth of the rows where that is less."""
    return sorted({0, min(50, rows // 5), min(200, rows // 5)})


def corrupted(cell: Cell, table: Array, y: Array, classes: int, random: np.random.Generator) -> Array:
    """Noisy labels. Feature-dependent noise turns the rows on which a model of the true labels is least sure into its
    second choice: with a probability from 0 (surest row) to twice the rate, at most .95."""
    if cell.kind == "feature":
        fitted = Linear(table, (1.0,)).fit(np.eye(classes)[y], np.ones(len(y)), np.zeros(len(y), int), None)
        z = logistic.logits(table, np.ascontiguousarray(fitted.models[0][:, -1:]))[:, 0]
        order = z.argsort(axis=1)
        other = np.where(order[:, -1] == y, order[:, -2], order[:, -1])
        rows = np.arange(len(y))
        sureness = (z[rows, y] - z[rows, other]).argsort().argsort() / (len(y) - 1)
        return np.where(random.random(len(y)) < np.minimum(2 * cell.rate * (1 - sureness), 0.95), other, y)
    if cell.kind == "pair":
        T = (1 - cell.rate) * np.eye(classes) + cell.rate * np.roll(np.eye(classes), 1, axis=1)
    else:
        T = noise_matrix.symmetric(cell.rate, classes)
    draws = random.random(len(y))
    return (draws[:, None] >= np.cumsum(T, axis=1)[y]).sum(axis=1).clip(max=classes - 1)


def make(cell: Cell) -> Task:
    """The task of a cell; everything follows from the cell."""
    text = f"{cell.data}/{cell.kind}/{cell.rate}/{cell.seed}".encode()
    random = np.random.default_rng([cell.seed, zlib.crc32(text)])
    X, y = load(cell.data)
    y = np.unique(y, return_inverse=True)[1]
    classes = int(y.max()) + 1
    order = random.permutation(len(y))
    cut = min(TEST, int(0.4 * len(y)))
    test, train = order[:cut], order[cut : cut + TRAIN]
    scaling = Scaling.of(X[train])
    table, truth = scaling(X[train], INTERCEPT), y[train]
    given = corrupted(cell, table, truth, classes, random)
    trusted = np.arange(len(train)) < cell.trusted
    values = np.where(trusted, truth, given)
    labels = recipe.Labels(values, trusted, recipe.make_folds(values, trusted, random), classes)
    if cell.data.endswith("(network)"):
        learner: Any = Network(table[:, :-1], mlp(table.shape[1] - 1, classes, cell.seed), cell.seed)
        return Task(learner, labels, truth, scaling(X[test]), y[test])
    return Task(Linear(table), labels, truth, scaling(X[test], INTERCEPT), y[test])
