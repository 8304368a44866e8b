"""Many multinomial logistic fits of one table at a time, as cleaning noisy labels needs them.

Lane b of a fit minimises over the coefficients W_b

    −Σ_i w_ib log Σ_k softmax(x_iᵀ W_b)_k E_ibk + λ_b/2 ‖W_b‖²

where w are weights of rows (0 for rows that this lane must not see) and E_ik is the probability of the label that row i
was given if its true class is k. With E one-hot that is ordinary logistic regression. Lanes share one product with the
table, so that twenty fits (folds × penalties) take far less than twenty times the time of one.

This is plain numpy: there is nothing to compile, a sparse table needs no code of its own, and lanes that have converged
drop out.
"""

from typing import Any, NamedTuple

import numpy as np

Table = Any  # a numpy array or a scipy.sparse CSR array, (rows, columns)
Array = np.ndarray
_PAIRS, _CHUNK = 10, 1 << 16  # pairs of L-BFGS; numbers in a chunk
_LEAST_LOGIT = -40.0  # below the largest: further down, products would be denormal numbers, which are very slow


class Fits(NamedTuple):
    """What `fit` found: coefficients (columns, lanes, classes), the objective of each lane, and whether each lane has
    reached the tolerance."""

    coefficients: Array
    values: Array
    converged: Array
    evaluations: int


def logits(table: Table, coefficients: Array) -> Array:
    """The logits of every row in every lane, an array (rows, lanes, classes)."""
    flat = coefficients.reshape(len(coefficients), -1)
    return np.asarray(table @ flat).reshape(-1, *coefficients.shape[1:])


