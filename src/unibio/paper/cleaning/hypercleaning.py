"""Hyper-cleaning of sentence pairs with wrong labels (Figures 2 and 3): seven solvers beside plain training."""

import functools
from typing import Any

import numpy as np

from unibio.comparison import plot
from unibio.files.tables import Row, Rows, Tables, column, distinct, select
from unibio.paper.cleaning import pieces as cleaning_pieces
from unibio.paper.cleaning.pieces import PRACTICAL
from unibio.paper.cleaning.race import CONTESTANTS, TRAINING
from unibio.paper.cleaning.settings import DEFAULT_STEP_SIZES, settings_of
from unibio.paper.cleaning.task import digest, load
from unibio.paper.framework.pieces import gather, helpers
from unibio.paper.framework.study import SECONDS, Options, Outcome, Progress

TITLE = "Which solver cleans sentence pairs with wrong labels best? (Figures 2 and 3)"
PAPER = "With 10 % wrong labels and p = 3 or 4, UniBiO has the highest training and test accuracy of seven solvers."


def facts(options: Options) -> Row:
    """What the result depends on besides the options: every setting, and digests of the files that are read."""
    chosen = settings_of(options)
    resolved = {name: str(value) for name, value in chosen._asdict().items()}
    return {"resolved": resolved, "data": digest(chosen.data)}


def run(options: Options, progress: Progress) -> Tables:
    """Tunes the step sizes, if asked to, and then computes every curve.

    Step sizes are chosen by the accuracy on the tuning samples, with a seed for label noise and start that no curve
    uses.
    """
    chosen = settings_of(options)
    for count in (*chosen.curve, chosen.validation):  # raises for bad data before hours of work
        source = load(chosen.data, chosen.size._replace(validation=count), chosen.noise[0], 0).source
    common = {"data": chosen.data, "size": chosen.size}
    done = functools.partial(gather, options=options, progress=progress, data=digest(chosen.data))
    best = DEFAULT_STEP_SIZES
    tuning: Rows = []
    with helpers("hypercleaning", options):
        if chosen.tune:
            tuning = cleaning_pieces.scores(done(cleaning_pieces.tuning(chosen, common)))
            best = cleaning_pieces.best(tuning)
        cases = cleaning_pieces.cases(chosen, common, chosen.more_seeds)
        cases += cleaning_pieces.curve_cases(chosen, common)
        rates = done(cleaning_pieces.rates(chosen, cases, best))
        pieces = cleaning_pieces.solvers(chosen, cleaning_pieces.cases(chosen, common, chosen.seeds), best)
        pieces += cleaning_pieces.training(chosen, cases, best, rates)
        found = done([piece for piece, _ in pieces])
    about = [{"source": source} | chosen.size._asdict() | {"epochs": chosen.epochs}]
    names = {piece.name: name for piece, name in pieces}
    return {"data": about} | _tables(found, names, rates) | ({"tuned": tuning} if tuning else {})


def _tables(found: dict[str, Rows], names: dict[str, Row], rates: dict[str, Rows]) -> Tables:
    """The curves of all runs, their statistics, the learnt noise rates, and the seconds in a table of their own.

    The seconds of the practical setting include those of learning the rate.
    """
    before = {title.replace("rate", PRACTICAL, 1): rows[-1]["seconds"] for title, rows in rates.items()}
    curves: Rows = []
    clock: Rows = []
    for title, rows in found.items():
        for row in rows:
            seconds = row.pop("seconds") + before.get(title, 0.0)
            curves.append(names[title] | row)
            clock.append(names[title] | {"epoch": row["epoch"], "seconds": seconds})
    learnt = [{"run": title.removeprefix("rate ")} | row for title, rows in rates.items() for row in rows]
    for row in learnt:
        del row["seconds"]
    return {"curves": curves, "statistics": _statistics(curves), "rates": learnt, SECONDS: clock}


def _statistics(curves: Rows) -> Rows:
    """For each method the means over the seeds of its accuracies and AUROCs at the end, and of `test_stopped`.

    `test_stopped` is the test accuracy after the epoch with the highest tuning accuracy, `stopped_error` its standard
    error. `ahead` says how much higher it is for UniBiO (practical) than for this method, in the mean over the seeds
    that both have, and `ahead_error` is the standard error of that.
    """
    keys = ("noise", "p", "clean_samples", "setting", "method")
    runs: dict[tuple[Any, ...], dict[int, Rows]] = {}
    for row in curves:
        runs.setdefault(tuple(row[key] for key in keys), {}).setdefault(row["seed"], []).append(row)
    rows: Rows = []
    for group, seeds in runs.items():
        wanted = ("train_noisy", "train_true", "test", "auroc_weights", "auroc_loss", "auroc_mean_loss")
        numbers = {key: _mean([run[-1] for run in seeds.values()], key) for key in wanted}
        tests, ours = _stopped(seeds), _stopped(runs[(*group[:3], "tuned", PRACTICAL)])
        gaps = [ours[seed] - test for seed, test in tests.items() if seed in ours]
        rows.append(
            dict(zip(keys, group, strict=True)) | {"seeds": len(seeds)} | numbers
            | {"test_stopped": float(np.mean([*tests.values()])), "stopped_error": _error([*tests.values()]),
               "ahead": float(np.mean(gaps)), "ahead_error": _error(gaps)}
        )  # fmt: skip
    return rows


