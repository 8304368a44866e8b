"""Hypergradients against the peers: `pip install '.[compare]' && python benchmarks/hypergradient.py`.

One run measures everything side by side, each time the minimum of several calls after `block_until_ready`, without
compilation, and prints ratios. jaxopt and TorchOpt get the loosest tolerance of a grid with which they reach the
wanted accuracy, as do we. Sections: peers, network, scaling, memory, assessment (name them to run only those).
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import unibio as ub
from unibio.core import oracle
from unibio.hypergradients import _estimate

WANTED = 1e-8
TOLERANCES = (1e-6, 1e-7, 3e-8, 1e-8, 3e-9, 1e-9, 1e-10, 1e-12, 1e-14)


def seconds(call: Callable[[], Any], repeats: int = 7) -> float:
    """Minimum over `repeats` calls after a first one that compiles; fewer if they take over five seconds."""
    jax.block_until_ready(call())
    times: list[float] = []
    while len(times) < repeats and sum(times) < 5:
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    return min(times)


@jax.jit
def estimate(method: Any, problem: ub.Problem, x: Any, y: Any) -> Any:
    """The bare estimate, as solvers call it and peers compute it: without an assessment of its error."""
    return method(problem, x, y, None)


def report(name: str, value: float, target: float) -> None:
    print(f"  {name:<58} {value:8.3f}   target ≤ {target:<5g} {'ok' if value <= target else 'MISSED'}")


def regression(n: int, d: int, p: float, scaled: bool) -> tuple[Any, Any, jax.Array, jax.Array, ub.Problem]:
    rng = np.random.default_rng(0)
    scale = np.geomspace(0.1, 3.0, d) if scaled else np.ones(d)
    w = rng.normal(size=d)
    pairs = []
    for _ in range(2):
        features = rng.normal(size=(n, d)) * scale
        pairs.append((features, features @ w + 0.3 * rng.normal(size=n)))
    problem = ub.problems.lp_regression(pairs[0], pairs[1], p=p, c=1e-2)
    weights = jnp.asarray(rng.normal(size=n))
    return pairs[0], pairs[1], weights, ub.lower_solution(problem, weights, jnp.zeros(d)), problem


Pair = tuple[Any, Any]  # features and targets


def lower(w: Any, weights: Any, features: Any, targets: Any, p: int) -> Any:
    residuals = features @ w - targets
    return jnp.mean(jax.nn.sigmoid(weights) * jnp.abs(residuals) ** p) + 1e-2 * jnp.sum(jnp.abs(w) ** p)


def upper(w: Any, features: Any, targets: Any, p: int) -> Any:
    return jnp.mean(jnp.abs(features @ w - targets) ** p) / p


def our_gradient(problem: ub.Problem, weights: Any, w_star: Any, tolerance: float) -> Callable[[], Any]:
    return lambda: estimate(ub.CG(rtol=tolerance), problem, weights, w_star)[0]


def jaxopt_gradient(solve: str, tolerance: float, data: Any, p: int) -> Callable[[], Any]:
    import jaxopt

    train, validation, weights, w_star = data
    linear = partial(getattr(jaxopt.linear_solve, solve), tol=tolerance, maxiter=20_000)

    @jaxopt.implicit_diff.custom_root(jax.grad(lower), solve=linear)
    def solver(start: Any, weights: Any, features: Any, targets: Any, p: int) -> Any:
        return start

    @jax.jit
    def gradient(weights: Any, w_star: Any, train: Pair, validation: Pair) -> Any:
        return jax.grad(lambda weights: upper(solver(w_star, weights, *train, p), *validation, p))(weights)

    args = jax.tree.map(jnp.asarray, (weights, w_star, train, validation))
    return lambda: gradient(*args)


def torchopt_gradient(solve: str, tolerance: float, data: Any, p: int) -> Callable[[], Any]:
    import torch
    import torchopt

    torch.set_num_threads(2)
    (features, targets), (features_val, targets_val), weights, w_star = [
        jax.tree.map(lambda a: torch.tensor(np.asarray(a)), part) for part in data
    ]
    weights.requires_grad_(True)

    def torch_lower(w: Any, weights: Any) -> Any:
        residuals = features @ w - targets
        return (torch.sigmoid(weights) * residuals.abs() ** p).mean() + 1e-2 * (w.abs() ** p).sum()

    linear = getattr(torchopt.linear_solve, solve)(rtol=tolerance, atol=0.0, maxiter=20_000)

    @torchopt.diff.implicit.custom_root(torch.func.grad(torch_lower), argnums=1, solve=linear)
    def solver(w: Any, weights: Any) -> Any:
        return w

    def gradient() -> Any:
        w = solver(w_star.clone().requires_grad_(True), weights)
        loss = ((features_val @ w - targets_val).abs() ** p).mean() / p
        return torch.autograd.grad(loss, weights)[0].numpy()

    return gradient


def dense_gradient(data: Any, p: int) -> Callable[[], Any]:
    """X'WX built by hand, Cholesky: what a careful person would write for this one problem."""

    @jax.jit
    def gradient(train: Pair, validation: Pair, weights: Any, w: Any) -> Any:
        features, targets = train
        residuals = features @ w - targets
        n = targets.size
        curvature = jax.nn.sigmoid(weights) * p * (p - 1) * jnp.abs(residuals) ** (p - 2) / n
        hessian = features.T @ (curvature[:, None] * features)
        hessian = hessian + jnp.diag(1e-2 * p * (p - 1) * jnp.abs(w) ** (p - 2))
        v = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(hessian), jax.grad(upper)(w, *validation, p))
        return jax.grad(lambda weights: -jax.jvp(lambda w: lower(w, weights, *train, p), (w,), (v,))[1])(weights)

    args = jax.tree.map(jnp.asarray, data)
    return lambda: gradient(*args)


