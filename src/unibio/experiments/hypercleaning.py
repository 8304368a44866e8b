"""Hyper-cleaning of sentence pairs with wrong labels (Figures 2 and 3): seven solvers and plain training."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unibio.core import checks
from unibio.experiments import plot
from unibio.experiments.cleaning_practical import learn_rate
from unibio.experiments.cleaning_race import SOLVERS, TRAINING, candidates, paper_steps, race, train
from unibio.experiments.cleaning_task import Size, load
from unibio.experiments.pieces import Piece, gather
from unibio.experiments.study import SECONDS, Options
from unibio.experiments.tables import Row, Rows, Tables, column, distinct, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Hyper-cleaning of sentence pairs (Figures 2 and 3)"
PAPER = "With 10 % wrong labels and p = 3 or 4, UniBiO has the highest training and test accuracy of seven solvers."
RATES = (1e-3, 3e-3)  # of Adam, for plain training
TUNING_SEED = 100  # of label noise and starts on which nothing is reported


# Step sizes (upper, lower) of solvers and Adam's rates found by `--set tune=1` on the embedded pairs.
KEPT: dict[str, tuple[float, ...]] = {
    "UniBiO": (8.0, 0.5), "StocBiO": (0.01, 0.5), "TTSA": (100.0, 0.5), "SABA": (100.0, 0.5), "MA-SOBA": (1.0, 0.5),
    "SUSTAIN": (0.05, 0.5), "VRBO": (1.0, 0.1), "noisy": (3e-3,), "clean": (3e-3,), "both": (3e-3,), "true": (3e-3,),
}  # fmt: skip


class Settings(NamedTuple):
    """What may be changed with --set NAME=VALUE."""

    data: str = "toy"  # or "digits", or a folder with snli/ and vectors/
    hidden: int = 24
    train: int = 2000
    validation: int = 500
    tuning: int = 500
    test: int = 1000
    epochs: int = 12
    tuning_epochs: int = 6
    p: tuple[float, ...] = (3.0, 4.0)
    noise: tuple[float, ...] = (0.4,)
    seeds: int = 3  # of the solvers at the first noise; at others one
    more_seeds: int = 5  # of plain training and UniBiO's practical setting, there
    curve: tuple[int, ...] = ()  # numbers of validation samples to compare
    tune: int = 0  # 0: the step sizes kept from a full run

    @property
    def size(self) -> Size:
        return Size(self.train, self.validation, self.tuning, self.test, self.hidden)


SNLI = Settings(
    "snli", hidden=128, train=10_000, validation=1000, tuning=2000, test=9824, epochs=6, tuning_epochs=2,
    noise=(0.3, 0.1), curve=(250, 500, 1000, 2000, 4000, 7842), tune=1,
)  # fmt: skip


def settings_of(options: Options) -> Settings:
    """The defaults; with --full those for SNLI, where it is found; changed as asked."""
    chosen = Settings()
    if options.full:
        folder = data_folder()
        chosen = (
            SNLI._replace(data=str(folder))
            if folder
            else chosen._replace(train=4000, epochs=24, noise=(0.4, 0.1), tune=1)
        )
    for name, text in options.settings:
        if name not in Settings._fields:
            raise ValueError(f"hypercleaning has no setting {name!r}; there are {', '.join(Settings._fields)}.")
        chosen = chosen._replace(**{name: _parsed(name, text, getattr(chosen, name))})
    for name in ("epochs", "tuning_epochs", "seeds", "more_seeds"):
        checks.whole_number(name, getattr(chosen, name), low=1)
    for p in chosen.p:
        checks.number("p", p, low=2.0)
    for rate in chosen.noise:
        if not 0 <= rate < 1:
            raise ValueError(f"a noise rate must be at least 0 and below 1; got {rate}.")
    return chosen


def data_folder() -> Path | None:
    """$UNIBIO_DATA_DIR or ./data, if it has a folder snli."""
    folder = Path(os.environ.get("UNIBIO_DATA_DIR") or "data")
    return folder if (folder / "snli").is_dir() else None


def _parsed(name: str, text: str, like: Any) -> Any:
    try:
        if isinstance(like, tuple):
            kind = int if name == "curve" else float
            return tuple(kind(part) for part in text.split(","))
        return type(like)(text)
    except ValueError:
        wanted = "numbers, separated by commas" if isinstance(like, tuple) else f"a {type(like).__name__}"
        raise ValueError(f"{name} must be {wanted}; got {text!r}.") from None


def race_piece(data: str, size: Any, noise: float, p: float, seed: int, solver: str, steps: Any, epochs: int) -> Rows:
    """One solver's curve."""
    return race(load(data, Size(*size), noise, seed), solver, tuple(steps), p, seed, epochs)


