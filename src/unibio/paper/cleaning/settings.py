"""The settings of the study of hyper-cleaning, which `unibio reproduce hypercleaning --set NAME=VALUE` changes."""

import os
from pathlib import Path
from typing import Any, NamedTuple

from unibio.core import checks
from unibio.paper.cleaning.task import Size
from unibio.paper.framework.study import Options

# Step sizes (upper, lower) of the solvers, and Adam's rates for plain training, as `unibio reproduce hypercleaning
# --set tune=1` found them on the embedded pairs.
DEFAULT_STEP_SIZES: dict[str, tuple[float, ...]] = {
    "UniBiO": (0.05, 0.5), "StocBiO": (10.0, 0.5), "TTSA": (100.0, 0.5), "SABA": (0.05, 0.5), "MA-SOBA": (100.0, 0.5),
    "SUSTAIN": (10.0, 0.5), "VRBO": (10.0, 0.5), "noisy": (3e-3,), "clean": (3e-3,), "both": (3e-3,), "true": (3e-3,),
}  # fmt: skip


class Settings(NamedTuple):
    """The settings with their defaults. Counts are numbers of samples where nothing else is said."""

    data: str = "toy"  # or "digits", or a folder with snli/ and vectors/
    hidden: int = 24  # units of a layer
    batch: int = 32
    train: int = 2000  # samples with noisy labels
    validation: int = 500  # clean samples, seen by the upper level
    tuning: int = 500  # clean samples, to choose step sizes and the epoch at which to stop
    test: int = 1000
    epochs: int = 6
    tuning_epochs: int = 6  # of a solver, for each pair of step sizes that is tried
    p: tuple[float, ...] = (3.0, 4.0)
    noise: tuple[float, ...] = (0.4,)  # shares of wrong labels
    seeds: int = 1  # of the solvers at the first noise rate; at the others they have one
    more_seeds: int = 3  # of plain training and UniBiO's practical setting at the first noise rate
    curve: tuple[int, ...] = ()  # other numbers of validation samples to compare
    tune: int = 0  # 1: tune the step sizes; 0: take the defaults above
    seed: int = 0  # the first one, from --seed

    @property
    def size(self) -> Size:
        return Size(self.train, self.validation, self.tuning, self.test, self.hidden, self.batch)


SNLI = Settings(
    "snli", hidden=128, batch=128, train=10_000, validation=1000, tuning=2000, test=9824, epochs=6, tuning_epochs=2,
    noise=(0.3, 0.1), seeds=3, more_seeds=5, curve=(250, 500, 1000, 2000, 4000, 7842), tune=1,
)  # fmt: skip


def settings_of(options: Options) -> Settings:
    """The settings for these options.

    With --full they are those for SNLI, if $UNIBIO_DATA_DIR (or ./data) has a folder snli; else the defaults, larger
    with --full. Then the changes of --set are made.
    """
    chosen = Settings()
    folder = Path(os.environ.get("UNIBIO_DATA_DIR") or "data")
    if options.full and (folder / "snli").is_dir():
        chosen = SNLI._replace(data=str(folder))
    elif options.full:
        chosen = chosen._replace(train=4000, epochs=24, noise=(0.4, 0.1), tune=1)
    for name, text in options.settings:
        checks.nearest(name, Settings._fields[:-1], "setting")
        chosen = chosen._replace(**{name: _parsed(name, text, getattr(chosen, name))})
    chosen = chosen._replace(
        seeds=min(chosen.seeds, options.seeds), more_seeds=min(chosen.more_seeds, options.seeds), seed=options.seed
    )
    _check(chosen)
    return chosen


def _check(chosen: Settings) -> None:
    """Refuses numbers that make no sense."""
    for name in ("epochs", "tuning_epochs", "seeds", "more_seeds"):
        checks.whole_number(name, getattr(chosen, name), low=1)
    for name in ("train", "validation"):  # the first is cut into halves, VRBO takes two batches of the second
        checks.whole_number(name, getattr(chosen, name), low=2)
    for name in ("p", "noise"):
        texts = [f"{value:g}" for value in getattr(chosen, name)]
        if len(texts) != len(set(texts)):
            raise ValueError(f"{name}={','.join(texts)}: a value is there twice, or two agree to six digits.")
    for p in chosen.p:
        checks.number("p", p, low=2.0)
    for rate in chosen.noise:
        if not 0 <= rate < 1:
            raise ValueError(f"a noise rate must be at least 0 and below 1; got {rate}.")


def _parsed(name: str, text: str, like: Any) -> Any:
    try:
        if isinstance(like, tuple):
            kind = int if name == "curve" else float
            return tuple(kind(part) for part in text.split(","))
        return type(like)(text)
    except ValueError:
        wanted = "numbers, separated by commas" if isinstance(like, tuple) else f"a {type(like).__name__}"
        raise ValueError(f"{name} must be {wanted}; got {text!r}.") from None
