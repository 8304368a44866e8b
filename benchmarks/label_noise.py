"""HyperCleaner against other ways to learn from noisy labels, on tables.

    python benchmarks/label_noise.py run --out FOLDER [--sets wine pima] [--noise 0.2 0.4] [--seeds 0-9] [--part 0/2]
    python benchmarks/label_noise.py tables --out FOLDER        # prints all tables, and draws a figure
    python benchmarks/label_noise.py ablation --out FOLDER [options of run]  # the recipe without one of its parts
    python benchmarks/label_noise.py scale                      # seconds and memory, 12,500 to 100,000 rows

A cell is a data set, a kind of noise, its rate, a number of trusted rows and a seed. Each cell is one file in FOLDER,
written when it is complete, so that a run can be stopped at any time and goes on where it was. The seeds are the
outermost loop: after any time, all settings have about the same number of them.

All methods use the same base model (multinomial logistic regression, four penalties, the same five folds) and choose
among the same penalties by cross-validation; those with trusted rows by the log-loss on these, the others by that on
the noisy ones. On the set `digits (network)` the base model is a network with one hidden layer, stopped after 4, 12 or
36 passes. 40 % of the rows (at most 4,000) are the test set, at most 2,000 others the training set, of which some
are trusted. Data sets that do not come with scikit-learn are read from the folder in the variable UNIBIO_DATA_DIR.

    seconds     of one core (CPU time)
    ours ahead by   mean over the settings of the mean over the seeds, ± standard error over the settings
    AUROC, AP   of the suspicion, against which training labels are really wrong (untrusted rows)
    accuracy    on the test set, of the model after cleaning
"""

import argparse
import contextlib
import dataclasses
import io
import itertools
import json
import os
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.metrics import average_precision_score, roc_auc_score

from unibio.cleaning import calibration, logistic, noise_matrix, recipe
from unibio.cleaning.calibration import softmax
from unibio.cleaning.linear import INTERCEPT, Linear
from unibio.cleaning.network import Network, mlp
from unibio.files import tables
from unibio.files.tables import select
from unibio.sklearn.scaling import Scaling