def train_piece(
    data: str, size: Any, noise: float, p: float, seed: int, kind: str, rate: float, epochs: int, wrong: float = 0.0
) -> Rows:
    """One curve of plain training, or of the last step of the practical setting."""
    return train(load(data, Size(*size), noise, seed), kind, rate, p, seed, epochs, wrong).rows


def rate_piece(data: str, size: Any, noise: float, p: float, seed: int, rate: float, epochs: int) -> Rows:
    """The first two steps of the practical setting."""
    return learn_rate(load(data, Size(*size), noise, seed), rate, p, seed, epochs)


def run(options: Options, say: Callable[[str], None]) -> Tables:
    """Tuning on seed 100 by accuracy on the tuning samples, then all curves."""
    chosen = settings_of(options)
    load(chosen.data, chosen.size, chosen.noise[0], 0)  # bad data is found before hours of work
    common = {"data": chosen.data, "size": chosen.size}

    def done(pieces: list[Piece]) -> dict[str, Rows]:
        return gather(pieces, Path(options.folder) if options.folder else None, options.jobs, say)

    tried = done(_tuning(chosen, common)) if chosen.tune else {}
    best = _best(tried) if tried else KEPT
    cases = [*_cases(chosen, common), *_curve_cases(chosen, common)]
    rates = done(_rates(chosen, cases, best))
    pieces = _solvers(chosen, common, best) + _training(chosen, cases, best, rates)
    found = done([piece for piece, _ in pieces])
    names = {piece.name: name for piece, name in pieces}
    before = {title.replace("rate", PRACTICAL, 1): rows[-1]["seconds"] for title, rows in rates.items()}
    rows = [names[title] | row for title, piece in found.items() for row in piece]
    clock = [
        {**names[title], "epoch": row["epoch"], "seconds": row["seconds"] + before.get(title, 0.0)}
        for title, piece in found.items() for row in piece
    ]  # fmt: skip
    curves = [{key: value for key, value in row.items() if key != "seconds"} for row in rows]
    learnt = [{"run": title.removeprefix("rate ")} | {key: value for key, value in row.items() if key != "seconds"}
              for title, piece in rates.items() for row in piece]  # fmt: skip
    tuning = [{"tried": name, "tuning": piece[-1]["tuning"], "finite": piece[-1]["finite"]}
              for name, piece in tried.items()]  # fmt: skip
    tables = {"curves": curves, "statistics": _statistics(chosen, curves), "rates": learnt, SECONDS: clock}
    return tables | ({"tuned": tuning} if tuning else {})


PRACTICAL = "UniBiO (practical)"
Case = tuple[str, Row]  # a name and where it runs: data, size, noise, p, seed


def _tuning(chosen: Settings, common: Row) -> list[Piece]:
    """Eight pairs of step sizes for every solver and all rates of Adam, at the first p and noise."""
    shared = common | {"noise": chosen.noise[0], "p": chosen.p[0], "seed": TUNING_SEED}
    pieces = [
        Piece(f"tune {name} {steps[0]:g} {steps[1]:g}", race_piece,
              shared | {"solver": name, "steps": steps, "epochs": chosen.tuning_epochs})
        for name in SOLVERS for steps in candidates(name)
    ]  # fmt: skip
    pieces += [
        Piece(f"tune {kind} {rate:g}", train_piece, shared | {"kind": kind, "rate": rate, "epochs": chosen.epochs})
        for kind in TRAINING for rate in RATES
    ]  # fmt: skip
    return pieces


