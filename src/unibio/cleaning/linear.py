"""Linear models for the recipe: multinomial logistic regression with several penalties at once."""

import dataclasses
from typing import NamedTuple

import numpy as np

from unibio.cleaning import logistic
from unibio.cleaning.recipe import Fitted

Array = np.ndarray
PENALTIES = (100.0, 10.0, 1.0, 0.1)  # λ in Σ losses + λ/2 ‖W‖²
# The value in the constant column. Its coefficient is a tenth of the intercept, so that the penalty on the intercept is
# a hundredth of that on the other coefficients.
INTERCEPT = 10.0
_MOST = 4_000_000  # coefficients that are fitted at a time
_CHUNK = 10_000


class LinearModel(NamedTuple):
    """Logits that are linear in the columns of a table."""

    coefficients: Array  # (columns, classes), float64

    def logits(self, table: logistic.Table) -> Array:
        return np.asarray(table @ self.coefficients)


@dataclasses.dataclass(frozen=True)
class Linear:
    """Multinomial logistic regression on a table whose columns are scaled, the last one constant."""

    table: logistic.Table
    penalties: tuple[float, ...] = PENALTIES
    tolerance: float = 3e-6

    @property
    def members(self) -> int:
        return len(self.penalties)

    def fit(self, likelihood: Array, weights: Array, folds: Array, start: Array | None) -> Fitted:
        """`start` and the result's `models` are coefficients (members, columns, folds + 1, classes)."""
        columns, classes, lanes = self.table.shape[1], likelihood.shape[1], int(folds.max()) + 2
        if start is None:
            start = np.zeros((self.members, columns, lanes, classes), np.float32)
        seen = np.stack([weights * (folds != fold) for fold in range(lanes)], axis=1).astype(np.float32)
        E, curvature = likelihood[:, None].astype(np.float32), column_squares(self.table)
        together = max(1, _MOST // (columns * classes * lanes))
        models, unfinished = [], 0
        for begin in range(0, self.members, together):
            some = self.penalties[begin : begin + together]
            first = np.concatenate(list(start[begin : begin + together]), axis=1)
            done = logistic.fit(
                self.table, E, np.tile(seen, (1, len(some))), np.repeat(some, lanes), first,
                curvature=curvature, tolerance=self.tolerance,
            )  # fmt: skip
            unfinished += int(np.sum(~done.converged))
            models += np.split(done.coefficients, len(some), axis=1)
        return Fitted(self._held_out(models, folds, classes), np.stack(models), unfinished)

    def blend(self, parts: list[tuple[float, Array, int]]) -> "LinearModel":
        """The weighted average of the models, which is a linear model again."""
        coefficients = [weight * models[member][:, -1].astype(np.float64) for weight, models, member in parts]
        return LinearModel(np.sum(coefficients, axis=0))

    def _held_out(self, models: list[Array], folds: Array, classes: int) -> Array:
        out = np.empty((len(folds), self.members, classes), np.float32)
        for fold in range(int(folds.max()) + 1):
            rows = np.flatnonzero(folds == fold)
            for part in np.split(rows, range(_CHUNK, len(rows), _CHUNK)):
                coefficients = np.stack([model[:, fold] for model in models], axis=1)
                out[part] = logistic.logits(self.table[part], coefficients)
        return out


def column_squares(table: logistic.Table) -> Array:
    """Σ_i x_ij² for each column."""
    if isinstance(table, np.ndarray):
        return np.einsum("ij,ij->j", table, table, dtype=np.float64)
    return np.asarray(table.multiply(table).sum(axis=0), np.float64).ravel()
