"""What not knowing p costs on two levels: the schedule of docs/without_p.md and the solves of UniBiO there.

    python benchmarks/without_p_bilevel.py schedule                 # at T = N², N = 16 … 512
    python benchmarks/without_p_bilevel.py solve --problem example3 # calls: p known, unknown, stated wrongly

Files as in benchmarks/without_p.py. benchmarks/without_p_untuned.py compares upper steps without a step size.
"""

import argparse
import functools
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import unibio as ub
from unibio.files.tables import Rows
from without_p import normal, piece, stages

ORDERS = (2.0, 4.0, 8.0)


@functools.partial(jax.jit, static_argnames=("N", "seeds"))
def mean_gradient(N: int, seeds: int, key: jax.Array) -> jax.Array:
    """(1/T)Σ‖∇Φ(x_t)‖ for T = N², each p and seed, on f = (p−1)|y|^p/p, g = |y|^p/p − y sin x, whose ∇Φ is cos x·y*(x)
    with y* = spow(sin x, 1/(p−1)): I = N, 1 − β = 1/N, η = N^{−3/2}, StagedSGD(N, 2), noise of variance 1."""
    p, plan = jnp.asarray(ORDERS)[:, None], ub.StagedSGD(N)

    def round_of_steps(carry: Any, key: jax.Array) -> Any:
        x, y, m, total = carry
        lower, upper = jax.random.split(key)
        sine = jnp.sin(x)[..., None]
        y, _ = stages(lambda w: ub.spow(w, p[..., None] - 1) - sine, y, 2.0, normal(lower, seeds, 1), plan)

        def step(carry: Any, key: jax.Array) -> Any:
            x, m, total = carry
            total = total + jnp.abs(jnp.cos(x)) * jnp.abs(jnp.sin(x)) ** (1 / (p - 1))
            estimate = jnp.cos(x) * y[..., 0] + jax.random.normal(key, (1, seeds))
            m = (1 - 1 / N) * m + estimate / N
            return (x - N**-1.5 * jnp.sign(m), m, total), None

        (x, m, total), _ = jax.lax.scan(step, (x, m, total), jax.random.split(upper, N))
        return (x, y, m, total), None

    ones = jnp.ones((len(ORDERS), seeds))
    begin = ones, ones[..., None], 0 * ones, 0 * ones
    (_, _, _, total), _ = jax.lax.scan(round_of_steps, begin, jax.random.split(key, N))
    return total / N**2


def schedule_at(N: int, seeds: int, seed: int) -> Rows:
    values = np.asarray(mean_gradient(N, seeds, jax.random.fold_in(jax.random.key(seed), N)))
    return [
        {"p": p, "N": N, "T": N * N, "mean_gradient": float(row.mean()), "error": float(row.std() / math.sqrt(seeds))}
        | {"seeds": seeds}
        for p, row in zip(ORDERS, values, strict=True)
    ]


def slopes(tables: list[Rows]) -> Rows:
    """Of the logarithm of the mean ‖∇Φ‖ in that of N, over all N, the last three, and the last two."""
    rows: Rows = []
    for i, p in enumerate(ORDERS):
        x, values = (np.log([table[i][name] for table in tables]) for name in ("N", "mean_gradient"))
        row: dict[str, Any] = {"p": p, "theory": -1 / (2 * (p - 1))}
        for name, last in (("all", len(x)), ("last_three", 3), ("last_two", 2)):
            row[f"slope_{name}"] = float(np.polyfit(x[-last:], values[-last:], 1)[0])
        rows.append(row)
    return rows


def problems(seed: int) -> dict[str, Any]:
    """Name → (problem, x, y, ‖∇Φ(x)‖, upper step size, upper steps); p = 4, noise or random batches."""
    noise = ub.Noise(grad_y_g=1.0, grad_x_f=1.0)
    coupling = jnp.asarray(np.eye(5) + 0.2 * np.random.default_rng(seed).normal(size=(5, 5)))
    data = ub.problems.corrupted_regression(100, 5)
    regression = ub.problems.lp_regression(data.train, data.validation, 4.0, batch_size=20)

    def example3(x: jax.Array) -> jax.Array:
        return jnp.abs(jnp.cos(x) * jnp.cos(jnp.sin(x)))

    def coupled(x: jax.Array) -> jax.Array:
        return jnp.linalg.norm(jax.grad(lambda x: jnp.sum(jnp.sin(coupling @ jnp.sin(x))))(x))

    def lp(x: jax.Array) -> jax.Array:
        y, _ = ub.Newton(max_steps=60)(regression, x, jnp.zeros(5))
        return jnp.linalg.norm(ub.CG(preconditioner=ub.Jacobi())(regression, x, y, None)[0])

    one, several = jnp.asarray(1.0), ub.problems.coupled_example3(4.0, coupling, noise, noise)
    return {
        "example3": (ub.problems.example3(4.0, noise, noise), one, one, example3, 0.02, 400),
        "coupled_example3": (several, jnp.full(5, 0.3), jnp.full(5, 0.5), coupled, 0.05, 400),
        "lp_regression": (regression, jnp.zeros(100), jnp.zeros(5), lp, 0.5, 150),
    }


