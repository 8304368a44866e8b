"""Tables of the comparison on noisy labels."""

from collections.abc import Iterable

import numpy as np

from noisy_labels.cells import Measured
from noisy_labels.data import DESIGN, FURTHER, HELD_OUT, KINDS
from noisy_labels.methods import CEILING, METHODS, OURS
from noisy_labels.statistics import (
    Lead,
    Setting,
    ahead,
    best_or_tied,
    differences,
    lead,
    means,
    repeated,
    shown,
    values,
)
from unibio.files.tables import select

RIVALS = [name for name in METHODS if name not in (OURS, CEILING)]
NOISY_AND_TRUSTED = "noisy + trusted"


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def counted(cells: list[Measured]) -> str:
    """How many settings and seeds a table stands on."""
    seeds = [len(by_seed) for by_seed in values(cells, OURS, "accuracy").values()]
    low, high = min(seeds), max(seeds)
    many = f"{low} to {high} seeds" if low < high else f"{low} seed{'s' * (low > 1)}"
    return f"{sum(seeds)} cells: {len(seeds)} setting{'s' * (len(seeds) > 1)} with {many} each."


def comparison(title: str, cells: list[Measured], methods: Iterable[str] = METHODS) -> str:
    """Every method: its mean numbers, and how far ours is ahead."""
    if not cells:
        return ""
    rows = []
    for method in methods:
        own = {column: means(values(cells, method, column)) for column in ("accuracy", "AUROC", "AP", "seconds")}
        if not len(own["accuracy"]):
            continue
        text = {column: f"{numbers.mean():.2f}" if len(numbers) else "" for column, numbers in own.items()}
        leads = [str(ahead(cells, method, name) or "") if method != OURS else "" for name in ("accuracy", "AUROC")]
        rows.append([method, text["accuracy"], leads[0], text["AUROC"], leads[1], text["AP"], text["seconds"]])
    header = ["method", "accuracy", "ours ahead by", "AUROC", "ours ahead by", "AP", "seconds"]
    return f"### {title}\n\n{counted(cells)}\n\n{table(header, rows)}"


def by_kind(title: str, cells: list[Measured]) -> str:
    """Accuracy / AUROC of every method for each kind of noise."""
    if not cells:
        return ""
    rows = []
    for method in METHODS:
        row = [method]
        for kind in KINDS:
            own = [means(values(select(cells, kind=kind), method, column)) for column in ("accuracy", "AUROC")]
            row.append(" / ".join(f"{numbers.mean():.1f}" for numbers in own if len(numbers)))
        if any(row[1:]):
            rows.append(row)
    return f"### {title}\n\nAccuracy / AUROC.\n\n{table(['method', *KINDS], rows)}"


def by_data(title: str, cells: list[Measured], rival: str, columns: tuple[str, ...]) -> str:
    """Our lead over one rival on every data set, in the settings with two seeds or more."""
    rows = []
    for name in (*HELD_OUT, *DESIGN, *FURTHER):
        mine = repeated(select(cells, data=name))
        if mine:
            rows.append([name, counted(mine)[:-1], *(str(ahead(mine, rival, column) or "") for column in columns)])
    if not rows:
        return ""
    header = ["data set", "measured", *(f"{name}: ours ahead by" for name in columns)]
    return f"### {title}\n\nSettings with two seeds or more.\n\n{table(header, rows)}"


def closest(cells: list[Measured], column: str) -> tuple[str, Lead]:
    """The rival with the highest mean, and our lead over it."""
    found = {rival: ahead(cells, rival, column) for rival in RIVALS}
    known = {rival: one for rival, one in found.items() if one is not None}
    best = min(known, key=lambda rival: known[rival].mean)
    return best, known[best]


def least_sure(cells: list[Measured], column: str) -> str:
    """The least lead over any rival in standard errors over settings (over seeds)."""
    found = [one for rival in RIVALS if (one := ahead(cells, rival, column))]
    ratios = [(one.mean / one.over_settings, one.mean / one.over_seeds) for one in found]
    return "{} ({})".format(*(shown(float(value), 1) for value in np.min(ratios, axis=0)))


def behind_on(cells: list[Measured], rival: str, column: str) -> str:
    """The data sets on which the rival is ahead by more than one standard error over seeds."""
    names = list(dict.fromkeys(cell["data"] for cell in repeated(cells)))
    leads = {name: ahead(repeated(select(cells, data=name)), rival, column) for name in names}
    worse = [f"{name} ({one})" for name, one in leads.items() if one and one.behind]
    return f"{', '.join(worse) or 'none'}, of {len(names)}"


def in_short(cells: list[Measured]) -> str:
    """The questions that the comparison was made for, with their answers."""
    rows = answers_with_trusted_rows(held_out(cells))
    alone = differences(held_out(cells, trusted=False), "cleanlab", "AUROC")
    if alone:
        share = 100 * np.mean(means(alone) > 0)
        answer = f"in {share:.0f} % of {len(alone)} settings; mean lead {lead(alone)}"
        rows.append(["without trusted rows: ahead of cleanlab in AUROC", answer])
    answer = behind_on(select(cells, rate=0.0), CEILING, "accuracy")
    rows.append(["0 % noise: data sets on which plain training is more accurate", answer])
    for column in ("accuracy", "AUROC"):
        answer = behind_on([cell for cell in cells if cell["trusted"]], NOISY_AND_TRUSTED, column)
        question = f"any noise: data sets on which plain training on noisy and trusted labels is better in {column}"
        rows.append([question, answer])
    counts = [astray(select(cells, kind="feature"), trusted) for trusted in (False, True)]
    answer = "without trusted rows {}, with them {}".format(*counts)
    rows.append(["feature noise: cells whose AUROC is ten points or more below that of plain training", answer])
    return "### In short\n\n" + table(["question", "answer"], rows)


