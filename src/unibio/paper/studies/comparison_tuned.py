"""Every solver from (.001, .001), each tuned over the same 25 pairs of step sizes."""

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
from unibio.paper.framework.study import Options, Say, sine_gradient
from unibio.paper.studies.comparison import FADE, ORDERS, START, T
from unibio.paper.studies.comparison import draw as draw
from unibio.problems import example3
from unibio.solvers.step_sizes import step_size_fields

TITLE = "Comparison with every solver tuned"
PAPER = "Step sizes were chosen by a grid search over [0.01, 1]; the grid is not given."
# As in the paper where it says so; decays of 0, because the problem has no noise. The step sizes are tuned.
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
# Every 5 steps: an odd number, so that a normalised step that jumps to and fro is not seen at its best.
MEASUREMENTS = 100


def gradient(problem: Problem, state: State) -> dict[str, jax.Array]:
    """The true ‖∇Φ‖."""
    return {"gradient_norm": sine_gradient(state)}


def problem(p: float) -> Problem:
    """Example 3 as a finite sum of one sample, for the solvers that store gradients by sample."""
    exact, nothing = example3(p), Dataset(jnp.zeros(1), 1)
    return Problem(exact.f, exact.g, p, f_batches=nothing, g_batches=nothing)


def run(options: Options, say: Say) -> Tables:
    """25 settings, 3 seeds (some solvers draw the length of their series), the best by the final norm."""
    curves: Rows = []
    facts: Rows = []
    for name, solver in CONTESTANTS.items():
        for p in ORDERS:
            say(f"{name}, p = {p:g}")
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
    parts = []
    for p in distinct(tables["statistics"], "p"):
        rows = sorted(select(tables["statistics"], p=p), key=lambda row: row["final"])
        good = [row["solver"] for row in rows if row["final"] < 0.05]
        parts.append(f"p = {p:g}: {', '.join(good) if good else 'none'}")
    return "Below .05 after 500 steps, best first: " + "; ".join(parts) + "."
