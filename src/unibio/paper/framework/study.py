"""What an experiment is, the table of all experiments, and what several of them share.

An experiment is a module with the names that the protocol `Experiment` lists.
"""

import concurrent.futures as futures
import enum
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core.coordinates import spow
from unibio.core.noise import Noise
from unibio.core.protocols import BilevelSolver, LowerSolver, State
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
    "unknown-p": "studies.unknown_p",
    "complexity": "studies.complexity",
    "lp-cleaning": "studies.lp_cleaning",
    "schedules": "studies.schedules",
    "hypercleaning": "cleaning.hypercleaning",
}
# These take minutes to hours, so they run only if they are named, or with --full. Beside each, what its command does.
BY_NAME = {
    "hypercleaning": "runs a small version on made-up sentences, in about five minutes on two cores, and adds it to "
    "DIR/index.html; it cannot decide the claim. With --full it takes hours, on the paper's data if unibio data snli "
    "has fetched them"
}
SECONDS = "seconds"  # the name of the table of times, the only one that differs between two runs with the same options


class Outcome(enum.StrEnum):
    """What an experiment says of the paper's claim."""

    confirmed = "confirmed"
    corrected = "corrected"
    refuted = "refuted"
    ours = "our own question"


class Options(NamedTuple):
    """How an experiment is run. The last three fields do not change the result."""

    seeds: int = 64  # per curve
    seed: int = 0  # the first one
    full: bool = False  # at full size, where the experiment has one
    settings: tuple[tuple[str, str], ...] = ()  # (name, text) of --set
    folder: str = ""  # where an experiment may save finished pieces
    jobs: int = 1  # how many processes work on it
    turn: int = 0  # which of these processes this is; 0 is the one that writes the result

    def facts(self) -> Row:
        """The options that the result depends on."""
        facts = {"seeds": self.seeds, "seed": self.seed, "full": self.full}
        return facts | ({"settings": dict(self.settings)} if self.settings else {})


Progress = Callable[[str], None]  # gets a line of text whenever an experiment begins or ends a part of its work


class Experiment(Protocol):
    """A module of `unibio.paper`. `unibio list` shows the first line of its docstring.

    Three more names are optional:

    - `summary(tables)`: the rows that the report shows, instead of the last table that holds no times. Its docstring is
      the caption.
    - `outcome(tables)`: `Outcome.confirmed`, `.corrected` or `.refuted`; without it the part counts as `Outcome.ours`,
      a question of our own.
    - `TERMS`: what columns mean that the report does not know, {column: text}.

    A table with a column `seeds` tells the report how many runs a curve or a number stands for.
    """

    TITLE: str  # the question that the experiment answers
    PAPER: str  # what the paper claims

    def run(self, options: Options, progress: Progress) -> Tables: ...  # all the computation
    def draw(self, tables: Tables) -> "Figure": ...  # in the package's plot style; its docstring is the caption
    def verdict(self, tables: Tables) -> str: ...  # first a sentence that answers the question, then the numbers


def child(out: str, name: str, options: Options) -> list[str]:
    """The command that runs an experiment in a process of its own (child.py) with the import paths of this one."""
    start = f"import sys; sys.path[:] = {sys.path!r}; from unibio.paper.framework.child import main; main()"
    return [sys.executable, "-c", start, json.dumps([out, name, options._asdict()])]


def load(name: str) -> Experiment:
    """Imports the module of the experiment with this name."""
    module: Any = importlib.import_module(f"unibio.paper.{EXPERIMENTS[name]}")
    return module


def summary(experiment: Experiment, tables: Tables) -> Rows:
    """The rows that the report shows for an experiment: its own `summary`, or the last table that holds no times."""
    own = getattr(experiment, "summary", None)
    return own(tables) if own else [rows for table, rows in tables.items() if table != SECONDS][-1]


def outcome(experiment: Experiment, tables: Tables) -> Outcome:
    """What the experiment says of the paper's claim."""
    own = getattr(experiment, "outcome", None)
    return own(tables) if own else Outcome.ours


