"""What `StagedSGD` and `UniBiO.without_p` are worth: the figures of docs/without_p.md.

    python benchmarks/without_p.py slopes --dim 1          # distance against N, N = 10³ … 10⁶
    python benchmarks/without_p.py epoch-sgd               # against Epoch-SGD with p known and its step size tuned
    python benchmarks/without_p.py coverage                # Theorem 1's bound in 10,000 runs
    python benchmarks/without_p.py search                  # Theorem 2 from first guesses 1e-3 to 1e3 times the truth
    python benchmarks/without_p.py schedule                # the schedule at T = N², N = 16 … 512
    python benchmarks/without_p.py solve                   # UniBiO on three problems: p known, unknown, stated wrongly

Every piece writes its rows to a CSV file in the folder `--out` when it is done, prints them, and is not computed again
if the file is there. All but `solve` run plain numpy, vectorised over seeds: tests/lower/test_without_p_benchmark.py
holds these loops to `StagedSGD`. A seed gives the same numbers on every machine up to rounding.
"""

import argparse
import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import unibio as ub
from unibio.files.atomic import write_bytes
from unibio.files.tables import Rows, as_csv, from_csv

ORDERS = (2.0, 3.0, 4.0, 8.0)
DELTA = 0.1
_BLOCK = 250_000  # numbers of noise that are drawn at a time


def norms(a: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("...d,...d->...", a, a))