def _best(tried: dict[str, Rows]) -> dict[str, tuple[float, ...]]:
    """The numbers with the highest accuracy on the tuning samples, of a solver at the end, of training at its best."""
    best: dict[str, tuple[float, tuple[float, ...]]] = {}
    for title, rows in tried.items():
        _, name, *numbers = title.split(" ")
        score = max(row["tuning"] for row in rows) if name in TRAINING else rows[-1]["tuning"] * rows[-1]["finite"]
        if name not in best or score > best[name][0]:
            best[name] = score, tuple(float(number) for number in numbers)
    return {name: numbers for name, (_, numbers) in best.items()}


def _cases(chosen: Settings, common: Row) -> list[Case]:
    """Every p and noise, with more seeds at the first noise."""
    return [
        (f"p={p:g} noise={noise:g} seed={seed}", common | {"noise": noise, "p": p, "seed": seed})
        for noise in chosen.noise for p in chosen.p
        for seed in range(chosen.more_seeds if noise == chosen.noise[0] else 1)
    ]  # fmt: skip


def _curve_cases(chosen: Settings, common: Row) -> list[Case]:
    """Other numbers of validation samples, at the first p and noise, two seeds."""
    where = common | {"noise": chosen.noise[0], "p": chosen.p[0]}
    return [
        (f"validation={count} seed={seed}", where | {"size": chosen.size._replace(validation=count), "seed": seed})
        for count in chosen.curve if count != chosen.validation for seed in range(2)
    ]  # fmt: skip


def _rates(chosen: Settings, cases: list[Case], best: Any) -> list[Piece]:
    more = {"rate": best["noisy"][0], "epochs": chosen.epochs}
    return [Piece(f"rate {title}", rate_piece, where | more) for title, where in cases]


def _training(chosen: Settings, cases: list[Case], best: Any, rates: dict[str, Rows]) -> list[tuple[Piece, Row]]:
    """Plain training, and the last step of the practical setting, in every case."""
    out = []
    for title, where in cases:
        names = {
            "p": where["p"],
            "noise": where["noise"],
            "seed": where["seed"],
            "validation": where["size"].validation,
        }
        wrong = rates[f"rate {title}"][-1]["rate"]
        runs = [(kind, kind, 0.0) for kind in TRAINING] + [(PRACTICAL, "both", wrong)]
        for method, kind, share in runs:
            more = {"kind": kind, "rate": best[kind][0], "epochs": chosen.epochs, "wrong": share}
            out.append(
                (Piece(f"{method} {title}", train_piece, where | more), {"method": method, "setting": "tuned"} | names)
            )
    return out


def _solvers(chosen: Settings, common: Row, best: Any) -> list[tuple[Piece, Row]]:
    """Every solver with tuned step sizes, for the first seed with the paper's too."""
    out = []
    for noise in chosen.noise:
        for p in chosen.p:
            for seed in range(chosen.seeds if noise == chosen.noise[0] else 1):
                where = common | {"noise": noise, "p": p, "seed": seed, "epochs": chosen.epochs}
                for name in SOLVERS:
                    for setting in ("tuned", "paper") if seed == 0 else ("tuned",):
                        steps = best[name] if setting == "tuned" else paper_steps(name)
                        title = f"{name} {setting} p={p:g} noise={noise:g} seed={seed}"
                        names = {"method": name, "setting": setting, "p": p, "noise": noise, "seed": seed}
                        piece = Piece(title, race_piece, where | {"solver": name, "steps": steps})
                        out.append((piece, names | {"validation": chosen.validation}))
    return out


