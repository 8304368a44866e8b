"""How fast Epoch-SGD approaches a minimiser where the Hessian is 0, for p = 2, 4, 6, 8 (Theorem 2)."""

import jax
import numpy as np

from unibio.comparison import plot
from unibio.files.tables import Rows, Tables, column, distinct, select
from unibio.lower.epoch_sgd import EpochSGD
from unibio.paper.framework.study import Options, Outcome, Progress, degenerate_ends

TITLE = "How fast does Epoch-SGD approach a degenerate minimiser? (Theorem 2)"
PAPER = "After T steps the distance to the minimiser is ‖y − y*‖ = Õ(T^{−1/(2(p−1))})."
ORDERS, BUDGETS, REPETITIONS = (2.0, 4.0, 6.0, 8.0), (100, 300, 1000, 3000, 10000, 30000), 200
LONGER = (100_000, 300_000)  # with --full
TERMS = {"slope": "the slope of the mean distance against the number of steps, on logarithmic axes"}


def run(options: Options, progress: Progress) -> Tables:
    """Minimises ψ(w) = |w|^p/p from w = 1 with noise of variance 1 and step size 0.5, 200 times for each p and budget
    T.

    `distances` has for each p and T the number of steps made (those of the complete epochs), the mean of |w|, which is
    the distance to the minimiser 0, and its standard error. `slopes` has for each p the slope of a line fitted to the
    logarithm of the mean distance against that of the number of steps, its interval (99 %, a bootstrap over the
    repetitions), and the slope of the theory.
    """
    keys = jax.random.split(jax.random.key(options.seed), REPETITIONS)
    rows: Rows = []
    samples: list[np.ndarray] = []  # an array (orders, repetitions) for each budget
    for budget in (*BUDGETS, *(LONGER if options.full else ())):
        progress(f"T = {budget:,}")
        ends, taken = degenerate_ends(EpochSGD(steps=budget, step_size=0.5), ORDERS, keys)
        samples.append(ends)
        for p, values, steps in zip(ORDERS, ends, taken[:, 0].tolist(), strict=True):
            mean, error = float(values.mean()), float(values.std() / np.sqrt(REPETITIONS))
            rows.append(
                {"p": p, "budget": budget, "steps": steps, "seeds": REPETITIONS, "distance": mean, "error": error}
            )
    rng = np.random.default_rng(options.seed)
    slopes: Rows = []
    for p, values in zip(ORDERS, np.stack(samples, axis=1), strict=True):
        logs = np.log(column(select(rows, p=p), "steps"))
        draws = rng.integers(REPETITIONS, size=(2000, *values.shape))
        means = np.take_along_axis(values[None], draws, axis=2).mean(axis=2)
        fits = np.polyfit(logs, np.log(means).T, 1)[0]
        low, high = np.quantile(fits, [0.005, 0.995])
        slope = float(np.polyfit(logs, np.log(values.mean(axis=1)), 1)[0])
        slopes.append({"p": p, "slope": slope, "low": float(low), "high": float(high), "theory": -1 / (2 * (p - 1))})
    return {"distances": rows, "slopes": slopes}


def draw(tables: Tables) -> "plot.Figure":
    """The mean distance against the number of steps, a line for each p; dashed, a line with the slope of the theory."""
    rows = tables["distances"]
    made, (axis,) = plot.panels(1, width=5.4, height=3.6)
    for p, colour in zip(distinct(rows, "p"), plot.COLOURS, strict=False):
        line = select(rows, p=p)
        fit = select(tables["slopes"], p=p)[0]
        t, values = np.array(column(line, "steps"), float), np.array(column(line, "distance"))
        axis.errorbar(t, values, yerr=2 * np.array(column(line, "error")), fmt="o-", color=colour, markersize=3,
                      label=f"p = {p:g}: {fit['slope']:.3f} (theory {fit['theory']:.3f})")  # fmt: skip
        middle = np.exp(np.mean(np.log(values)) - fit["theory"] * np.mean(np.log(t)))
        axis.plot(t, middle * t ** fit["theory"], "--", color=colour, linewidth=0.8)
    axis.set(xscale="log", yscale="log", xlabel="steps of the complete epochs", ylabel="mean ‖y − y*‖")
    axis.legend(title="fitted slope", title_fontsize=9)
    return made


def outcome(tables: Tables) -> Outcome:
    """Confirmed if no interval (99 %) of a fitted slope lies above the slope of the theory."""
    return Outcome.confirmed if all(row["low"] <= row["theory"] for row in tables["slopes"]) else Outcome.refuted


def verdict(tables: Tables) -> str:
    """Judges Theorem 2's rate: the fitted slope of the distance against the budget beside the theory's, for each p."""
    text = ", ".join(f"{row['slope']:.3f} ({row['theory']:.3f})" for row in tables["slopes"])
    rate = "at the rate of Theorem 2" if outcome(tables) == Outcome.confirmed else "more slowly than Theorem 2 says"
    return (
        f"Epoch-SGD approaches a degenerate minimiser {rate}. For p = 2, 4, 6, 8 the fitted slopes of the distance "
        f"against the number of steps on logarithmic axes, with the theory's in parentheses, are {text}."
    )