def noise_rows(rng: np.random.Generator, count: int, shape: tuple[int, ...], deviation: float) -> Iterator[np.ndarray]:
    """`count` arrays of Gaussian noise, drawn in blocks."""
    each = max(1, _BLOCK // math.prod(shape))
    for first in range(0, count, each):
        yield from deviation * rng.standard_normal((min(each, count - first), *shape))


Gradient = Callable[[np.ndarray], np.ndarray]
Noise = Any  # an iterable of arrays that broadcast against y


def stage(gradient: Gradient, y: np.ndarray, radius: np.ndarray, noise: Noise, steps: int) -> tuple[np.ndarray, Any]:
    """One stage for many runs at once, y[..., d] with radius[...]: the mean, and S of the last step."""
    w, mean, square = y, np.zeros_like(y), np.zeros(y.shape[:-1])
    length = math.sqrt(2) * radius
    for _, e in zip(range(steps), noise, strict=False):
        mean += w
        s = gradient(w) + e
        square += np.einsum("...d,...d->...", s, s)
        offset = w - (length / np.sqrt(square))[..., None] * s - y
        w = y + np.minimum(1.0, radius / np.maximum(norms(offset), 1e-300))[..., None] * offset
    return mean / steps, square


def stages(gradient: Gradient, y: np.ndarray, radius: Any, noise: Noise, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """All stages of StagedSGD(steps, radius): the end, and the largest S_k/N_0."""
    plan, noise = ub.StagedSGD(steps), iter(noise)
    radius, most = np.broadcast_to(np.asarray(radius, float), y.shape[:-1]), np.zeros(y.shape[:-1])
    for k in range(plan.stages):
        y, square = stage(gradient, y, radius / 2**k, noise, plan.stage_steps)
        most = np.maximum(most, square / plan.stage_steps)
    return y, most


def power_of_norm(orders: np.ndarray) -> Gradient:
    """∇ of ‖y‖^p/p for y[p, seed, d]; its growth has μ = 1 in every dimension."""

    def gradient(y: np.ndarray) -> np.ndarray:
        return norms(y)[..., None] ** (orders[:, None, None] - 2) * y

    return gradient


def sum_of_powers(orders: np.ndarray) -> Gradient:
    """∇ of ‖y‖_p^p/p; its growth has μ = d^{1−p/2}."""

    def gradient(y: np.ndarray) -> np.ndarray:
        return np.abs(y) ** (orders[:, None, None] - 2) * y

    return gradient


FUNCTIONS = {"norm": power_of_norm, "sum": sum_of_powers}


def light_tail(deviation: float, dim: int) -> float:
    """σ with E exp(‖n‖²/σ²) = e for n ~ N(0, deviation²·I)."""
    return math.sqrt(2 * deviation**2 / -math.expm1(-2 / dim))


def growth(function: str, p: float, dim: int) -> float:
    return 1.0 if function == "norm" else dim ** (1 - p / 2)


def start(orders: np.ndarray, seeds: int, dim: int, distance: float = 1.0) -> np.ndarray:
    return np.full((len(orders), seeds, dim), distance / math.sqrt(dim))


def prior_A(G: Any, sigma: float, n: int, events: int) -> Any:
    level = math.log(events / DELTA)
    return 2 * math.sqrt(2) * (G + sigma * math.sqrt(1 + level / n)) + 2 * sigma * math.sqrt(3 * level)


def distance_bound(A: Any, p: float, mu: float, n: int, smallest: float) -> Any:
    """Theorem 1 with `smallest` = R_0/2^K."""
    return np.maximum(smallest, (13 / 8) ** (1 / p) * (2 * p * A / (mu * math.sqrt(n))) ** (1 / (p - 1)))


def slopes(dim: int, function: str, seeds: int, most: int, seed: int) -> Rows:
    """Quantiles of ‖y_K − y*‖ from ‖y_0 − y*‖ = 1 with R_0 = 2; noise N(0, I/d) for "norm", N(0, I) for "sum"."""
    orders = np.asarray(ORDERS)
    deviation = 1 / math.sqrt(dim) if function == "norm" else 1.0
    sigma = light_tail(deviation, dim)
    rows: Rows = []
    budgets = [n for n in (1000, 10_000, 100_000, 1_000_000) if n <= most]
    for budget in budgets:
        plan, rng = ub.StagedSGD(budget), np.random.default_rng([seed, dim, budget])
        n, k = plan.stage_steps, plan.stages
        noise = noise_rows(rng, n * k, (seeds, dim), deviation)
        ends, observed = stages(FUNCTIONS[function](orders), start(orders, seeds, dim), 2.0, noise, budget)
        for i, p in enumerate(ORDERS):
            values, mu, smallest = norms(ends[i]), growth(function, p, dim), 2.0 / 2**k
            prior = distance_bound(prior_A(5 ** (p - 1), sigma, n, 3 * k), p, mu, n, smallest)
            level = math.log(2 * k / DELTA)
            posterior = distance_bound(
                2 * np.sqrt(2 * observed[i]) + 2 * sigma * math.sqrt(3 * level), p, mu, n, smallest
            )
            q90 = float(np.quantile(values, 0.9))
            draws = np.random.default_rng(0).choice(values, (2000, seeds))
            rows.append(
                {
                    "function": function,
                    "dim": dim,
                    "p": p,
                    "N": budget,
                    "N_0": n,
                    "median": float(np.median(values)),
                    "q90": q90,
                    "q90_error": float(np.quantile(draws, 0.9, axis=1).std()),
                    "largest": float(values.max()),
                    "prior_bound": float(prior),
                    "median_posterior_bound": float(np.median(posterior)),
                    "above_posterior": int(np.sum(values > posterior)),
                    "above_prior": int(np.sum(values > prior)),
                    "seeds": seeds,
                }
            )
    for p in ORDERS:
        line = [row for row in rows if row["p"] == p]
        logs = np.log([row["q90"] for row in line])
        fit = {
            f"slope_in_{name}": float(np.polyfit(np.log([row[name] for row in line]), logs, 1)[0])
            for name in ("N", "N_0")
        }
        # an error of the slope from those of the quantiles
        x = np.log([row["N_0"] for row in line])
        weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
        relative = np.array([row["q90_error"] / row["q90"] for row in line])
        fit |= {"slope_error": float(np.sqrt(np.sum((weights * relative) ** 2))), "theory": -1 / (2 * (p - 1))}
        for row in line:
            row.update(fit)
    return rows


def coverage(dim: int, function: str, runs: int, budget: int, seed: int) -> Rows:
    """How often the distance exceeds Theorem 1's bound, a priori and a posteriori, with δ = .1."""
    rows = []
    orders, deviation = np.asarray(ORDERS), 1.0
    sigma, plan = light_tail(deviation, dim), ub.StagedSGD(budget)
    n, k = plan.stage_steps, plan.stages
    rng = np.random.default_rng([seed, dim, budget])
    ends, observed = stages(
        FUNCTIONS[function](orders),
        start(orders, runs, dim),
        2.0,
        noise_rows(rng, n * k, (runs, dim), deviation),
        budget,
    )
    for i, p in enumerate(ORDERS):
        values, mu, smallest = norms(ends[i]), growth(function, p, dim), 2.0 / 2**k
        prior = distance_bound(prior_A(5 ** (p - 1), sigma, n, 3 * k), p, mu, n, smallest)
        level = math.log(2 * k / DELTA)
        posterior = distance_bound(2 * np.sqrt(2 * observed[i]) + 2 * sigma * math.sqrt(3 * level), p, mu, n, smallest)
        rows.append(
            {
                "function": function,
                "dim": dim,
                "p": p,
                "N": budget,
                "runs": runs,
                "delta": DELTA,
                "above_prior": float(np.mean(values > prior)),
                "above_posterior": float(np.mean(values > posterior)),
                "q90": float(np.quantile(values, 0.9)),
                "largest": float(values.max()),
                "prior_bound": float(prior),
                "prior_bound_over_q90": float(prior / np.quantile(values, 0.9)),
                "posterior_bound_over_q90": float(np.median(posterior) / np.quantile(values, 0.9)),
            }
        )
    return rows


def search(
    gradient: Gradient, y: np.ndarray, guess: float, largest: float, noise: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """StagedSGD with a guess for many runs: the ends, R_0, the stages of the search, and the largest S/N_0. `noise` has
    a row for each of the (K+1)·N_0 samples."""
    plan = ub.StagedSGD(steps)
    n, shape = plan.stage_steps, y.shape[:-1]
    radius, tried, most = np.full(shape, largest), np.zeros(shape, int), np.zeros(shape)
    searching, R = np.ones(shape, bool), guess
    while largest > R and searching.any():
        mean, square = stage(gradient, y, np.full(shape, R), noise[:n], n)
        tried += searching
        most = np.where(searching, np.maximum(most, square / n), most)
        found = searching & (norms(mean - y) <= R / 2)
        radius = np.where(found, min(2 * R, largest), radius)
        searching, R = searching & ~found, 2 * R
    ends, below = stages(gradient, y, radius, noise[n:], steps)
    return ends, radius, tried, np.maximum(most, below)


def searches(dim: int, function: str, runs: int, budget: int, seed: int) -> Rows:
    """Theorem 2 from first guesses of 1e-3 to 1e3 times the true distance 1, with the cap R_max = 2000."""
    rows = []
    orders, largest, deviation = np.asarray(ORDERS), 2000.0, 1 / math.sqrt(dim)
    sigma, plan, gradient = light_tail(deviation, dim), ub.StagedSGD(budget), FUNCTIONS[function](orders)
    n, k = plan.stage_steps, plan.stages
    rng = np.random.default_rng([seed, dim, budget])
    noise = deviation * rng.standard_normal(((k + 1) * n, runs, dim))
    known, _ = stages(gradient, start(orders, runs, dim), 2.0, noise[n:], budget)
    for guess in 10.0 ** np.arange(-3, 4):
        y = start(orders, runs, dim)
        ends, radius, tried, observed = search(gradient, y, guess, largest, noise, budget)
        J = max(0, math.ceil(math.log2(largest / guess))) + 1
        level = math.log(3 * (k + J) / DELTA)
        for i, p in enumerate(ORDERS):
            mu = growth(function, p, dim)
            A = 2 * np.sqrt(2 * observed[i]) + 2 * sigma * math.sqrt(3 * level)
            r = (2 * p * A / (mu * math.sqrt(n))) ** (1 / (p - 1))
            R_hat = (4**p * p * A / (mu * math.sqrt(n))) ** (1 / (p - 1))
            most = 1 + np.ceil(np.maximum(0.0, np.log2(np.maximum(4.0, R_hat) / guess)))
            values, bound = norms(ends[i]), np.maximum(radius[i] / 2**k, 6 * r)
            rows.append(
                {
                    "function": function,
                    "dim": dim,
                    "p": p,
                    "N": budget,
                    "runs": runs,
                    "guess_over_truth": float(guess),
                    "up_stages_median": float(np.median(tried[i])),
                    "up_stages_most": int(tried[i].max()),
                    "up_stages_bound": float(np.median(most)),
                    "too_many_up_stages": float(np.mean(tried[i] > most)),
                    "q90": float(np.quantile(values, 0.9)),
                    "q90_known_radius_2": float(np.quantile(norms(known[i]), 0.9)),
                    "above_bound": float(np.mean(values > bound)),
                    "largest_share_of_bound": float(np.max(values / bound)),
                }
            )
    return rows


def epoch_sgd(
    gradient: Gradient,
    y: np.ndarray,
    lower: ub.EpochSGD,
    p: float,
    step_sizes: np.ndarray,
    radii: np.ndarray,
    noise: Noise,
) -> np.ndarray:
    """EpochSGD of step size 1 and radius 1 scaled by step_sizes[...] and radii[...], for many runs y[..., d]."""
    plan = lower.schedule(p)
    w, centre, mean = y, y, np.zeros_like(y)
    columns = [np.asarray(column) for column in (plan.step_size, plan.radius, plan.weight, plan.last)]
    for gamma, radius, weight, last, e in zip(*(c[: int(plan.total)] for c in columns), noise, strict=False):
        mean = mean + weight * w
        offset = w - (gamma * step_sizes)[..., None] * (gradient(w) + e) - centre
        ball = radius * radii
        w = centre + np.minimum(1.0, ball / np.maximum(norms(offset), 1e-300))[..., None] * offset
        if last:
            w, centre, mean = mean, mean, np.zeros_like(y)
    return w


def lopsided(p: float) -> Gradient:
    """∇ of |y|^p/p for y < 0 and ten times that for y > 0: steps so long that they bounce from one side of the ball to
    the other average to the minimiser of |y|^p/p by its symmetry, and not to this one's."""
    return lambda y: np.where(y > 0, 10.0, 1.0) * np.abs(y) ** (p - 2) * y


def powers(p: float, shift: float) -> Gradient:
    return lambda y: np.abs(y) ** (p - 2) * y - shift


MINIMISERS: dict[str, tuple[Callable[[float], Gradient], float, float]] = {  # gradient, minimiser, start
    "H = 0, symmetric": (lambda p: powers(p, 0.0), 0.0, 1.0),
    "H = 0, lopsided": (lopsided, 0.0, 1.0),
    "H = p - 1": (lambda p: powers(p, 1.0), 1.0, 0.0),
}


def best_epoch_sgd(
    gradient: Gradient, p: float, minimiser: float, y: np.ndarray, budget: int, radii: tuple[float, ...], rng: Any
) -> Any:
    """The distances of the Epoch-SGD with the smallest mean distance among 9 first step sizes, these radii, and
    spending all of N or not: the three best of each on one set of seeds compete once more on fresh ones."""
    grid = [(gamma, radius) for gamma in 2.0 ** np.arange(-5, 4) for radius in radii]
    gammas, balls = (np.array([pair[i] for pair in grid])[:, None] for i in (0, 1))
    best: Any = None
    for spend in (False, True):
        lower = ub.EpochSGD(steps=budget, spend=spend)
        many = np.broadcast_to(y, (len(grid), *y.shape))
        ends = epoch_sgd(gradient, many, lower, p, gammas, balls, noise_rows(rng, budget, y.shape, 1.0))
        scores = np.mean(np.abs(ends[..., 0] - minimiser), axis=1)
        for j in np.argsort(scores)[:3]:
            noise = noise_rows(rng, budget, y.shape, 1.0)
            error = np.abs(epoch_sgd(gradient, y, lower, p, gammas[j], balls[j], noise)[..., 0] - minimiser)
            if best is None or error.mean() < best[0].mean():
                best = error, grid[j], spend
    return best


def against_epoch_sgd(budget: int, seeds: int, seed: int) -> Rows:
    """StagedSGD(N, 2) against Epoch-SGD that knows p, in one dimension from the distance 1 with noise of variance 1.
    Epoch-SGD has the best of 9 first step sizes in a first ball of radius 2, or also the best of three radii."""
    rows: Rows = []
    for name, (make, minimiser, first) in MINIMISERS.items():
        for p in ORDERS:
            rng = np.random.default_rng([seed, len(name), int(p), budget])
            gradient, y, plan = make(p), np.full((seeds, 1), first), ub.StagedSGD(budget)
            noise = noise_rows(rng, plan.stages * plan.stage_steps, (seeds, 1), 1.0)
            ours = np.abs(stages(gradient, y, 2.0, noise, budget)[0][..., 0] - minimiser)
            for tuned, radii in (("step size", (2.0,)), ("step size and radius", (0.5, 1.0, 2.0))):
                theirs, (gamma, radius), spend = best_epoch_sgd(gradient, p, minimiser, y, budget, radii, rng)
                ratio = ours.mean() / theirs.mean()
                spread = math.hypot(ours.std() / ours.mean(), theirs.std() / theirs.mean()) / math.sqrt(seeds)
                rows.append(
                    {
                        "minimiser": name,
                        "p": p,
                        "N": budget,
                        "tuned": tuned,
                        "staged_mean": float(ours.mean()),
                        "epoch_sgd_mean": float(theirs.mean()),
                        "ratio_of_means": float(ratio),
                        "ratio_error": float(ratio * spread),
                        "ratio_of_q90": float(np.quantile(ours, 0.9) / np.quantile(theirs, 0.9)),
                        "best_step_size": float(gamma),
                        "best_radius": float(radius),
                        "spend": bool(spend),
                        "seeds": seeds,
                    }
                )
    return rows


def schedule(orders: tuple[float, ...], upper_steps: int, N: int, kappa: float, seeds: int, seed: int) -> np.ndarray:
    """(1/T)Σ‖∇Φ(x_t)‖ for each p and seed on f = (p−1)|y|^p/p, g = |y|^p/p − y sin x, whose ∇Φ is cos x·y*(x) with
    y* = spow(sin x, 1/(p−1)): I = N, 1 − β = 1/N, η = κN^{−3/2}, StagedSGD(N, 2), noise of variance 1 everywhere."""
    p = np.asarray(orders)[:, None]
    rng = np.random.default_rng([seed, N, upper_steps])
    x, y = np.ones((len(orders), seeds)), np.ones((len(orders), seeds, 1))
    m, total, plan = np.zeros_like(x), np.zeros_like(x), ub.StagedSGD(N)
    upper = noise_rows(rng, upper_steps, (seeds,), 1.0)
    for t, e in zip(range(upper_steps), upper, strict=True):
        if t % N == 0:
            sine = np.sin(x)[..., None]
            noise = noise_rows(rng, plan.stages * plan.stage_steps, (seeds, 1), 1.0)
            y, _ = stages(lambda y, sine=sine: np.abs(y) ** (p[..., None] - 2) * y - sine, y, 2.0, noise, N)  # type: ignore[misc]
        total += np.abs(np.cos(x)) * np.abs(np.sin(x)) ** (1 / (p - 1))
        estimate = np.cos(x) * y[..., 0] + e
        m = (1 - 1 / N) * m + estimate / N
        x = x - kappa * N**-1.5 * np.sign(m)
    return total / upper_steps


def schedules(seeds: int, seed: int, most: int) -> Rows:
    """The mean ‖∇Φ‖ at T = N², and the slope of its logarithm in that of N; the theory's is −1/(2(p−1))."""
    orders: tuple[float, ...] = (2.0, 4.0, 8.0)
    rows: Rows = []
    sizes = [n for n in (16, 32, 64, 128, 256, 512) if n <= most]
    for N in sizes:
        means = schedule(orders, N * N, N, 1.0, seeds, seed)
        rows += [
            {
                "p": p,
                "N": N,
                "T": N * N,
                "mean_gradient": float(values.mean()),
                "error": float(values.std() / math.sqrt(seeds)),
                "seeds": seeds,
            }
            for p, values in zip(orders, means, strict=True)
        ]
    for p in orders:
        line = [row for row in rows if row["p"] == p]
        logs = [np.log([row[name] for row in line]) for name in ("N", "mean_gradient")]
        late = [column[-3:] for column in logs]
        fit = {
            "slope": float(np.polyfit(logs[0], logs[1], 1)[0]),
            "slope_of_the_last_three": float(np.polyfit(late[0], late[1], 1)[0]),
            "theory": -1 / (2 * (p - 1)),
        }
        for row in line:
            row.update(fit)
    return rows


def _problems(seed):
    """Name → (problem, x, y, ‖∇Φ(x)‖, upper step size, upper steps); p = 4, noise or random batches."""
    noise = ub.Noise(grad_y_g=1.0, grad_x_f=1.0)
    coupling = jnp.asarray(np.eye(5) + 0.2 * np.random.default_rng(seed).normal(size=(5, 5)))
    inner, outer = ub.problems.corrupted_regression(100, 5).train, ub.problems.corrupted_regression(100, 5).validation
    regression = ub.problems.lp_regression(inner, outer, 4.0, batch_size=20)

    def example3(x):
        return jnp.abs(jnp.cos(x) * jnp.cos(jnp.sin(x)))

    def coupled(x):
        return jnp.linalg.norm(jax.grad(lambda x: jnp.sum(jnp.sin(coupling @ jnp.sin(x))))(x))

    def lp(x):
        y, _ = ub.Newton(max_steps=60)(regression, x, jnp.zeros(5))
        return jnp.linalg.norm(ub.CG(preconditioner=ub.preconditioners.Jacobi())(regression, x, y, None)[0])

    return {
        "example3": (ub.problems.example3(4.0, noise, noise), jnp.asarray(1.0), jnp.asarray(1.0), example3, 0.02, 400),
        "coupled_example3": (
            ub.problems.coupled_example3(4.0, coupling, noise, noise),
            jnp.full(5, 0.3),
            jnp.full(5, 0.5),
            coupled,
            0.05,
            400,
        ),
        "lp_regression": (regression, jnp.zeros(100), jnp.zeros(5), lp, 0.5, 150),
    }


def solves(name: str, seeds: int, seed: int) -> Rows:
    """Calls of UniBiO until the mean of ‖∇Φ‖ over 20 iterates is .3 of its start, at p = 4: with Epoch-SGD told 4, 2 or
    8 and the best of five first step sizes in each case (chosen on other seeds), and without p. A refresh has a budget
    of 100 lower steps, to which the search adds its own."""
    problem, x, y, gradient, step_size, steps = _problems(seed)[name]
    cg, rows = ub.CG(preconditioner=ub.preconditioners.Jacobi()), []

    def restated(p: float | None) -> ub.Problem:
        return ub.Problem(problem.f, problem.g, p, f_batches=problem.f_batches, g_batches=problem.g_batches)

    @jax.jit
    def runs(problem, solver, keys):
        def one(key):
            log = ub.trajectory(problem, solver, x, y, steps, key, watch=lambda state: gradient(state.x))[1]
            return log.watched, sum(counts.astype(float) for counts in log.calls)

        return jax.vmap(one)(keys)

    def calls(problem, solver, first):
        values, taken = (np.asarray(a) for a in runs(problem, solver, jax.random.split(jax.random.key(first), seeds)))
        smooth = np.stack([np.convolve(row, np.ones(20) / 20, "valid") for row in values])
        below = smooth <= 0.3 * values[:, :1]
        reached = below.any(axis=1)
        at = np.where(reached, below.argmax(axis=1) + 19, steps - 1)
        total = np.take_along_axis(np.cumsum(taken, axis=1), at[:, None], axis=1)[:, 0]
        return np.where(reached, total, np.inf)

    def epochs(gamma):
        return ub.UniBiO(step_size, lower=ub.EpochSGD(100, gamma, radius=1.0), hypergradient=cg)

    known = None
    for way, stated in (("p known", 4.0), ("stated 2", 2.0), ("stated 8", 8.0), ("without p", None)):
        gamma = math.nan
        if stated is not None:
            grid = (0.01, 0.03, 0.1, 0.3, 1.0)
            gamma = min(grid, key=lambda g: float(np.mean(np.minimum(calls(restated(stated), epochs(g), 1000), 1e9))))
        solver = ub.UniBiO.without_p(step_size) if stated is None else epochs(gamma)
        taken = calls(restated(stated), solver, seed)
        known = taken if known is None else known
        rows.append(
            {
                "problem": name,
                "way": way,
                "lower_step_size": gamma,
                "median_calls": float(np.median(taken)),
                "q25": float(np.quantile(taken, 0.25)),
                "q75": float(np.quantile(taken, 0.75)),
                "not_reached": int(np.sum(~np.isfinite(taken))),
                "ratio_to_known": float(np.median(taken) / np.median(known)),
                "seeds": seeds,
            }
        )
    return rows


def piece(out: Path, name: str, compute: Callable[[], Rows]) -> None:
    """Computes the rows unless the file is there, and prints them."""
    path = out / f"{name}.csv"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        write_bytes(path, as_csv(compute()).encode())
    print(f"# {name}")
    for row in from_csv(path.read_text(encoding="utf-8")):
        print(
            "  "
            + "  ".join(
                f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()
            ),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("slopes", "epoch-sgd", "coverage", "search", "schedule", "solve"))
    parser.add_argument("--dim", type=int, default=1)
    parser.add_argument("--function", choices=tuple(FUNCTIONS), default="norm")
    parser.add_argument("--seeds", type=int, default=256)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--most", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("without-p-results"))
    parser.add_argument("--problem", choices=("example3", "coupled_example3", "lp_regression"), default="example3")
    o = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    made: dict[str, tuple[str, Callable[[], Rows]]] = {
        "slopes": (
            f"slopes-{o.function}-{o.dim}-{o.most}-{o.seeds}",
            functools.partial(slopes, o.dim, o.function, o.seeds, o.most, o.seed),
        ),
        "epoch-sgd": (
            f"epoch-sgd-{o.budget}-{o.seeds}",
            functools.partial(against_epoch_sgd, o.budget, o.seeds, o.seed),
        ),
        "coverage": (
            f"coverage-{o.function}-{o.dim}-{o.budget}-{o.runs}",
            functools.partial(coverage, o.dim, o.function, o.runs, o.budget, o.seed),
        ),
        "search": (
            f"search-{o.function}-{o.dim}-{o.budget}-{o.seeds}",
            functools.partial(searches, o.dim, o.function, o.seeds, o.budget, o.seed),
        ),
        "solve": (f"solve-{o.problem}-{o.seeds}", functools.partial(solves, o.problem, o.seeds, o.seed)),
        "schedule": (f"schedule-{o.most}-{o.seeds}", functools.partial(schedules, o.seeds, o.seed, o.most)),
    }
    piece(o.out, *made[o.what])


if __name__ == "__main__":
    main()
