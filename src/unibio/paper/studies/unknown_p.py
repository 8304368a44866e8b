"""What it costs not to know p: the distance from the minimiser with p known, stated wrongly, and not stated at all."""

import jax
import numpy as np

from unibio.comparison import plot
from unibio.core.protocols import LowerSolver
from unibio.files.tables import Rows, Tables, column, distinct, select
from unibio.lower.epoch_sgd import EpochSGD
from unibio.lower.staged_sgd import StagedSGD
from unibio.paper.framework.study import Options, Progress, degenerate_ends

TITLE = "What does it cost not to know p?"
PAPER = "Its algorithm needs p; what to do without it is left open."
ORDERS, BUDGETS = (2.0, 3.0, 4.0, 6.0, 8.0), (300, 1000, 3000)
LONGER = (10_000, 30_000)  # with --full
WRONG = {2.0: 8.0, 3.0: 8.0, 4.0: 2.0, 6.0: 2.0, 8.0: 2.0}
STEP, RADIUS = 0.5, 2.0
WAYS = {"p known": "-", "p unknown": "--", "p stated wrongly": ":"}


def run(options: Options, progress: Progress) -> Tables:
    """Minimises |w|^p/p from w = 1 with noise of variance 1 by Epoch-SGD with γ_1 = .5 that is told p or another order,
    and by StagedSGD, which is told neither p nor a step size. Both know that the minimiser lies within 2 of the start.
    """
    keys = jax.random.split(jax.random.key(options.seed), 2 * options.seeds)
    wrong = [WRONG[p] for p in ORDERS]
    rows: Rows = []
    for budget in (*BUDGETS, *(LONGER if options.full else ())):
        progress(f"N = {budget:,}")
        epochs = EpochSGD(budget, STEP, radius=RADIUS, spend=True)
        solvers: tuple[LowerSolver, ...] = (epochs, StagedSGD(budget, RADIUS), epochs)
        for way, lower, told in zip(WAYS, solvers, (ORDERS, ORDERS, wrong), strict=True):
            ends, _ = degenerate_ends(lower, ORDERS, keys, told)
            for p, values in zip(ORDERS, ends, strict=True):
                error = float(values.std() / np.sqrt(len(values)))
                rows.append({"p": p, "way": way, "N": budget, "distance": float(values.mean()), "error": error})
    return {"distances": rows, "summary": _last(rows)}


def _last(rows: Rows) -> Rows:
    """The mean distances at the largest N, a row for each p."""
    largest = max(distinct(rows, "N"))
    return [
        {"p": p, "N": largest, "stated wrongly as": WRONG[p]}
        | {way: select(rows, p=p, way=way, N=largest)[0]["distance"] for way in WAYS}
        for p in ORDERS
    ]


def draw(tables: Tables) -> "plot.Figure":
    """The mean distance from the minimiser against N, a panel for each p and a line for each way."""
    rows = tables["distances"]
    orders = distinct(rows, "p")
    made, axes = plot.panels(3, 2, width=3.4, height=2.6, sharey=True)
    distances, budgets = column(rows, "distance"), distinct(rows, "N")
    marks = [mark for mark in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if min(distances) < mark < max(distances)]
    for axis, p in zip(axes, orders, strict=False):
        for (way, style), colour in zip(WAYS.items(), plot.COLOURS, strict=False):
            line = select(rows, p=p, way=way)
            axis.errorbar(column(line, "N"), column(line, "distance"), yerr=2 * np.array(column(line, "error")),
                          fmt="o" + style, color=colour, markersize=3, label=way)  # fmt: skip
        axis.set(xscale="log", yscale="log", title=f"p = {p:g} (stated wrongly: {WRONG[p]:g})")
        axis.minorticks_off()
        axis.set_xticks(budgets, [f"{N:,}" for N in budgets])
        axis.set_yticks(marks, [f"{mark:g}" for mark in marks])
        axis.set(xlabel="N", ylabel="mean distance")
    *_, rest = axes  # one panel more than there are orders, for the legend
    rest.set_axis_off()
    rest.legend(*axes[0].get_legend_handles_labels(), loc="center", title="The minimiser is sought with")
    return made


def verdict(tables: Tables) -> str:
    """Compares the distances at the largest N."""
    rows = tables["summary"]
    unknown, wrong = ([row[way] / row["p known"] for row in rows] for way in ("p unknown", "p stated wrongly"))
    listed = ["; ".join(f"{ratio:.2f}" for ratio in ratios) for ratios in (unknown, wrong)]
    return (
        f"Without p the lower level ends {min(unknown):.2f} to {max(unknown):.2f} times as far from a degenerate "
        f"minimiser as Epoch-SGD with the true p and the step size {STEP} for every p. At N = {rows[0]['N']} the "
        f"ratios are {listed[0]} at p = 2, 3, 4, 6, 8, and {listed[1]} where Epoch-SGD is told a wrong p. "
        "Epoch-SGD needs a step size as well; one that is tuned to the function brings it nearer (docs/without_p.md)."
    )
