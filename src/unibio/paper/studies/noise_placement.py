"""UniBiO on Example 3 with noise at three places: on df/dz, on the generalised Hessian too, or on ∇_y f."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.comparison import plot
from unibio.core.noise import Noise
from unibio.core.problem import Problem
from unibio.files.tables import Rows, Tables, column, distinct, select
from unibio.hypergradients import Neumann
from unibio.paper.framework.study import Options, Progress, on_example3, over, sine_gradient, statistics
from unibio.paper.studies import noise_study
from unibio.paper.studies.noise_study import ORDERS, STEPS, T
from unibio.problems import example3
from unibio.run.trajectory import trajectory
from unibio.solvers import UniBiO

TITLE = "Does it matter where the noise enters?"
PAPER = (
    "The text speaks of “Gaussian noise on the gradients”, but the assumption puts it on df/dz and on the generalised "
    "Hessian d∇_y g/dz. We try both, and noise on ∇_y f, the gradient by y itself."
)
VARIANCES = (0.01, 1.0, 10.0)


class _Tilt(eqx.Module):
    """A sampler of vectors e with E‖e‖² = variance per entry. With F = f + ⟨e, y⟩ they are noise on ∇_y f."""

    variance: Any

    def draw(self, key: jax.Array, count: int, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.sqrt(self.variance) * jax.random.normal(key, (count, *jnp.shape(y)), jnp.result_type(y))

    def batch(self, realisation: jax.Array) -> jax.Array:
        return realisation

    def whole(self) -> None:
        return None


class _Tilted(eqx.Module):
    """F(x, y) = f(x, y) + ⟨e, y⟩, where e is the batch."""

    f: Any

    def __call__(self, x: jax.Array, y: jax.Array, batch: jax.Array | None) -> jax.Array:
        return self.f(x, y, None) + (0.0 if batch is None else jnp.vdot(batch, y))


def _hessian(p: float, eta: float, variance: float, key: jax.Array) -> jax.Array:
    """Noise on ∇_y g, df/dz and the generalised Hessian d∇_y g/dz. The series has ten terms, because with one term the
    Hessian would not be used."""
    noise = Noise(grad_y_g=variance, grad_z_f=variance, hess_z=variance)
    return on_example3(UniBiO(eta, hypergradient=Neumann(terms=10, scale=1.0)), p, T, key, noise).watched


def _gradient(p: float, eta: float, variance: float, key: jax.Array) -> jax.Array:
    """Noise on ∇_y g and ∇_y f. In the coordinate z the latter is multiplied by dy/dz, which is unbounded at y = 0."""
    exact = example3(p)
    problem = Problem(_Tilted(exact.f), exact.g, p, f_batches=_Tilt(variance), g_batches=Noise(grad_y_g=variance))
    solver, start = UniBiO(eta, hypergradient=Neumann(terms=1, scale=1.0)), jnp.asarray(1.0)
    return trajectory(problem, solver, start, start, T, key, watch=sine_gradient)[1].watched


PLACES: dict[str, Callable[..., jax.Array]] = {
    "df/dz": lambda p, eta, variance, key: noise_study.one(p, eta, variance, 0.0, key),
    "df/dz and Hessian": _hessian,
    "∇_y f": _gradient,
}


def run(options: Options, progress: Progress) -> Tables:
    """Computes the two tables of the study, for each of three places of the noise, three variances and four p.

    `curves` has for every step the median and the 10–90 % band over the seeds of ‖∇Φ(x_t)‖, and `statistics` a row for
    each curve (see `study.statistics`).
    """
    cases = [(p, eta, variance) for p, eta in zip(ORDERS, STEPS, strict=True) for variance in VARIANCES]
    curves: Rows = []
    facts: Rows = []
    for place, one in PLACES.items():
        progress(f"noise on {place}")
        for (p, eta, variance), values in zip(cases, over(one, cases, options), strict=True):
            names = {"place": place, "p": p, "variance": variance}
            curves += plot.bands(values, names)
            facts.append(names | {"eta": eta, "seeds": options.seeds} | statistics(values, eta))
    return {"curves": curves, "statistics": facts}


def draw(tables: Tables) -> "plot.Figure":
    """‖∇Φ‖ at the end (the mean of the last 50 steps, the median over the seeds) against the variance of the noise; a
    panel for each place of the noise, a line for each p. Dashed: ‖∇Φ‖ at the start. In all panels there is noise on
    ∇_y g too, and the step size is the paper's constant one."""
    rows = tables["statistics"]
    places = distinct(rows, "place")
    made, axes = plot.panels(len(places), width=3.2, height=2.7, sharey=True)
    for axis, place in zip(axes, places, strict=True):
        for p, colour, marker in zip(distinct(rows, "p"), plot.COLOURS, "osD^", strict=False):
            line = select(rows, place=place, p=p)
            axis.plot(column(line, "variance"), column(line, "last_50"), f"{marker}-", color=colour, label=f"p = {p:g}")
        axis.axhline(noise_study.AT_THE_START, color="grey", linestyle="--", linewidth=0.8)
        axis.set(
            title="noise on " + place.replace("∇_y f", r"$\nabla_y f$"), xscale="log", yscale="log", ylim=(3e-3, 3)
        )
    plot.label(axes, len(places), "variance of the noise", ["‖∇Φ‖ at the end"])
    axes[0].legend(loc="upper left", ncols=2)
    return made


def summary(tables: Tables) -> Rows:
    """The mean of ‖∇Φ‖ over the last 50 steps, the median over the seeds."""
    rows = tables["statistics"]
    return [
        {"noise on": place, "p": p}
        | {f"variance {row['variance']:g}": row["last_50"] for row in select(rows, place=place, p=p)}
        for place in distinct(rows, "place")
        for p in (2.0, 8.0)
    ]


def verdict(tables: Tables) -> str:
    """Judges where noise does harm: which places let every run end closer than it started, and the worst last norms of
    the others."""
    worst = {place: max(select(tables["statistics"], place=place), key=lambda row: row["last_50"])
             for place in distinct(tables["statistics"], "place")}  # fmt: skip
    start = noise_study.AT_THE_START
    close = [place for place, row in worst.items() if row["last_50"] < start / 2]
    far = [place for place, row in worst.items() if row["last_50"] > start]
    ends = "; ".join(
        f"{row['last_50']:.2f} with noise on {place} (p = {row['p']:g}, variance {row['variance']:g})"
        for place, row in worst.items()
    )
    last = select(tables["curves"], place=[*worst][-1], p=8.0, variance=10.0)[-1]
    return (
        f"With noise on {_either(close)} UniBiO gets close; with strong noise on {_either(far)} it can end farther "
        "away than it started. "
        f"From ‖∇Φ‖ = {start:.2f} the largest of the last norms is {ends}. On the Hessian noise does harm because the "
        "Neumann series multiplies noisy matrices, and on ∇_y f because the change to the coordinate z multiplies it "
        "by dy/dz, which is unbounded. More noise need not give a larger last norm: x then wanders at random, past "
        "stationary points and past x = 0, where ‖∇Φ‖ is 1. With variance 10 on ∇_y f at p = 8 four fifths of the "
        f"runs end between {last['low']:.2f} and {last['high']:.2f}."
    )


def _either(places: list[str]) -> str:
    return " or on ".join(places) or "none of the three"