def hessian_gradient(data: Any, p: int) -> Callable[[], Any]:
    """`jax.hessian` and a dense solve: what works for any problem."""

    @jax.jit
    def gradient(train: Pair, validation: Pair, weights: Any, w: Any) -> Any:
        hessian = jax.hessian(lower)(w, weights, *train, p)
        v = jnp.linalg.solve(hessian, jax.grad(upper)(w, *validation, p))
        return jax.grad(lambda weights: -jax.jvp(lambda w: lower(w, weights, *train, p), (w,), (v,))[1])(weights)

    args = jax.tree.map(jnp.asarray, data)
    return lambda: gradient(*args)


def fastest(name: str, make: Callable[[float], Callable[[], Any]], truth: np.ndarray) -> float:
    """Seconds at the loosest tolerance that is accurate enough; infinity, and the error, if none is."""
    error = np.inf
    for tolerance in TOLERANCES:
        call = make(tolerance)
        call()  # compiles
        start = time.perf_counter()
        result = jax.block_until_ready(call())
        if time.perf_counter() - start > 60:
            print(f"  {name:<34} over 60 s at tolerance {tolerance:g}; given up")
            return float("inf")
        error = float(np.linalg.norm(np.asarray(result) - truth) / np.linalg.norm(truth))
        if error <= WANTED:
            best = seconds(call)
            print(f"  {name:<34} {best:8.4f} s   error {error:.1e} at tolerance {tolerance:g}")
            return best
    print(f"  {name:<34} never below error {error:.1e}")
    return float("inf")


