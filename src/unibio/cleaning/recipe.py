"""The recipe: a model, the noise matrix and the chances of every class, from labels of which some are wrong.

Three kinds of fit are averaged. `plain` takes all labels for right. `symmetric` and `matrix` maximise the likelihood of
the given labels, log Σ_k p_k(x) T[k, ỹ], where T is symmetric noise, or estimated without restriction. All are fitted
with several strengths of regularisation, and each time once for each fold, so that every row is judged by models that
have not seen its label.

    1  fit `plain`; P = its average, T from P
    2  twice: weight every noisy row by P(given label is right)^½, fit `matrix` and `symmetric`; P = average, new T

An average has the weights exp(−L/2), where L is the log-loss on trusted rows plus a tenth of −log of the likelihood of
the given labels, both out of fold and each fit at its best temperature. Everything is a maximum of a likelihood or an
average: no setting has to be tuned.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from unibio.cleaning import calibration, noise_matrix
from unibio.cleaning.calibration import softmax
from unibio.core.tree import PyTree

Array = np.ndarray
PASSES, FOLDS = 2, 5
FITS = 1 + 2 * PASSES  # how many fits `clean` makes
_NOISY_SHARE, _NOISY_SHARE_ALONE = 0.1, 0.3  # of the likelihood of given labels in L, with and without trusted rows
_LEAST_WEIGHT = 0.02  # of a member, relative to the largest; less counts as none
_LEAST_CHANCE, _EXPONENT = 0.02, 0.5  # the weight of a noisy row is P(given label is right)^½


class Labels(NamedTuple):
    """What is known of each row.

    Arguments:
        values: the class of each row, from 0: true for trusted rows, as given for all others.
        trusted: which rows are trusted.
        folds: the fold of each row, from 0 to FOLDS − 1.
        classes: K.
    """

    values: Array
    trusted: Array
    folds: Array
    classes: int


class Fitted(NamedTuple):
    """Fits of one kind: logits (rows, members, classes) of models that have not seen the row, the models, and how many
    of them ended before their optimiser had converged."""

    held_out: Array
    models: Any
    unfinished: int = 0


class Learner(Protocol):
    """A family of models. `fit` maximises Σ_i w_i log Σ_k p_k(x_i) E_ik for every member of the family (strengths of
    regularisation, say), once without each fold and once with all rows; `blend` averages logits of models."""

    @property
    def members(self) -> int: ...
    def fit(self, likelihood: Array, weights: Array, folds: Array, start: PyTree) -> Fitted: ...
    def blend(self, parts: list[tuple[float, Any, int]]) -> Any: ...


class Cleaned(NamedTuple):
    """What `clean` found.

    Arguments:
        P: probabilities of the true class of each row, by models that have not seen it.
        T: the noise matrix.
        model: the average of all models, as the learner's `blend` made it.
        weights: the weight of each kind of fit and each member, (kinds, members).
        history: a row for each pass.
        unfinished: how many of all fits ended before their optimiser had converged.
    """

    P: Array
    T: Array
    model: Any
    weights: Array
    history: list[dict[str, float]]
    unfinished: int


class _Average(NamedTuple):
    P: Array
    weights: Array  # (kinds so far, members)
    factors: Array  # (kinds so far, members), by which the logits of each member are multiplied
    factor: float  # by which the average of the logits is multiplied


def make_folds(values: Array, trusted: Array, random: np.random.Generator, folds: int = FOLDS) -> Array:
    """The fold of each row, chosen at random so that every class, among trusted and among other rows, is divided into
    folds of equal sizes."""
    out = np.zeros(len(values), int)
    place = 0
    groups = values * 2 + trusted
    for group in np.unique(groups):
        rows = random.permutation(np.flatnonzero(groups == group))
        out[rows] = (np.arange(len(rows)) + place) % folds
        place += len(rows)
    return out


def targets(labels: Labels, T: Array) -> Array:
    """E: the probability of each row's label if the true class is k. A trusted label is never wrong."""
    E = np.eye(labels.classes, dtype=np.float32)[labels.values]
    noisy = ~labels.trusted
    E[noisy] = T.T[labels.values[noisy]]
    return E


