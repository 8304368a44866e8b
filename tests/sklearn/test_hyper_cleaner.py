"""HyperCleaner as people call it: tables of every kind, labels of every kind, bad input, files."""

import warnings

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict, cross_validate
from sklearn.utils.estimator_checks import check_estimator

from unibio.cleaning import logistic, noise_matrix
from unibio.sklearn import HyperCleaner
from unibio.sklearn.scaling import Scaling

pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype")


def data(rows=400, rate=0.3, classes=3, seed=0, imbalance=None):
    """Features, true labels, noisy labels, and a mask of trusted rows (whose labels are true)."""
    X, truth = make_classification(
        rows, 8, n_informative=6, n_redundant=0, n_classes=classes, class_sep=1.5, weights=imbalance, random_state=seed
    )
    random = np.random.default_rng(seed)
    other = (truth + random.integers(1, classes, rows)) % classes
    noisy = np.where(random.random(rows) < rate, other, truth)
    trusted = np.arange(rows) < 60
    return X, truth, np.where(trusted, truth, noisy), trusted


@pytest.fixture(scope="module")
def fitted():
    X, truth, y, trusted = data()
    return HyperCleaner(random_state=0).fit(X, y, trusted=trusted), X, truth, y, trusted


def test_scikit_learn_accepts_it():
    check_estimator(HyperCleaner(random_state=0), on_skip=None)


def test_wrong_labels_are_found_and_the_model_is_better_for_it(fitted):
    cleaner, X, truth, y, trusted = fitted
    rest = ~trusted
    plain = LogisticRegression(C=0.1)
    P = cross_val_predict(plain, X[rest], y[rest], method="predict_proba", cv=5)
    naive = 1 - P[np.arange(rest.sum()), y[rest]]
    bad = y[rest] != truth[rest]
    assert roc_auc_score(bad, cleaner.suspicion_[rest]) > roc_auc_score(bad, naive) + 0.01
    assert cleaner.score(X, truth) > plain.fit(X[rest], y[rest]).score(X, truth)
    wrong = np.mean(y[rest] != truth[rest])
    assert cleaner.noise_rate_.low - 0.05 < wrong < cleaner.noise_rate_.high + 0.05


def test_attributes_agree_with_each_other(fitted):
    cleaner, X, _, y, trusted = fitted
    assert (cleaner.suspicion_[trusted] == 0).all()
    assert (cleaner.suggested_labels_[trusted] == y[trusted]).all()
    suspects = cleaner.suspects_
    np.testing.assert_array_equal(np.sort(suspects.row), np.flatnonzero(cleaner.suggested_labels_ != y))
    assert (np.diff(suspects.suspicion) <= 0).all()
    np.testing.assert_array_equal(suspects.suspicion, cleaner.suspicion_[suspects.row])
    np.testing.assert_array_equal(suspects.given, y[suspects.row])
    assert (suspects.confidence <= suspects.suspicion + 1e-12).all()
    np.testing.assert_allclose(cleaner.noise_matrix_.sum(axis=1), 1)
    assert [row["pass"] for row in cleaner.history_] == [0, 1, 2]
    assert f"than the one they carry: {len(suspects)}." in cleaner.report_
    np.testing.assert_allclose(cleaner.predict_proba(X).sum(axis=1), 1)
    np.testing.assert_array_equal(cleaner.classes_[cleaner.predict_proba(X).argmax(axis=1)], cleaner.predict(X))


def test_the_second_form_is_the_first():
    X, _, y, trusted = data()
    rest = ~trusted
    once = HyperCleaner(random_state=0).fit(X[rest], y[rest], X_trusted=X[trusted], y_trusted=y[trusted])
    order = np.concatenate([np.flatnonzero(rest), np.flatnonzero(trusted)])
    again = HyperCleaner(random_state=0).fit(X[order], y[order], trusted=trusted[order])
    assert len(once.suspicion_) == rest.sum()
    np.testing.assert_array_equal(once.suspicion_, again.suspicion_[: rest.sum()])
    np.testing.assert_array_equal(once.predict_proba(X), again.predict_proba(X))


