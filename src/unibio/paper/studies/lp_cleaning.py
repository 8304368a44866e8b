"""Every solver on ℓ_p regression with corrupted targets (Example 2): the Φ it reaches, the samples it finds."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from unibio import solvers as sv
from unibio.comparison import plot
from unibio.core import oracle
from unibio.core.problem import Problem
from unibio.core.protocols import State
from unibio.files.tables import Rows, Tables, as_rows, column, distinct, select
from unibio.hypergradients import Identity, Neumann
from unibio.lower.epoch_sgd import EpochSGD
from unibio.lower.newton import Newton, lower_solution
from unibio.lower.sgd import SGD
from unibio.paper.framework.study import Options, Progress
from unibio.problems import corrupted_regression, lp_regression
from unibio.run.ensemble import Ensemble, run_ensemble
from unibio.solvers.step_sizes import stepping

TITLE = "Which solver cleans ℓ_p regression best? (Example 2)"
PAPER = "ℓ_p regression with a weight for each sample belongs to the class of problems. The paper does not run it."
ORDERS, N, D, BATCH, CALLS = (2.0, 3.0, 4.0, 6.0), 200, 10, 20, 40_000
LOWER = (1e-5, 1e-4, 1e-3, 1e-2)
PLAIN, NORMALISED, ADAM = (30.0, 200.0, 1000.0), (0.1, 0.5, 2.0), (0.02, 0.1, 0.5)

# Three terms and three lower steps, as in the paper's hyper-cleaning. Beside each solver are the upper step sizes to
# try: a step along the gradient, one of a fixed length and one of Adam need different numbers.
CONTESTANTS: dict[str, tuple[Any, tuple[float, ...]]] = {
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
    "F2SA": (sv.F2SA(1, 1, multiplier=10, lower_steps=3), (1.0, 5.0, 30.0)),
}  # fmt: skip


class Detection(eqx.Module):
    """The metrics. `auroc` is the share of pairs of a corrupted and a clean sample in which the corrupted one has the
    lower weight, ties counting half. `loss` is f(x_t, y_t) on all validation samples, which is what a user would
    see."""

    corrupted: jax.Array

    def __call__(self, problem: Problem, state: State) -> dict[str, jax.Array]:
        gap = state.x[None, :] - state.x[:, None]  # [i, j]: x_j − x_i
        pairs = self.corrupted[:, None] & ~self.corrupted[None, :]
        wins = jnp.where(gap > 0, 1.0, jnp.where(gap == 0, 0.5, 0.0)).astype(state.x.dtype)
        loss = oracle.value_f(problem, state.x, state.y, problem.f_batches.whole())
        return {"loss": loss, "auroc": jnp.sum(jnp.where(pairs, wins, 0.0)) / jnp.sum(pairs)}


@jax.jit
def _phi(problem: Problem, x: jax.Array, y: jax.Array) -> jax.Array:
    """Φ(x) for each row of x, with Newton's method started from the same row of y; inf where Φ is not finite."""

    def one(x: jax.Array, y: jax.Array) -> jax.Array:
        return oracle.value_f(problem, x, Newton()(problem, x, y)[0], problem.f_batches.whole())

    phi = jax.vmap(one)(x, y)
    return jnp.where(jnp.isfinite(phi), phi, jnp.inf)


