"""What an experiment is, and the list of them all. Each is a module with the names of `Experiment`."""

import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from unibio.experiments.tables import Row, Rows, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPERIMENTS = {
    "noise": "noise_study",
    "noise-placement": "noise_placement",
    "one-step-size": "one_step_size",
    "rates": "rates",
    "comparison": "comparison",
    "comparison-tuned": "comparison_tuned",
    "epoch-sgd": "epoch_sgd",
    "complexity": "complexity",
    "lp-cleaning": "lp_cleaning",
    "schedules": "schedules",
}
SECONDS = "seconds"  # the one table that may differ between two runs


class Options(NamedTuple):
    """Seeds per curve, the first seed, and whether to run at full size."""

    seeds: int = 64
    seed: int = 0
    full: bool = False


class Experiment(Protocol):
    """A module of this package. The first line of its docstring is shown in lists."""

    TITLE: str
    PAPER: str  # what the paper claims

    def run(self, options: Options, say: Callable[[str], None]) -> Tables: ...
    def draw(self, tables: Tables) -> "Figure": ...
    def summary(self, tables: Tables) -> Rows: ...
    def verdict(self, tables: Tables) -> str: ...


def load(name: str) -> Experiment:
    """The experiment of that name."""
    module: Any = importlib.import_module(f"unibio.experiments.{EXPERIMENTS[name]}")
    return module


def set_up_jax() -> None:
    """float64, and compiled programs kept in the user's cache folder; where that cannot be written, without."""
    config: Any = jax.config
    config.update("jax_enable_x64", True)
    if config.jax_compilation_cache_dir:  # the user has chosen one
        return
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unibio" / "jax"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        return
    if os.access(folder, os.W_OK | os.X_OK):
        config.update("jax_compilation_cache_dir", str(folder))
        config.update("jax_persistent_cache_min_compile_time_secs", 0)
        config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def over(run: Callable[..., Any], cases: Sequence[tuple[float, ...]], options: Options) -> Any:
    """run(*case, key) for every case and every seed in one program; leaves (cases, seeds, …).

    A seed has the same random numbers in every case: cheaper, and curves differ by their settings alone.
    """
    numbers = [jnp.asarray(column) for column in zip(*cases, strict=True)]
    keys = jax.random.split(jax.random.key(options.seed), options.seeds)
    inner = (None,) * len(numbers) + (0,)
    outer = (0,) * len(numbers) + (None,)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(jax.vmap(run, inner), outer))(*numbers, keys))


def sine_gradient(state: Any) -> jax.Array:
    """‖∇Φ(x)‖ of Example 3, Φ = sin(sin x)."""
    return jnp.abs(jnp.cos(state.x) * jnp.cos(jnp.sin(state.x)))


def running_slope(values: np.ndarray) -> float:
    """Slope of the running mean on log–log axes, for t > 10."""
    t = np.arange(1, len(values) + 1)
    mean = np.cumsum(values) / t
    return float(np.polyfit(np.log(t[10:]), np.log(mean[10:]), 1)[0])


def statistics(values: np.ndarray, eta: float) -> dict[str, float]:
    """Of curves (seeds, T), medians over seeds: mean, mean of the last 50, slope, first t below 2η (T if none)."""
    slopes = [running_slope(row) for row in values]
    below = values < 2 * eta
    hits = np.where(below.any(axis=1), below.argmax(axis=1), values.shape[1])
    return {
        "mean": float(np.median(values.mean(axis=1))),
        "last_50": float(np.median(values[:, -50:].mean(axis=1))),
        "slope": float(np.median(slopes)),
        "first_hit": float(np.median(hits)),
    }


def bands(values: np.ndarray, names: Row) -> Rows:
    """A row for each t: median, 10 % and 90 % quantile over seeds of curves (seeds, T)."""
    low, median, high = np.quantile(values, [0.1, 0.5, 0.9], axis=0)
    return [
        names | {"t": t, "median": float(median[t]), "low": float(low[t]), "high": float(high[t])}
        for t in range(values.shape[1])
    ]