def test_masks_and_tables_of_other_kinds(fitted):
    """A mask of Python's bools (as pandas makes after a join), and trusted rows that are sparse where X is not."""
    cleaner, X, _, y, trusted = fitted
    again = HyperCleaner(random_state=0).fit(X, y, trusted=trusted.astype(object))
    np.testing.assert_array_equal(again.suspicion_, cleaner.suspicion_)
    forms = [
        HyperCleaner(random_state=0).fit(X[60:], y[60:], X_trusted=kind(X[:60]), y_trusted=y[:60])
        for kind in (np.asarray, sparse.csr_array)
    ]
    np.testing.assert_array_equal(forms[0].suspicion_, forms[1].suspicion_)
    named = np.array(["nan", "None", "b"], object)[y]  # words like any other
    assert set(HyperCleaner(random_state=0).fit(X, named, trusted=trusted).classes_) == {"nan", "None", "b"}


def test_a_fit_repeats_and_a_clone_starts_anew(fitted):
    cleaner, X, _, y, trusted = fitted
    again = clone(cleaner).fit(X, y, trusted=trusted)
    np.testing.assert_array_equal(again.suspicion_, cleaner.suspicion_)
    other = HyperCleaner(random_state=1).fit(X, y, trusted=trusted)
    assert (other.suspicion_ != cleaner.suspicion_).any()


def test_cross_validation_slices_the_mask():
    X, _, y, trusted = data(seed=3)
    shuffled = np.random.default_rng(0).permutation(len(y))
    X, y, trusted = X[shuffled], y[shuffled], trusted[shuffled]
    scores = cross_validate(HyperCleaner(random_state=0), X, y, cv=3, params={"trusted": trusted})["test_score"]
    assert scores.shape == (3,)
    assert (scores > 0.4).all()


def test_text_labels_and_an_imbalanced_sparse_table():
    X, truth, y, trusted = data(rows=600, imbalance=[0.8, 0.15, 0.05])
    X[np.abs(X) < 0.7] = 0
    names = np.array(["common", "rare", "very rare"])
    dense = HyperCleaner(random_state=0).fit(X, names[y], trusted=trusted)
    thin = HyperCleaner(random_state=0).fit(sparse.csr_matrix(X), names[y], trusted=trusted)
    for cleaner in (dense, thin):
        rest = ~trusted
        assert roc_auc_score(y[rest] != truth[rest], cleaner.suspicion_[rest]) > 0.8
        assert set(cleaner.suggested_labels_) <= set(names)
        assert set(cleaner.predict(X[:50])) <= set(names)
    np.testing.assert_allclose(thin.predict_proba(sparse.csr_array(X)), thin.predict_proba(X), atol=1e-6)
    assert np.mean(np.abs(thin.suspicion_ - dense.suspicion_)) < 0.1  # the same table up to its means


