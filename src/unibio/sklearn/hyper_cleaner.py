"""HyperCleaner: noisy labels in, a cleaned model and a ranked list of suspects out."""

import warnings
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import numpy as np
from scipy import sparse
from sklearn.base import ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d

from unibio.cleaning import calibration, noise_matrix, recipe, suspicion
from unibio.cleaning.calibration import softmax
from unibio.cleaning.linear import INTERCEPT, Linear, LinearModel
from unibio.cleaning.logistic import Table
from unibio.cleaning.network import Network, NetworkModel, mlp
from unibio.sklearn.base import LabelsLike, TableEstimator, TableLike, frame_like, records
from unibio.sklearn.scaling import Scaling

Array = np.ndarray
Seed = int | np.random.RandomState | None
_MISSING = ("None", "nan", "<NA>", "NaT")  # what labels that are missing look like, where they are not text
_FEW = 10  # trusted rows, below which a warning is given


class _Rows(NamedTuple):
    """What is learnt from: codes of labels, which rows are trusted, and how many of the rows are X's own."""

    codes: Array
    trusted: Array
    own: int


class HyperCleaner(ClassifierMixin, TableEstimator):
    """Learns a classifier from labels of which some are wrong, and says which.

    You have a table whose labels you do not trust, and perhaps a small part that you have checked. HyperCleaner learns
    how labels go wrong (how often, and which class is taken for which), fits a model with that in mind, and gives
    every label a suspicion: the probability that it is wrong.

    Arguments:
        model: `"logistic"` (multinomial logistic regression, the default), `"mlp"` (a network with one hidden layer),
            or an equinox Module that maps the features of one row to a logit for each class. Features are scaled to
            mean 0 and deviation 1 before the model sees them.
        random_state: how rows are divided into folds, and how a network starts; a number makes `fit` repeatable.

    Attributes:
        classes_: the labels there are, sorted (after `fit_probabilities`, in the order of the columns).
        suspicion_: for each row of X the probability that its label is wrong; 0 for trusted rows.
        suggested_labels_: for each row the most probable label.
        suspects_: the rows whose most probable label is not the given one, the most suspicious first: `row`, `given`,
            `suggested`, `suspicion`, and `confidence`, the probability of the suggested label. A record array; a
            DataFrame if X was one.
        noise_matrix_: entry [k, j] is the probability that a row of class k was given the label j.
        noise_rate_: the share of wrong labels, with the ends of a 95 % interval: `value`, `low`, `high`. The interval
            holds the model for right, and is too short where the model is wrong.
        history_: a dictionary for each pass: the noise rate, the log-likelihood of the given labels per row and the
            log-loss on trusted rows (out of fold).
        report_: what was found, and what cannot be known, in sentences.

    Example:
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> wrong = np.arange(1, 150, 5)
        >>> noisy = y.copy()
        >>> noisy[wrong] = (y[wrong] + 1) % 3
        >>> cleaner = HyperCleaner(random_state=0).fit(X, noisy, trusted=np.arange(150) % 5 == 0)
        >>> bool(cleaner.suspicion_[wrong].mean() > 0.7)
        True
    """

    def __init__(self, model: str | eqx.Module = "logistic", random_state: Seed = None) -> None:
        self.model = model
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(
        self,
        X: TableLike,
        y: LabelsLike,
        trusted: LabelsLike = None,
        *,
        X_trusted: TableLike = None,
        y_trusted: LabelsLike = None,
    ) -> Self:
        """Learns from noisy labels, and from trusted ones if there are any.

        Arguments:
            X, y: the table and the labels as they were given.
            trusted: a boolean mask: True for rows whose label has been checked. scikit-learn's cross-validation can
                slice this form, and only this: `cross_validate(cleaner, X, y, params={"trusted": mask})`.
            X_trusted, y_trusted: trusted rows as a table of their own, instead of a mask.
        """
        _refuse_missing(y, "y")
        table, y = self._read(X, y, reset=True)
        own = table.shape[0]
        y = _labels(y, "y")
        mask = _mask(trusted, len(y))
        if (X_trusted is None) != (y_trusted is None):
            raise ValueError("X_trusted and y_trusted belong together; pass both or none of them.")
        if X_trusted is not None:
            more, y_more = self._read(X_trusted), _labels(y_trusted, "y_trusted")
            if more.shape[0] != len(y_more):
                raise ValueError(f"X_trusted has {more.shape[0]} rows and y_trusted {len(y_more)}; they must agree.")
            table = _stacked(table, more)
            if (y.dtype.kind in "OUS") != (y_more.dtype.kind in "OUS"):  # numpy would turn numbers into text
                raise ValueError(f"y has {y.dtype} labels and y_trusted {y_more.dtype}; they must be of one kind.")
            y = np.concatenate([y, y_more])
            mask = np.concatenate([mask, np.ones(len(y_more), bool)])
        self.classes_, codes = np.unique(y, return_inverse=True)
        rows = _Rows(codes, mask, own)
        notes = _notes(rows, self.classes_, table)
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        self._scaling: Scaling | None = Scaling.of(table)
        scaled, linear = self._scaled(table), self.model == "logistic"
        learner: recipe.Learner = (
            Linear(scaled) if linear else Network(scaled, self._module(table.shape[1], seed), seed)
        )
        folds = recipe.make_folds(codes, mask, np.random.default_rng(seed))
        labels = recipe.Labels(codes, mask, folds, len(self.classes_))
        with self._working(recipe.FITS, "cleaning") as progress:
            cleaned = recipe.clean(learner, labels, progress)
        if cleaned.unfinished:
            notes.append(f"{cleaned.unfinished} of the fits ended at their budget, before they had converged.")
            warnings.warn(notes[-1], UserWarning, stacklevel=2)
        self._model, self.history_ = cleaned.model, cleaned.history
        self._conclude(X, rows, cleaned.P, cleaned.T, notes)
        return self

    def fit_probabilities(
        self, P: TableLike, y: LabelsLike, trusted: LabelsLike = None, *, classes: LabelsLike = None
    ) -> Self:
        """Judges labels by the probabilities of any model, for example one of PyTorch or LightGBM.

        There is no model to predict with afterwards; all other attributes are as after `fit`.

        Arguments:
            P: (rows, classes), the probability of each class for each row, by models that have not seen the row's
                label (cross-validation gives them: sklearn.model_selection.cross_val_predict).
            y: the labels as they were given.
            trusted: a boolean mask: True for rows whose label has been checked.
            classes: the labels that the columns of P stand for; default: the sorted distinct labels in y.
        """
        given = P
        P = check_array(P, dtype=np.float64, input_name="P", ensure_min_samples=2, ensure_min_features=2)
        y = _labels(y, "y")
        if len(y) != len(P):
            raise ValueError(f"P has {len(P)} rows and y {len(y)} labels; they must agree.")
        self.classes_ = np.unique(y) if classes is None else column_or_1d(classes)
        if len(np.unique(self.classes_)) < len(self.classes_):
            raise ValueError("classes names a class twice; each column of P needs a class of its own.")
        if P.shape[1] != len(self.classes_):
            raise ValueError(
                f"P has {P.shape[1]} columns, but there are {len(self.classes_)} classes. Pass classes=[…], in the "
                "order of the columns, if some class does not occur in y."
            )
        if (P < 0).any() or not np.allclose(P.sum(axis=1), 1, atol=1e-3):
            raise ValueError("each row of P must hold probabilities: none negative, adding up to 1.")
        codes = _places(y, self.classes_)
        if (self.classes_[codes] != y).any():
            raise ValueError(f"y contains {y[self.classes_[codes] != y].tolist()[0]!r}, which classes does not name.")
        rows = _Rows(codes, _mask(trusted, len(y)), len(y))
        notes = _notes(rows, self.classes_)
        logits, noisy = np.log(P + 1e-12), ~rows.trusted
        if rows.trusted.any():
            factor = calibration.best_factor(logits[rows.trusted], codes[rows.trusted])
        else:
            factor = calibration.sharpening(logits, codes)
        P = softmax(factor * logits)
        T = noise_matrix.chosen_noise_matrix(P[noisy], codes[noisy])
        self._model, self._scaling, self.history_ = None, None, []
        self._conclude(given, rows, P, T, notes)
        return self

    def predict(self, X: TableLike) -> Array:
        """The most probable class of each row."""
        best = self._logits(X).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: TableLike) -> Array:
        """The probability of each class for each row."""
        return softmax(self._logits(X))

    def _logits(self, X: TableLike) -> Array:
        check_is_fitted(self, "classes_")
        if self._model is None:
            raise NotFittedError("fit_probabilities has seen no features, so there is no model to predict with.")
        return self._model.logits(self._scaled(self._read(X)))

    def _scaled(self, table: Table) -> Table:
        assert self._scaling is not None  # `fit` has set it
        if self.model == "logistic":
            return self._scaling(table, INTERCEPT)
        scaled = self._scaling(table)
        return scaled.toarray() if sparse.issparse(scaled) else scaled

    def _module(self, columns: int, seed: int) -> eqx.Module:
        """The network, if it maps the features of a row to a logit for each class."""
        classes = len(self.classes_)
        if self.model == "mlp":
            return mlp(columns, classes, seed)
        if not isinstance(self.model, eqx.Module) or not callable(self.model):
            raise ValueError(f'model must be "logistic", "mlp" or an equinox Module; got {self.model!r}.')
        shape = jax.eval_shape(self.model, jax.ShapeDtypeStruct((columns,), np.float32)).shape
        if shape != (classes,):
            raise ValueError(
                f"the network must map {columns} features to {classes} logits, one for each class; it gives the shape "
                f"{shape}."
            )
        return self.model

    def _conclude(self, X: TableLike, rows: _Rows, P: Array, T: Array, notes: list[str]) -> None:
        """Sets all attributes that say something of the labels."""
        noisy = ~rows.trusted
        self.noise_matrix_ = T
        self.noise_rate_ = noise_matrix.noise_rate(P[noisy], T, rows.codes[noisy])
        own = slice(0, rows.own)
        codes, untrusted = rows.codes[own], np.flatnonzero(noisy[own])
        verdicts = suspicion.judge(P[untrusted], T, codes[untrusted])
        self.suspicion_ = np.zeros(rows.own)
        self.suspicion_[untrusted] = verdicts.suspicion
        suggested = codes.copy()
        suggested[untrusted] = verdicts.suggested
        self.suggested_labels_ = self.classes_[suggested]
        ranked = suspicion.ranking(verdicts, codes[untrusted])
        found = untrusted[ranked]
        columns = {
            "row": found,
            "given": self.classes_[codes[found]],
            "suggested": self.suggested_labels_[found],
            "suspicion": verdicts.suspicion[ranked],
            "confidence": verdicts.confidence[ranked],
        }
        self.suspects_ = frame_like(X, columns, found)
        self.report_ = _report(rows, self.noise_rate_, len(found), notes)

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        check_is_fitted(self, "classes_")
        named = self.model if isinstance(self.model, str) else None
        random = self.random_state if isinstance(self.random_state, int) else None
        facts = {
            "parameters": {"model": named, "random_state": random},
            "classes": self.classes_.tolist(),
            "kind": self.classes_.dtype.str,
            "history": self.history_,
            "report": self.report_,
            "noise_rate": list(self.noise_rate_),
            "networks": isinstance(self._model, NetworkModel),
        }
        groups: dict[str, Any] = {
            "labels": {
                "suspicion": self.suspicion_,
                "suggested": _places(self.suggested_labels_, self.classes_),
                "noise_matrix": self.noise_matrix_,
                "row": np.asarray(self.suspects_["row"]),
                "given": _places(np.asarray(self.suspects_["given"]), self.classes_),
                "confidence": np.asarray(self.suspects_["confidence"]),
            },
            "scaling": [] if self._scaling is None else list(self._scaling),
            "model": [],
        }
        if isinstance(self._model, LinearModel):
            groups["model"] = [self._model.coefficients]
        elif isinstance(self._model, NetworkModel):
            groups["model"] = [self._model.weights, *self._model.parameters]
        return facts, groups

    def _restore(self, facts: dict[str, Any], groups: dict[str, Any]) -> None:
        self.classes_ = np.array(facts["classes"], np.dtype(facts["kind"]))
        self.history_, self.report_ = facts["history"], facts["report"]
        self.noise_rate_ = noise_matrix.Rate(*facts["noise_rate"])
        labels = groups["labels"]
        self.suspicion_, self.noise_matrix_ = labels["suspicion"], labels["noise_matrix"]
        self.suggested_labels_ = self.classes_[labels["suggested"]]
        self.suspects_ = records({
            "row": labels["row"],
            "given": self.classes_[labels["given"]],
            "suggested": self.suggested_labels_[labels["row"]],
            "suspicion": self.suspicion_[labels["row"]],
            "confidence": labels["confidence"],
        })  # fmt: skip
        self._scaling = Scaling(*groups["scaling"]) if groups["scaling"] else None
        self._model = None
        if facts["networks"]:
            if self.model is None:
                raise ValueError("the file holds the numbers of a network of yours: load(path, model=the network).")
            module = self._module(self.n_features_in_, 0)
            self._model = NetworkModel(module, groups["model"][0], groups["model"][1:])
        elif groups["model"]:
            self._model = LinearModel(groups["model"][0])


