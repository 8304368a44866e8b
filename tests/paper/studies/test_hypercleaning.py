"""The study of hyper-cleaning, small; its settings and what it measures."""

import os

import jax
import numpy as np
import pytest

from unibio.paper.cleaning import hypercleaning
from unibio.paper.cleaning import pieces as cleaning_pieces
from unibio.paper.cleaning import practical as cleaning_practical
from unibio.paper.cleaning import race as cleaning_race
from unibio.paper.cleaning.race import auroc, batch_size, candidates, training_set
from unibio.paper.cleaning.task import Size, digest, load
from unibio.paper.framework import reproduce
from unibio.paper.framework.report import command
from unibio.paper.framework.study import Options
from unibio.solvers.step_sizes import step_sizes, stepping


@pytest.fixture(autouse=True)
def _promotion():
    """optax's Adam mixes whole numbers and floats."""
    with jax.numpy_dtype_promotion("standard"):
        yield


SMALL = Size(train=250, validation=100, tuning=50, test=100, hidden=8)

ONLY_UNIBIO = {"UniBiO": cleaning_race.CONTESTANTS["UniBiO"]}


def test_auroc_against_all_pairs():
    rng = np.random.default_rng(0)
    scores, wrong = rng.integers(0, 5, size=60).astype(float), rng.random(60) < 0.3
    gaps = scores[wrong][:, None] - scores[~wrong][None]
    assert auroc(scores, wrong) == pytest.approx(np.mean((gaps > 0) + 0.5 * (gaps == 0)))
    assert auroc(np.full(60, np.nan), wrong) == 0.5


@pytest.mark.parametrize("data", ["toy", "digits"])
@pytest.mark.slow
def test_tasks(data):
    """Noise on training labels alone, the same at every access; parts of the right sizes; sets to train on."""
    if data == "digits":
        pytest.importorskip("sklearn")
    task, again, clean = load(data, SMALL, 0.4, 1), load(data, SMALL, 0.4, 1), load(data, SMALL, 0.0, 1)
    np.testing.assert_array_equal(task.train[1], again.train[1])
    assert 0.25 < task.corrupted.mean() < 0.55
    assert not clean.corrupted.any()
    for part in ("validation", "tuning", "test"):
        np.testing.assert_array_equal(getattr(task, part)[1], getattr(clean, part)[1])
    assert [len(getattr(task, part)[1]) for part in ("train", "validation", "tuning")] == [250, 100, 50]
    assert len(training_set(task, "both")[1]) == 350
    np.testing.assert_array_equal(training_set(task, "true")[1], task.truth)
    params = task.init(jax.random.key(0))
    outputs = task.apply(params, task.tuning[0])
    assert outputs.shape == (50, task.truth.max() + 1)
    assert task.features(params, task.tuning[0]).shape[0] == 50
    assert batch_size(task, "TTSA") == 100
    assert batch_size(task, "SABA") == 50


