"""Every solver on Example 3 from (0.001, 0.001), each tuned over the same 25 pairs of step sizes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unibio import solvers as sv
from unibio.comparison.criteria import Final
from unibio.comparison.plot import bands
from unibio.comparison.tuning import tune
from unibio.core.batches import Dataset
from unibio.core.problem import Problem
from unibio.core.protocols import State
from unibio.files.tables import Rows, Tables, distinct, select
from unibio.hypergradients import Neumann
from unibio.paper.framework.study import Options, Progress, sine_gradient
from unibio.paper.studies.comparison import FADE, ORDERS, START, T
from unibio.paper.studies.comparison import draw as draw
from unibio.problems import example3
from unibio.solvers.step_sizes import step_size_fields

TITLE = "Which solvers converge from a degenerate start when every one is tuned?"
PAPER = "The step sizes of the comparison were chosen by a grid search over [0.01, 1]. The grid is not given."
# The paper's settings where it states them. Step sizes do not decay, because the problem has no noise. Those given here
# are replaced by tuned ones.
CONTESTANTS: dict[str, Any] = {
    "UniBiO": sv.UniBiO(1.0, period=10, hypergradient=Neumann(terms=10, scale=1.0)),
    "UniBiO (decaying step)": sv.UniBiO(1.0, period=10, hypergradient=Neumann(terms=10, scale=1.0), schedule=FADE),
    "StocBiO": sv.StocBiO(1, 1, lower_steps=5, terms=9),
    "TTSA": sv.TTSA(1, 1, terms=10, upper_decay=0.0, lower_decay=0.0),
    "SOBA": sv.SOBA(1, 1, upper_decay=0.0, lower_decay=0.0),
    "SABA": sv.SABA(1, 1),
    "MA-SOBA": sv.MASOBA(1, 1),
    "SUSTAIN": sv.SUSTAIN(1, 1, decay=0.0, terms=10),
    "VRBO": sv.VRBO(1, 1, terms=9, checkpoint_batches=1),
    "BO-REP": sv.BOREP(1, 1),
    "AmIGO": sv.AmIGO(1, 1, lower_steps=5, linear_steps=5),
    "F2SA": sv.F2SA(1, 1, lower_steps=5, upper_decay=0.0, lower_decay=0.0),
}
# One every 5 steps. The interval is odd because a normalised step jumps to and fro across the minimiser: with an even
# one all measurements could fall on the same, better, side.
MEASUREMENTS = 100


def gradient(problem: Problem, state: State) -> dict[str, jax.Array]:
    """The metric: the true ‖∇Φ‖."""
    return {"gradient_norm": sine_gradient(state)}


def problem(p: float) -> Problem:
    """Example 3 as a finite sum with one sample, because SABA and VRBO need a finite sum."""
    exact, nothing = example3(p), Dataset(jnp.zeros(1), 1)
    return Problem(exact.f, exact.g, p, f_batches=nothing, g_batches=nothing)


def run(options: Options, progress: Progress) -> Tables:
    """Tunes each solver for each p: 25 pairs of step sizes, three seeds, the smallest ‖∇Φ‖ at the end wins.

    More than one seed is needed because some solvers draw the length of their series at random.
    """
    curves: Rows = []
    facts: Rows = []
    for name, solver in CONTESTANTS.items():
        for p in ORDERS:
            progress(f"{name}, p = {p:g}")
            tuned = tune(
                problem(p), solver, jnp.asarray(START), jnp.asarray(START), seeds=range(options.seed, options.seed + 3),
                steps=T, criterion=Final(), metrics=gradient, measurements=MEASUREMENTS,
            )  # fmt: skip
            table, setting = tuned.tables[tuned.best], tuned.settings[tuned.best]
            curves += bands(table["gradient_norm"], {"solver": name, "p": p}, table["step"][0], (0, 1))
            upper, lower = step_size_fields(solver)
            facts.append(
                {"solver": name, "p": p, "upper_step": setting[upper], "lower_step": setting[lower],
                 "final": curves[-1]["median"], "calls": int(np.median(table["calls"][:, -1]))}
            )  # fmt: skip
    return {"curves": curves, "statistics": facts}


def verdict(tables: Tables) -> str:
    """Judges whether the baselines fail because of their step sizes: which solvers, all tuned alike, end below .05, by
    p."""
    good: dict[float, list[str]] = {}
    for p in distinct(tables["statistics"], "p"):
        rows = sorted(select(tables["statistics"], p=p), key=lambda row: row["final"])
        good[p] = [row["solver"] for row in rows if row["final"] < 0.05]
    at_every_p = [name for name in CONTESTANTS if all(name in names for names in good.values())]
    parts = [f"at p = {p:g} {', '.join(names) or 'none'}" for p, names in good.items()]
    return (
        f"With all {len(CONTESTANTS)} solvers tuned in the same way, those that converge at every p are "
        f"{', '.join(at_every_p) or 'none'}. After {T} steps ‖∇Φ‖ is below 0.05 for (best first) {'; '.join(parts)}."
    )