def _labels(y: LabelsLike, name: str) -> Array:
    """Labels as an array, if they can be classes."""
    _refuse_missing(y, name)
    labels = column_or_1d(y, warn=True)
    if labels.dtype.kind == "f":
        assert_all_finite(labels, input_name=name)
    check_classification_targets(labels)
    return labels


def _refuse_missing(y: LabelsLike, name: str) -> None:
    """Refuses labels that are None or pandas' NA, which numpy and scikit-learn would refuse without saying why."""
    labels = np.asarray(y)
    if labels.ndim == 0 or labels.dtype != object:
        return
    missing = [row for row, label in enumerate(labels) if not isinstance(label, str) and str(label) in _MISSING]
    if missing:
        label = labels[missing[0]]
        raise ValueError(f"{name}: the label of row {missing[0]} is {label} ({len(missing)} in all); leave out rows "
                         "without a label.")  # fmt: skip


def _stacked(table: Table, more: Table) -> Table:
    """Both tables one above the other, of the kind of the first."""
    if sparse.issparse(table):
        return sparse.csr_array(sparse.vstack([table, more]))
    return np.concatenate([table, more.toarray() if sparse.issparse(more) else more])


def _places(values: Array, classes: Array) -> Array:
    """The place of each value among the classes; any place for a value that is none of them."""
    order = np.argsort(classes)
    return order[np.searchsorted(classes, values, sorter=order).clip(max=len(order) - 1)]


