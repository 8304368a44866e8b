"""How fast the running mean of ‖∇Φ‖ falls for p = 2, 4, 6, 8 without noise, with two budgets of lower steps."""

import functools

import jax
import numpy as np

from unibio.comparison import plot
from unibio.files.tables import Rows, Tables, as_rows, column, distinct, select
from unibio.hypergradients import Neumann
from unibio.lower.epoch_sgd import EpochSGD
from unibio.paper.framework.study import SECONDS, Options, Outcome, Progress, on_example3, statistics
from unibio.paper.studies.noise_study import ORDERS, STEPS, T
from unibio.run.programs import timed
from unibio.solvers import UniBiO

TITLE = "Does UniBiO's rate of convergence fall with p? (Figure 5)"
PAPER = (
    "The running mean of ‖∇Φ‖ falls like t^{−r(p)}, and r(p) falls with p. On average 75, 172, 737, 3059 inner "
    "iterations are needed at p = 2, 4, 6, 8."
)
ONE_STEP = "100, one step size"
# For each case the step sizes and the numbers of lower steps, by p.
BUDGETS = {
    "100 for every p": (STEPS, (100, 100, 100, 100)),
    "4, 4, 5, 6 epochs": (STEPS, (75, 172, 737, 3059)),
    ONE_STEP: ((0.03, 0.03, 0.03, 0.03), (100, 100, 100, 100)),
}


def _path(p: float, eta: float, budget: int) -> tuple[np.ndarray, int, float]:
    """‖∇Φ(x_t)‖ by step, the lower steps of one refresh of y, and the seconds of the run without compilation."""
    # `budget` is a sum of rounded epoch lengths; the real lengths, which must fit, add up to a little more.
    lower = EpochSGD(steps=round(1.01 * budget) + 3 if budget != 100 else 100)
    solver = UniBiO(eta, lower=lower, hypergradient=Neumann(terms=1, scale=1.0))
    path = functools.partial(on_example3, solver, p, T)
    timed(path, jax.random.key(0))  # the first run of a program takes longer than the next
    log, seconds, _ = timed(path, jax.random.key(0))
    steps = int(log.calls.grad_g[1])  # y is refreshed in every second step
    return np.asarray(log.watched), steps, seconds


def run(options: Options, progress: Progress) -> Tables:
    """Makes a run for each budget of lower steps and each p, and returns three tables.

    `curves` has for every step t the norm ‖∇Φ(x_t)‖ and its running mean. `statistics` has a row for each run: the
    lower steps of one refresh of y, the numbers of `study.statistics`, and `offset`, by which a line of the fitted
    slope is raised so that it touches the running mean from above. The table of times has the seconds of each run.
    """
    curves: Rows = []
    facts: Rows = []
    seconds: Rows = []
    t = np.arange(1, T + 1)
    for budget, (steps_of, sizes) in BUDGETS.items():
        for p, eta, size in zip(ORDERS, steps_of, sizes, strict=True):
            progress(f"p = {p:g}, {budget}")
            values, steps, spent = _path(p, eta, size)
            mean = np.cumsum(values) / t
            facts_here = statistics(values[None], eta)
            offset = float(np.max(np.log(mean[10:]) - facts_here["slope"] * np.log(t[10:])))
            names = {"budget": budget, "p": p}
            curves += [names | row for row in as_rows({"t": t, "mean": mean, "norm": values})]
            facts.append(names | {"eta": eta, "seeds": 1, "lower_steps": steps} | facts_here | {"offset": offset})
            seconds.append(names | {"seconds": spent})
    return {"curves": curves, "statistics": facts, SECONDS: seconds}


