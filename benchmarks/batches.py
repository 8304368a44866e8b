"""How batches are drawn, and what that does to the end of a run: python benchmarks/batches.py [arrays.npz]

A bilevel quadratic of the kind that benchmark_bilevel simulates (github.com/benchopt/benchmark_bilevel): each level is
the mean over 1,024 samples of ½yᵀH_i y + ½xᵀB_i x + xᵀC_i y + a_iᵀy + b_iᵀx with H_i, B_i and C_i of rank one, 20
entries in y and 10 in x. Batches of 64, steps of .1, 480 steps from y = 0, x = −2, five seeds; the table has mean and
standard deviation of ‖∇Φ‖² at the end, in closed form.

With a file, the samples are its arrays g0..g4 and f0..f4, in the order H, B, C, a, b.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import unibio as ub

SAMPLES, BATCH, STEPS, SEEDS = 1024, 64, 480, 5
DRAWN = {"with replacement": {}, "without, anew each step": {"replace": False}, "stream": {"stream": True}}


class FromZero(ub.SABA):
    """SABA whose memory begins empty."""

    def init(self, problem, x, y, key):
        state, info = super().init(problem, x, y, key)
        return jax.tree.map(jnp.zeros_like, state)._replace(x=x, y=y), info


CASES = {
    "SABA": ub.SABA(0.1, 0.1),
    "SABA, memory from 0": FromZero(0.1, 0.1),
    "SOBA": ub.SOBA(0.1, 0.1),
    "StocBiO": ub.StocBiO(0.1, 0.1, lower_steps=10, terms=10),
    "AmIGO": ub.AmIGO(0.1, 0.1, lower_steps=10, linear_steps=10),
}


def level(x, y, batch):
    hessian, outer, cross, a, b = (jnp.mean(part, axis=0) for part in batch.value)
    return y @ hessian @ y / 2 + x @ outer @ x / 2 + x @ cross @ y + a @ y + b @ x


def simulated(rng, inner=20, outer=10):
    """Samples of one level. Spectra of the means: .1 to 1 for H, the same and a 0 for B, .1 throughout for C."""

    def rank_one(size, spectrum):
        basis = np.linalg.qr(rng.normal(size=(size, size)))[0]
        rows = rng.normal(size=(SAMPLES, size)) @ (basis * np.sqrt(spectrum)) @ basis.T
        return rows[:, :, None] * rows[:, None, :]

    hessian = rank_one(inner, np.geomspace(0.1, 1, inner))
    square = rank_one(outer, np.append(0, np.geomspace(0.1, 1, outer - 1)))
    left, right = (np.linalg.qr(rng.normal(size=(size, size)))[0] for size in (outer, inner))
    noise = rng.normal(size=(SAMPLES, inner))
    cross = (0.1 * noise[:, :outer] @ left.T)[:, :, None] * (noise @ right.T)[:, None, :]
    return hessian, square, cross, rng.normal(size=(SAMPLES, inner)), rng.normal(size=(SAMPLES, outer))


def closed_form(lower, upper):
    """x ↦ ‖∇Φ(x)‖²."""
    hessian, _, cross, a, _ = (part.mean(axis=0) for part in lower)
    of_y, of_x, mixed, c, d = (part.mean(axis=0) for part in upper)

    def value(x):
        y = -np.linalg.solve(hessian, cross.T @ x + a)
        v = np.linalg.solve(hessian, of_y @ y + mixed.T @ x + c)
        return float(np.sum((of_x @ x + mixed @ y + d - cross @ v) ** 2))

    return value


def ends(solver, lower, upper, drawn):
    """Where five seeds arrive."""
    data = [ub.Dataset(samples, BATCH, **drawn) for samples in (upper, lower)]
    problem = ub.Problem(level, level, 2.0, f_batches=data[0], g_batches=data[1])
    x, y = jnp.full(upper[-1].shape[1], -2.0), jnp.zeros(upper[-2].shape[1])
    keys = jax.vmap(jax.random.key)(jnp.arange(SEEDS))
    run = jax.jit(jax.vmap(lambda problem, key: ub.trajectory(problem, solver, x, y, STEPS, key)[0].x, (None, 0)))
    return np.asarray(run(problem, keys))


def main():
    jax.config.update("jax_enable_x64", True)
    if len(sys.argv) > 1:
        arrays = np.load(sys.argv[1])
        lower, upper = (tuple(np.float64(arrays[f"{name}{k}"]) for k in range(5)) for name in "gf")
    else:
        rng = np.random.default_rng(0)
        lower, upper = simulated(rng), simulated(rng)
    measure = closed_form(lower, upper)
    print("| solver |", " | ".join(DRAWN), "|")
    for name, solver in CASES.items():
        values = [[measure(x) for x in ends(solver, lower, upper, drawn)] for drawn in DRAWN.values()]
        cells = [f"{np.mean(each):.2e} ± {np.std(each, ddof=1):.1e}" for each in values]
        print(f"| {name} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