def answer(verdict: str) -> tuple[str, str]:
    """A verdict's first sentence, which answers the question, and the rest of it, the numbers."""
    first, _, rest = verdict.partition(". ")
    return (f"{first}.", rest) if rest else (verdict, "")


def over(curve: Callable[..., Any], cases: Sequence[tuple[float, ...]], options: Options) -> Any:
    """Computes curve(*case, key) for every case and every seed in one program.

    A case is a tuple of numbers, the settings of one curve, such as p and the step size. Returns what `curve` returns,
    with every array stacked to (cases, seeds, …). A seed has the same random numbers in every case, so that curves
    differ by their settings alone. If the number of seeds is even, two threads compute one half of the seeds each,
    because one program on arrays as small as these keeps only one core busy.
    """

    def program(numbers: list[np.ndarray], keys: jax.Array) -> Any:
        return jax.vmap(lambda *case: jax.vmap(lambda key: curve(*case, key))(keys))(*numbers)

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
    """‖∇Φ(x)‖ of Example 3, where Φ(x) = sin(sin x)."""
    return jnp.abs(jnp.cos(state.x) * jnp.cos(jnp.sin(state.x)))


def on_example3(
    solver: BilevelSolver, p: float, steps: int, key: jax.Array, noise: Noise | None = None, start: float = 1.0,
    watch: Callable[[Any], Any] = sine_gradient,
) -> Log:  # fmt: skip
    """Runs the solver on Example 3 from x = y = start and returns the log: `run.programs.Log`, with an entry for each
    step. `noise` acts at both levels; the column `watched` of the log holds watch(state_t), by default the true
    ‖∇Φ(x_t)‖."""
    both = jnp.asarray(start)
    return trajectory(example3(p, noise, noise), solver, both, both, steps, key, watch=watch)[1]


def degenerate_ends(
    lower: LowerSolver, orders: Sequence[float], keys: jax.Array, told: Sequence[float] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """|w| after a lower solver has minimised |w|^p/p, whose minimiser 0 is degenerate for p > 2, from w = 1 with noise
    of variance 1 on the gradient; and the gradients that it took. Both are arrays with a row for each p and a column
    for each key. `told` are the orders that the solver is told, by default the true ones."""

    def one(p: jax.Array, stated: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        w, taken = lower(
            lambda w, e: spow(w, p - 1) + e, lambda count: jax.random.normal(key, (count,)), jnp.asarray(1.0), stated
        )
        return jnp.abs(w), taken

    each = jax.jit(jax.vmap(jax.vmap(one, (None, None, 0)), (0, 0, None)))
    ends, taken = each(jnp.asarray(orders), jnp.asarray(orders if told is None else told), keys)
    return np.asarray(ends), np.asarray(taken)


def running_slope(values: np.ndarray) -> float:
    """The slope of a straight line fitted to log(mean of the first t values) against log t, for t > 10."""
    t = np.arange(1, len(values) + 1)
    mean = np.cumsum(values) / t
    return float(np.polyfit(np.log(t[10:]), np.log(mean[10:]), 1)[0])


def statistics(values: np.ndarray, eta: float) -> dict[str, float]:
    """Medians over the seeds of four numbers of each curve; `values` has the shape (seeds, T) and η is the step size.

    `mean` is the mean over all steps and `last_50` that over the last 50; `slope` is that of the running mean (see
    `running_slope`), and `first_hit` the first t at which the value is below 2η (T if there is none).
    """
    slopes = [running_slope(row) for row in values]
    below = values < 2 * eta
    hits = np.where(below.any(axis=1), below.argmax(axis=1), values.shape[1])
    return {
        "mean": float(np.median(values.mean(axis=1))),
        "last_50": float(np.median(values[:, -50:].mean(axis=1))),
        "slope": float(np.median(slopes)),
        "first_hit": float(np.median(hits)),
    }
