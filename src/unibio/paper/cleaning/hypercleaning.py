"""Hyper-cleaning of sentence pairs with wrong labels (Figures 2 and 3): seven solvers and plain training."""

import functools
from pathlib import Path
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
from unibio.paper.framework.study import SECONDS, Options, Progress

TITLE = "Hyper-cleaning of sentence pairs (Figures 2 and 3)"
PAPER = "With 10 % wrong labels and p = 3 or 4, UniBiO has the highest training and test accuracy of seven solvers."


def facts(options: Options) -> Row:
    """What the result depends on besides the options: the settings, and the content of the files that are read."""
    chosen = settings_of(options)
    resolved = {name: str(value) for name, value in chosen._asdict().items()}
    tuned = {"step sizes": str(cleaning_pieces.read_best(Path(chosen.tuned)))} if chosen.tuned else {}
    return {"resolved": resolved, "data": digest(chosen.data)} | tuned


def run(options: Options, progress: Progress) -> Tables:
    """Tuning on seed 100 by accuracy on the tuning samples, then all curves."""
    chosen = settings_of(options)
    for count in (*chosen.curve, chosen.validation):  # bad data is found before hours of work
        source = load(chosen.data, chosen.size._replace(validation=count), chosen.noise[0], 0).source
    common = {"data": chosen.data, "size": chosen.size}
    done = functools.partial(gather, options=options, progress=progress, data=digest(chosen.data))
    best = cleaning_pieces.read_best(Path(chosen.tuned)) if chosen.tuned else DEFAULT_STEP_SIZES
    tuning: Rows = []
    with helpers("hypercleaning", options):
        if chosen.tune and not chosen.tuned:
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
    """The curves of all runs, what follows from them, the learnt noise rates, and the clock in a table of its own."""
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
    """For each method: accuracies at the end, test accuracy where tuning accuracy was highest, AUROC; means over seeds.

    `ahead` is the mean of UniBiO (practical) minus this method in the test accuracy of the stopped model, over seeds
    that both have, `ahead_error` its standard error.
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
    """For each seed the test accuracy where the tuning accuracy was highest."""
    return {seed: max(run, key=lambda row: row["tuning"])["test"] for seed, run in seeds.items()}


def _error(values: list[float]) -> float:
    """Standard error of the mean; 0 for one value."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def draw(tables: Tables) -> "plot.Figure":
    """Tuned step sizes at the first noise, means over seeds: accuracy on training samples (noisy labels) and on test
    samples by epoch, and on test samples by seconds."""
    rows = tables["curves"]
    first = {"noise": rows[0]["noise"], "setting": "tuned", "clean_samples": rows[0]["clean_samples"]}
    rows, clock = (select(tables[name], **first) for name in ("curves", SECONDS))
    orders = distinct(rows, "p")
    made, axes = plot.panels(len(orders), 3, width=3.4, height=2.4)
    above, middle, below = (axes[k * len(orders) :] for k in range(3))
    styles = {"noisy": ":", "clean": "-.", "both": "--", "true": (0, (1, 3)), PRACTICAL: "--"}
    for i, p in enumerate(orders):
        for method in distinct(rows, "method"):
            epochs = distinct(select(rows, p=p, method=method), "epoch")
            lines = [select(rows, p=p, method=method, epoch=epoch) for epoch in epochs]
            times = [_mean(select(clock, p=p, method=method, epoch=epoch), "seconds") for epoch in epochs]
            style: Any = {
                "linestyle": styles.get(method, "-"),
                "color": "grey" if method in TRAINING else plot.solver_colour(method),
                "label": f"training, {method}" if method in TRAINING else method,
            }
            above[i].plot(epochs, [_mean(line, "train_noisy") for line in lines], **style)
            middle[i].plot(epochs, [_mean(line, "test") for line in lines], **style)
            below[i].plot(times[1:], [_mean(line, "test") for line in lines[1:]], **style)
        above[i].set(title=f"p = {p:g}", xlabel="epoch")
        middle[i].set(xlabel="epoch")
        below[i].set(xlabel="seconds (without compilation)", xscale="log")
    made.suptitle(f"{_source(tables)},\n{100 * first['noise']:g} % of the training labels wrong", fontsize=9)
    above[0].set(ylabel="training accuracy (noisy labels)")
    middle[0].set(ylabel="test accuracy")
    below[0].set(ylabel="test accuracy")
    axes[len(orders) - 1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return made


def _mean(rows: Rows, name: str) -> float:
    return float(np.mean(column(rows, name)))


def _source(tables: Tables) -> str:
    about = tables["data"][0]
    return f"{about['source']}, {about['train']:,} samples, hidden size {about['hidden']}"


def summary(tables: Tables) -> Rows:
    """All methods, at the end and stopped by the tuning pairs."""
    return tables["statistics"]


def verdict(tables: Tables) -> str:
    """Judges the claim that UniBiO is the most accurate of seven solvers, and compares them with plain training."""
    first = tables["statistics"][0]
    rows = select(tables["statistics"], setting="tuned", **{key: first[key] for key in ("noise", "p", "clean_samples")})
    by_name = {row["method"]: row for row in rows}
    best = max((by_name[name] for name in CONTESTANTS), key=lambda row: row["test_stopped"])
    plain = ", ".join(f"{by_name[kind]['test_stopped']:.3f} ({kind})" for kind in TRAINING)
    both = by_name["both"]
    return (
        f"On {_source(tables)}, test accuracy at noise {first['noise']:g}, p = {first['p']:g}, tuned, stopped early: "
        f"UniBiO with a weight for each sample {by_name['UniBiO']['test_stopped']:.3f}, the best of the seven solvers "
        f"{best['method']} ({best['test_stopped']:.3f}), UniBiO (practical) {by_name[PRACTICAL]['test_stopped']:.3f}; "
        f"plain training {plain}. The practical setting is {both['ahead']:+.3f} ± {both['ahead_error']:.3f} ahead of "
        f"training on both."
    )
