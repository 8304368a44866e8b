"""What the paper leaves open: unknown p. The answers are proved in docs/without_p.md and measured here."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core.coordinates import spow
from unibio.lower.staged_sgd import StagedSGD
from unibio.paper.claims.registry import Found, Verdict, claim, listed
from unibio.paper.theory.without_p import log_distance

_WHERE, _ORDERS, _RUNS = "Conclusion (unknown p)", (2.0, 4.0, 8.0), 256


def _answered(passed: bool) -> Verdict:
    return Verdict.answered if passed else Verdict.refuted


def _ends(lower: StagedSGD, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """|w| after StagedSGD on |w|^p/p from w = 1 with noise of variance 1, and the gradients taken: a row for each p."""

    def one(p: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        def gradient(w: jax.Array, noise: jax.Array) -> jax.Array:
            return spow(w, p - 1) + noise

        w, taken = lower(gradient, lambda count: jax.random.normal(key, (count,)), jnp.asarray(1.0), None)
        return jnp.abs(w), taken

    keys = jax.random.split(jax.random.key(seed), _RUNS)
    ends, taken = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(jnp.asarray(_ORDERS), keys)
    return np.asarray(ends), np.asarray(taken)


@claim(_WHERE, "left open: a lower solver at the rate T^{−1/(2(p−1))} of Theorem 2 that is not told p")
def unknown_p_rate() -> Found:
    """StagedSGD, which is told neither p nor a step size, minimises |w|^p/p from w = 1 in a first ball of radius 2 with
    noise of variance 1, 256 times for N = 300 and 30,000 at p = 2, 4, 8. The slope of the 90 % quantile of |w| in the
    steps of a stage is compared with −1/(2(p−1)). It passes within .04, which two budgets and 256 runs leave
    uncertain."""
    budgets = (300, 30_000)
    quantiles = np.array([np.quantile(_ends(StagedSGD(n, 2.0))[0], 0.9, axis=1) for n in budgets])
    ratio = math.log(StagedSGD(budgets[1]).stage_steps / StagedSGD(budgets[0]).stage_steps)
    slopes = np.log(quantiles[1] / quantiles[0]) / ratio
    theory = [-1 / (2 * (p - 1)) for p in _ORDERS]
    off = float(np.max(np.abs(slopes - theory)))
    text = (
        f"Stages of AdaGrad-norm in halving balls, without p and without a step size, have the slopes "
        f"{listed(slopes, '.3f')} at p = 2, 4, 8 in the steps of a stage, where the theory has {listed(theory, '.3f')}."
    )
    return Found(_answered(off <= 0.04), off, text)


@claim(_WHERE, "left open: a bound on the distance that holds for every p at once")
def unknown_p_bound() -> Found:
    """Theorem 1 of docs/without_p.md with δ = .1, for the runs of `unknown_p_rate` with N = 1,000: how many of 768
    distances exceed the bound, and how loose it is. The gradient is at most 5^{p−1} in the balls, and the light tail of
    the noise is σ² = 2/(1 − e^{−2})."""
    lower = StagedSGD(1000, 2.0)
    ends, _ = _ends(lower, seed=1)
    sigma = math.sqrt(2 / -math.expm1(-2))
    bounds = [
        math.exp(log_distance(p, 1.0, (p - 1) * math.log(5.0), sigma, 2.0, math.log(lower.steps), math.log(10)))
        for p in _ORDERS
    ]
    above = float(np.mean(ends > np.array(bounds)[:, None]))
    loose = np.array(bounds) / np.quantile(ends, 0.9, axis=1)
    text = (
        f"{100 * above:.1f} % of the distances exceed the proved bound, where 10 % may. It is {listed(loose, '.0f')} "
        "times the 90 % quantile at p = 2, 4, 8, and larger than the first ball, so that it says nothing at this N."
    )
    return Found(_answered(above <= 0.1), above, text)


@claim(_WHERE, "left open: how large the first ball must be when nothing is known")
def unknown_p_search() -> Found:
    """The search of StagedSGD with N = 1,000 and a first guess of .01, 1 and 100 times the true distance, the largest
    ball being 2,000: the 90 % quantile of the distance over 256 runs and p = 2, 4, 8, divided by that with the first
    radius 2, and the most stages that the search took. It passes if no quantile is more than twice as large, for
    guesses up to the true distance, and no search takes more stages than log₂ of 16/guess or one, rounded up."""
    known = np.quantile(_ends(StagedSGD(1000, 2.0))[0], 0.9, axis=1)
    ratios, stages, passed = [], [], True
    for guess in (0.01, 1.0, 100.0):
        lower = StagedSGD(1000, 2000.0, guess)
        ends, taken = _ends(lower)
        most = int(taken.max()) // lower.stage_steps - lower.stages
        ratios.append(float(np.max(np.quantile(ends, 0.9, axis=1) / known)))
        stages.append(most)
        passed &= most <= max(1, math.ceil(math.log2(16 / guess))) and (guess > 1 or ratios[-1] <= 2)
    text = (
        f"From guesses of .01, 1 and 100 times the true distance the search takes at most {listed(stages, 'd')} "
        f"stages, and the distance ends at most {listed(ratios, '.2f')} times as far as with a known radius."
    )
    return Found(_answered(passed), max(ratios[:2]), text)
