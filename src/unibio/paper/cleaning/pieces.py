"""Lists the pieces of the study of hyper-cleaning, which are computed and saved one by one.

There is a piece for each setting that is tried in tuning, for each noise rate that the practical setting learns, and
for each curve.
"""

from collections.abc import Callable
from typing import Any

from unibio.files.tables import Row, Rows
from unibio.paper.cleaning.practical import learn_rate
from unibio.paper.cleaning.race import CONTESTANTS, TRAINING, candidates, race, train
from unibio.paper.cleaning.settings import Settings
from unibio.paper.cleaning.task import Size, load
from unibio.paper.framework.pieces import Piece
from unibio.solvers.step_sizes import step_sizes

RATES = (1e-3, 3e-3)  # of Adam, for plain training
TUNING_SEED = 100  # of the label noise and the start in tuning; no reported curve uses it
PRACTICAL = "UniBiO (practical)"
Case = tuple[str, Row]  # a name, and the data, size, noise, p and seed
Curve = tuple[Piece, Row]  # a piece, and the columns that name its rows in a table


def _on_task(fn: Callable[..., Rows]) -> Callable[..., Rows]:
    """fn(task, seed=…, …) as a function of numbers and texts, which loads the task and passes it on."""

    def piece(data: str, size: Any, noise: float, seed: int, **others: Any) -> Rows:
        return fn(load(data, Size(*size), noise, seed), seed=seed, **others)

    return piece


race_piece = _on_task(race)  # the curve of a solver
# The curve of plain training, or of the last step of the practical setting.
train_piece = _on_task(lambda task, **others: train(task, **others)[0])
rate_piece = _on_task(learn_rate)  # the first two steps of the practical setting


def tuning(chosen: Settings, common: Row) -> list[Piece]:
    """A piece for each of eight pairs of step sizes of every solver and for each of Adam's rates, at the first p and
    noise."""
    shared = common | {"noise": chosen.noise[0], "p": chosen.p[0], "seed": TUNING_SEED + chosen.seed}
    pieces = [
        Piece(f"tune {name} {steps[0]:g} {steps[1]:g}", race_piece,
              shared | {"name": name, "steps": steps, "epochs": chosen.tuning_epochs})
        for name in CONTESTANTS for steps in candidates(name)
    ]  # fmt: skip
    pieces += [
        Piece(f"tune {kind} {rate:g}", train_piece, shared | {"kind": kind, "rate": rate, "epochs": chosen.epochs})
        for kind in TRAINING for rate in RATES
    ]  # fmt: skip
    return pieces


def scores(tried: dict[str, Rows]) -> Rows:
    """The accuracy on the tuning samples: of a solver at the end (0 if it is not finite), of plain training at its
    best epoch."""
    scored = []
    for title, rows in tried.items():
        at_best = title.split(" ")[1] in TRAINING
        score = max(row["tuning"] for row in rows) if at_best else rows[-1]["tuning"] * rows[-1]["finite"]
        scored.append({"tried": title, "tuning": score})
    return scored


def best(scores: Rows) -> dict[str, tuple[float, ...]]:
    """For every method the step sizes with the highest score."""
    highest: dict[str, tuple[float, tuple[float, ...]]] = {}
    for row in scores:
        _, name, *numbers = row["tried"].split(" ")
        if name not in highest or row["tuning"] > highest[name][0]:
            highest[name] = row["tuning"], tuple(float(number) for number in numbers)
    return {name: numbers for name, (_, numbers) in highest.items()}


def cases(chosen: Settings, common: Row, seeds: int) -> list[Case]:
    """A case for every p and noise; `seeds` of each at the first noise rate, one at the others."""
    return [
        (f"p={p:g} noise={noise:g} seed={seed}", common | {"noise": noise, "p": p, "seed": seed})
        for noise in chosen.noise for p in chosen.p
        for seed in range(chosen.seed, chosen.seed + (seeds if noise == chosen.noise[0] else 1))
    ]  # fmt: skip


def curve_cases(chosen: Settings, common: Row) -> list[Case]:
    """A case for every other number of validation samples and each of at most two seeds, at the first p and noise."""
    where = common | {"noise": chosen.noise[0], "p": chosen.p[0]}
    return [
        (f"validation={count} seed={seed}", where | {"size": chosen.size._replace(validation=count), "seed": seed})
        for count in chosen.curve if count != chosen.validation
        for seed in range(chosen.seed, chosen.seed + min(2, chosen.more_seeds))
    ]  # fmt: skip


def rates(chosen: Settings, cases: list[Case], best: Any) -> list[Piece]:
    """A piece that learns the noise rate of the practical setting, for every case."""
    more = {"rate": best["noisy"][0], "epochs": chosen.epochs}
    return [Piece(f"rate {title}", rate_piece, where | more) for title, where in cases]


def training(chosen: Settings, cases: list[Case], best: Any, rates: dict[str, Rows]) -> list[Curve]:
    """The curves of plain training and of the last step of the practical setting, for every case."""
    curves = []
    for title, where in cases:
        wrong = rates[f"rate {title}"][-1]["rate"]
        for method, kind, share in (*((kind, kind, 0.0) for kind in TRAINING), (PRACTICAL, "both", wrong)):
            more = {"kind": kind, "rate": best[kind][0], "epochs": chosen.epochs, "wrong": share}
            curves.append(_curve(Piece(f"{method} {title}", train_piece, where | more), method, "tuned"))
    return curves


def solvers(chosen: Settings, cases: list[Case], best: Any) -> list[Curve]:
    """The curve of every solver with tuned step sizes, for every case; for the first seed also with the paper's."""
    curves = []
    for title, where in cases:
        for name in CONTESTANTS:
            for setting in ("tuned", "paper") if where["seed"] == chosen.seed else ("tuned",):
                steps = best[name] if setting == "tuned" else step_sizes(CONTESTANTS[name].solver)
                more = {"name": name, "steps": steps, "epochs": chosen.epochs}
                curves.append(_curve(Piece(f"{name} {setting} {title}", race_piece, where | more), name, setting))
    return curves


def _curve(piece: Piece, method: str, setting: str) -> Curve:
    where = piece.arguments
    names = {"method": method, "setting": setting} | {key: where[key] for key in ("p", "noise", "seed")}
    return piece, names | {"clean_samples": where["size"].validation}