def test_candidates():
    """Eight for everyone, the paper's first; another step size changes numbers, not the program."""
    for name, entry in cleaning_race.CONTESTANTS.items():
        found = candidates(name)
        assert len(set(found)) == 8
        assert found[0] == step_sizes(entry.solver)
        changed = stepping(entry.solver, *found[-1])
        assert type(changed) is type(entry.solver)
        assert changed.step_size == found[-1][0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hiden": "3"}, "no setting 'hiden'"),
        ({"hidden": "many"}, "hidden must be a int"),
        ({"noise": "0.1,1.0"}, "below 1; got 1.0"),
        ({"noise": "-0.1"}, "at least 0"),
        ({"p": "1.5"}, "p"),
        ({"epochs": "0"}, "epochs"),
        ({"data": "/nowhere"}, "there is no folder"),
        ({"hidden": "0"}, "hidden"),
        ({"train": "1"}, "train must be"),
        ({"validation": "1"}, "validation must be"),
        ({"p": "3,3.0000001"}, "p=3,3: a value is there twice"),
        ({"noise": "0.1,0.1"}, "noise=0.1,0.1"),
        ({"data": "digits", "train": "5000"}, "digits"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        hypercleaning.run(Options(settings=tuple(settings.items())), lambda text: None)


def test_snli_that_does_not_fit(tmp_path):
    a_small_snli(tmp_path)
    with pytest.raises(ValueError, match="has 4 pairs in train, not 250"):
        load(str(tmp_path), SMALL, 0.1, 0)
    (tmp_path / "vectors" / "glove.6B.50d.txt").unlink()
    with pytest.raises(ValueError, match="has no word vectors"):
        load(str(tmp_path), Size(1, 1, 1, 1, 4), 0.1, 0)


def a_small_snli(folder, label="neutral"):
    (folder / "snli").mkdir(exist_ok=True)
    (folder / "vectors").mkdir(exist_ok=True)
    for split in ("train", "dev", "test"):
        lines = "".join(f"{label}\ta {word}\tc\n" for word in "bcde")
        (folder / "snli" / f"{split}.tsv").write_text("gold_label\tsentence1\tsentence2\n" + lines)
    (folder / "vectors" / "glove.6B.50d.txt").write_text("a 1 2\nb 3 4\n")


def test_other_files_are_other_data(tmp_path):
    """The digest follows the content of what is read, not its age or its neighbours."""
    with pytest.raises(ValueError, match="there is no folder"):
        digest(str(tmp_path))
    a_small_snli(tmp_path)
    first, size = digest(str(tmp_path)), Size(4, 2, 2, 4, 3)
    assert set(load(str(tmp_path), size, 0.0, 0).truth) == {1}
    for name in ("vectors/other.txt", "snli/.DS_Store"):
        (tmp_path / name).write_text("two")
    os.utime(tmp_path / "snli/train.tsv", (0, 0))
    assert digest(str(tmp_path)) == first
    a_small_snli(tmp_path, "contradiction")
    second = digest(str(tmp_path))
    assert set(load(str(tmp_path), size, 0.0, 0).truth) == {2}
    (tmp_path / "vectors/glove.6B.50d.txt").write_text("a 1 2\nb 3 5\n")
    assert len({first, second, digest(str(tmp_path))}) == 3
    assert digest("toy") == ""


@pytest.mark.slow
def test_files_that_change_during_a_run(tmp_path, monkeypatch):
    """Nothing is kept of them; and what a killed process left of an old result is no obstacle."""
    a_small_snli(tmp_path)
    real = hypercleaning.run

    def meanwhile(options, progress):
        found = real(Options(settings=(*SHORT, ("data", "toy"))), progress)
        a_small_snli(tmp_path, next(labels))
        return found

    for module in ("hypercleaning", "pieces"):
        monkeypatch.setattr(
            f"unibio.paper.cleaning.{module}.CONTESTANTS", {"UniBiO": cleaning_race.CONTESTANTS["UniBiO"]}
        )
    monkeypatch.setattr(hypercleaning, "run", meanwhile)
    options = Options(settings=(*SHORT, ("data", str(tmp_path))))
    labels = iter(("contradiction", "contradiction"))
    with pytest.raises(ValueError, match="have changed while it ran"):
        reproduce.make_part(tmp_path, "hypercleaning", options, lambda text: None)
    (tmp_path / "hypercleaning").mkdir()
    reproduce.make_part(tmp_path, "hypercleaning", options, lambda text: None)
    assert (tmp_path / "hypercleaning" / "result.json").is_file()
    assert not list(tmp_path.glob("*hypercleaning?*"))


SHORT = tuple(
    {"hidden": "4", "train": "64", "validation": "32", "tuning": "32", "test": "32", "epochs": "1", "p": "3",
     "seeds": "1", "more_seeds": "1"}.items()
)  # fmt: skip


def test_regularisation_of_the_last_layer():
    """The same penalty of an entry of .1 whatever p is, and 1e-2·‖W‖³ at p = 3."""
    assert cleaning_practical.regularisation(3.0) == pytest.approx(1e-2)
    for p in (2.0, 3.5, 4.0):
        assert cleaning_practical.regularisation(p) * 0.1**p == pytest.approx(1e-5)


@pytest.mark.slow
def test_learning_through_the_noise_rate():
    """With 40 % of the labels wrong, a network that sees them through r memorises fewer of them."""
    pytest.importorskip("sklearn")
    task = load("digits", Size(600, 100, 100, 1, 48), 0.4, 0)
    (plain, params), (seen, _) = (cleaning_race.train(task, "noisy", 1e-2, 3.0, 0, 60, wrong) for wrong in (0.0, 0.8))
    assert seen[-1]["train_true"] > plain[-1]["train_true"] + 0.02
    assert plain[-1]["train_noisy"] > seen[-1]["train_noisy"]
    best = max(row["tuning"] for row in plain)
    found = cleaning_race.in_chunks(task.apply, params, task.tuning[0]).argmax(axis=1)
    assert np.mean(found == task.tuning[1]) == best


@pytest.mark.slow
def test_a_small_study(monkeypatch):
    """One solver on digits, everything else as it is: tables, paired differences, figure and verdict."""
    pytest.importorskip("sklearn")
    for module in ("hypercleaning", "pieces"):
        monkeypatch.setattr(
            f"unibio.paper.cleaning.{module}.CONTESTANTS", {"UniBiO": cleaning_race.CONTESTANTS["UniBiO"]}
        )
    settings = {"data": "digits", "hidden": "8", "train": "256", "validation": "128", "tuning": "100", "epochs": "2",
                "p": "3", "seeds": "1", "more_seeds": "2"}  # fmt: skip
    tables = hypercleaning.run(Options(settings=tuple(settings.items())), lambda text: None)
    rows = {(row["method"], row["setting"]): row for row in tables["statistics"]}
    assert set(rows) == {("UniBiO", "tuned"), ("UniBiO", "paper"), ("UniBiO (practical)", "tuned"),
                         *((kind, "tuned") for kind in cleaning_race.TRAINING)}  # fmt: skip
    assert rows["UniBiO (practical)", "tuned"]["ahead"] == 0.0
    ends: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for row in tables["curves"]:
        if row["method"] in ("both", "UniBiO (practical)"):
            ends.setdefault((row["method"], row["seed"]), []).append((row["tuning"], -row["epoch"], row["test"]))
    gaps = [max(ends["UniBiO (practical)", seed])[2] - max(ends["both", seed])[2] for seed in (0, 1)]
    assert rows["both", "tuned"]["ahead"] == pytest.approx(np.mean(gaps))
    assert rows["both", "tuned"]["ahead_error"] == pytest.approx(np.std(gaps, ddof=1) / np.sqrt(2))
    assert all("seconds" not in row for row in tables["curves"])
    assert {row["run"] for row in tables["rates"]} == {"p=3 noise=0.4 seed=0", "p=3 noise=0.4 seed=1"}
    assert hypercleaning.verdict(tables).startswith(
        "With a weight for each sample, UniBiO is the most accurate of 1 solvers on scikit-learn's digits, 256 "
        "samples, hidden size 8. With 40 % wrong labels, p = 3, "
    )
    assert hypercleaning.draw(tables) is not None


def test_the_command_that_regenerates_it():
    options = Options(settings=(("hidden", "64"), ("p", "3,4")), full=True).facts()
    assert command("hypercleaning", options) == (
        "unibio reproduce hypercleaning --out DIR --set hidden=64 --set p=3,4 --full"
    )


def test_the_best_step_sizes_are_those_with_the_highest_score():
    def curve(*tuning, finite=1.0):
        return [{"tuning": value, "finite": finite} for value in tuning]

    tried = {f"tune {name} 1 0.1": curve(0.5, 0.4) for name in cleaning_race.CONTESTANTS}
    tried |= {"tune UniBiO 2 0.1": curve(0.9, 0.45), "tune UniBiO 3 0.1": curve(0.9, 0.9, finite=0.0)}
    tried |= {f"tune {kind} 0.001": curve(0.6, 0.5) for kind in cleaning_race.TRAINING}
    tried |= {"tune noisy 0.003": curve(0.7, 0.1)}  # plain training is stopped at its best
    scores = cleaning_pieces.scores(tried)
    best = cleaning_pieces.best(scores)
    assert best["UniBiO"] == (2.0, 0.1)
    assert best["noisy"] == (0.003,)
    assert best["both"] == (0.001,)