def peers(n: int, d: int) -> None:
    for scaled in (True, False):
        print(f"\nℓ_4 regression, n = {n}, d = {d}, features {'scaled 0.1 to 3' if scaled else 'equally scaled'}:")
        *data, problem = regression(n, d, 4.0, scaled)
        truth = np.asarray(dense_gradient(data, 4)())
        weights, w_star = data[2], data[3]
        ours = fastest(
            "unibio CG",
            partial(our_gradient, problem, weights, w_star),
            truth,
        )
        _, info = estimate(ub.CG(rtol=WANTED), problem, weights, w_star)
        print(f"    {int(info.iterations)} iterations, {int(info.calls.hvp) // n} products with the preconditioner's")
        others = [
            fastest(f"jaxopt {solve}", partial(jaxopt_gradient, solve, data=data, p=4), truth)
            for solve in ("solve_cg", "solve_normal_cg")
        ]
        others += [
            fastest(f"TorchOpt {solve}", partial(torchopt_gradient, solve, data=data, p=4), truth)
            for solve in ("solve_cg", "solve_normal_cg")
        ]
        dense = seconds(dense_gradient(data, 4))
        gradient = jax.jit(lambda problem, x, y: oracle.grad_g(problem, x, y, problem.g_batches.whole()))
        generic = seconds(hessian_gradient(data, 4))
        print(f"  {'dense, X^T W X by hand':<34} {dense:8.4f} s")
        print(f"  {'dense, jax.hessian':<34} {generic:8.4f} s")
        print(f"  {'one gradient of g':<34} {seconds(partial(gradient, problem, weights, w_star)):8.4f} s")
        report("unibio / fastest peer", ours / min(others), 0.1 if scaled else 0.5)
        if scaled:
            report("unibio / dense, jax.hessian", ours / generic, 0.5)
            report("unibio / dense, X^T W X by hand", ours / dense, 0.5)


def network_lower(x: jax.Array, y: dict[str, jax.Array], batch: ub.Batch) -> jax.Array:
    images, labels = batch.value
    logits = jax.nn.relu(images @ y["w1"] + y["b1"]) @ y["w2"] + y["b2"]
    losses = -jax.nn.log_softmax(logits)[jnp.arange(labels.size), labels]
    return jnp.mean(jax.nn.sigmoid(x[batch.index]) * losses) + 1e-4 * sum(
        jnp.sum(ub.abs_pow(leaf, 3.0)) for leaf in jax.tree.leaves(y)
    )


def network() -> None:
    print("\ntwo-layer network 784-512-10, batch 1024, float32:")
    rng = np.random.default_rng(0)
    n = 10_000
    shapes = {"w1": (784, 512), "b1": (512,), "w2": (512, 10), "b2": (10,)}
    y = {k: jnp.asarray(rng.normal(size=s, scale=0.05), jnp.float32) for k, s in shapes.items()}
    v = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape), jnp.float32), y)
    x = jnp.asarray(rng.normal(size=n), jnp.float32)
    images, labels = rng.normal(size=(n, 784)).astype(np.float32), rng.integers(0, 10, n)
    data = ub.Dataset((images, labels), batch_size=1024)
    problem = ub.Problem(network_lower, network_lower, 3.0, f_batches=data, g_batches=data)
    batch = data.sample(jax.random.key(0))
    args = (problem, x, y)
    gradient = jax.jit(oracle.grad_g)
    product, cross = jax.jit(oracle.hvp_g), jax.jit(oracle.cross_g)
    base = seconds(lambda: gradient(*args, batch), 30)
    print(f"  one gradient {base:.4f} s")
    report("Hessian-vector product / gradient", seconds(lambda: product(*args, v, batch), 30) / base, 2.2)
    report("cross term / gradient", seconds(lambda: cross(*args, v, batch), 30) / base, 1.0)


def scaling() -> None:
    print("\ncost of one CG hypergradient with 20 products (exponent fitted in log-log):")

    def cost(n: int, d: int) -> float:
        rng = np.random.default_rng(0)
        pair = (rng.normal(size=(n, d)), rng.normal(size=n))
        problem = ub.problems.lp_regression(pair, pair, p=4.0)
        x, y = jnp.zeros(n), jnp.asarray(rng.normal(size=d))
        method = ub.CG(rtol=0.0, max_steps=20)
        return seconds(lambda: estimate(method, problem, x, y), 5)

    for name, grid, run in (
        ("n", [10_000, 20_000, 40_000, 80_000, 160_000], lambda n: cost(n, 100)),
        ("d", [125, 250, 500, 1000, 2000], lambda d: cost(8192, d)),
    ):
        times = [run(size) for size in grid]
        print("  " + ", ".join(f"{name}={size}: {t:.4f} s" for size, t in zip(grid, times, strict=True)))
        report(f"exponent in {name}", float(np.polyfit(np.log(grid), np.log(times), 1)[0]), 1.1)


