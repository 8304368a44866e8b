"""How far one method is ahead of another, and how sure that is.

A setting is a data set, a kind of noise, its rate and a number of trusted rows. Its cells differ in their seeds alone:
the split, the noise, the trusted rows. Every mean is over the settings of the mean over the seeds of each.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from noisy_labels.cells import Measured
from noisy_labels.methods import OURS

Array = np.ndarray
Setting = tuple[str, str, float, int]
BySeed = dict[Setting, dict[int, float]]  # a number for each setting and seed


class Lead(NamedTuple):
    """Mean of ours − theirs, in points, and two standard errors.

    Arguments:
        over_settings: as if the settings were drawn at random from many like them.
        over_seeds: the settings are what they are, and only the seeds are drawn. Cells with the same data, noise and
            seed share their split and noise, so they count as one draw. nan if a setting has one seed.
    """

    mean: float
    over_settings: float
    over_seeds: float

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ± {shown(self.over_settings)} ({shown(self.over_seeds)})"

    @property
    def behind(self) -> bool:
        """Whether theirs is ahead by more than one standard error over seeds."""
        return self.mean < -self.over_seeds


def values(cells: Iterable[Measured], method: str, column: str) -> BySeed:
    """The numbers of one method, in % (seconds as they are)."""
    found: BySeed = defaultdict(dict)
    for cell in cells:
        value = cell["methods"].get(method, {}).get(column)
        if value is not None:
            unit = 1 if column == "seconds" else 100
            found[setting_of(cell)][cell["seed"]] = unit * value
    return dict(found)


def differences(cells: list[Measured], rival: str, column: str) -> BySeed:
    """Ours − theirs, wherever both have been measured."""
    ours, theirs = (values(cells, method, column) for method in (OURS, rival))
    return {
        setting: {seed: ours[setting][seed] - value for seed, value in by_seed.items()}
        for setting, by_seed in theirs.items()
        if setting in ours
    }


def repeated(cells: list[Measured]) -> list[Measured]:
    """The cells of the settings with two seeds or more: the others have no standard error over seeds."""
    many = Counter(setting_of(cell) for cell in cells)
    return [cell for cell in cells if many[setting_of(cell)] > 1]


def setting_of(cell: Measured) -> Setting:
    return cell["data"], cell["kind"], cell["rate"], cell["trusted"]


def means(numbers: BySeed) -> Array:
    """The mean over the seeds of each setting."""
    return np.array([np.mean(list(by_seed.values())) for by_seed in numbers.values()])


def lead(numbers: BySeed) -> Lead | None:
    """The mean of differences and its standard errors; none without differences."""
    if not numbers:
        return None
    centres = means(numbers)
    pulls: dict[tuple[Any, ...], float] = defaultdict(float)
    for (setting, by_seed), centre in zip(numbers.items(), centres, strict=True):
        many = len(by_seed)
        for seed, value in by_seed.items():  # the squares of these add up to the variance of the setting's mean
            share = (value - centre) / np.sqrt(many * (many - 1)) if many > 1 else np.nan
            pulls[(*setting[:3], seed)] += share
    count = len(centres)
    over_settings = centres.std(ddof=1) / np.sqrt(count) if count > 1 else np.nan
    over_seeds = np.sqrt(sum(pull**2 for pull in pulls.values())) / count
    return Lead(float(centres.mean()), float(over_settings), float(over_seeds))


def ahead(cells: list[Measured], rival: str, column: str) -> Lead | None:
    """Our lead over a rival."""
    return lead(differences(cells, rival, column))


def best_or_tied(cells: list[Measured], column: str, rivals: Iterable[str]) -> dict[Setting, bool]:
    """For each setting with two seeds or more, whether no rival is ahead by more than one standard error."""
    found: dict[Setting, bool] = {}
    for rival in rivals:
        for setting, by_seed in differences(cells, rival, column).items():
            if len(by_seed) > 1:
                one: Any = lead({setting: by_seed})
                found[setting] = found.get(setting, True) and not one.behind
    return found


def shown(value: float, digits: int = 2) -> str:
    """A number that may be unknown."""
    return "?" if np.isnan(value) else f"{value:.{digits}f}"
