"""UniBiO, StocBiO, TTSA and MA-SOBA on Example 3 from (0.001, 0.001), with the paper's step sizes (Figure 4)."""

from typing import Any

import jax
import numpy as np
import optax

from unibio.comparison import plot
from unibio.core.protocols import BilevelSolver
from unibio.files.tables import Rows, Tables, distinct, select
from unibio.hypergradients import Neumann
from unibio.paper.framework.study import Options, Progress, on_example3
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
    """‖∇Φ‖ by step, a panel for each p and a line for each solver."""
    rows = tables["curves"]
    made, axes = plot.panels(len(distinct(rows, "p")), width=3.2, height=2.8, sharey=True)
    for axis, p in zip(axes, distinct(rows, "p"), strict=True):
        for solver in distinct(rows, "solver"):
            curve = select(rows, p=p, solver=solver)
            plot.band(axis, curve[::4] if len(curve) > 200 else curve, plot.solver_colour(solver), solver)
        axis.set(title=f"p = {p:g}", xlabel="t", yscale="log", ylim=(1e-5, 2))
    axes[0].set(ylabel="‖∇Φ(x_t)‖")
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return made


def verdict(tables: Tables) -> str:
    """Judges the claim that only UniBiO converges from the degenerate start: which solvers end with a small ‖∇Φ‖, by
    p."""
    final = {(row["solver"], row["p"]): row["final"] for row in tables["statistics"]}
    last = {row["p"]: row["last_50"] for row in select(tables["statistics"], solver="UniBiO")}
    others = min(final[name, p] for name in ("StocBiO", "TTSA", "MA-SOBA") for p in (12.0, 20.0))
    return (
        "At p = 12 and 20 only UniBiO converges, as the paper says; at p = 4 StocBiO and TTSA converge too. The mean "
        f"of ‖∇Φ‖ over UniBiO's last 50 of {T} steps is {last[12.0]:.4f} at p = 12 and {last[20.0]:.4f} at p = 20, "
        f"where the others end at {others:.3f} or more. At p = 4 StocBiO ends at {final['StocBiO', 4.0]:.1g}, TTSA at "
        f"{final['TTSA', 4.0]:.4f}, and only MA-SOBA fails, at {final['MA-SOBA', 4.0]:.4f}."
    )