def _stopped(seeds: dict[int, Rows]) -> dict[int, float]:
    """For each seed the test accuracy after the epoch with the highest tuning accuracy."""
    return {seed: max(run, key=lambda row: row["tuning"])["test"] for seed, run in seeds.items()}


def _error(values: list[float]) -> float:
    """Standard error of the mean; 0 for one value."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def draw(tables: Tables) -> "plot.Figure":
    """Accuracy on the noisy training labels by epoch, on the test samples by epoch, and on the test samples by seconds;
    means over the seeds, with tuned step sizes and the first noise rate; a column for each p."""
    rows = tables["curves"]
    first = {"noise": rows[0]["noise"], "setting": "tuned", "clean_samples": rows[0]["clean_samples"]}
    rows, clock = (select(tables[name], **first) for name in ("curves", SECONDS))
    orders = distinct(rows, "p")
    made, axes = plot.panels(len(orders), 3, width=3.7, height=2.5)
    above, middle, below = (axes[k * len(orders) :] for k in range(3))
    for i, p in enumerate(orders):
        for method in distinct(rows, "method"):
            epochs = distinct(select(rows, p=p, method=method), "epoch")
            lines = [select(rows, p=p, method=method, epoch=epoch) for epoch in epochs]
            times = [_mean(select(clock, p=p, method=method, epoch=epoch), "seconds") for epoch in epochs]
            style = _style(method)
            above[i].plot(epochs, [_mean(line, "train_noisy") for line in lines], **style)
            middle[i].plot(epochs, [_mean(line, "test") for line in lines], **style)
            below[i].plot(times[1:], [_mean(line, "test") for line in lines[1:]], **style)
        above[i].set(title=f"p = {p:g}", xlabel="epoch", ylabel="accuracy on noisy labels")
        middle[i].set(title=f"p = {p:g}", xlabel="epoch", ylabel="test accuracy")
        below[i].set(xlabel="seconds (without compilation)", ylabel="test accuracy", xscale="log")
    made.suptitle(f"{_source(tables)},\n{100 * first['noise']:g} % of the training labels wrong", fontsize=9)
    plot.key(made, axes)
    return made


def _style(method: str) -> dict[str, Any]:
    """How the line of a method looks."""
    styles = {"noisy": ":", "clean": "-.", "both": "--", "true": (0, (1, 3)), PRACTICAL: "--"}
    return {
        "linestyle": styles.get(method, "-"),
        "color": "grey" if method in TRAINING else plot.solver_colour(method),
        "label": f"training, {method}" if method in TRAINING else method,
    }


def _mean(rows: Rows, name: str) -> float:
    return float(np.mean(column(rows, name)))


def _source(tables: Tables) -> str:
    about = tables["data"][0]
    return f"{about['source']}, {about['train']:,} samples, hidden size {about['hidden']}"


def summary(tables: Tables) -> Rows:
    """Means over the runs, for the first rate of wrong labels and the first p, with tuned step sizes."""
    chosen = ("method", "seeds", "train_noisy", "train_true", "test", "test_stopped", "auroc_weights")
    rows = sorted(_first_case(tables), key=lambda row: -row["test_stopped"])
    return [{key: row[key] for key in chosen} for row in rows]


def _first_case(tables: Tables) -> Rows:
    first = tables["statistics"][0]
    return select(tables["statistics"], setting="tuned", **{key: first[key] for key in ("noise", "p", "clean_samples")})


def outcome(tables: Tables) -> Outcome:
    """On the paper's data confirmed if UniBiO is the most accurate of the solvers, and refuted if not. Other data
    cannot decide."""
    if not tables["data"][0]["source"].startswith("SNLI"):
        return Outcome.ours
    tests = {row["method"]: row["test_stopped"] for row in _first_case(tables)}
    return Outcome.confirmed if max(CONTESTANTS, key=lambda name: tests[name]) == "UniBiO" else Outcome.refuted


def verdict(tables: Tables) -> str:
    """Judges the claim that UniBiO is the most accurate of the solvers, and compares them with plain training."""
    first = tables["statistics"][0]
    by_name = {row["method"]: row for row in _first_case(tables)}
    best = max((by_name[name] for name in CONTESTANTS), key=lambda row: row["test_stopped"])
    plain = ", ".join(f"{by_name[kind]['test_stopped']:.3f} ({kind})" for kind in TRAINING)
    both = by_name["both"]
    wins = best["method"] == "UniBiO"
    other = "" if wins else f", that of the best solver, {best['method']}, {best['test_stopped']:.3f}"
    return (
        f"With a weight for each sample, UniBiO is {'' if wins else 'not '}the most accurate of "
        f"{len(CONTESTANTS)} solvers on {_source(tables)}. With {100 * first['noise']:g} % wrong labels, p = "
        f"{first['p']:g}, tuned step sizes and early stopping, its test accuracy is "
        f"{by_name['UniBiO']['test_stopped']:.3f}{other}. Plain training has {plain}. UniBiO's practical setting, "
        f"which learns one noise rate instead of the weights, has {by_name[PRACTICAL]['test_stopped']:.3f}; its mean "
        f"difference from plain training on both, with the standard error over the seeds, is {both['ahead']:+.3f} ± "
        f"{both['ahead_error']:.3f}."
    )