def assessment() -> None:
    print("\n`ub.hypergradient`, which assesses its error, against the bare estimate, p = 4, float64:")
    for n, d in ((60, 8), (2000, 100), (20_000, 100)):
        _, _, x, y, problem = regression(n, d, 4.0, False)
        for method in (ub.CG(), ub.Exact()):
            (bare, bare_compiling), (assessed, assessed_compiling) = (
                cost_of(program, method, problem, x, y) for program in (estimate, _estimate)
            )
            name = f"n = {n}, d = {d}, {type(method).__name__}"
            print(f"  {name}: bare {1e3 * bare:.2f} ms, compiled in {bare_compiling:.2f} s")
            report("seconds of the assessed one, over those of the bare one", assessed / bare, 2.2)
            report("the same for compilation", assessed_compiling / bare_compiling, 1.5)


def cost_of(program: Any, method: Any, problem: ub.Problem, x: Any, y: Any) -> tuple[float, float]:
    """Seconds of a run and of tracing and compiling."""
    more = () if program is estimate else (None, False)
    start = time.perf_counter()
    compiled = program.lower(method, problem, x, y, *more).compile()
    compiling = time.perf_counter() - start
    return seconds(lambda: compiled(method, problem, x, y, *more[:1])), compiling


def memory() -> None:
    print("\nscratch memory of the full-batch oracles beyond data and results, d = 500, float64:")

    def problem(n: int) -> ub.Problem:
        pair = (jnp.ones((n, 500)), jnp.ones(n))
        return ub.problems.lp_regression(pair, pair, p=4.0)

    calls: dict[str, Callable[..., Any]] = {
        "grads_f": lambda q, x, y: oracle.grads_f(q, x, y, q.f_batches.whole()),
        "grad_g": lambda q, x, y: oracle.grad_g(q, x, y, q.g_batches.whole()),
        "hvp_g": lambda q, x, y: oracle.hvp_g(q, x, y, y, q.g_batches.whole()),
        "cross_g": lambda q, x, y: oracle.cross_g(q, x, y, y, q.g_batches.whole()),
    }
    sizes = (20_000, 80_000, 320_000)
    for name, call in calls.items():
        used = []
        for n in sizes:
            shapes = jax.eval_shape(lambda n=n: (problem(n), jnp.ones(n), jnp.ones(500)))
            told = jax.jit(call).lower(*shapes).compile().memory_analysis()
            assert told is not None, "this platform does not tell how much memory a program takes"
            used.append(told.temp_size_in_bytes / 1e6)
        print(f"  {name:<8} " + "  ".join(f"{u:7.2f} MB" for u in used) + "   at n = 20,000, 80,000, 320,000")
        report(f"{name}: growth over 16 × the samples", used[-1] / used[0], 1.05)


def main() -> None:
    sections: dict[str, Callable[[], None]] = {
        "peers": lambda: peers(args.n, args.d),
        "network": network,
        "scaling": scaling,
        "memory": memory,
        "assessment": assessment,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(sections))
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--d", type=int, default=500)
    args: argparse.Namespace = parser.parse_args()
    unknown = set(args.sections) - set(sections)
    if unknown:
        parser.error(f"unknown section {', '.join(sorted(unknown))}; choose from {', '.join(sections)}")
    jax.config.update("jax_enable_x64", True)
    for name in args.sections or sections:
        sections[name]()


if __name__ == "__main__":
    main()