def value_and_gradient(
    table: Table, likelihood: Array, weights: Array, penalties: Array, coefficients: Array
) -> tuple[Array, Array]:
    """The objective of every lane (float64) and its gradient by the coefficients.

    A logit more than 40 below the largest of its row counts as 40 below: no row costs more than about 40.

    Arguments:
        likelihood: E, (rows, lanes or 1, classes).
        weights: w, (rows, lanes).
        penalties: λ, (lanes,).
    """
    rows, (columns, lanes, classes) = table.shape[0], coefficients.shape
    value = 0.5 * penalties * np.sum(np.square(coefficients, dtype=np.float64), axis=(0, 2))
    gradient = coefficients * penalties.astype(coefficients.dtype)[:, None]
    step = max(64, _CHUNK // (lanes * classes))
    for begin in range(0, rows, step):
        part, here = table[begin : begin + step], slice(begin, begin + step)
        z = logits(part, coefficients)
        z -= z.max(axis=2, keepdims=True)
        np.maximum(z, _LEAST_LOGIT, out=z)
        p = np.exp(z, out=z)
        joint = p * likelihood[here]
        total, seen = p.sum(axis=2, keepdims=True), joint.sum(axis=2, keepdims=True)
        w = weights[here]
        value += np.sum(w * np.log(total / seen)[:, :, 0], axis=0, dtype=np.float64)
        p /= total
        joint /= seen
        p -= joint
        p *= w[:, :, None]
        gradient += np.asarray(part.T @ p.reshape(len(p), -1)).reshape(columns, lanes, classes)
    return value, gradient


def fit(
    table: Table,
    likelihood: Array,
    weights: Array,
    penalties: Array,
    start: Array,
    *,
    curvature: Array,
    tolerance: float = 1e-6,
    most: int = 500,
) -> Fits:
    """Minimises all lanes by L-BFGS with a backtracking line search, from `start` (columns, lanes, classes).

    Arguments:
        curvature: Σ_i x_ij² of each column j. Coordinates are scaled by it, so that for a table with uncorrelated
            columns the first step is nearly one of Newton's.
        tolerance: a lane is done when L-BFGS expects to lower its objective by less than `tolerance`·Σ_i w_i.
        most: evaluations at most.
    """
    lanes, classes = start.shape[1:]
    scale = np.sqrt(curvature[:, None] * ((classes - 1) / classes**2) + penalties[None] + 1e-12)
    scale = (scale.astype(start.dtype))[:, :, None]
    state = _Lanes(start * scale)
    active = np.arange(lanes)
    least = tolerance * weights.sum(axis=0, dtype=np.float64)
    e_lanes = likelihood.shape[1]
    out, values, done, evaluations = start.copy(), np.zeros(lanes), np.zeros(lanes, bool), 0
    while active.size and evaluations < most:
        chosen = likelihood if e_lanes == 1 else likelihood[:, active]
        value, gradient = value_and_gradient(
            table, chosen, weights[:, active], penalties[active], state.trial / scale[:, active]
        )
        evaluations += 1
        state.judge(value, gradient / scale[:, active])
        finished = (state.decrease < least[active]) | state.stuck
        out[:, active], values[active] = state.point / scale[:, active], state.value
        if finished.any():
            done[active[finished]] = True
            active = active[~finished]
            state.keep(~finished)
    return Fits(out, values, done, evaluations)


class _Lanes:
    """L-BFGS of several lanes in step: each evaluation either moves a lane or shortens its step."""

    def __init__(self, start: Array) -> None:
        lanes = start.shape[1]
        self.point, self.trial = start, start
        self.value, self.gradient = np.full(lanes, np.inf), np.zeros_like(start)
        self.direction, self.step = np.zeros_like(start), np.zeros(lanes)
        self.slope, self.decrease = np.zeros(lanes), np.full(lanes, np.inf)
        self.stuck = np.zeros(lanes, bool)
        self.pairs: list[tuple[Array, Array, Array]] = []  # s, y and 1/sᵀy (0: no pair in this lane), oldest first

    def judge(self, value: Array, gradient: Array) -> None:
        """Accepts the trial point of every lane that has decreased enough, and proposes the next one."""
        rounding = 1e-9 * np.abs(self.value)
        rounding[~np.isfinite(rounding)] = 0
        good = value <= self.value + 1e-4 * self.step * self.slope + rounding
        moved = good & np.isfinite(self.value)
        s, y = self.trial - self.point, gradient - self.gradient
        curvature = _dot(s, y)
        valid = moved & (curvature > 1e-10 * _dot(y, y))
        with np.errstate(divide="ignore"):
            inverse = np.where(valid, 1 / np.where(valid, curvature, 1), 0)
        if valid.any():
            self.pairs = [*self.pairs[-(_PAIRS - 1) :], (s, y, inverse)]
        pick = good[None, :, None]
        self.point = np.where(pick, self.trial, self.point)
        self.gradient = np.where(pick, gradient, self.gradient)
        self.value = np.where(good, value, self.value)
        fresh = -self._times_inverse_hessian(self.gradient)
        self.direction = np.where(pick, fresh, self.direction)
        self.slope = np.where(good, _dot(self.gradient, self.direction), self.slope)
        self.step = np.where(good, 1.0, 0.3 * self.step)
        self.decrease = -0.5 * self.slope
        self.stuck = self.step < 1e-6
        self.trial = self.point + self.direction * self.step.astype(self.point.dtype)[None, :, None]

    def keep(self, lanes: Array) -> None:
        """Forgets all other lanes."""
        for name in ("point", "trial", "gradient", "direction"):
            setattr(self, name, getattr(self, name)[:, lanes])
        for name in ("value", "step", "slope", "decrease", "stuck"):
            setattr(self, name, getattr(self, name)[lanes])
        self.pairs = [(s[:, lanes], y[:, lanes], inverse[lanes]) for s, y, inverse in self.pairs]

    def _times_inverse_hessian(self, vector: Array) -> Array:
        q, shares = vector, []
        for s, y, inverse in reversed(self.pairs):
            share = inverse * _dot(s, q)
            shares.append(share)
            q = q - _times(share, y)
        size = np.ones(vector.shape[1])
        for _, y, inverse in self.pairs:  # the latest pair of each lane sets the scale
            squared = _dot(y, y)
            known = inverse > 0
            size[known] = 1 / (inverse[known] * squared[known])
        q = _times(size, q)
        for (s, y, inverse), share in zip(self.pairs, reversed(shares), strict=True):
            q = q + _times(share - inverse * _dot(y, q), s)
        return q


def _dot(a: Array, b: Array) -> Array:
    return np.einsum("ibk,ibk->b", a, b).astype(np.float64)


def _times(numbers: Array, a: Array) -> Array:
    return a * numbers.astype(a.dtype)[None, :, None]
