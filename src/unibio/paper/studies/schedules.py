"""The calls that the main theorem asks for, by ε and p, with the paper's analysis and with a sharper one."""

import math
from collections.abc import Sequence

import numpy as np

from unibio.comparison import plot
from unibio.files.tables import Rows, Tables, column, distinct, select
from unibio.paper.framework.study import Options, Progress
from unibio.paper.theory import Constants, example3_constants, schedule

TITLE = "What does the bound of the main theorem amount to in numbers?"
PAPER = "An ε-stationary point takes at most Õ(ε^{−5p+6}) calls. The paper computes no numbers."
ANALYSES = ("paper", "sharp")
ORDERS = (2.0, 3.0, 4.0, 6.0, 8.0)


def totals(sets: Sequence[Constants], delta: float = 0.1) -> Rows:
    """log10 of the number T of steps and of all oracle calls: a row for each set of constants, each analysis and each
    of 13 values of ε from 1e-3 to 1. `delta` is the probability with which the guarantee may fail."""
    return [
        {"p": c.p, "analysis": analysis, "epsilon": float(epsilon),
         "log10_T": plan.log_T / math.log(10), "log10_total": plan.log_total / math.log(10)}
        for c in sets for analysis in ANALYSES for epsilon in np.logspace(-3, 0, 13)
        for plan in [schedule(c, float(epsilon), delta, analysis)]
    ]  # fmt: skip


def run(options: Options, progress: Progress) -> Tables:
    """Returns one table, `totals`: what the theorem asks for on Example 3 with noise of variance 1 (see `totals`)."""
    progress("schedules")
    return {"totals": totals([example3_constants(p, sigma_f=1.0, sigma_g1=1.0) for p in ORDERS])}


def draw(tables: Tables) -> "plot.Figure":
    """The total calls as a power of 10: first against ε, a line for each p; then against p at ε = 0.1."""
    rows = tables["totals"]
    orders = distinct(rows, "p")
    made, axes = plot.panels(2 if len(orders) > 1 else 1, width=3.9, height=3.0)
    styles = {"paper": "--", "sharp": "-"}
    for p, colour in zip(orders, plot.COLOURS, strict=False):
        for analysis, style in styles.items():
            line = select(rows, p=p, analysis=analysis)
            label = f"p = {p:g}" if analysis == "sharp" else None
            axes[0].plot(column(line, "epsilon"), column(line, "log10_total"), style, color=colour, label=label)
    axes[0].plot([], [], "--", color="grey", label="paper's analysis")
    axes[0].plot([], [], "-", color="grey", label="our sharper analysis")
    axes[0].set(xscale="log", xlabel="ε", ylabel="calls, as a power of 10")
    plot.key(made, axes[:1])
    if len(orders) > 1:
        epsilon = min(distinct(rows, "epsilon"), key=lambda value: abs(value - 0.1))
        for colour, (analysis, style) in zip(plot.COLOURS, styles.items(), strict=False):
            line = select(rows, analysis=analysis, epsilon=epsilon)
            label = f"{analysis}, ε = {epsilon:.2g}"
            axes[1].plot(column(line, "p"), column(line, "log10_total"), "o" + style, color=colour, label=label)
        axes[1].set(xlabel="p", ylabel="calls, as a power of 10")
        axes[1].legend()
    return made


def summary(tables: Tables) -> Rows:
    """log_10 of the total calls at ε = 0.1 by both analyses."""
    rows = [row for row in tables["totals"] if math.isclose(row["epsilon"], 0.1)]
    return [
        {"p": p, "log10 calls, paper": select(rows, p=p, analysis="paper")[0]["log10_total"],
         "log10 calls, sharp": select(rows, p=p, analysis="sharp")[0]["log10_total"]} for p in distinct(rows, "p")
    ]  # fmt: skip


def verdict(tables: Tables) -> str:
    """States how many calls the theorem asks for, by the paper's analysis and by the sharper one."""
    rows = {row["p"]: row for row in summary(tables)}
    power = (5 * 4 - 6) * -math.log10(0.1)
    return (
        "The main theorem asks for far more calls than any computer can make: it is a guarantee for the worst case and "
        "no advice for practice. At ε = 0.1 and p = 4 it asks for "
        f"10^{{{rows[4.0]['log10 calls, paper']:.0f}}}: 10^{{{power:.0f}}} from ε^{{−5p+6}}, the rest from the "
        "constants and logarithms of the theorem. A sharper analysis of ours (docs/theory.md), which bounds the lag "
        "of the momentum over its whole memory at once instead of step by step, has the order Õ(ε^{−3p+2}) and asks "
        "for "
        f"10^{{{rows[4.0]['log10 calls, sharp']:.0f}}}. The part on the calls shows how few are "
        "needed on Example 3."
    )