def test_data_frames():
    pandas = pytest.importorskip("pandas", reason="the extra `tables` is not installed")
    polars = pytest.importorskip("polars", reason="the extra `tables` is not installed")
    X, _, y, trusted = data(rows=200)
    names = [f"column {k}" for k in range(8)]
    plain = HyperCleaner(random_state=0).fit(X, y, trusted=trusted)
    frame = pandas.DataFrame(X, columns=names, index=[f"row {k}" for k in range(200)])
    cleaner = HyperCleaner(random_state=0).fit(frame, pandas.Series(y), trusted=trusted)
    assert isinstance(cleaner.suspects_, pandas.DataFrame)
    assert list(cleaner.suspects_.index) == [f"row {k}" for k in plain.suspects_.row]
    assert list(cleaner.suspects_.columns) == ["row", "given", "suggested", "suspicion", "confidence"]
    np.testing.assert_array_equal(cleaner.suspects_["suspicion"], plain.suspects_.suspicion)
    with pytest.raises(ValueError, match="feature names"):
        cleaner.predict(frame[names[::-1]])
    other = HyperCleaner(random_state=0).fit(polars.DataFrame(X, schema=names), y, trusted=trusted)
    assert isinstance(other.suspects_, polars.DataFrame)
    np.testing.assert_array_equal(other.suspects_["row"].to_numpy(), plain.suspects_.row)
    assert list(other.feature_names_in_) == names
    lost = pandas.Series(np.array(["a", "b", "c"])[y], dtype="string").where(y != 1)
    with pytest.raises(ValueError, match=r"y: the label of row \d+ is <NA>"):
        HyperCleaner().fit(X, lost)
    for kind in (pandas, polars):
        text = kind.DataFrame({"size": X[:, 0], "colour": ["red", "blue"] * 100})
        with pytest.raises(ValueError, match="columns colour hold no numbers"):
            HyperCleaner().fit(text, y)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_scaling(kind):
    """Deviations as numpy has them, at any size of the numbers; a constant column is left alone."""
    X = np.random.default_rng(0).normal(size=(50, 3)) * [1e-200, 1.0, 1e200] + [0, 5, 0]
    X = np.column_stack([X, np.full(50, 7.0), np.zeros(50)])
    found = Scaling.of(kind(X))
    expected = [1e-200 * np.std(X[:, 0] * 1e200), np.std(X[:, 1]), 1e200 * np.std(X[:, 2] / 1e200)]
    np.testing.assert_allclose(found.deviation[:3], expected, rtol=1e-9)
    table = found(kind(X), 10.0)
    table = table.toarray() if sparse.issparse(table) else table
    assert table.dtype == np.float32
    np.testing.assert_allclose(table.std(axis=0)[:3], 1, rtol=1e-5)
    np.testing.assert_allclose(table[:, 5], 10)
    np.testing.assert_allclose(table[:, 3:5].std(axis=0), 0, atol=1e-6)


def test_without_trusted_rows():
    X, truth, y, _ = data(rows=800, seed=2)
    cleaner = HyperCleaner(random_state=0).fit(X, y)
    assert roc_auc_score(y != truth, cleaner.suspicion_) > 0.9
    assert "without any trusted row" in cleaner.report_
    assert "cannot be found" in cleaner.report_
    assert all(np.isnan(row["trusted_log_loss"]) for row in cleaner.history_)


def test_probabilities_of_any_model():
    X, truth, y, trusted = data(rows=800, seed=2)
    model = LogisticRegression(C=0.1)
    P = cross_val_predict(model, X, y, method="predict_proba", cv=5)
    rest = ~trusted
    for mask in (trusted, None):
        cleaner = HyperCleaner().fit_probabilities(P, y, trusted=mask)
        assert roc_auc_score(y[rest] != truth[rest], cleaner.suspicion_[rest]) > 0.9
        with pytest.raises(NotFittedError, match="no features"):
            cleaner.predict(X)
    names = np.array(["c", "a", "b"])  # columns in an order of one's own
    named = HyperCleaner().fit_probabilities(P, names[y], classes=names)
    np.testing.assert_allclose(named.suspicion_, cleaner.suspicion_)
    np.testing.assert_array_equal(named.suggested_labels_, names[cleaner.suggested_labels_])


class Small(eqx.Module):
    """A network of a user's own."""

    layer: eqx.nn.Linear

    def __init__(self, columns, classes):
        self.layer = eqx.nn.Linear(columns, classes, key=jax.random.key(0), dtype=np.float32)

    def __call__(self, x):
        return self.layer(x)


@pytest.mark.parametrize("model", ["mlp", pytest.param(Small(8, 3), marks=pytest.mark.slow)])
def test_networks(model, tmp_path):
    X, truth, y, trusted = data(rows=300)
    with jax.numpy_dtype_promotion("standard"):
        cleaner = HyperCleaner(model, random_state=0).fit(X, y, trusted=trusted)
        rest = ~trusted
        assert roc_auc_score(y[rest] != truth[rest], cleaner.suspicion_[rest]) > 0.85
        cleaner.save(tmp_path / "cleaner")
        given = {} if model == "mlp" else {"model": model}
        again = HyperCleaner.load(tmp_path / "cleaner", **given)
        np.testing.assert_allclose(again.predict_proba(X), cleaner.predict_proba(X))
        if given:
            with pytest.raises(ValueError, match="model=the network"):
                HyperCleaner.load(tmp_path / "cleaner")