def run(options: Options, progress: Progress) -> Tables:
    """Tries twelve pairs of step sizes of each solver on two seeds and runs the pair with the lowest final Φ on 24
    other seeds.

    `curves` has for each solver, p and measurement the medians over these seeds of the calls, of `loss` and of `auroc`
    (see `Detection`). `statistics` has for each solver and p the chosen step sizes, and the medians at the end of Φ,
    `loss` and `auroc`, the last with its 10 % and 90 % quantiles.
    """
    data = corrupted_regression(N, D, seed=options.seed)
    problems = {p: lp_regression(data.train, data.validation, p, 1e-2, BATCH) for p in ORDERS}
    starts = {p: lower_solution(problem, jnp.zeros(N), jnp.zeros(D)) for p, problem in problems.items()}
    metric = Detection(jnp.asarray(data.corrupted))
    tuning, testing = (jax.random.split(jax.random.key(seed), 24) for seed in (options.seed + 1, options.seed))
    calls = 10 * CALLS if options.full else CALLS

    def lanes(p: float, solvers: list[Any], keys: jax.Array) -> Ensemble:
        x, y = jnp.zeros(N), starts[p]
        return run_ensemble(problems[p], solvers, x, y, keys, max_calls=calls, metrics=metric, measurements=10)

    curves: Rows = []
    facts: Rows = []
    for name, (solver, upper) in CONTESTANTS.items():
        settings = list(itertools.product(upper, LOWER))
        for p, problem in problems.items():
            progress(f"{name}, p = {p:g}")
            candidates = [stepping(solver, *setting) for setting in settings]
            twice = [candidate for candidate in candidates for _ in range(2)]
            tried = lanes(p, twice, jnp.tile(tuning[:2], len(settings)))
            best = int(np.argmin(np.median(_phi(problem, tried.x, tried.y).reshape(-1, 2), axis=1)))
            ends = lanes(p, [candidates[best]] * len(testing), testing)
            medians = {q: np.median(ends.table[q], axis=0) for q in ("calls", "loss", "auroc")}
            lines = [{"solver": name, "p": p} | row for row in as_rows(medians)]
            curves += lines
            low, high = np.quantile(ends.table["auroc"][:, -1], [0.1, 0.9])
            facts.append(
                {"solver": name, "p": p, "upper_step": settings[best][0], "lower_step": settings[best][1],
                 "phi": float(np.median(_phi(problem, ends.x, ends.y))), "loss": lines[-1]["loss"],
                 "auroc": lines[-1]["auroc"], "auroc_low": float(low), "auroc_high": float(high)}
            )  # fmt: skip
    return {"curves": curves, "statistics": facts}


def draw(tables: Tables) -> "plot.Figure":
    """Above the validation loss, below the AUROC of the weights, both by oracle calls; a column for each p."""
    rows = tables["curves"]
    orders = distinct(rows, "p")
    made, axes = plot.panels(len(orders), 2, width=2.8, height=2.3, sharex=True)
    for i, p in enumerate(orders):
        for solver in distinct(rows, "solver"):
            line = select(rows, p=p, solver=solver)
            style = "--" if "(" in solver else "-"
            for axis, quantity in ((axes[i], "loss"), (axes[len(orders) + i], "auroc")):
                axis.plot(column(line, "calls"), column(line, quantity), style, color=plot.solver_colour(solver),
                          label=solver)  # fmt: skip
        axes[i].set(title=f"p = {p:g}", yscale="log")
        axes[len(orders) + i].set(xlabel="oracle calls", ylim=(0.4, 1.02))
    axes[0].set(ylabel="f(x_t, y_t)")
    axes[len(orders)].set(ylabel="AUROC of the weights")
    axes[len(orders) - 1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return made


def verdict(tables: Tables) -> str:
    """Names for each p the solver that reaches the lowest Φ, and how well it finds the corrupted samples."""
    winners: dict[str, list[str]] = {}
    parts = []
    for p in distinct(tables["statistics"], "p"):
        rows = select(tables["statistics"], p=p)
        best = min(rows, key=lambda row: row["phi"])
        ours = select(rows, solver="UniBiO (practical)")[0]
        winners.setdefault(best["solver"], []).append(f"{p:g}")
        parts.append(
            f"at p = {p:g} {best['phi']:.4f} ({best['auroc']:.2f}), with UniBiO (practical) {ours['phi']:.4f} "
            f"({ours['auroc']:.2f})"
        )
    calls = round(max(column(tables["curves"], "calls")), -4)
    best_at = " and ".join(f"{name} at p = {', '.join(orders)}" for name, orders in winners.items())
    return (
        f"With about {calls:,.0f} oracle calls each, the lowest Φ is reached by {best_at}. It is "
        f"{'; '.join(parts)}. In parentheses is the chance that a corrupted sample has a lower weight than a clean one "
        "(AUROC)."
    )