Array = np.ndarray
DESIGN, HELD_OUT, FURTHER = (
    ("digits", "breast cancer", "vehicle", "satellite"),
    ("wine", "pima", "vowel", "dna", "letter"),
    ("snli vectors", "digits (network)"),
)
KINDS, RATES, TEST, TRAIN = ("symmetric", "pair", "feature"), (0.0, 0.1, 0.2, 0.4), 4000, 2000
OURS, CEILING = "HyperCleaner", "true labels"
RATE_GRID = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


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


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a method gives: logits on the test set, and a suspicion of each untrusted row (None: it has none)."""

    logits: Array
    suspicion: Array | None


# data


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


# methods


def tuned(task: Task, E: Array, weights: Array, judges: Array, start: Any = None) -> tuple[Array, Array, float, Any]:
    """Fits all members and keeps the one with the least out-of-fold log-loss on the rows `judges`. Returns its logits
    on the test set, its out-of-fold probabilities, that log-loss, and all models (a start for the next fit)."""
    fitted = task.learner.fit(E.astype(np.float32), weights.astype(np.float32), task.labels.folds, start)
    P = softmax(fitted.held_out)
    values = task.labels.values[judges]
    losses = [-np.mean(np.log(P[judges, j, values] + 1e-12)) for j in range(P.shape[1])]
    best = int(np.argmin(losses))
    model = task.learner.blend([(1.0, fitted.models, best)])
    return model.logits(task.test_table), P[:, best], float(losses[best]), fitted.models


def one_hot(task: Task) -> Array:
    return np.eye(task.labels.classes)[task.labels.values]


def own_suspicion(task: Task, P: Array) -> Array:
    rows = np.flatnonzero(task.noisy)
    return 1 - P[rows, task.labels.values[rows]]


def judges_of(task: Task) -> Array:
    """The rows that choose among penalties: the trusted ones if there are any."""
    return task.labels.trusted if task.labels.trusted.any() else task.noisy


def noisy_labels(task: Task) -> Answer:
    logits, P, *_ = tuned(task, one_hot(task), task.noisy.astype(float), task.noisy)
    return Answer(logits, own_suspicion(task, P))


def trusted_only(task: Task) -> Answer:
    logits, P, *_ = tuned(task, one_hot(task), task.labels.trusted.astype(float), task.labels.trusted)
    return Answer(logits, own_suspicion(task, P))


def noisy_and_trusted(task: Task) -> Answer:
    logits, P, *_ = tuned(task, one_hot(task), np.ones(len(task.labels.values)), judges_of(task))
    return Answer(logits, own_suspicion(task, P))


def cleanlab(task: Task) -> Answer:
    """As its documentation says: out-of-sample probabilities, `find_label_issues`, a fit without the issues."""
    return _cleanlab(task, task.noisy)


def cleanlab_with_trusted(task: Task) -> Answer:
    """The same with the trusted rows among the data; no trusted row is dropped."""
    return _cleanlab(task, np.ones(len(task.labels.values), bool))


def _cleanlab(task: Task, used: Array) -> Answer:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    judges = judges_of(task) if used.all() else task.noisy
    _, P, *_ = tuned(task, one_hot(task), used.astype(float), judges)
    values, noisy = task.labels.values, np.flatnonzero(task.noisy)
    issues = np.zeros(len(values), bool)
    issues[noisy] = find_label_issues(values[noisy], P[noisy], n_jobs=1)
    kept = used & ~issues
    logits, *_ = tuned(task, one_hot(task), kept.astype(float), judges & kept)
    return Answer(logits, 1 - get_label_quality_scores(values[noisy], P[noisy]))


def gold_loss_correction(task: Task) -> Answer:
    """Hendrycks et al. 2018: the noise matrix is what a model of the noisy labels says of the trusted rows."""
    _, P, *_ = tuned(task, one_hot(task), task.noisy.astype(float), task.noisy)
    trusted, values = task.labels.trusted, task.labels.values
    T = np.stack([P[trusted & (values == k)].mean(axis=0) if (trusted & (values == k)).any() else row
                  for k, row in enumerate(np.eye(task.labels.classes))])  # fmt: skip
    logits, P, *_ = tuned(task, recipe.targets(task.labels, T), np.ones(len(values)), trusted)
    return Answer(logits, own_suspicion(task, P))


def one_rate(task: Task) -> Answer:
    """Symmetric noise, at the rate of a grid that the trusted rows like best."""
    found: list[tuple[Array, Array, float, Any]] = []
    for rate in RATE_GRID:
        if rate < 1 - 1 / task.labels.classes:
            E = recipe.targets(task.labels, noise_matrix.symmetric(rate, task.labels.classes))
            found.append(tuned(task, E, np.ones(len(task.labels.values)), task.labels.trusted,
                               found[-1][3] if found else None))  # fmt: skip
    logits, P, *_ = min(found, key=lambda one: one[2])
    return Answer(logits, own_suspicion(task, P))


def weight_per_sample(task: Task, steps: int = 30) -> Answer:
    """The paper's hyper-cleaning: a weight σ(x_i) for each noisy row, learnt by exact hypergradients of the log-loss
    on trusted rows (30 steps of Adam, .3 each; penalty 1)."""
    learner = task.learner
    table, values = learner.table, task.labels.values
    noisy, trusted = np.flatnonzero(task.noisy), np.flatnonzero(task.labels.trusted)
    A, C = table[noisy], table[trusted]
    E, Ec = (np.eye(task.labels.classes, dtype=np.float32)[values[rows]] for rows in (noisy, trusted))
    W = np.zeros((table.shape[1], 1, task.labels.classes), np.float32)
    x, mean, square, penalty = np.full(len(noisy), 1.0), np.zeros(len(noisy)), np.zeros(len(noisy)), np.ones(1)
    curvature = np.sum(np.square(A, dtype=float), axis=0)
    for t in range(1, steps + 1):
        weight = 1 / (1 + np.exp(-x))
        W = logistic.fit(
            A, E[:, None], weight[:, None].astype(np.float32), penalty, W, curvature=curvature
        ).coefficients
        p, q = (softmax(logistic.logits(part, W)[:, 0]) for part in (A, C))
        b = C.T @ (q - Ec) / len(trusted)

        def product(v: Array, p: Array = p, weight: Array = weight) -> Array:
            z = A @ v
            return A.T @ (weight[:, None] * (p * z - p * np.sum(p * z, axis=1, keepdims=True))) + v

        v = conjugate_gradients(product, b)
        h = -np.sum((p - E) * (A @ v), axis=1) * weight * (1 - weight)
        mean, square = 0.9 * mean + 0.1 * h, 0.999 * square + 0.001 * h**2
        x -= 0.3 * (mean / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-12)
    return Answer(logistic.logits(task.test_table, W)[:, 0], 1 / (1 + np.exp(x)))


def conjugate_gradients(product: Callable[[Array], Array], b: Array, most: int = 50) -> Array:
    v, r = np.zeros_like(b), b.copy()
    d, rr = r.copy(), np.sum(r * r)
    start = rr
    for _ in range(most):
        Hd = product(d)
        a = rr / np.sum(d * Hd)
        v, r = v + a * d, r - a * Hd
        rr, before = np.sum(r * r), rr
        if rr <= 1e-8 * start:
            break
        d = r + rr / before * d
    return v


def hyper_cleaner(task: Task) -> Answer:
    """The recipe as `unibio.sklearn.HyperCleaner` runs it."""
    cleaned = recipe.clean(task.learner, task.labels)
    rows = np.flatnonzero(task.noisy)
    values = task.labels.values[rows]
    after = noise_matrix.posterior(cleaned.P[rows], cleaned.T, values)
    return Answer(cleaned.model.logits(task.test_table), 1 - after[np.arange(len(rows)), values])


def true_labels(task: Task) -> Answer:
    E = np.eye(task.labels.classes)[task.truth]
    right = dataclasses.replace(task, labels=task.labels._replace(values=task.truth))
    logits, P, *_ = tuned(right, E, np.ones(len(E)), np.ones(len(E), bool))
    return Answer(logits, own_suspicion(task, P))


METHODS: dict[str, Callable[[Task], Answer]] = {
    "noisy labels": noisy_labels,
    "trusted only": trusted_only,
    "noisy + trusted": noisy_and_trusted,
    "cleanlab": cleanlab,
    "cleanlab with trusted": cleanlab_with_trusted,
    "gold loss correction": gold_loss_correction,
    "one rate": one_rate,
    "weight per sample": weight_per_sample,
    OURS: hyper_cleaner,
    CEILING: true_labels,
}


@contextlib.contextmanager
def changed(module: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def average_without(kind: str) -> Callable[..., Any]:
    """The recipe's average with the weight 0 for one kind of fit, once there are others."""
    original = recipe._average

    def average(fits: dict[str, recipe.Fitted], labels: recipe.Labels, T: Array) -> Any:
        kept = {name: fitted for name, fitted in fits.items() if name != kind}
        if not kept or len(kept) == len(fits):
            return original(fits, labels, T)
        found, place = original(kept, labels, T), list(fits).index(kind)
        weights, factors = (np.insert(one, place, 0.0, axis=0) for one in (found.weights, found.factors))
        return found._replace(weights=weights, factors=factors)

    return average