def test_a_network_of_the_wrong_shape_is_refused():
    X, _, y, _ = data(rows=100)
    with pytest.raises(ValueError, match="to 3 logits"):
        HyperCleaner(Small(8, 2)).fit(X, y)
    with pytest.raises(ValueError, match='"logistic", "mlp" or an equinox Module'):
        HyperCleaner("forest").fit(X, y)


@pytest.mark.parametrize("names", [None, np.array(["a", "b", "c"]), np.array(["a", "b", "c"], object)])
def test_files(names, tmp_path):
    X, _, y, trusted = data(rows=200)
    y = y if names is None else names[y]
    cleaner = HyperCleaner(random_state=0).fit(X, y, trusted=trusted)
    path = tmp_path / "folder" / "cleaner"
    cleaner.save(path)
    again = HyperCleaner.load(path)
    for name, value in vars(cleaner).items():
        if name.endswith("_") and not name.startswith("_"):
            np.testing.assert_array_equal(np.asarray(getattr(again, name)), np.asarray(value), err_msg=name)
    np.testing.assert_array_equal(again.predict(X), cleaner.predict(X))
    assert again.get_params() == cleaner.get_params()
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="no intact file"):
        HyperCleaner.load(path)
    path.write_bytes(b"\x80\x04 a pickle")
    with pytest.raises(ValueError, match="no intact file"):
        HyperCleaner.load(path)


def test_files_of_probabilities(tmp_path):
    _, _, y, _ = data(rows=200)
    P = np.random.default_rng(0).dirichlet(np.ones(3), 200)
    names = np.array(["c", "a", "b"])
    cleaner = HyperCleaner().fit_probabilities(P, names[y], classes=names)
    cleaner.save(tmp_path / "cleaner")
    again = HyperCleaner.load(tmp_path / "cleaner")
    np.testing.assert_array_equal(again.suspicion_, cleaner.suspicion_)
    np.testing.assert_array_equal(again.suggested_labels_, cleaner.suggested_labels_)
    np.testing.assert_array_equal(again.suspects_.given, names[y][again.suspects_.row])
    with pytest.raises(NotFittedError):
        again.predict(np.zeros((2, 8)))


# bad input

