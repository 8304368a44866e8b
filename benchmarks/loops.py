"""How fast the loop is: many small trajectories at once, and how little it adds to large oracles.

    python benchmarks/loops.py

Ratios are taken within one run, after block_until_ready, without compilation, the minimum of several calls.
"""

import math
import random
import time

import jax
import jax.numpy as jnp
import numpy as np

import unibio as ub
from unibio.core import oracle, tree
from unibio.core.problem import prepare

ORDERS, STEPS = (2.0, 4.0, 6.0, 8.0), (0.05, 0.03, 0.02, 0.01)
VARIANCES, SEEDS, T = (0.0, 0.01, 1.0, 10.0), 64, 500


def best(call, repeats=3):
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return min(times)


def study(p, eta, variance, key):
    """‖m‖ at the last step and x of one trajectory of the synthetic study."""
    noise = ub.Noise(grad_y_g=variance, grad_z_f=variance)
    problem = ub.problems.example3(p, f_batches=noise, g_batches=noise)
    solver = ub.UniBiO(eta, hypergradient=ub.Neumann(terms=1, scale=1.0))
    state, log = ub.trajectory(problem, solver, jnp.float32(1), jnp.float32(1), T, key)
    return state.x, log.direction_norm[-1]


def epochs(p, budget=100):
    """(length, step, radius) of each epoch."""
    out, total, k = [], 0.0, 0
    while (total := total + 5 * 2 ** (2 * (p - 1) / p * k)) <= budget:
        out.append((math.floor(5 * 2 ** (2 * (p - 1) / p * k) + 1e-9), 0.5**k, 2 ** (-k / p)))
        k += 1
    return out


def scalar_python(p, eta, variance, seed):
    """The same algorithm with Python floats, written with care."""
    rng = random.Random(seed)
    gauss, sin, cos, deviation, half_pi = rng.gauss, math.sin, math.cos, math.sqrt(variance), math.pi / 2
    schedule, a = epochs(p), p - 1

    def refresh(x, w):
        target = sin(x)
        for length, step, radius in schedule:
            low, high, total = w - radius, w + radius, 0.0
            for _ in range(length):
                total += w
                power = w**a if w >= 0 else -((-w) ** a)
                w -= step * (power - target + gauss(0.0, deviation))
                if w > high:
                    w = high
                elif w < low:
                    w = low
            w = total / length
        return w

    x = y = 1.0
    y = refresh(x, y)
    m = 0.0
    for t in range(T):
        if t % 2 == 0:
            y = refresh(x, y)
        z = y**a if y >= 0 else -((-y) ** a)
        h = cos(x) * ((cos(z) if -half_pi <= z <= half_pi else 0.0) + gauss(0.0, deviation))
        m = h if t == 0 else 0.9 * m + 0.1 * h
        if m:
            x -= eta if m > 0 else -eta
    return x


def one_element_numpy(p, eta, variance, seed, steps):
    """The same with arrays of one element, as a vector code run on a scalar problem does."""
    rng = np.random.default_rng(seed)
    deviation, schedule = math.sqrt(variance), epochs(p)

    def spow(y, a):
        return np.sign(y) * np.abs(y) ** a

    def refresh(x, w):
        for length, step, radius in schedule:
            centre, total = w, np.zeros(1)
            for _ in range(length):
                total = total + w
                w = w - step * (spow(w, p - 1) - np.sin(x) + deviation * rng.standard_normal(1))
                offset = w - centre
                distance = np.linalg.norm(offset)
                if distance > radius:
                    w = centre + offset * (radius / distance)
            w = total / length
        return w

    x, y = np.ones(1), np.ones(1)
    m = np.zeros(1)
    y = refresh(x, y)
    for t in range(steps):
        if t % 2 == 0:
            y = refresh(x, y)
        z = spow(y, p - 1)
        h = np.cos(x) * (np.where(np.abs(z) <= np.pi / 2, np.cos(z), 0.0) + deviation * rng.standard_normal(1))
        m = h if t == 0 else 0.9 * m + 0.1 * h
        x = x - eta * m / np.linalg.norm(m)
    return x