def draw(tables: Tables) -> "plot.Figure":
    """First: the running mean of ‖∇Φ‖ with the paper's step sizes, and dashed a line of the fitted slope, raised
    until it touches the line from above. The fit takes all steps after the tenth, so it goes across the hump. Second:
    the rate r(p) so fitted, with the paper's step sizes and with one step size for all p, and the rate fitted only
    after the hump, from the first step at which ‖∇Φ‖ is below twice the step size."""
    rows = tables["curves"]
    made, axes = plot.panels(2, width=4.2, height=3.0)
    budget = "100 for every p"
    for p, colour in zip(distinct(rows, "p"), plot.COLOURS, strict=False):
        curve = select(rows, budget=budget, p=p)
        fit = select(tables["statistics"], budget=budget, p=p)[0]
        t = np.array(column(curve, "t"))
        axes[0].plot(t, column(curve, "mean"), color=colour, label=f"p = {p:g}, step {fit['eta']:g}")
        axes[0].plot(t[10:], np.exp(fit["offset"]) * t[10:] ** fit["slope"], "--", color=colour, linewidth=0.8)
    axes[0].set(xscale="log", yscale="log", xlabel="t", ylabel="running mean of ‖∇Φ‖")
    axes[0].legend(loc="lower left")
    labels = {budget: "paper's step sizes", ONE_STEP: "one step size"}
    for (name, label), marker, colour in zip(labels.items(), ("o-", "s-"), plot.COLOURS, strict=False):
        fits = select(tables["statistics"], budget=name)
        axes[1].plot(column(fits, "p"), [-row["slope"] for row in fits], marker, color=colour, label=label)
    axes[1].plot(
        distinct(rows, "p"), after_the_hump(tables), "D-", color=plot.COLOURS[2], label="paper's, after the hump"
    )
    axes[1].set(xlabel="p", ylabel="fitted rate r(p)", ylim=(0, 1.1))
    axes[1].legend(loc="lower left")
    return made


def summary(tables: Tables) -> Rows:
    """The runs with the paper's step sizes and with one; those with the larger budgets are in statistics.csv."""
    chosen = ("p", "eta", "lower_steps", "slope", "mean", "last_50", "first_hit")
    rows = [row for row in tables["statistics"] if row["budget"] != "4, 4, 5, 6 epochs"]
    return [
        {key: row[key] for key in chosen}
        | {"seconds": select(tables[SECONDS], budget=row["budget"], p=row["p"])[0]["seconds"]}
        for row in rows
    ]


def slopes(tables: Tables, budget: str) -> list[float]:
    """The fitted slopes by p; a smaller one falls faster."""
    return column(select(tables["statistics"], budget=budget), "slope")


def after_the_hump(tables: Tables) -> list[float]:
    """For each p the rate of the running mean with the paper's step sizes, fitted from the first hit on."""
    found = []
    for fit in select(tables["statistics"], budget="100 for every p"):
        curve = select(tables["curves"], budget=fit["budget"], p=fit["p"])[int(fit["first_hit"]) :]
        found.append(-float(np.polyfit(np.log(column(curve, "t")), np.log(column(curve, "mean")), 1)[0]))
    return found


def outcome(tables: Tables) -> Outcome:
    """Confirmed if the rate falls with p also for one step size; corrected if it does for the paper's alone."""
    falls = [slopes(tables, name) == sorted(slopes(tables, name)) for name in ("100 for every p", ONE_STEP)]
    same = np.ptp(slopes(tables, ONE_STEP)) < 0.05
    if not falls[0]:
        return Outcome.refuted
    return Outcome.corrected if same else Outcome.confirmed


def verdict(tables: Tables) -> str:
    """Judges the claim that the slope falls with p, and the paper's numbers of lower steps."""
    small, large = (select(tables["statistics"], budget=budget) for budget in list(BUDGETS)[:2])
    shown = [", ".join(f"{-slope:.2f}" for slope in slopes(tables, name)) for name in ("100 for every p", ONE_STEP)]
    counts = [", ".join(str(row["lower_steps"]) for row in rows) for rows in (large, small)]
    rates = after_the_hump(tables)
    late = ", ".join(f"{rate:.2f}" for rate in rates)
    alike = "larger p do not fall more slowly" if rates[-1] >= rates[0] else "larger p still fall more slowly"
    first = {
        Outcome.corrected: "The rate falls because the paper gave larger p a smaller step size, not because p is "
        "larger.",
        Outcome.confirmed: "The rate falls with p, also with one step size for every p.",
        Outcome.refuted: "The rate does not fall with p.",
    }[outcome(tables)]
    return (
        f"{first} With its step sizes r(p) is {shown[0]} for p = 2, 4, 6, 8; with one step size for every p it is "
        f"{shown[1]}. A smaller step makes the hump come later, and the fit goes across it. Fitted after the hump, the "
        f"rates with the paper's step sizes are {late}: {alike}. The lower-level solver Epoch-SGD runs in epochs of "
        f"growing length and stops before one that would exceed its budget. The paper's budget of 100 gives "
        f"{counts[1]} steps; the {counts[0]} that it prints need larger budgets."
    )