X, TRUTH, Y, TRUSTED = data(rows=100)
BAD = [
    (lambda: HyperCleaner().fit(np.where(X > 2, np.nan, X), Y), "NaN"),
    (lambda: HyperCleaner().fit(np.where(X > 2, np.inf, X), Y), "infinity"),
    (lambda: HyperCleaner().fit(X, np.zeros(100)), "only one class"),
    (lambda: HyperCleaner().fit(X, Y, trusted=TRUSTED[:50]), r"one entry for each of the 100 rows"),
    (lambda: HyperCleaner().fit(X, Y, trusted=np.flatnonzero(TRUSTED)), r"From row numbers: np\.isin"),
    (lambda: HyperCleaner().fit(X, Y, trusted=TRUSTED.astype(int)), "mask of True and False"),
    (lambda: HyperCleaner().fit(X, Y, trusted=np.ones(100, bool)), "every row is trusted"),
    (lambda: HyperCleaner().fit(X, Y, X_trusted=X), "belong together"),
    (lambda: HyperCleaner().fit(X, Y, X_trusted=X[:5], y_trusted=Y[:4]), "must agree"),
    (lambda: HyperCleaner().fit(X, Y, X_trusted=X[:5, :3], y_trusted=Y[:5]), "3 features"),
    (lambda: HyperCleaner().fit(X, Y, X_trusted=X[:5], y_trusted=np.array(["a"] * 5)), "one kind"),
    (lambda: HyperCleaner().fit(X, X[:, 0]), "continuous"),
    (lambda: HyperCleaner().fit(X, np.array(["a", None, "b"], object)[Y]), "row . is None"),
    (lambda: HyperCleaner().fit(X, np.array(["a", np.nan, "b"], object)[Y]), "row . is nan"),
    (lambda: HyperCleaner().fit(X, np.where(Y == 1, np.nan, Y)), "y contains NaN"),
    (lambda: HyperCleaner().fit(X, Y, X_trusted=X[:3], y_trusted=[0, None, 1]), "y_trusted: the label of row 1 is"),
    (lambda: HyperCleaner().fit(X, Y, X_trusted=X[:3], y_trusted=[0, np.nan, 1]), "y_trusted contains NaN"),
    (lambda: HyperCleaner().fit(X, Y, X_trusted=X, y_trusted=X[:, 0]), "continuous"),
    (lambda: HyperCleaner().fit(X, Y, trusted=[*TRUSTED.tolist()[:99], None]), "mask of True and False"),
    (lambda: HyperCleaner().fit(X, np.full(100, "a")), "only one class, 'a'"),
    (lambda: HyperCleaner().fit_probabilities(np.full((100, 3), 1 / 3), X[:, 0]), "continuous"),
    (lambda: HyperCleaner().fit_probabilities(np.full((100, 4), 1 / 4), Y, classes=[0, 1, 2, 2]), "class twice"),
    (lambda: HyperCleaner().fit_probabilities(np.full((100, 2), 0.5), Y, classes=[0, 1]), "y contains 2, which"),
    (lambda: HyperCleaner().fit_probabilities(np.ones((100, 3)), Y), "adding up to 1"),
    (lambda: HyperCleaner().fit_probabilities(np.full((100, 2), 0.5), Y), "2 columns, but there are 3"),
    (lambda: HyperCleaner().fit_probabilities(np.full((50, 3), 1 / 3), Y), "50 rows and y 100"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused_with_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def doubtful():
    few = np.isin(np.arange(100), np.unique(Y, return_index=True)[1])
    missing = TRUSTED & (Y != 2)
    same, other = X.copy(), Y.copy()
    same[1] = same[0]
    other[1] = (other[0] + 1) % 3
    return [
        (X, Y, few, "only 3 trusted rows, which says little"),
        (X, Y, missing, "no trusted row has the class 2:"),
        (X, Y, TRUSTED & (Y == 0), "no trusted row has the classes 1, 2:"),
        (same, other, TRUSTED, "contradict each other: rows 0 and 1"),
        (sparse.csr_array(same), other, TRUSTED, "contradict each other: rows 0 and 1"),
    ]


@pytest.mark.parametrize(("table", "y", "trusted", "message"), doubtful())
def test_doubtful_trusted_rows_are_warned_of(table, y, trusted, message):
    with pytest.warns(UserWarning, match=message):
        cleaner = HyperCleaner(random_state=0).fit(table, y, trusted=trusted)
    assert message in cleaner.report_


def test_fits_that_did_not_converge_are_told_of(monkeypatch):
    monkeypatch.setattr(logistic.fit, "__kwdefaults__", {"tolerance": 1e-6, "most": 3})
    with pytest.warns(UserWarning, match="of the fits ended at their budget"):
        cleaner = HyperCleaner(random_state=0).fit(X, Y, trusted=TRUSTED)
    assert "of the fits ended at their budget" in cleaner.report_


def test_no_warning_without_cause():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        HyperCleaner(random_state=0).fit(X, Y, trusted=TRUSTED)


def test_the_matrix_of_simulated_noise():
    """Pair noise: class k is taken for k + 1 with probability .4, and never for another."""
    X, truth, _, trusted = data(rows=3000, rate=0.0, seed=5)
    T = 0.6 * np.eye(3) + 0.4 * np.roll(np.eye(3), 1, axis=1)
    draws = np.random.default_rng(0).random(3000)
    noisy = (draws[:, None] >= np.cumsum(T, axis=1)[truth]).sum(axis=1).clip(max=2)
    cleaner = HyperCleaner(random_state=0).fit(X, np.where(trusted, truth, noisy), trusted=trusted)
    assert np.abs(cleaner.noise_matrix_ - T).max() < 0.12
    assert np.abs(cleaner.noise_matrix_ - T).mean() < np.abs(noise_matrix.symmetric(0.4, 3) - T).mean() / 3