def _mask(trusted: LabelsLike, rows: int) -> Array:
    if trusted is None:
        return np.zeros(rows, bool)
    mask = np.asarray(trusted)
    if mask.dtype == object and all(isinstance(entry, bool | np.bool_) for entry in mask.flat):
        mask = mask.astype(bool)
    if mask.dtype != bool:
        raise ValueError(
            f"trusted must be a mask of True and False, one entry for each of the {rows} rows; got {mask.dtype}. From "
            "row numbers: np.isin(np.arange(len(y)), numbers)."
        )
    if mask.shape != (rows,):
        raise ValueError(f"trusted must have one entry for each of the {rows} rows; it has the shape {mask.shape}.")
    return mask


def _notes(rows: _Rows, classes: Array, table: Table = None) -> list[str]:
    """What is doubtful about the trusted rows, in sentences, which are also given as warnings. Raises a ValueError if
    the labels leave nothing to learn. `table` holds the features, if they are known."""
    if len(classes) < 2:
        raise ValueError(
            f"the labels contain only one class, {classes.tolist()[0]!r}; at least two classes are needed."
        )
    if rows.trusted.all():
        raise ValueError(
            "every row is trusted, so there is no label to clean. Mark as trusted only the rows that have been "
            "checked, or fit an ordinary classifier."
        )
    count = int(rows.trusted.sum())
    if not count:
        return []
    notes = []
    if count < _FEW:
        notes.append(
            f"only {_counted(count, 'trusted row')}, which says little. Results are close to those without trusted "
            f"rows; check at least {_FEW}, better 50."
        )
    missing = np.setdiff1d(np.arange(len(classes)), rows.codes[rows.trusted])
    if missing.size:
        names = ", ".join(str(name) for name in classes[missing][:5]) + (", …" if missing.size > 5 else "")
        notes.append(
            f"no trusted row has the class{'es' * (missing.size > 1)} {names}: how labels go wrong there is inferred "
            "from the other classes. Check a few rows that carry such a label."
        )
    if table is not None:
        notes += _contradictions(table, rows)
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=3)
    return notes