def astray(cells: list[Measured], trusted: bool) -> str:
    """How many cells have an AUROC far below that of the base model's own probabilities."""
    some = [cell for cell in cells if bool(cell["trusted"]) == trusted]
    gaps = [gap for by_seed in differences(some, "noisy labels", "AUROC").values() for gap in by_seed.values()]
    return f"{sum(gap <= -10 for gap in gaps)} of {len(gaps)}"


def answers_with_trusted_rows(cells: list[Measured]) -> list[list[str]]:
    """How many seeds there are, how far ours is ahead, and how often no rival is better."""
    if not cells:
        return []
    seeds = [len(by_seed) for by_seed in values(cells, OURS, "accuracy").values()]
    complete = sum(count >= 10 for count in seeds)
    rows = [["settings with ten seeds", f"{complete} of {len(seeds)}; the fewest seeds are {min(seeds)}"]]
    for column in ("accuracy", "AUROC"):
        rival, one = closest(cells, column)
        rows.append([f"{column}: lead over the best rival", f"{one}, over {rival}"])
        rows.append([f"{column}: least lead over any rival, in standard errors", least_sure(cells, column)])
    tied = [best_or_tied(cells, column, RIVALS) for column in ("accuracy", "AUROC")]
    both = {setting: best and tied[1][setting] for setting, best in tied[0].items()}
    shares = [100 * float(np.mean(list(one.values()))) for one in (*tied, both)]
    answer = "accuracy {:.0f} %, AUROC {:.0f} %, both {:.0f} %".format(*shares) + f", of {len(both)}"
    return [*rows, ["best or tied, share of the settings", answer]]


def summary(cells: list[Measured]) -> str:
    """The tables of the docs page."""
    parts = [in_short(cells)]
    for name, sets in {"held-out sets": HELD_OUT, "design sets": DESIGN, **{one: (one,) for one in FURTHER}}.items():
        helped, alone = ([cell for cell in noisy(cells, some) if cell["data"] in sets] for some in (True, False))
        parts.append(comparison(f"{name}: 20 and 40 % noise, with trusted rows", helped))
        by_noise = "the same by kind of noise"
        parts.append(by_kind(f"{name}, with trusted rows: {by_noise}", helped if sets == HELD_OUT else []))
        parts.append(comparison(f"{name}: 20 and 40 % noise, without trusted rows", alone))
        parts.append(by_kind(f"{name}, without trusted rows: {by_noise}", alone if sets == HELD_OUT else []))
    for rate in (0.1, 0.0):
        for some, words in ((True, "with"), (False, "without")):
            mine = [cell for cell in select(cells, rate=rate) if bool(cell["trusted"]) == some]
            parts.append(comparison(f"all sets: {100 * rate:.0f} % noise, {words} trusted rows", mine))
    clean = select(cells, rate=0.0)
    parts.append(by_data("0 % noise: against plain training on all labels", clean, CEILING, ("accuracy",)))
    title = "any noise, with trusted rows: against plain training on all labels"
    trusted = [cell for cell in cells if cell["trusted"]]
    parts.append(by_data(title, trusted, NOISY_AND_TRUSTED, ("accuracy", "AUROC")))
    return "\n\n".join(part for part in parts if part)


def losses(cells: list[Measured]) -> str:
    """The settings in which a rival is ahead by two standard errors."""
    rows = []
    for column in ("accuracy", "AUROC"):
        worst: dict[Setting, tuple[float, float, str]] = {}
        for rival in RIVALS:
            for setting, by_seed in differences(cells, rival, column).items():
                one = lead({setting: by_seed})
                if one and len(by_seed) > 2 and one.mean < -2 * one.over_seeds:
                    worst[setting] = min(worst.get(setting, (0, 0, "")), (one.mean, one.over_seeds, rival))
        rows += [
            [*map(str, setting), column, rival, f"{-mean:.2f} ± {error:.2f}"]
            for setting, (mean, error, rival) in worst.items()
        ]
    header = ["data", "noise", "rate", "trusted", "column", "rival", "ahead by"]
    return f"### Settings with a rival ahead by more than two standard errors\n\n{table(header, rows)}"


def held_out(cells: list[Measured], trusted: bool = True) -> list[Measured]:
    """Held-out sets with 20 and 40 % noise, with or without trusted rows: what the figure and the first tables show."""
    return [cell for cell in noisy(cells, trusted) if cell["data"] in HELD_OUT]


def noisy(cells: list[Measured], trusted: bool) -> list[Measured]:
    return [cell for cell in cells if cell["rate"] >= 0.2 and bool(cell["trusted"]) == trusted]


def ablation(cells: list[Measured], methods: list[str]) -> str:
    """The recipe without one of its parts."""
    groups = {"all": cells, **{kind: select(cells, kind=kind) for kind in KINDS}}
    return "\n\n".join(comparison(name, some, methods) for name, some in groups.items() if some)


def everything(cells: list[Measured]) -> str:
    """The tables of the page, and one for each data set."""
    parts = [summary(cells)]
    for name in (*HELD_OUT, *DESIGN, *FURTHER):
        mine = noisy(select(cells, data=name), trusted=True)
        parts.append(comparison(f"{name}: 20 and 40 % noise, with trusted rows", mine))
    return "\n\n".join([part for part in parts if part] + [losses(cells)])
