"""ℓ_p regression with corrupted targets (Example 2): Φ and the detection of corrupted samples, every solver."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from unibio import solvers as sv
from unibio.comparison.criteria import Final
from unibio.comparison.tuning import step_size_fields, tune
from unibio.core.problem import Problem
from unibio.experiments import plot
from unibio.experiments.study import Options
from unibio.experiments.tables import Rows, Tables, column, distinct, select
from unibio.hypergradients import Identity, Neumann
from unibio.lower.epoch_sgd import EpochSGD
from unibio.lower.newton import lower_solution
from unibio.lower.sgd import SGD
from unibio.problems import corrupted_regression, lp_regression
from unibio.run.ensemble import run_ensemble
from unibio.run.metrics import Truth

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Hyper-cleaning of ℓ_p regression (Example 2)"
PAPER = "ℓ_p regression with a weight per sample is an instance of the problem class; it is not run in the paper."
ORDERS, N, D, BATCH, CALLS = (2.0, 3.0, 4.0, 6.0), 200, 10, 20, 40_000
LOWER, PLAIN, NORMALISED, ADAM = (1e-3, 3e-3, 1e-2), (30.0, 200.0, 1000.0), (0.1, 0.5, 2.0), (0.02, 0.1, 0.5)

# Three terms, three lower steps, as the paper's hyper-cleaning; upper step sizes by the kind of step.
SOLVERS: dict[str, tuple[Any, tuple[float, ...]]] = {
    "UniBiO": (sv.UniBiO(1, lower=EpochSGD(steps=3, first_epoch=3), hypergradient=Neumann(terms=3)), NORMALISED),
    "UniBiO (practical)": (
        sv.UniBiO(
            1, momentum=0.0, lower=SGD(3), optimiser=optax.adam(1.0),
            hypergradient=Neumann(terms=3, scale=100.0, preconditioner=Identity()),
        ),
        ADAM,
    ),
    "StocBiO": (sv.StocBiO(1, 1, lower_steps=3, terms=3), PLAIN),
    "TTSA": (sv.TTSA(1, 1, terms=3), PLAIN),
    "SOBA": (sv.SOBA(1, 1, upper_decay=0, lower_decay=0), PLAIN),
    "SABA": (sv.SABA(1, 1), PLAIN),
    "MA-SOBA": (sv.MASOBA(1, 1), PLAIN),
    "SUSTAIN": (sv.SUSTAIN(1, 1, terms=3), PLAIN),
    "VRBO": (sv.VRBO(1, 1, terms=3), PLAIN),
    "BO-REP": (sv.BOREP(1, 1), NORMALISED),
    "AmIGO": (sv.AmIGO(1, 1, lower_steps=3, linear_steps=3), PLAIN),
    "F2SA": (sv.F2SA(1, 1, multiplier=10, lower_steps=3), PLAIN),
}  # fmt: skip


class Detection(eqx.Module):
    """`auroc`: the chance that a corrupted sample has a lower weight than a clean one, ties counting half."""

    corrupted: jax.Array

    def __call__(self, problem: Problem, state: Any) -> dict[str, jax.Array]:
        gap = state.x[None, :] - state.x[:, None]  # [i, j]: x_j − x_i
        pairs = self.corrupted[:, None] & ~self.corrupted[None, :]
        wins = jnp.where(gap > 0, 1.0, jnp.where(gap == 0, 0.5, 0.0)).astype(state.x.dtype)
        return {"auroc": jnp.sum(jnp.where(pairs, wins, 0.0)) / jnp.sum(pairs)}


def run(options: Options, say: Callable[[str], None]) -> Tables:
    """Nine settings of each solver on two seeds, chosen by the final Φ; the best again on eighteen other seeds."""
    data = corrupted_regression(N, D, seed=options.seed)
    problems = {p: lp_regression(data.train, data.validation, p, 1e-2, BATCH) for p in ORDERS}
    starts = {p: lower_solution(problem, jnp.zeros(N), jnp.zeros(D)) for p, problem in problems.items()}
    metrics = (Truth(), Detection(jnp.asarray(data.corrupted)))
    curves: Rows = []
    facts: Rows = []
    for name, (solver, upper) in SOLVERS.items():
        grid = dict(zip(step_size_fields(solver), (upper, LOWER), strict=True))
        for p in ORDERS:
            say(f"{name}, p = {p:g}")
            common: dict[str, Any] = {"max_calls": CALLS, "metrics": metrics, "measurements": 10}
            seeds = [options.seed + 100, options.seed + 101]
            tuned = tune(
                problems[p], solver, jnp.zeros(N), starts[p], seeds=seeds, grid=grid, criterion=Final("phi"), **common
            )
            keys = jax.random.split(jax.random.key(options.seed), 2 * len(tuned.settings))  # the tuned program again
            ensemble = run_ensemble(problems[p], [tuned.solver] * len(keys), jnp.zeros(N), starts[p], keys, **common)
            table = ensemble.table
            for k in range(table["phi"].shape[1]):
                curves.append(
                    {"solver": name, "p": p, "calls": float(np.median(table["calls"][:, k]))}
                    | {f"{q}": float(np.nanmedian(table[q][:, k])) for q in ("phi", "gradient_norm", "auroc")}
                )
            low, high = np.quantile(table["auroc"][:, -1], [0.1, 0.9])
            facts.append(
                {"solver": name, "p": p, "upper_step": next(iter(tuned.settings[tuned.best].values())),
                 "lower_step": list(tuned.settings[tuned.best].values())[1], "phi_start": curves[-11]["phi"],
                 "phi": curves[-1]["phi"], "auroc": curves[-1]["auroc"], "auroc_low": float(low),
                 "auroc_high": float(high)}
            )  # fmt: skip
    return {"curves": curves, "statistics": facts}


def draw(tables: Tables) -> "Figure":
    """Φ above, AUROC below, a column for each p."""
    return plot.with_style(_draw, tables["curves"])


def _draw(rows: Rows) -> "Figure":
    orders = distinct(rows, "p")
    made, axes = plot.panels(len(orders), 2, width=2.8, height=2.3, sharex=True)
    for i, p in enumerate(orders):
        for solver in distinct(rows, "solver"):
            line = select(rows, p=p, solver=solver)
            style = "--" if "(" in solver else "-"
            for axis, quantity in ((axes[i], "phi"), (axes[len(orders) + i], "auroc")):
                axis.plot(column(line, "calls"), column(line, quantity), style, color=plot.solver_colour(solver),
                          label=solver)  # fmt: skip
        axes[i].set(title=f"p = {p:g}", yscale="log")
        axes[len(orders) + i].set(xlabel="oracle calls", ylim=(0.4, 1.02))
    axes[0].set(ylabel="Φ")
    axes[len(orders)].set(ylabel="AUROC of the weights")
    axes[len(orders) - 1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return made


def summary(tables: Tables) -> Rows:
    """Final Φ and AUROC."""
    return tables["statistics"]


def verdict(tables: Tables) -> str:
    """In one sentence."""
    parts = []
    for p in distinct(tables["statistics"], "p"):
        rows = select(tables["statistics"], p=p)
        best = min(rows, key=lambda row: row["phi"])
        ours = select(rows, solver="UniBiO (practical)")[0]
        parts.append(
            f"p = {p:g}: {best['solver']} has the lowest Φ ({best['phi']:.4f}, AUROC {best['auroc']:.2f}), "
            f"UniBiO (practical) {ours['phi']:.4f} ({ours['auroc']:.2f})"
        )
    return f"With {CALLS:,} calls each: " + "; ".join(parts) + "."
