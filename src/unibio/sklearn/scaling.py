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
        """Of a numpy array or a CSR matrix."""
        rows = X.shape[0]
        if sparse.issparse(X):
            mean = np.asarray(X.mean(axis=0), np.float64).ravel()
            square = np.asarray(X.multiply(X).mean(axis=0), np.float64).ravel()
            deviation = np.sqrt(np.maximum(square - mean**2, 0))
            mean = np.zeros_like(mean)
        else:
            mean = X.mean(axis=0, dtype=np.float64)
            deviation = np.sqrt(np.einsum("ij,ij->j", X - mean, X - mean, dtype=np.float64) / rows)
        largest = np.abs(mean)
        return cls(mean, np.where(deviation > 1e-12 * largest, deviation, 1.0))

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
