"""What `StagedSGD` is worth by itself: the figures of docs/without_p.md on one level.

    python benchmarks/without_p.py slopes --dim 1          # distance against N, N = 10³ … 10⁶, and the bounds
    python benchmarks/without_p.py distances --seeds 10000 # Theorem 1's bound in 10,000 runs, N = --budget
    python benchmarks/without_p.py search                  # Theorem 2 from first guesses 1e-3 to 1e3 times the truth
    python benchmarks/without_p.py epoch-sgd --budget 10000 # against Epoch-SGD with p known and its step size tuned

Every piece writes its rows to a CSV file in the folder `--out` when it is done, prints them, and is not computed again
if the file is there. Stages are computed here once more because the solver does not tell their S:
tests/lower/test_without_p_benchmark.py holds them to `StagedSGD`. benchmarks/without_p_bilevel.py has the rest.
"""

import argparse
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import unibio as ub
from unibio.files.atomic import write_bytes
from unibio.files.tables import Rows, as_csv, from_csv

ORDERS = (2.0, 3.0, 4.0, 8.0)
BUDGETS = (1000, 10_000, 100_000, 1_000_000)
DELTA = 0.1

Gradient = Callable[[jax.Array], jax.Array]
Noise = Callable[[Any], jax.Array]  # the noise of step t


def norms(a: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(a**2, axis=-1))