def restated(problem: ub.Problem, p: float | None) -> ub.Problem:
    return ub.Problem(problem.f, problem.g, p, f_batches=problem.f_batches, g_batches=problem.g_batches)


def solves(name: str, seeds: int, seed: int) -> Rows:
    """Calls of UniBiO until the mean of ‖∇Φ‖ over 20 iterates is .3 of its start, at p = 4: with Epoch-SGD told 4, 2 or
    8 and the best of five first step sizes in each case (chosen on other seeds), and without p. A refresh has a budget
    of 100 lower steps, to which the search adds its own."""
    problem, x, y, gradient, step_size, steps = problems(seed)[name]
    cg, rows = ub.CG(preconditioner=ub.Jacobi()), []

    @jax.jit
    def runs(problem: ub.Problem, solver: Any, keys: jax.Array) -> Any:
        def one(key: jax.Array) -> Any:
            log = ub.trajectory(problem, solver, x, y, steps, key, watch=lambda state: gradient(state.x))[1]
            return log.watched, sum(counts.astype(float) for counts in log.calls)

        return jax.vmap(one)(keys)

    def calls(problem: ub.Problem, solver: Any, first: int) -> np.ndarray:
        values, taken = (np.asarray(a) for a in runs(problem, solver, jax.random.split(jax.random.key(first), seeds)))
        smooth = np.stack([np.convolve(row, np.ones(20) / 20, "valid") for row in values])
        below = smooth <= 0.3 * values[:, :1]
        at = np.where(below.any(axis=1), below.argmax(axis=1) + 19, steps - 1)
        total = np.take_along_axis(np.cumsum(taken, axis=1), at[:, None], axis=1)[:, 0]
        return np.where(below.any(axis=1), total, np.inf)

    def epochs(gamma: float) -> ub.UniBiO:
        return ub.UniBiO(step_size, lower=ub.EpochSGD(100, gamma, radius=1.0), hypergradient=cg)

    known = None
    for way, stated in (("p known", 4.0), ("stated 2", 2.0), ("stated 8", 8.0), ("without p", None)):
        gamma, at = math.nan, restated(problem, stated)
        if stated is not None:
            scores = {g: np.minimum(calls(at, epochs(g), 1000), 1e9).mean() for g in (0.01, 0.03, 0.1, 0.3, 1.0)}
            gamma = min(scores, key=lambda g: scores[g])
        taken = calls(at, ub.UniBiO.without_p(step_size) if stated is None else epochs(gamma), seed)
        known = taken if known is None else known
        rows.append(
            {"problem": name, "way": way, "lower_step_size": gamma, "median_calls": float(np.median(taken))}
            | {"q25": float(np.quantile(taken, 0.25)), "q75": float(np.quantile(taken, 0.75))}
            | {"not_reached": int(np.sum(~np.isfinite(taken))), "seeds": seeds}
            | {"ratio_to_known": float(np.median(taken) / np.median(known))}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("schedule", "solve"))
    parser.add_argument("--seeds", type=int, default=64)
    parser.add_argument("--most", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("without-p-results"))
    parser.add_argument("--problem", choices=tuple(problems(0)), default="example3")
    o = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if o.what == "solve":
        compute = functools.partial(solves, o.problem, o.seeds, o.seed)
        piece(o.out, f"solve-{o.problem}-{o.seeds}", compute)
        return
    sizes = [N for N in (16, 32, 64, 128, 256, 512) if o.most >= N]
    tables = [
        piece(o.out, f"schedule-{N}-{o.seeds}", functools.partial(schedule_at, N, o.seeds, o.seed)) for N in sizes
    ]
    piece(o.out, f"schedule-slopes-{o.most}-{o.seeds}", lambda: slopes(tables))


if __name__ == "__main__":
    main()
