"""What estimators share: tables of any kind in, a table of the same kind out, files without pickle, a progress bar."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from threadpoolctl import threadpool_limits

from unibio.files import archive
from unibio.files.atomic import write_bytes
from unibio.run.progress import terminal_progress

Array = np.ndarray
TableLike = Any  # what scikit-learn reads as a table: numpy, scipy.sparse, pandas, polars, lists of lists
LabelsLike = Any  # what scikit-learn reads as a vector
_FORMAT = 1


class TableEstimator(BaseEstimator):
    """The base of the estimators. A subclass says by `_state` and `_restore` what its files contain."""

    def _read(self, X: TableLike, y: TableLike = "no_validation", *, reset: bool = False) -> Any:
        """X (and y) as numpy arrays, or X as a CSR matrix. Every column must hold finite numbers."""
        _refuse_text(X)
        return validate_data(
            self, X, y, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=1
        )

    @contextlib.contextmanager
    def _working(self, steps: int, title: str) -> Iterator[Callable[[str], None]]:
        """Shows a bar on a terminal, moved by calls of what this yields. BLAS uses one thread meanwhile: the products
        are small, and threads that wait for each other cost more than they gain."""
        done = 0
        with terminal_progress(steps, title) as move, threadpool_limits(1, user_api="blas"):

            def report(what: str) -> None:
                nonlocal done
                done += 1
                move({"step": done})

            yield report

    def _state(self) -> tuple[archive.Facts, dict[str, Any]]:
        """What a fitted estimator consists of: JSON, and groups of arrays by name."""
        raise NotImplementedError

    def _restore(self, facts: archive.Facts, groups: dict[str, Any]) -> None:
        raise NotImplementedError

    def save(self, path: str | Path) -> None:
        """Writes the fitted estimator to one file: arrays and JSON behind a checksum, no pickle.

        What was a DataFrame comes back as a record array."""
        facts, groups = self._state()
        facts |= {
            "estimator": type(self).__name__,
            "format": _FORMAT,
            "columns": int(self.n_features_in_) if "n_features_in_" in vars(self) else None,
            "names": list(self.feature_names_in_) if "feature_names_in_" in vars(self) else None,
        }
        write_bytes(Path(path), archive.encode(facts, groups))

    @classmethod
    def load(cls, path: str | Path, **parameters: object) -> Self:
        """Reads what `save` wrote. `parameters` replace those that a file cannot hold, such as a network of yours."""
        try:
            facts, groups = archive.decode(Path(path).read_bytes())
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no intact file of {cls.__name__}.save.") from error
        if facts.get("estimator") != cls.__name__ or facts.get("format") != _FORMAT:
            raise ValueError(
                f"{path} holds {facts.get('estimator', 'something else')} in format {facts.get('format')}; "
                f"this version reads {cls.__name__} in format {_FORMAT}."
            )
        estimator = cls(**facts["parameters"] | parameters)
        if facts["columns"] is not None:
            estimator.n_features_in_ = facts["columns"]
        if facts["names"] is not None:
            estimator.feature_names_in_ = np.array(facts["names"], object)
        estimator._restore(facts, groups)
        return estimator


def kind_of_frame(X: TableLike) -> str:
    """`pandas` or `polars` if X is a DataFrame of theirs, else nothing."""
    package = type(X).__module__.partition(".")[0]
    return package if package in ("pandas", "polars") and type(X).__name__ == "DataFrame" else ""


def _refuse_text(X: TableLike) -> None:
    """Names the columns of a DataFrame that hold no numbers."""
    kind = kind_of_frame(X)
    if not kind:
        return
    if kind == "pandas":
        numbers = X.select_dtypes(include=["number", "bool"]).columns
    else:
        numbers = [name for name, dtype in X.schema.items() if dtype.is_numeric() or str(dtype) == "Boolean"]
    others = [str(name) for name in X.columns if name not in set(numbers)]
    if others:
        raise ValueError(
            f"could not convert string to float: the columns {', '.join(others)} hold no numbers. Encode them first, "
            "for example with sklearn.preprocessing.OneHotEncoder in a pipeline."
        )


def frame_like(X: TableLike, columns: dict[str, Array], rows: Array) -> Any:
    """A table of these columns: a DataFrame of the kind of X (with the index of its rows), else a record array."""
    kind = kind_of_frame(X)
    if kind == "pandas":
        import pandas

        return pandas.DataFrame(columns, index=X.index[rows])
    if kind == "polars":
        import polars

        return polars.DataFrame({name: values.tolist() for name, values in columns.items()})
    return records(columns)


def records(columns: dict[str, Array]) -> Array:
    """A record array of these columns."""
    return np.rec.fromarrays(list(columns.values()), dtype=[(name, one.dtype) for name, one in columns.items()])