def stage(
    gradient: Gradient, y: jax.Array, radius: jax.Array, noise: Noise, first: Any, steps: int
) -> tuple[jax.Array, jax.Array]:
    """One stage for many runs at once, y[..., d] with radius[...] and the noise number first, …: the mean, and S."""

    def step(t: Any, carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        w, mean, square = carry
        s = gradient(w) + noise(first + t)
        square = square + jnp.sum(s**2, axis=-1)
        offset = w - (math.sqrt(2) * radius / jnp.sqrt(square))[..., None] * s - y
        shrink = jnp.minimum(1.0, radius / jnp.maximum(norms(offset), 1e-300))
        return y + shrink[..., None] * offset, mean + w, square

    _, total, square = jax.lax.fori_loop(0, steps, step, (y, jnp.zeros_like(y), jnp.zeros(y.shape[:-1])))
    return total / steps, square


def stages(
    gradient: Gradient, y: jax.Array, radius: Any, noise: Noise, plan: ub.StagedSGD, first: int = 0
) -> tuple[jax.Array, jax.Array]:
    """The plan from this radius: the end, and the largest S divided by the steps of its stage."""
    n = plan.stage_steps
    start = jnp.broadcast_to(jnp.asarray(radius, float), y.shape[:-1])

    def one(k: Any, carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        y, last, most = carry
        R = start / 2.0**k
        end, square = stage(gradient, y, R, noise, first + k * n, n)
        calm = (norms(end - y) <= R / 2) & (k > 0)
        return end, jnp.where(calm, 2 * R, last), jnp.maximum(most, square / n)

    y, last, most = jax.lax.fori_loop(0, plan.stages, one, (y, start, jnp.zeros(y.shape[:-1])))
    if plan.last_steps:
        y, square = stage(gradient, y, last, noise, first + plan.stages * n, plan.last_steps)
        most = jnp.maximum(most, square / plan.last_steps)
    return y, most


def search(
    gradient: Gradient, y: jax.Array, guess: Any, largest: float, noise: Noise, plan: ub.StagedSGD
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The plan with this guess and this largest radius for many runs: the ends, R_0, the stages of the search, and the
    largest S divided by the steps of its stage."""
    n, shape = plan.stage_steps, y.shape[:-1]

    def up(state: Any) -> Any:
        searching, R, radius, tried, most = state
        mean, square = stage(gradient, y, jnp.broadcast_to(R, shape), noise, 0, n)
        found = searching & (norms(mean - y) <= R / 2)
        most = jnp.where(searching, jnp.maximum(most, square / n), most)
        radius = jnp.where(found, jnp.minimum(2 * R, largest), radius)
        return searching & ~found, 2 * R, radius, tried + searching.astype(int), most

    begin = jnp.ones(shape, bool), jnp.asarray(guess), jnp.full(shape, largest), jnp.zeros(shape, int), jnp.zeros(shape)
    _, _, radius, tried, most = jax.lax.while_loop(lambda state: (state[1] < largest) & state[0].any(), up, begin)
    ends, below = stages(gradient, y, radius, noise, plan, n)
    return ends, radius, tried, jnp.maximum(most, below)


def power_of_norm(orders: Any) -> Gradient:
    """∇ of ‖y‖^p/p for y[p, seed, d]; its growth has μ = 1 in every dimension."""
    return lambda y: norms(y)[..., None] ** (jnp.asarray(orders)[:, None, None] - 2) * y


def sum_of_powers(orders: Any) -> Gradient:
    """∇ of ‖y‖_p^p/p; its growth has μ = d^{1−p/2}."""
    return lambda y: jnp.abs(y) ** (jnp.asarray(orders)[:, None, None] - 2) * y


FUNCTIONS = {"norm": power_of_norm, "sum": sum_of_powers}


def growth(function: str, p: float, dim: int) -> float:
    return 1.0 if function == "norm" else dim ** (1 - p / 2)


def start(orders: Any, seeds: int, dim: int) -> jax.Array:
    """The distance from the minimiser 0 is 1."""
    return jnp.full((len(orders), seeds, dim), 1 / math.sqrt(dim))


def normal(key: jax.Array, seeds: int, dim: int) -> Noise:
    """N(0, I/d) for every seed, the same for every p."""
    return lambda t: jax.random.normal(jax.random.fold_in(key, t), (1, seeds, dim)) / math.sqrt(dim)


def light_tail(dim: int) -> float:
    """σ with E exp(‖n‖²/σ²) = e for n ~ N(0, I/d)."""
    return math.sqrt(2 / dim / -math.expm1(-2 / dim))


class Bounds:
    """The numbers of Theorems 1 and 2 for a plan and the growth (μ, p)."""

    def __init__(self, plan: ub.StagedSGD, p: float, mu: float, sigma: float) -> None:
        self.n, self.K, self.p, self.mu, self.sigma = plan.stage_steps, plan.stages, p, mu, sigma
        self.last = plan.last_stage

    def prior(self, G: float) -> float:
        level = math.log(3 * (self.K + self.last) / DELTA)
        gradients = G + self.sigma * math.sqrt(1 + level / self.n)
        return 2 * math.sqrt(2) * gradients + 2 * self.sigma * math.sqrt(3 * level)

    def posterior(self, observed: Any, more: int = 0) -> Any:
        level = math.log(2 * (self.K + self.last + more) / DELTA)
        return 2 * np.sqrt(2 * observed) + 2 * self.sigma * math.sqrt(3 * level)

    def reach(self, A: Any, factor: float) -> Any:
        """(factor·pA/(μ√N_0))^{1/(p−1)}."""
        return (factor * self.p * A / (self.mu * math.sqrt(self.n))) ** (1 / (self.p - 1))

    def distance(self, A: Any, radius: Any) -> Any:
        """Theorem 1 with R_0/2^K for the first of the two."""
        smallest = radius / 2**self.K
        if self.last:
            c = 13 / 8 + 5 / (2 * math.sqrt(self.K))
            return c ** (1 / self.p) * np.maximum(smallest / 4, self.reach(A, 8))
        return np.maximum(smallest, (13 / 8) ** (1 / self.p) * self.reach(A, 2))


def distances(dim: int, function: str, seeds: int, plan: ub.StagedSGD, seed: int) -> Rows:
    """Quantiles of the distance from the minimiser after N steps, from the distance 1 with R_0 = 2, for every p; and
    how often it exceeds Theorem 1's bound with δ = .1, a priori (G = 5^{p−1}, or 7^{p−1} with a last stage) and with
    the observed S."""

    @jax.jit
    def ends(key: jax.Array) -> Any:
        y, noise = start(ORDERS, seeds, dim), normal(key, seeds, dim)
        end, observed = stages(FUNCTIONS[function](ORDERS), y, 2.0, noise, plan)
        return norms(end), observed

    found, observed = (np.asarray(a) for a in ends(jax.random.fold_in(jax.random.key(seed), dim * plan.steps)))
    rows: Rows = []
    for values, squares, p in zip(found, observed, ORDERS, strict=True):
        bounds = Bounds(plan, p, growth(function, p, dim), light_tail(dim))
        prior = bounds.distance(bounds.prior((7 if plan.last_stage else 5) ** (p - 1)), 2.0)
        posterior = bounds.distance(bounds.posterior(squares), 2.0)
        q90 = float(np.quantile(values, 0.9))
        again = np.random.default_rng(0).integers(0, seeds, (500, seeds))
        rows.append(
            {"function": function, "dim": dim, "p": p, "N": plan.steps, "N_0": bounds.n, "seeds": seeds}
            | {"median": float(np.median(values)), "q90": q90, "largest": float(values.max())}
            | {"q90_error": float(np.quantile(values[again], 0.9, axis=1).std())}
            | {"above_prior": int(np.sum(values > prior)), "above_posterior": int(np.sum(values > posterior))}
            | {"prior_over_q90": float(prior / q90), "posterior_over_q90": float(np.median(posterior) / q90)}
        )
    return rows


def slopes(tables: list[Rows]) -> Rows:
    """The slope of log q90 in log N_0 by least squares over all budgets, its standard error from those of the
    quantiles, and the slope from each budget to the next."""
    rows: Rows = []
    for i, p in enumerate(ORDERS):
        line = [table[i] for table in tables]
        x, q90, error = (np.array([row[name] for row in line]) for name in ("N_0", "q90", "q90_error"))
        x, logs = np.log(x), np.log(q90)
        weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
        fit, theory = float(weights @ logs), -1 / (2 * (p - 1))
        row = {"dim": line[0]["dim"], "p": p, "seeds": line[0]["seeds"], "slope": fit, "theory": theory}
        row |= {"slope_error": float(np.linalg.norm(weights * error / q90)), "off": abs(fit / theory - 1)}
        row["slope_in_N"] = float(np.polyfit(np.log([row["N"] for row in line]), logs, 1)[0])
        for one, two, slope in zip(line, line[1:], np.diff(logs) / np.diff(x), strict=False):
            row[f"slope_{one['N']:.0e}_{two['N']:.0e}"] = float(slope)
        rows.append(row)
    return rows


def searches(dim: int, function: str, runs: int, plan: ub.StagedSGD, seed: int) -> Rows:
    """Theorem 2 from first guesses of 1e-3 to 1e3 times the true distance 1, with the cap R_max = 2000 and the observed
    S, beside the run from the known radius 2 on the samples of the descent."""
    rows: Rows = []
    largest, gradient, n = 2000.0, FUNCTIONS[function](ORDERS), plan.stage_steps
    y, noise = start(ORDERS, runs, dim), normal(jax.random.fold_in(jax.random.key(seed), dim * plan.steps), runs, dim)
    known = np.asarray(norms(jax.jit(lambda: stages(gradient, y, 2.0, noise, plan, n)[0])()))
    program = jax.jit(lambda guess: search(gradient, y, guess, largest, noise, plan))
    for guess in 10.0 ** np.arange(-3, 4):
        ends, radius, tried, observed = (np.asarray(a) for a in program(guess))
        J = max(0, math.ceil(math.log2(largest / guess))) + 1
        for i, p in enumerate(ORDERS):
            bounds = Bounds(plan, p, growth(function, p, dim), light_tail(dim))
            A = bounds.posterior(observed[i], J)
            most = 1 + np.ceil(np.maximum(0.0, np.log2(np.maximum(4.0, bounds.reach(A, 4**p)) / guess)))
            values = np.linalg.norm(ends[i], axis=-1)
            bound = np.maximum(radius[i] / 2**bounds.K, (8 if bounds.last else 6) * bounds.reach(A, 2))
            rows.append(
                {
                    "function": function,
                    "dim": dim,
                    "p": p,
                    "N": plan.steps,
                    "runs": runs,
                    "guess_over_truth": float(guess),
                }
                | {"up_stages_median": float(np.median(tried[i])), "up_stages_most": int(tried[i].max())}
                | {"up_stages_bound": float(np.median(most)), "too_many": float(np.mean(tried[i] > most))}
                | {"q90": float(np.quantile(values, 0.9)), "q90_known_radius_2": float(np.quantile(known[i], 0.9))}
                | {"above_bound": float(np.mean(values > bound))}
                | {"largest_share_of_bound": float(np.max(values / bound))}
            )
    return rows


def one_sided(seeds: int, left: Any, right: Any, shift: float, first: Any) -> Any:
    """Functions a|y|^p/p − shift·y with a = left for y < 0 and right for y > 0, one for each seed, and the start."""
    return tuple(jnp.broadcast_to(jnp.asarray(a, float), (seeds,)) for a in (left, right, shift, first))


def minimisers(seeds: int, seed: int) -> dict[str, Any]:
    """Steps so long that they bounce from one side of the ball to the other average to the minimiser of |y|^p/p by
    symmetry, and not to that of a lopsided one. "Drawn" tunes the step size over many functions and not over one."""
    rng = np.random.default_rng(seed)
    left, right = 10 ** rng.uniform(-1, 1, (2, seeds))
    first = rng.choice([-1.0, 1.0], seeds) * rng.uniform(0.2, 1.5, seeds)
    return {
        "H = 0, symmetric": one_sided(seeds, 1.0, 1.0, 0.0, 1.0),
        "H = 0, lopsided": one_sided(seeds, 1.0, 10.0, 0.0, 1.0),
        "H = 0, drawn": one_sided(seeds, left, right, 0.0, first),
        "H = p - 1": one_sided(seeds, 1.0, 1.0, 1.0, 0.0),
    }


@functools.partial(jax.jit, static_argnames="seeds")
def errors(lower: Any, function: Any, p: float, key: jax.Array, seeds: int) -> jax.Array:
    """|y − y*| of the lower solvers `lower`, stacked, on the function of each seed with noise of variance 1."""

    def one(lower: Any, function: Any, key: jax.Array) -> jax.Array:
        left, right, shift, first = function

        def gradient(w: jax.Array, t: jax.Array) -> jax.Array:
            slope = jnp.where(w > 0, right, left) * ub.spow(w, p - 1) - shift
            return slope + jax.random.normal(jax.random.fold_in(key, t))

        end, _ = lower(gradient, jnp.arange, first, p)
        return jnp.abs(end - shift ** (1 / (p - 1)))

    each = jax.vmap(jax.vmap(one, (None, 0, 0)), (0, None, None))
    return each(lower, function, jax.random.split(key, seeds))


def stacked(solvers: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *solvers)


def best_epoch_sgd(function: Any, p: float, budget: int, radii: tuple[float, ...], key: jax.Array, seeds: int) -> Any:
    """The distances of the Epoch-SGD with the smallest mean distance among 9 first step sizes, these radii, and
    spending all of N or not: the three best of each on one set of seeds compete once more on fresh ones."""
    grid = [(gamma, radius) for gamma in 2.0 ** np.arange(-5, 4) for radius in radii]
    keys, best = jax.random.split(key, 4), None
    for i, spend in enumerate((False, True)):
        lowers = [ub.EpochSGD(budget, gamma, radius=radius, spend=spend) for gamma, radius in grid]
        scores = np.asarray(errors(stacked(lowers), function, p, keys[i], seeds)).mean(axis=1)
        chosen = np.argsort(scores)[:3]
        again = np.asarray(errors(stacked([lowers[j] for j in chosen]), function, p, keys[2 + i], seeds))
        for j, error in zip(chosen, again, strict=True):
            if best is None or error.mean() < best[0].mean():
                best = error, grid[j], spend
    return best


def against_epoch_sgd(p: float, budget: int, seeds: int, seed: int) -> Rows:
    """StagedSGD(N, 2), with a last stage too, against Epoch-SGD that knows p, in one dimension, R_0 = 2 and noise of
    variance 1. Epoch-SGD has the best of 9 first step sizes in a first ball of radius 2, or also of three radii."""
    rows: Rows = []
    for i, (name, function) in enumerate(minimisers(seeds, seed).items()):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1000 * i + int(p)), 3)
        plain, last = (
            np.asarray(errors(stacked([ub.StagedSGD(budget, 2.0, last_stage=long)]), function, p, keys[0], seeds))[0]
            for long in (False, True)
        )
        for key, tuned, radii in zip(keys[1:], ("step size", "and radius"), ((2.0,), (0.5, 1.0, 2.0)), strict=True):
            theirs, (gamma, radius), spend = best_epoch_sgd(function, p, budget, radii, key, seeds)
            row = {"minimiser": name, "p": p, "N": budget, "tuned": tuned, "seeds": seeds}
            row |= {"epoch_sgd_mean": float(theirs.mean())}
            for way, ours in (("", plain), ("_last_stage", last)):
                ratio = ours.mean() / theirs.mean()
                spread = math.hypot(ours.std() / ours.mean(), theirs.std() / theirs.mean()) / math.sqrt(seeds)
                row |= {f"mean{way}": float(ours.mean()), f"ratio{way}": float(ratio)}
                row |= {f"error{way}": float(ratio * spread)}
            rows.append(row | {"step_size": float(gamma), "radius": float(radius), "spend": bool(spend)})
    return rows


def piece(out: Path, name: str, compute: Callable[[], Rows]) -> Rows:
    """Computes the rows unless the file is there, prints them and returns them."""
    path = out / f"{name}.csv"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        write_bytes(path, as_csv(compute()).encode())
    print(f"# {name}")
    rows = from_csv(path.read_text(encoding="utf-8"))
    for row in rows:
        entries = (f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
        print("  " + "  ".join(entries), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("slopes", "distances", "search", "epoch-sgd"))
    parser.add_argument("--dim", type=int, default=1)
    parser.add_argument("--function", choices=tuple(FUNCTIONS), default="norm")
    parser.add_argument("--seeds", type=int, default=256)
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--last-stage", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("without-p-results"))
    o = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    kind = f"{o.function}-{o.dim}{'-last' if o.last_stage else ''}"

    def measured(budget: int) -> Rows:
        plan = ub.StagedSGD(budget, last_stage=o.last_stage)
        compute = functools.partial(distances, o.dim, o.function, o.seeds, plan, o.seed)
        return piece(o.out, f"distances-{kind}-{budget}-{o.seeds}", compute)

    if o.what == "distances":
        measured(o.budget)
    elif o.what == "slopes":
        tables = [measured(budget) for budget in BUDGETS]
        piece(o.out, f"slopes-{kind}-{o.seeds}", lambda: slopes(tables))
    elif o.what == "search":
        plan = ub.StagedSGD(o.budget, last_stage=o.last_stage)
        compute = functools.partial(searches, o.dim, o.function, o.seeds, plan, o.seed)
        piece(o.out, f"search-{kind}-{o.budget}-{o.seeds}", compute)
    else:
        for p in ORDERS:
            compute = functools.partial(against_epoch_sgd, p, o.budget, o.seeds, o.seed)
            piece(o.out, f"epoch-sgd-{p:g}-{o.budget}-{o.seeds}", compute)


if __name__ == "__main__":
    main()
