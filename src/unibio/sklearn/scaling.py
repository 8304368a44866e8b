"""Columns of a table on one scale, in float32, with a constant column at the end if it is asked for."""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from unibio.cleaning.logistic import Table

Array = np.ndarray


class Scaling(NamedTuple):
    """Mean and standard deviation of each column. A sparse table is divided by the deviation only, to stay sparse."""

    mean: Array
    deviation: Array

    @classmethod
    def of(cls, X: Table) -> "Scaling":
        """The scaling of a numpy array or a CSR matrix. Columns are divided by their largest entry before anything is
        squared, because the square of a large number may overflow."""
        rows = X.shape[0]
        if sparse.issparse(X):
            unit = abs(X).max(axis=0).toarray().ravel().astype(np.float64)
        else:
            unit = np.abs(X).max(axis=0).astype(np.float64)
        unit[unit == 0] = 1
        if sparse.issparse(X):
            Z = sparse.csr_array(X.multiply(1 / unit))
            mean, square = (np.asarray(part.sum(axis=0), np.float64).ravel() / rows for part in (Z, Z.multiply(Z)))
            deviation = np.sqrt(np.maximum(square - mean**2, 0))
        else:
            Z = X / unit
            mean = Z.mean(axis=0, dtype=np.float64)
            Z -= mean
            deviation = np.sqrt(np.einsum("ij,ij->j", Z, Z, dtype=np.float64) / rows)
        scale = np.where(deviation > 1e-12, deviation, 1.0) * unit
        return cls(np.zeros_like(mean) if sparse.issparse(X) else mean * unit, scale)

    def __call__(self, X: Table, constant: float | None = None) -> Table:
        if sparse.issparse(X):
            table = sparse.csr_array(X.multiply(1 / self.deviation), dtype=np.float32)
            if constant is None:
                return table
            return sparse.csr_array(sparse.hstack([table, np.full((X.shape[0], 1), constant, np.float32)]))
        out = np.empty((X.shape[0], X.shape[1] + (constant is not None)), np.float32)
        np.divide(X - self.mean, self.deviation, out=out[:, : X.shape[1]], casting="same_kind")
        if constant is not None:
            out[:, -1] = constant
        return out
