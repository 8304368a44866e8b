"""UniBiO on Example 3 with one step size for all p, from (1, 1) and from a start with a degenerate lower level."""

import jax
import jax.numpy as jnp
import numpy as np

from unibio.comparison import plot
from unibio.core.coordinates import spow
from unibio.core.noise import Noise
from unibio.core.protocols import State
from unibio.files.tables import Rows, Tables, column, distinct, select
from unibio.hypergradients import Neumann
from unibio.paper.framework.study import Options, Outcome, Progress, on_example3, over, sine_gradient, statistics
from unibio.paper.studies.noise_study import ORDERS, T
from unibio.solvers import UniBiO

TITLE = "Does a larger p slow UniBiO down? (Figure 1)"
PAPER = "Larger p makes UniBiO converge more slowly (seen with a smaller step size for each larger p)."
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
        facts.append(
            {"case": name, "p": p, "seeds": seeds} | statistics(norm[:seeds], ETA) | {"lower_error_first_20": early}
        )
    return {"curves": curves, "statistics": facts}


def draw(tables: Tables) -> "plot.Figure":
    """The first 150 steps with one step size for all p. First and second: ‖∇Φ‖ from both starts; the lines of all p lie
    on each other, so those of smaller p are drawn wider. Third: the error of the lower level, the median over the
    seeds."""
    rows = tables["curves"]
    made, axes = plot.panels(3, width=3.3, height=2.7)
    shown = [("from (1, 1)", "gradient norm"), ("from (0.001, 0.001), noise", "gradient norm"),
             ("from (0.001, 0.001), noise", "lower error")]  # fmt: skip
    for axis, (case, quantity) in zip(axes, shown, strict=True):
        for p, colour, width in zip(distinct(rows, "p"), plot.COLOURS, (7.0, 4.5, 2.5, 1.0), strict=False):
            curve = select(rows, case=case, p=p, quantity=quantity)[:150]
            axis.plot(column(curve, "t"), column(curve, "median"), color=colour, linewidth=width, label=f"p = {p:g}")
        axis.set(title=case, xlabel="t", ylim=(0, None), ylabel=plot.NORM)
    axes[2].set(ylabel=plot.LOWER_ERROR)
    axes[0].legend(loc="upper right")
    return made


def summary(tables: Tables) -> Rows:
    """The numbers of the runs from (1, 1), and from the degenerate start with noise."""
    chosen = ("case", "p", "mean", "slope", "last_50", "lower_error_first_20")
    cases = ("from (1, 1)", "from (0.001, 0.001), noise")
    return [{key: row[key] for key in chosen} for row in tables["statistics"] if row["case"] in cases]


def outcome(tables: Tables) -> Outcome:
    """Corrected if the means of ‖∇Φ‖ from (1, 1) are within 5 % of each other for all p: then the slowdown that the
    paper shows comes from its smaller step sizes."""
    means = column(select(tables["statistics"], case="from (1, 1)"), "mean")
    return Outcome.corrected if max(means) < 1.05 * min(means) else Outcome.confirmed


def verdict(tables: Tables) -> str:
    """Judges the claim that a larger p slows UniBiO down, by runs with one step size for all p; and shows where p does
    matter."""
    same = select(tables["statistics"], case="from (1, 1)")
    means = ", ".join(f"{row['mean']:.4f}" for row in same)
    noisy = [row["lower_error_first_20"] for row in select(tables["statistics"], case="from (0.001, 0.001), noise")]
    worse = "it does not slow the lower level"
    if noisy[-1] > 1.5 * noisy[0]:
        worse = "it does slow the lower level, but Example 3 hides that"
    slows = "does not slow" if outcome(tables) == Outcome.corrected else "slows"
    return (
        f"On Example 3 larger p {slows} the upper level down when every p has the same step size; {worse}. In the "
        f"paper larger p have smaller step sizes. With {ETA} for every p from (1, 1) the mean of ‖∇Φ‖ is {means} for "
        "p = 2, 4, 6, 8. Near the degenerate point and with noise, the mean error of y in the first 20 steps is "
        f"{noisy[0]:.2f} at p = 2 and {noisy[-1]:.2f} at p = 8. Example 3 hides this error, because its f "
        "depends on y only through y^{p−1}."
    )
