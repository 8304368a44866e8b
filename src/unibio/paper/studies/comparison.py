"""UniBiO, StocBiO, TTSA and MA-SOBA on Example 3 from (0.001, 0.001), with the paper's step sizes (Figure 4)."""

from typing import Any

import jax
import numpy as np
import optax

from unibio.comparison import plot
from unibio.core.protocols import BilevelSolver
from unibio.files.tables import Rows, Tables, distinct, select
from unibio.hypergradients import Neumann
from unibio.paper.framework.study import Options, Outcome, Progress, on_example3
from unibio.solvers import MASOBA, TTSA, StocBiO, UniBiO

TITLE = "Which solvers converge from a degenerate start? (Figure 4)"
PAPER = (
    "From (0.001, 0.001), where the lower Hessian is nearly 0, StocBiO, TTSA and MA-SOBA fail for p = 4, 12 and 20, "
    "and UniBiO converges."
)
ORDERS, START, T = (4.0, 12.0, 20.0), 0.001, 500
FADE = optax.linear_schedule(1.0, 0.0, T // 2, T // 2)  # 1 in the first half of the run, then falling to 0
CONTESTANTS: dict[str, Any] = {
    "UniBiO": UniBiO(0.02, period=10, hypergradient=Neumann(terms=10, scale=1.0)),
    "UniBiO (decaying step)": UniBiO(0.02, period=10, hypergradient=Neumann(terms=10, scale=1.0), schedule=FADE),
    "StocBiO": StocBiO(0.5, 0.1, lower_steps=5, terms=9),
    "TTSA": TTSA(0.1, 0.1, terms=10, upper_decay=0.0, lower_decay=0.0),
    "MA-SOBA": MASOBA(1.0, 0.01, 0.01),
}


def run(options: Options, progress: Progress) -> Tables:
    """Computes the two tables of the study, for each solver and p.

    `curves` has for every step the median and the 10–90 % band over the seeds of ‖∇Φ(x_t)‖. `statistics` has a row for
    each solver and p: ‖∇Φ‖ after T steps, `final`, as median, least and most over the seeds, and `last_50`, the mean
    over the last 50 steps. TTSA is run with several seeds, because the length of its series is random.
    """
    curves: Rows = []
    facts: Rows = []
    for name, solver in CONTESTANTS.items():
        progress(name)
        seeds = min(8, options.seeds) if name == "TTSA" else 1

        def one(p: float, key: jax.Array, solver: BilevelSolver = solver) -> jax.Array:
            return on_example3(solver, p, T + 1, key, start=START).watched

        path = jax.jit(jax.vmap(one, (None, 0)) if seeds > 1 else lambda p, keys, one=one: one(p, keys[0])[None])
        keys = jax.random.split(jax.random.key(options.seed), seeds)
        for p in ORDERS:
            values = np.asarray(path(p, keys))
            curves += plot.bands(values, {"solver": name, "p": p})
            final, last = values[:, T], values[:, T - 50 : T].mean(axis=1)
            least, median, most = (float(v) for v in np.quantile(final, [0, 0.5, 1]))
            facts.append(
                {"solver": name, "p": p, "seeds": seeds, "final": median, "final_min": least, "final_max": most,
                 "last_50": float(np.median(last))}
            )  # fmt: skip
    return {"curves": curves, "statistics": facts}


def draw(tables: Tables) -> "plot.Figure":
    """‖∇Φ‖ at each step t (the median over the seeds), a panel for each p; each solver's name stands at the end of its
    line. At p = 12 and 20 the lines of StocBiO, TTSA and MA-SOBA lie on each other at the top, drawn with different
    widths. Norms below 10^{−6} are not shown."""
    rows = tables["curves"]
    orders = distinct(rows, "p")
    made, axes = plot.panels(len(orders), width=3.4, height=3.2, sharey=True)
    for axis, p in zip(axes, orders, strict=True):
        axis.set(title=f"p = {p:g}", yscale="log", ylim=(1e-6, 20), xlim=(0, T + 10))
        ends = {}
        for solver in distinct(rows, "solver"):
            curve = select(rows, p=p, solver=solver)
            plot.band(axis, curve[::4], plot.solver_colour(solver), solver)
            axis.lines[-1].set_linewidth(WIDTHS.get(solver, 1.4))
            inside = [row for row in curve if row["median"] > 1e-6]
            ends[solver] = (inside[-1]["t"], inside[-1]["median"])
        plot.end_labels(axis, ends)
    plot.label(axes, len(orders), "t", [plot.NORM])
    return made


def summary(tables: Tables) -> Rows:
    """‖∇Φ‖ after 500 steps, in the median over the seeds; at the start it is 1."""
    rows = tables["statistics"]
    return [
        {"solver": solver} | {f"p = {row['p']:g}": row["final"] for row in select(rows, solver=solver)}
        for solver in distinct(rows, "solver")
    ]


ARRIVED, BASELINES = 0.05, ("StocBiO", "TTSA", "MA-SOBA")
WIDTHS = dict(zip(BASELINES, (5.5, 3.2, 1.4), strict=True))  # of lines that lie on each other


def outcome(tables: Tables) -> Outcome:
    """Confirmed if UniBiO arrives at every p and no other solver at any; corrected if the latter is so at some p."""
    final = {(row["solver"], row["p"]): row["final"] for row in tables["statistics"]}
    alone = [all(final[name, p] > ARRIVED for name in BASELINES) for p in ORDERS]
    if any(final["UniBiO", p] > ARRIVED for p in ORDERS) or not any(alone):
        return Outcome.refuted
    return Outcome.confirmed if all(alone) else Outcome.corrected


def verdict(tables: Tables) -> str:
    """Judges the claim that only UniBiO converges from the degenerate start: which solvers end with a small ‖∇Φ‖, by
    p."""
    final = {(row["solver"], row["p"]): row["final"] for row in tables["statistics"]}
    fading = max(final["UniBiO (decaying step)", p] for p in ORDERS)
    best = min(BASELINES, key=lambda name: final[name, 4.0])
    nearer = "comes closer there" if final[best, 4.0] < min(final["UniBiO", 4.0], fading) else "comes less close there"
    ours = ", ".join(f"{final['UniBiO', p]:.4f}" for p in ORDERS)
    stuck = min(final[name, p] for name in BASELINES for p in (12.0, 20.0))
    return (
        f"{_who_converges(final)}, and {best} {nearer} than UniBiO. At p = 4 {best} ends at "
        f"{power_of_ten(final[best, 4.0])}. UniBiO, whose constant step jumps to and fro, ends at {ours} for p = 4, "
        f"12, 20; with a step that decays it ends at {power_of_ten(fading)} or less at every p. At p = 12 and 20 the "
        f"best of the others {'has not moved' if stuck > 0.999 else 'ends at'} ({stuck:.3f}). Nothing is noisy here, "
        "but TTSA draws the length of its Neumann series at random."
    )


def _who_converges(final: dict[tuple[str, float], float]) -> str:
    """A sentence that names the solvers that end with a small ‖∇Φ‖."""
    ours = [f"{p:g}" for p in ORDERS if final["UniBiO", p] <= ARRIVED]
    found = {p: [name for name in BASELINES if final[name, p] <= ARRIVED] for p in ORDERS}
    too = [f"at p = {p:g} {' and '.join(names)} {'do' if len(names) > 1 else 'does'} too" for p, names in found.items()
           if names]  # fmt: skip
    return f"UniBiO converges at p = {', '.join(ours) or 'none'}, but {' and '.join(too) or 'none of the others does'}"


def power_of_ten(value: float) -> str:
    """A small number as 1.5·10^{−4}."""
    digits, power = f"{value:.1e}".split("e")
    return f"{digits}·10^{{−{abs(int(power))}}}"
