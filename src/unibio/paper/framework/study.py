"""What an experiment is, and the list of them all. Each is a module with the names of `Experiment`."""

import concurrent.futures as futures
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core.noise import Noise
from unibio.core.protocols import BilevelSolver, State
from unibio.files.tables import Row, Rows, Tables
from unibio.problems import example3
from unibio.run.programs import Log
from unibio.run.trajectory import trajectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPERIMENTS = {
    "noise": "studies.noise_study",
    "noise-placement": "studies.noise_placement",
    "one-step-size": "studies.one_step_size",
    "rates": "studies.rates",
    "comparison": "studies.comparison",
    "comparison-tuned": "studies.comparison_tuned",
    "epoch-sgd": "studies.epoch_sgd",
    "complexity": "studies.complexity",
    "lp-cleaning": "studies.lp_cleaning",
    "schedules": "studies.schedules",
    "hypercleaning": "cleaning.hypercleaning",
}
BY_NAME = ("hypercleaning",)  # run if named, or with --full
SECONDS = "seconds"  # the one table that may differ between two runs


class Options(NamedTuple):
    """Seeds per curve, the first seed, whether to run at full size, and settings of one experiment as (name, text).

    The last three change nothing in the result: where an experiment may keep pieces of it, how many processes work on
    it, and which of them this is.
    """

    seeds: int = 64
    seed: int = 0
    full: bool = False
    settings: tuple[tuple[str, str], ...] = ()
    folder: str = ""
    jobs: int = 1
    turn: int = 0

    def facts(self) -> Row:
        """What a result depends on."""
        facts = {"seeds": self.seeds, "seed": self.seed, "full": self.full}
        return facts | ({"settings": dict(self.settings)} if self.settings else {})


Say = Callable[[str], None]  # what an experiment tells of its progress


class Experiment(Protocol):
    """A module of `unibio.paper`. The first line of its docstring is shown in lists.

    Figures are drawn in the house style. The report shows the last table, the clock's apart; a module with a function
    `summary(tables)` shows what that returns.
    """

    TITLE: str
    PAPER: str  # what the paper claims

    def run(self, options: Options, say: Say) -> Tables: ...
    def draw(self, tables: Tables) -> "Figure": ...
    def verdict(self, tables: Tables) -> str: ...


def child(out: str, name: str, options: Options) -> list[str]:
    """The command that makes a part in a process of its own (child.py), which imports from where this one does."""
    start = f"import sys; sys.path[:] = {sys.path!r}; from unibio.paper.framework.child import main; main()"
    return [sys.executable, "-c", start, json.dumps([out, name, options._asdict()])]


def load(name: str) -> Experiment:
    """The experiment of that name."""
    module: Any = importlib.import_module(f"unibio.paper.{EXPERIMENTS[name]}")
    return module


def summary(experiment: Experiment, tables: Tables) -> Rows:
    """What the report shows of an experiment's tables."""
    own = getattr(experiment, "summary", None)
    return own(tables) if own else [rows for table, rows in tables.items() if table != SECONDS][-1]


def over(run: Callable[..., Any], cases: Sequence[tuple[float, ...]], options: Options) -> Any:
    """run(*case, key) for every case and every seed in one program; leaves (cases, seeds, …).

    A seed has the same random numbers in every case: cheaper, and curves differ by their settings alone. An even
    number of seeds goes in two halves at once: small arrays keep one core busy, not two.
    """

    def program(numbers: list[np.ndarray], keys: jax.Array) -> Any:
        return jax.vmap(lambda *case: jax.vmap(lambda key: run(*case, key))(keys))(*numbers)

    def half(keys: jax.Array) -> Any:
        return jax.tree.map(np.asarray, compiled(numbers, keys))

    numbers = [np.asarray(column) for column in zip(*cases, strict=True)]
    keys = jax.random.split(jax.random.key(options.seed), options.seeds)
    halves = [keys] if options.seeds % 2 else jnp.split(keys, 2)
    compiled = jax.jit(program).lower(numbers, halves[0]).compile()
    with futures.ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(half, halves))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts)


def sine_gradient(state: State) -> jax.Array:
    """‖∇Φ(x)‖ of Example 3, Φ = sin(sin x)."""
    return jnp.abs(jnp.cos(state.x) * jnp.cos(jnp.sin(state.x)))


def on_example3(
    solver: BilevelSolver, p: float, steps: int, key: jax.Array, noise: Noise | None = None, start: float = 1.0,
    watch: Callable[[Any], Any] = sine_gradient,
) -> Log:  # fmt: skip
    """The log of a run on Example 3 from (start, start), with noise at both levels; `watched` is ‖∇Φ(x_t)‖."""
    both = jnp.asarray(start)
    return trajectory(example3(p, noise, noise), solver, both, both, steps, key, watch=watch)[1]


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