VARIANTS: dict[str, tuple[Any, str, Any]] = {
    "one pass": (recipe, "PASSES", 1),
    "three passes": (recipe, "PASSES", 3),
    "noisy rows weigh 1": (recipe, "_EXPONENT", 0.0),
    "no temperatures": (calibration, "best_factor", lambda logits, labels: 1.0),
    "2 pseudo-counts": (noise_matrix, "STRENGTHS", (2.0,)),
    "200 pseudo-counts": (noise_matrix, "STRENGTHS", (200.0,)),
    "no plain fit in the average": (recipe, "_average", average_without("plain")),
    "no symmetric fit in the average": (recipe, "_average", average_without("symmetric")),
    "no matrix fit in the average": (recipe, "_average", average_without("matrix")),
}


def variant(name: str) -> Callable[[Task], Answer]:
    def method(task: Task) -> Answer:
        with changed(*VARIANTS[name]):
            return hyper_cleaner(task)

    return method


WITHOUT_TRUSTED = ("noisy labels", "cleanlab", OURS, CEILING)  # the others need some


# running


def cells(sets: list[str], rates: list[float], trusted: list[int], seeds: list[int]) -> Iterator[Cell]:
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


def measure(cell: Cell) -> dict[str, dict[str, float]]:
    """Every method on one cell."""
    task, out = make(cell), {}
    wrong = task.labels.values[task.noisy] != task.truth[task.noisy]
    for name, method in METHODS.items():
        if cell.trusted == 0 and name not in (*WITHOUT_TRUSTED, *VARIANTS):
            continue
        if name == "weight per sample" and cell.data.endswith("(network)"):  # the one here is for linear models
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