def _statistics(chosen: Settings, curves: Rows) -> Rows:
    """For each method: accuracies at the end, test accuracy where tuning accuracy was highest, AUROC; means over seeds.

    `ahead` is the mean of UniBiO (practical) minus this method in the test accuracy of the stopped model, over seeds
    that both have, `ahead_error` its standard error.
    """
    keys = ("noise", "p", "validation", "setting", "method")
    ends: dict[tuple[Any, ...], dict[int, Row]] = {}
    for row in curves:
        line = ends.setdefault(tuple(row[key] for key in keys), {})
        seen = line.setdefault(row["seed"], {"stopped": row, "end": row})
        seen["end"] = row
        seen["stopped"] = row if row["tuning"] > seen["stopped"]["tuning"] else seen["stopped"]
    rows: Rows = []
    for group, seeds in ends.items():
        names = dict(zip(keys, group, strict=True))
        wanted = ("train_noisy", "train_true", "test", "auroc_weights", "auroc_loss", "auroc_mean_loss")
        numbers = {key: float(np.mean([run["end"][key] for run in seeds.values()])) for key in wanted}
        stopped = {seed: run["stopped"]["test"] for seed, run in seeds.items()}
        ours = ends[(*group[:3], "tuned", PRACTICAL)]
        gaps = [ours[seed]["stopped"]["test"] - value for seed, value in stopped.items() if seed in ours]
        rows.append(
            names | {"seeds": len(seeds)} | numbers
            | {"test_stopped": float(np.mean(list(stopped.values()))), "stopped_error": _error(list(stopped.values())),
               "ahead": float(np.mean(gaps)), "ahead_error": _error(gaps)}
        )  # fmt: skip
    return rows


def _error(values: list[float]) -> float:
    """Standard error of the mean; 0 for one value."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def draw(tables: Tables) -> "Figure":
    """Tuned step sizes at the highest noise: accuracy on training pairs (noisy labels) and on test pairs, by epoch."""
    return plot.with_style(_draw, tables)


def _draw(tables: Tables) -> "Figure":
    rows = tables["curves"]
    size = rows[0]["validation"]
    rows = select(rows, noise=rows[0]["noise"], setting="tuned", validation=size)
    orders = distinct(rows, "p")
    made, axes = plot.panels(len(orders), 2, width=3.4, height=2.6, sharex=True)
    styles = {"noisy": ":", "clean": "-.", "both": "--", "true": (0, (1, 3)), PRACTICAL: "--"}
    for i, p in enumerate(orders):
        for method in distinct(rows, "method"):
            lines = select(rows, p=p, method=method)
            epochs = distinct(lines, "epoch")
            colour = "grey" if method in TRAINING else plot.solver_colour(method)
            for axis, quantity in ((axes[i], "train_noisy"), (axes[len(orders) + i], "test")):
                means = [float(np.mean(column(select(lines, epoch=epoch), quantity))) for epoch in epochs]
                label = f"training, {method}" if method in TRAINING else method
                axis.plot(epochs, means, linestyle=styles.get(method, "-"), color=colour, label=label)
        axes[i].set(title=f"p = {p:g}")
        axes[len(orders) + i].set(xlabel="epoch")
    axes[0].set(ylabel="training accuracy (noisy labels)")
    axes[len(orders)].set(ylabel="test accuracy")
    axes[len(orders) - 1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return made


def summary(tables: Tables) -> Rows:
    """All methods, at the end and stopped by the tuning pairs."""
    return tables["statistics"]


def verdict(tables: Tables) -> str:
    """In one sentence."""
    first = tables["statistics"][0]
    rows = select(tables["statistics"], setting="tuned", **{key: first[key] for key in ("noise", "p", "validation")})
    by_name = {row["method"]: row for row in rows}
    best = max((by_name[name] for name in SOLVERS), key=lambda row: row["test_stopped"])
    plain = ", ".join(f"{by_name[kind]['test_stopped']:.3f} ({kind})" for kind in TRAINING)
    both = by_name["both"]
    return (
        f"Test accuracy at noise {first['noise']:g}, p = {first['p']:g}, tuned and stopped early: UniBiO with a weight "
        f"for each sample {by_name['UniBiO']['test_stopped']:.3f}, the best of the seven {best['method']} "
        f"({best['test_stopped']:.3f}), UniBiO (practical) {by_name[PRACTICAL]['test_stopped']:.3f}; plain training "
        f"{plain}. "
        f"The practical setting is {both['ahead']:+.3f} ± {both['ahead_error']:.3f} ahead of training on both."
    )
