"""UniBiO on Example 3 for p = 2, 4, 6, 8 and four noise levels (Figure 1)."""

import jax
import jax.numpy as jnp
import numpy as np

from unibio.comparison import plot
from unibio.core.noise import Noise
from unibio.files.tables import Rows, Tables, column, distinct, select
from unibio.hypergradients import Neumann
from unibio.paper.framework.study import Options, Progress, on_example3, over, statistics
from unibio.solvers import UniBiO

TITLE = "Does UniBiO converge for every p and every noise level? (Figure 1)"
PAPER = "UniBiO converges for every p and every noise level, and more slowly for larger p."
ORDERS, STEPS, VARIANCES = (2.0, 4.0, 6.0, 8.0), (0.05, 0.03, 0.02, 0.01), (0.0, 0.01, 1.0, 10.0)
T = 500
FADES = {"constant": 0.0, "decaying": 1.0}  # the share of the step size that falls to 0 in the second half of a run


def one(p: float, eta: float, variance: float, fade: float, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The true ‖∇Φ(x_t)‖ and the norm ‖m_t‖ of the momentum, which estimates it, at every step of one run.

    The settings are the paper's: a first epoch of T_1 = 5 lower steps in a ball of radius D_1 = 1 with step size
    γ_1 = 1, a budget of 100 lower steps, y refreshed every I = 2 steps, momentum β = 0.9, start (1, 1), noise of the
    given variance on ∇_y g and df/dz. With fade = 1 the step size η falls to 0 in the second half of the run.
    """
    noise = Noise(grad_y_g=variance, grad_z_f=variance)
    one_term = Neumann(terms=1, scale=1.0)  # exact here: the generalised Hessian of Example 3 is 1

    def schedule(t: jax.Array) -> jax.Array:
        return 1 - fade * jnp.clip(2 * t.astype(jnp.float64) / T - 1, 0, 1)

    solver = UniBiO(eta, hypergradient=one_term, schedule=schedule)
    log = on_example3(solver, p, T, key, noise)
    return log.watched, log.direction_norm


def run(options: Options, progress: Progress) -> Tables:
    """Computes the two tables of the study. A case is a p with its step size η, a noise variance, and a constant or
    decaying step size.

    `curves` has for each case and step t the median over the seeds of the true ‖∇Φ(x_t)‖ and its 10 % and 90 %
    quantiles. `statistics` has a row for each case (see `study.statistics`). Cases without noise are the same for every
    seed, so only one seed is used for them.
    """
    orders = list(zip(ORDERS, STEPS, strict=True))
    cases = [(p, eta, variance, fade) for fade in FADES.values() for p, eta in orders for variance in VARIANCES]
    progress(f"{len(cases)} curves with {options.seeds} seeds")
    true, estimate = over(one, cases, options)
    curves: Rows = []
    facts: Rows = []
    for (p, eta, variance, fade), values, estimates in zip(cases, true, estimate, strict=True):
        seeds = 1 if variance == 0 else options.seeds
        names = {"step": "decaying" if fade else "constant", "p": p, "variance": variance}
        middle = np.median(estimates[:seeds], axis=0)
        rows = plot.bands(values[:seeds], names)
        curves += [row | {"estimate": float(value)} for row, value in zip(rows, middle, strict=True)]
        facts.append(names | {"eta": eta, "seeds": seeds} | statistics(values[:seeds], eta))
    return {"curves": curves, "statistics": facts}


def draw(tables: Tables) -> "plot.Figure":
    """A panel for each variance, as in the paper: the median and the 10–90 % band of the true ‖∇Φ‖, and dotted its
    estimate ‖m_t‖. Below, on a logarithmic axis, the same runs with a step size that falls to 0."""
    rows = tables["curves"]
    made, axes = plot.panels(4, 2, width=2.7, height=2.4, sharey="row", sharex=True)
    panels = [(step, variance) for step in FADES for variance in distinct(rows, "variance")]
    for axis, (step, variance) in zip(axes, panels, strict=True):
        for p, colour in zip(distinct(rows, "p"), plot.COLOURS, strict=False):
            curve = select(rows, p=p, variance=variance, step=step)[::2]
            plot.band(axis, curve, colour, f"p = {p:g}")
            if step == "constant":
                axis.plot(column(curve, "t"), column(curve, "estimate"), ":", color=colour, linewidth=0.8)
            else:
                constant = select(rows, p=p, variance=variance, step="constant")[::2]
                axis.plot(column(curve, "t"), column(constant, "median"), color=colour, linewidth=0.5, alpha=0.6)
    for axis, variance in zip(axes, distinct(rows, "variance"), strict=False):
        axis.set(title="deterministic" if variance == 0 else f"variance {variance:g}")
    axes[0].set(ylabel="constant step\n‖∇Φ(x_t)‖", ylim=(0, 1.3))
    axes[4].set(ylabel="decaying step\n(thin: constant)", yscale="log", ylim=(1e-5, 2))
    for axis in axes[4:]:
        axis.set(xlabel="t")
    axes[0].plot([], [], ":", color="grey", label="‖m_t‖")
    axes[0].legend(loc="upper right")
    return made


def verdict(tables: Tables) -> str:
    """Judges the claim that UniBiO converges for every p and every noise level, by the norms at the end of the runs."""
    constant, decaying = (select(tables["statistics"], step=step) for step in FADES)
    means = ", ".join(f"{row['mean']:.4f}" for row in select(constant, variance=0.0))
    worst = [max(row["last_50"] for row in rows) for rows in (constant, decaying)]
    better = sum(b["last_50"] < a["last_50"] for a, b in zip(constant, decaying, strict=True))
    return (
        f"UniBiO converges for every p and every noise level: the mean of ‖∇Φ‖ over the last 50 of {T} steps is at "
        f"most {worst[0]:.3f} in all {len(constant)} cases. Without noise the mean over all steps is {means} for "
        "p = 2, 4, 6, 8. It grows with p because the paper gave larger p a smaller step size: see “Does a larger p "
        f"slow UniBiO down?”. With a step size that falls to 0 in the second half, the last 50 norms are smaller in "
        f"{better} of {len(constant)} cases, and their mean is at most {worst[1]:.3f}."
    )