def run(options: argparse.Namespace) -> None:
    folder = Path(options.out)
    first, last = (int(number) for number in options.seeds.split("-"))
    part, parts = (int(number) for number in options.part.split("/"))
    wanted = list(cells(options.sets, options.noise, options.trusted, list(range(first, last + 1))))
    ended = time.monotonic() + options.minutes * 60
    for number, cell in enumerate(wanted):
        if number % parts != part or (folder / cell.name).exists():
            continue
        if time.monotonic() > ended:
            break
        tables.write_json(folder / cell.name, dataclasses.asdict(cell) | {"methods": measure(cell)})
    done = sum((folder / cell.name).exists() for cell in wanted)
    print(f"{done} of {len(wanted)} cells are complete.")


# tables


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]


def group_of(name: str) -> str:
    return "design" if name in DESIGN else "held out" if name in HELD_OUT else name


def paired(cells: list[dict[str, Any]], method: str, column: str) -> Array:
    """For each cell the value of `method` and ours, in %."""
    both = [
        (cell["methods"][method].get(column), cell["methods"][OURS].get(column))
        for cell in cells
        if method in cell["methods"]
    ]
    return 100 * np.array([pair for pair in both if None not in pair], float).reshape(-1, 2)


def by_setting(cells: list[dict[str, Any]]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for cell in cells:
        found.setdefault((cell["data"], cell["kind"], cell["rate"], cell["trusted"]), []).append(cell)
    return found


def difference(values: Array) -> tuple[float, float]:
    """Mean of ours − theirs and its standard error."""
    d = values[:, 1] - values[:, 0]
    return float(d.mean()), float(d.std(ddof=1) / np.sqrt(len(d))) if len(d) > 1 else np.nan


def setting_means(cells: list[dict[str, Any]], method: str, column: str) -> Array:
    """As `paired`, with one row for each setting: the mean over its seeds."""
    means = [paired(group, method, column) for group in by_setting(cells).values()]
    return np.array([values.mean(axis=0) for values in means if len(values)]).reshape(-1, 2)


def best_or_tied(cells: list[dict[str, Any]], column: str, rivals: list[str]) -> Array:
    """For each setting with two seeds or more, whether no rival is ahead by more than one standard error of the paired
    difference."""
    out = []
    for group in by_setting(cells).values():
        if len(group) < 2:
            continue
        behind = False
        for rival in rivals:
            values = paired(group, rival, column)
            if len(values) > 1:
                mean, error = difference(values)
                behind |= bool(mean < -error)
        out.append(not behind)
    return np.array(out)


def table(title: str, cells: list[dict[str, Any]]) -> None:
    if not cells:
        return
    seeds = [len(group) for group in by_setting(cells).values()]
    print(f"\n### {title}\n\n{len(cells)} cells: {len(seeds)} settings with {min(seeds)} to {max(seeds)} seeds.\n")
    print("| method | accuracy | ours ahead by | AUROC | ours ahead by | AP | seconds |\n|---|---|---|---|---|---|---|")
    for method in METHODS:
        columns = {name: setting_means(cells, method, name) for name in ("accuracy", "AUROC", "AP", "seconds")}
        if not len(columns["accuracy"]):
            continue
        parts = [method]
        for name in ("accuracy", "AUROC"):
            values = columns[name]
            parts.append(f"{values[:, 0].mean():.2f}" if len(values) else "")
            gap = "{:+.2f} ± {:.2f}".format(*difference(values)) if len(values) > 1 and method != OURS else ""
            parts.append(gap)
        parts += [
            f"{columns['AP'][:, 0].mean():.2f}" if len(columns["AP"]) else "",
            f"{columns['seconds'][:, 0].mean() / 100:.2f}",
        ]
        print("| " + " | ".join(parts) + " |")
    rivals = [name for name in METHODS if name not in (OURS, CEILING)]
    accuracy, auroc = (best_or_tied(cells, column, rivals) for column in ("accuracy", "AUROC"))
    if len(accuracy) and len(columns["AUROC"]):
        print(f"\nIn the {len(accuracy)} settings with two seeds or more, no rival is ahead of ours by more than "
              f"one standard error (paired) in {100 * accuracy.mean():.0f} % for accuracy, "
              f"{100 * auroc.mean():.0f} % for AUROC, {100 * (accuracy & auroc).mean():.0f} % for both.")  # fmt: skip


def losses(cells: list[dict[str, Any]], rivals: list[str]) -> None:
    """The settings in which a rival is ahead by two standard errors."""
    print("\n### Where it loses\n\nSettings with a rival ahead by more than two standard errors.\n")
    print("| data | noise | rate | trusted | column | rival | ahead by |\n|---|---|---|---|---|---|---|")
    for setting, group in by_setting(cells).items():
        for column in ("accuracy", "AUROC"):
            found = []
            for rival in rivals:
                values = paired(group, rival, column)
                if len(values) > 2:
                    mean, error = difference(values)
                    if mean < -2 * error:
                        found.append((-mean, error, rival))
            if found:
                mean, error, rival = max(found)
                print(
                    f"| {' | '.join(str(part) for part in setting)} | {column} | {rival} | {mean:.2f} ± {error:.2f} |"
                )


def show(options: argparse.Namespace) -> None:
    everything = read(Path(options.out))
    noisy = [cell for cell in everything if cell["rate"] >= 0.2]
    helped = [cell for cell in noisy if cell["trusted"]]
    held_out = [cell for cell in helped if group_of(cell["data"]) == "held out"]
    summary = io.StringIO()
    with contextlib.redirect_stdout(summary):
        summarise(everything, noisy, helped)
    print(summary.getvalue())
    for name in sorted({cell["data"] for cell in everything}):
        table(f"{name}: 20 and 40 % noise, with trusted rows", select(helped, data=name))
        table(f"{name}: 0 % noise", select(everything, data=name, rate=0.0))
    losses(everything, [name for name in METHODS if name not in (OURS, CEILING)])
    if options.page:
        page, begin, end = Path(options.page), "<!-- tables: begin -->", "<!-- tables: end -->"
        before, after = page.read_text("utf-8").split(begin)[0], page.read_text("utf-8").split(end)[1]
        page.write_text(before + begin + "\n" + summary.getvalue().strip() + "\n" + end + after, "utf-8")
    figure(held_out, Path(options.figure or Path(options.out) / "label_noise.png"))


def summarise(everything: list[dict[str, Any]], noisy: list[dict[str, Any]], helped: list[dict[str, Any]]) -> None:
    """The tables of the docs page."""
    for group in ("held out", "design", *FURTHER):
        mine = [cell for cell in helped if group_of(cell["data"]) == group]
        table(f"{group}: 20 and 40 % noise, with trusted rows", mine)
        for kind in KINDS if group == "held out" else ():
            table(f"{group}: {kind} noise, 20 and 40 %, with trusted rows", select(mine, kind=kind))
        alone = [cell for cell in noisy if not cell["trusted"] and group_of(cell["data"]) == group]
        table(f"{group}: 20 and 40 % noise, without trusted rows", alone)
    table("all sets: 10 % noise", select(everything, rate=0.1))
    table("all sets: 0 % noise", select(everything, rate=0.0))


def figure(cells: list[dict[str, Any]], path: Path) -> None:
    """Accuracy and AUROC of every method on the held-out sets, best at the top."""
    if not cells:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    axes: Any
    drawn, axes = plt.subplots(1, 2, figsize=(9.5, 3.8))
    titles = {"accuracy": "Test accuracy after cleaning (%)", "AUROC": "Wrong labels found: AUROC (%)"}
    for axis, (column, title) in zip(axes, titles.items(), strict=True):
        means = {method: setting_means(cells, method, column)[:, 0].mean() for method in METHODS}
        order = sorted(means, key=means.__getitem__)
        colours = ["#c0392b" if name == OURS else "#bbbbbb" if name == CEILING else "#4c72b0" for name in order]
        axis.barh(order, [means[name] for name in order], color=colours)
        for place, name in enumerate(order):
            axis.text(means[name] + 0.15, place, f"{means[name]:.1f}", va="center", fontsize=8)
        low, high = min(means.values()), max(means.values())
        axis.set_xlim(low - 0.25 * (high - low), high + 0.15 * (high - low))
        axis.set_title(title, fontsize=10)
        axis.tick_params(labelsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    drawn.tight_layout()
    drawn.savefig(path, dpi=150)


# scale


def scale_one(rows: int, method: str) -> None:
    """One fit in this process; prints its seconds and the memory of the process."""
    random = np.random.default_rng(0)
    X, W = random.normal(size=(rows, 100)), 0.5 * random.normal(size=(100, 10))
    y = (X @ W + random.gumbel(size=(rows, 10))).argmax(axis=1)
    noisy = np.where(random.random(rows) < 0.2, random.integers(0, 10, rows), y)
    if method == "HyperCleaner":
        from unibio.sklearn import HyperCleaner

        trusted = np.arange(rows) < 200
        began, used = time.perf_counter(), time.process_time()
        HyperCleaner(random_state=0).fit(X, np.where(trusted, y, noisy), trusted=trusted)
    else:
        from cleanlab.classification import CleanLearning
        from sklearn.linear_model import LogisticRegression

        began, used = time.perf_counter(), time.process_time()
        CleanLearning(LogisticRegression(max_iter=1000)).fit(X, noisy)
    seconds, memory = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{method:13s} {rows:7d} rows: {seconds:6.1f} s ({time.process_time() - used:.1f} s of CPU), {memory:.2f} GB")


def scale(options: argparse.Namespace) -> None:
    if options.rows:
        scale_one(options.rows, options.method)
        return
    for rows, method in itertools.product((12_500, 25_000, 50_000, 100_000), ("HyperCleaner", "cleanlab")):
        subprocess.run([sys.executable, __file__, "scale", "--rows", str(rows), "--method", method], check=True)


def ablation(options: argparse.Namespace) -> None:
    """Runs the variants on the cells, and prints the table of all cells in the folder."""
    METHODS.clear()
    METHODS.update({OURS: hyper_cleaner, **{name: variant(name) for name in VARIANTS}})
    run(options)
    everything = read(Path(options.out))
    table("all", everything)
    for kind in KINDS:
        table(kind, select(everything, kind=kind))


def options_of_run(one: argparse.ArgumentParser, name: str) -> None:
    one.add_argument("--out", default="label_noise")
    one.add_argument("--sets", nargs="+", default=[*HELD_OUT, *DESIGN, *FURTHER])
    one.add_argument("--noise", nargs="+", type=float, default=list(RATES))
    one.add_argument("--trusted", nargs="+", type=int, default=[0, 1, 2], help="levels: 0 none, 1 fifty, 2 two hundred")
    one.add_argument("--seeds", default="0-9")
    one.add_argument("--part", default="0/1", help="this process's share of the cells, for several at a time")
    one.add_argument("--minutes", type=float, default=1e6, help="no new cell is begun after that")
    one.set_defaults(call=run if name == "run" else ablation)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name in ("run", "ablation"):
        options_of_run(commands.add_parser(name), name)
    two = commands.add_parser("tables")
    two.add_argument("--out", default="label_noise")
    two.add_argument("--page", help="a page to write the tables into, between its marks")
    two.add_argument("--figure", help="where to draw; default: in the folder")
    two.set_defaults(call=show)
    three = commands.add_parser("scale")
    three.add_argument("--rows", type=int, default=0)
    three.add_argument("--method", default="HyperCleaner")
    three.set_defaults(call=scale)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
