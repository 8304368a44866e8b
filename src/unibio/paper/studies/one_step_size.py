"""UniBiO on Example 3 with one step size for all p, from (1, 1) and from a start with a degenerate lower level."""

import jax
import jax.numpy as jnp
import numpy as np

from unibio.comparison import plot
from unibio.core.coordinates import spow
from unibio.core.noise import Noise
from unibio.core.protocols import State
from unibio.files.tables import Rows, Tables, distinct, select
from unibio.hypergradients import Neumann
from unibio.paper.framework.study import Options, Progress, on_example3, over, sine_gradient, statistics
from unibio.paper.studies.noise_study import ORDERS, T
from unibio.solvers import UniBiO

TITLE = "Does a larger p slow UniBiO down?"
PAPER = "Larger p makes UniBiO converge more slowly. Each p has a step size of its own there, smaller for larger p."
ETA = 0.03
CASES = {"from (1, 1)": (1.0, 0.0), "from (0.001, 0.001)": (0.001, 0.0), "from (0.001, 0.001), noise": (0.001, 1.0)}


def one(p: float, start: float, variance: float, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """‖∇Φ(x_t)‖ and ‖y_t − y*(x_t)‖ with the step size η = 0.03 and noise of the given variance on ∇_y g and df/dz."""
    noise = Noise(grad_y_g=variance, grad_z_f=variance)
    solver = UniBiO(ETA, hypergradient=Neumann(terms=1, scale=1.0))

    def watch(state: State) -> tuple[jax.Array, jax.Array]:
        return sine_gradient(state), jnp.abs(state.y - spow(jnp.sin(state.x), 1 / (p - 1)))

    return on_example3(solver, p, T, key, noise, start, watch).watched


def run(options: Options, progress: Progress) -> Tables:
    """Computes the two tables of the study, for each of three cases (a start and a noise variance) and each of
    p = 2, 4, 6, 8.

    `curves` has for every step the median and the 10–90 % band over the seeds of two quantities, ‖∇Φ(x_t)‖ and
    ‖y_t − y*(x_t)‖. `statistics` has a row for each case and p: the numbers of `study.statistics` for ‖∇Φ‖, and the
    mean of ‖y − y*‖ over the first 20 steps. Without noise one seed is used.
    """
    cases = [(name, p) for name in CASES for p in ORDERS]
    progress(f"{len(cases)} curves with {options.seeds} seeds")
    norms, errors = over(one, [(p, *CASES[name]) for name, p in cases], options)
    curves: Rows = []
    facts: Rows = []
    for (name, p), norm, error in zip(cases, norms, errors, strict=True):
        seeds = options.seeds if CASES[name][1] else 1
        for quantity, values in (("gradient norm", norm), ("lower error", error)):
            curves += plot.bands(values[:seeds], {"case": name, "p": p, "quantity": quantity})
        early = float(np.median(error[:seeds, :20].mean(axis=1)))
        facts.append({"case": name, "p": p} | statistics(norm[:seeds], ETA) | {"lower_error_first_20": early})
    return {"curves": curves, "statistics": facts}


def draw(tables: Tables) -> "plot.Figure":
    """Above ‖∇Φ‖, below the error ‖y − y*‖ of the lower level, both by step; a column for each case."""
    rows = tables["curves"]
    cases = distinct(rows, "case")
    made, axes = plot.panels(len(cases), 2, width=3.0, height=2.2, sharex=True)
    for axis, (quantity, case) in zip(axes, [(q, c) for q in distinct(rows, "quantity") for c in cases], strict=True):
        for p, colour in zip(distinct(rows, "p"), plot.COLOURS, strict=False):
            curve = select(rows, case=case, p=p, quantity=quantity)
            plot.band(axis, curve[:150], colour, f"p = {p:g}")
        if quantity == "gradient norm":
            axis.set(title=case, ylim=(0, 1.1))
        else:
            axis.set(xlabel="t (first 150 of 500)", ylim=(0, 0.8))
        if case == cases[0]:
            axis.set(ylabel="‖∇Φ(x_t)‖" if quantity == "gradient norm" else "‖y_t − y*(x_t)‖")
    axes[0].legend()
    return made


def verdict(tables: Tables) -> str:
    """Judges the claim that a larger p slows UniBiO down, by runs with one step size for all p; and shows where p does
    matter."""
    same = select(tables["statistics"], case="from (1, 1)")
    means, slopes = ", ".join(f"{row['mean']:.4f}" for row in same), ", ".join(f"{row['slope']:.3f}" for row in same)
    noisy = [row["lower_error_first_20"] for row in select(tables["statistics"], case="from (0.001, 0.001), noise")]
    return (
        f"Larger p does not slow UniBiO down when every p has the same step size: with a step size of {ETA}, from (1, "
        f"1), the mean of ‖∇Φ‖ is {means} for p = 2, 4, 6, 8, and the slope of its running mean on logarithmic axes is "
        f"{slopes}. p does matter in the lower level: from (0.001, 0.001) with noise of variance 1, the mean of ‖y − "
        f"y*‖ over the first 20 steps grows from {noisy[0]:.2f} at p = 2 to {noisy[-1]:.2f} at p = 8. ∇Φ hardly "
        "changes by that, because f depends on y only through y^(p−1)."
    )
