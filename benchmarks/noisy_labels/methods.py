"""The methods of the comparison on noisy labels. All have the same base model, penalties and folds."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from noisy_labels.data import Task
from unibio.cleaning import logistic, noise_matrix, recipe
from unibio.cleaning.calibration import softmax

Array = np.ndarray
OURS, CEILING = "HyperCleaner", "true labels"
RATE_GRID = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a method gives: logits on the test set, and a suspicion of each untrusted row (None: it has none)."""

    logits: Array
    suspicion: Array | None


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
NEED_TRUSTED = ("trusted only", "noisy + trusted", "cleanlab with trusted", "gold loss correction", "one rate",
                "weight per sample")  # fmt: skip
LINEAR_ONLY = ("weight per sample",)  # the one here is for linear models