def clean(learner: Learner, labels: Labels, report: Callable[[str], None] = lambda what: None) -> Cleaned:
    """Runs the recipe. `report` is told after each fit what has been done."""
    noisy = ~labels.trusted
    given = labels.values[noisy]
    right = np.ones(len(labels.values), np.float32)
    fits = {"plain": learner.fit(targets(labels, np.eye(labels.classes)), right, labels.folds, None)}
    unfinished = fits["plain"].unfinished
    report("plain")
    average = _average(fits, labels, np.eye(labels.classes))
    P = average.P
    if not labels.trusted.any():
        P = softmax(calibration.sharpening(np.log(P + 1e-12), given) * np.log(P + 1e-12))
    T = noise_matrix.chosen_noise_matrix(P[noisy], given)
    history = [_row(0, labels, P, T)]
    for step in range(1, PASSES + 1):
        chance = noise_matrix.posterior(P[noisy], T, given)[np.arange(len(given)), given]
        right[noisy] = np.clip(chance, _LEAST_CHANCE, 1) ** _EXPONENT
        S = noise_matrix.symmetric(noise_matrix.symmetric_rate(P[noisy], given), labels.classes)
        for kind, matrix in (("matrix", T), ("symmetric", S)):
            start = fits.get(kind, fits["plain"]).models
            fits[kind] = learner.fit(targets(labels, matrix), right, labels.folds, start)
            unfinished += fits[kind].unfinished
            report(f"{kind} {step}")
        average = _average(fits, labels, T)
        P = average.P
        T = noise_matrix.chosen_noise_matrix(P[noisy], given)
        history.append(_row(step, labels, P, T))
    parts = [
        (average.factor * average.weights[k, j] * average.factors[k, j], fits[kind].models, j)
        for k, kind in enumerate(fits)
        for j in range(learner.members)
        if average.weights[k, j] > 0
    ]
    return Cleaned(P, T, learner.blend(parts), average.weights, history, unfinished)


def _average(fits: dict[str, Fitted], labels: Labels, T: Array) -> _Average:
    """Averages the logits of all fits by how well they explain what they have not seen."""
    trusted, noisy, values = labels.trusted, ~labels.trusted, labels.values
    share = _NOISY_SHARE if trusted.any() else _NOISY_SHARE_ALONE
    members = next(iter(fits.values())).held_out.shape[1]
    losses, factors = np.zeros((len(fits), members)), np.ones((len(fits), members))
    for k, fitted in enumerate(fits.values()):
        for j in range(members):
            z = fitted.held_out[:, j]
            factors[k, j] = calibration.best_factor(z[trusted], values[trusted])
            P = softmax(factors[k, j] * z)
            losses[k, j] = calibration.log_loss(P[trusted], values[trusted])
            losses[k, j] -= share * noise_matrix.log_likelihood(P[noisy], T, values[noisy])
    weights = calibration.shares(losses)
    weights[weights < _LEAST_WEIGHT * weights.max()] = 0
    weights /= weights.sum()
    total = np.zeros((len(values), labels.classes))
    for k, fitted in enumerate(fits.values()):
        total += np.einsum("j,ijk->ik", weights[k] * factors[k], fitted.held_out)
    factor = calibration.best_factor(total[trusted], values[trusted])
    return _Average(softmax(factor * total), weights, factors, factor)


def _row(step: int, labels: Labels, P: Array, T: Array) -> dict[str, float]:
    trusted, noisy = labels.trusted, ~labels.trusted
    count = int(trusted.sum())
    return {
        "pass": step,
        "noise_rate": noise_matrix.noise_rate(P[noisy], T, labels.values[noisy]).value,
        "log_likelihood": noise_matrix.log_likelihood(P[noisy], T, labels.values[noisy]) / max(1, int(noisy.sum())),
        "trusted_log_loss": calibration.log_loss(P[trusted], labels.values[trusted]) / count if count else np.nan,
    }
