"""The paper's synthetic study: UniBiO on Example 3 for p = 2, 4, 6, 8 under noise (Figure 1)."""

import jax
import jax.numpy as jnp
import numpy as np

from unibio.comparison import plot
from unibio.core.noise import Noise
from unibio.files.tables import Rows, Tables, column, distinct, select
from unibio.hypergradients import Neumann
from unibio.paper.framework.study import Options, Say, on_example3, over, statistics
from unibio.solvers import UniBiO

TITLE = "Noise study (Figure 1)"
PAPER = "UniBiO converges for every p and noise, and larger p makes it converge more slowly."
ORDERS, STEPS, VARIANCES = (2.0, 4.0, 6.0, 8.0), (0.05, 0.03, 0.02, 0.01), (0.0, 0.01, 1.0, 10.0)
T = 500
FADES = {"constant": 0.0, "decaying": 1.0}  # which share of the step falls to 0 in the second half of the run


def one(p: float, eta: float, variance: float, fade: float, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """True ‖∇Φ(x_t)‖ and ‖m_t‖ of one run with the paper's settings, noise on ∇_y g and df/dz.

    They are T_1 = 5, D_1 = 1, α = 1, budget 100, I = 2, β = .9, from (1, 1). With fade = 1 the step falls to 0 in the
    second half of the run.
    """
    noise = Noise(grad_y_g=variance, grad_z_f=variance)
    one_term = Neumann(terms=1, scale=1.0)  # J = C = 1: it is exact

    def schedule(t: jax.Array) -> jax.Array:
        return 1 - fade * jnp.clip(2 * t.astype(jnp.float64) / T - 1, 0, 1)

    solver = UniBiO(eta, hypergradient=one_term, schedule=schedule)
    log = on_example3(solver, p, T, key, noise)
    return log.watched, log.direction_norm


def run(options: Options, say: Say) -> Tables:
    """Curves with their bands, and their statistics. Without noise one seed is all there is."""
    orders = list(zip(ORDERS, STEPS, strict=True))
    cases = [(p, eta, variance, fade) for fade in FADES.values() for p, eta in orders for variance in VARIANCES]
    say(f"{len(cases)} curves with {options.seeds} seeds")
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
    """One panel for each variance, as in the paper: median and 10–90 % band of the true ‖∇Φ‖, dotted the estimate;
    below the same with a step that falls to 0, on a logarithmic axis."""
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
        f"It converges in every case (mean of the last 50 norms at most {worst[0]:.3f}); the means without noise, "
        f"{means}, grow with p because the paper gave larger p a smaller step: see “one step size”. With a step that "
        f"falls to 0 in the second half the last 50 norms are smaller in {better} of {len(constant)} cases, at most "
        f"{worst[1]:.3f}."
    )