def _contradictions(table: Table, rows: _Rows) -> list[str]:
    """Trusted rows with the same features and different labels."""
    numbers = np.flatnonzero(rows.trusted)
    seen: dict[bytes, tuple[int, int]] = {}
    pairs = []
    for number in numbers:
        row = table[[number]].toarray() if sparse.issparse(table) else table[number]
        first, code = seen.setdefault(np.ascontiguousarray(row).tobytes(), (int(number), int(rows.codes[number])))
        if code != rows.codes[number]:
            pairs.append((first, int(number)))
    if not pairs:
        return []
    first, second = pairs[0]
    return [
        f"trusted rows contradict each other: rows {first} and {second} have the same features and different labels "
        f"({_counted(len(pairs), 'such row')}). All are taken for right; check them."
    ]


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _report(rows: _Rows, rate: noise_matrix.Rate, suspects: int, notes: list[str]) -> str:
    trusted = int(rows.trusted.sum())
    noisy = len(rows.codes) - trusted
    lines = [
        f"{_counted(noisy, 'label')} examined with the help of {_counted(trusted, 'trusted row')}.",
        f"An estimated {100 * rate.value:.1f} % of them are wrong (95 % interval {100 * rate.low:.1f} to "
        f"{100 * rate.high:.1f} %, if the model is right).",
        f"Rows with a more probable label than the one they carry: {suspects}.",
    ]
    if not trusted:
        lines[0] = f"{_counted(noisy, 'label')} examined without any trusted row."
        lines.append(
            "All of this rests on how well the model and symmetric or class-dependent noise together explain the given "
            "labels. Errors that follow the features look like correct labels and cannot be found; nor can it be known "
            "how accurate the model is. Some 50 checked rows would change both."
        )
    return "\n".join([*lines, *(f"Warning: {note}" for note in notes)])