def throughput():
    grid = [(p, eta, v, s) for p, eta in zip(ORDERS, STEPS, strict=True) for v in VARIANCES for s in range(SEEDS)]
    p, eta, variance, seed = (jnp.asarray(column) for column in zip(*grid, strict=True))
    keys = jax.vmap(jax.random.key)(seed)
    arguments = (p.astype(jnp.float32), eta.astype(jnp.float32), variance.astype(jnp.float32), keys)
    began = time.perf_counter()
    program = jax.jit(jax.vmap(study)).lower(*arguments).compile()
    print(f"compile {time.perf_counter() - began:.1f} s")
    ours = best(lambda: program(*arguments)) / len(grid)

    cases = [(p, eta, v, 0) for p, eta in zip(ORDERS, STEPS, strict=True) for v in VARIANCES]
    scalar = best(lambda: [scalar_python(*case) for case in cases], 2) / len(cases)
    part = 50  # steps; the numpy loop is slow and its cost is the same for each
    vector = best(lambda: [one_element_numpy(*case, part) for case in cases], 2) / len(cases) * (T / part)
    print(f"{len(grid)} trajectories of {T} steps: {ours * len(grid):.2f} s, {1e3 * ours:.2f} ms each")
    print(f"scalar Python {1e3 * scalar:.1f} ms each: ours is {scalar / ours:.1f} × (target 15)")
    print(
        f"one-element numpy {1e3 * vector:.1f} ms each (from {part} steps): ours is {vector / ours:.0f} × (target 200)"
    )
    x, _ = program(*arguments)
    ends = np.asarray(x).reshape(4, 4, SEEDS)
    python = [scalar_python(p, eta, 1.0, 0) for p, eta in zip(ORDERS, STEPS, strict=True)]
    print("median x at variance 1:", np.median(ends[:, 2], axis=1).round(3), "python, seed 0:", np.round(python, 3))


def overhead():
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(20_000, 500)), rng.normal(size=20_000)
    problem = ub.problems.lp_regression((features, targets), (features[:5000], targets[:5000]), 4.0, batch_size=1000)
    x, y = jnp.zeros(20_000), jnp.zeros(500)
    steps, inner, terms = 50, 5, 10
    problem, x, y = prepare(problem, x, y)

    @jax.jit
    def bare(problem, x, y, key):
        """The oracle calls of StocBiO's steps on the same number of batches, and nothing else."""

        def step(t, carry):
            x, y = carry
            keys = jax.random.split(jax.random.fold_in(key, t), 4)
            for_y, for_v = (problem.g_batches.draw(k, n, x, y) for k, n in zip(keys, (inner, terms), strict=False))

            def descend(y, draw):
                return tree.axpy(-1e-7, oracle.grad_g(problem, x, y, problem.g_batches.batch(draw)), y), None

            y, _ = jax.lax.scan(descend, y, for_y)
            grad_x, v = oracle.grads_f(problem, x, y, problem.f_batch(keys[2], x, y))

            def product(v, draw):
                return oracle.hvp_g(problem, x, y, v, problem.g_batches.batch(draw)), None

            v, _ = jax.lax.scan(product, v, for_v)
            cross = oracle.cross_g(problem, x, y, v, problem.g_batch(keys[3], x, y))
            return x - 1e-30 * (grad_x - cross), y

        return jax.lax.fori_loop(0, steps, step, (x, y))

    key = jax.random.key(0)
    floor = [best(lambda: bare(problem, x, y, key), 1) for _ in range(2)]
    runs = []
    for size in (1e-7, 2e-7, 1e-7, 2e-7, 1e-7):  # alternating with the bare work, so that a slow minute hits both
        result = ub.solve(problem, ub.StocBiO(1e-6, size, lower_steps=inner, terms=terms), x, y, steps=steps, key=key)
        runs.append(result)
        floor.append(best(lambda: bare(problem, x, y, key), 1))
    ours, oracles = min(run.seconds for run in runs), min(floor)
    again = max(run.compile_seconds for run in runs[1:])
    print(f"\nℓ_4 regression, n = 20,000, d = 500, batches of 1000, {steps} steps of StocBiO:")
    print(f"loop {ours:.3f} s, oracles alone {oracles:.3f} s: overhead {100 * (ours / oracles - 1):.1f} % (target 10)")
    print(f"compile: first run {runs[0].compile_seconds:.2f} s, others with other step sizes {again:.4f} s")


def main():
    print(f"jax {jax.__version__}, {jax.devices()[0].platform}, unibio's loop")
    throughput()
    overhead()


if __name__ == "__main__":
    main()
