"""The recurrent network side by side with PyTorch: gradient, Hessian-vector product, cross term, hypergradient.

    python benchmarks/rnn.py [--hidden 256] [--pairs 128] [--length 25] [--width 300]

Needs torch==2.13.0. Two cores for both, float32, the minimum of several calls, compilation apart. One call from Python
asks the system for fresh memory (40 MB for a gradient, 100 MB for a Hessian-vector product), which costs a fifth of its
time; in a loop that was compiled as a whole, as all solvers are, it is asked for once. Both are shown.
"""

import argparse
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import unibio as ub
from unibio.core import oracle
from unibio.paper.cleaning.nli_rnn import NLI


def race(calls, rounds=15):
    """The shortest time of each call; they take turns, two calls at a time, so that a slow minute hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            began = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - began)
    return {name: min(values) for name, values in times.items()}


def torch_calls(o):
    import torch

    torch.set_num_threads(2)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = torch.nn.RNN(o.width, o.hidden, num_layers=2, batch_first=False)
            self.out = torch.nn.Linear(4 * o.hidden, 3)

        def forward(self, a, b):
            u, v = (self.rnn(s)[0].max(dim=0).values for s in (a, b))
            return self.out(torch.cat([u, v, (u - v).abs(), u * v], dim=1))

    model = Model()
    a, b = (torch.randn(o.length, o.pairs, o.width) for _ in range(2))
    labels = torch.randint(3, (o.pairs,))
    weights = torch.rand(o.pairs)

    def gradient():
        loss = (weights * torch.nn.functional.cross_entropy(model(a, b), labels, reduction="none")).mean()
        return torch.autograd.grad(loss, list(model.parameters()))

    def forward():
        with torch.no_grad():
            return model(a, b)

    return {"PyTorch forward": forward, "PyTorch gradient": gradient}


STEPS = 8


def loop(problem, x, y, batch):
    """STEPS steps of gradient descent, compiled as one program."""

    def step(y, _):
        return jax.tree.map(lambda a, b: a - 1e-6 * b, y, oracle.grad_g(problem, x, y, batch)), None

    return jax.lax.scan(step, y, None, length=STEPS)[0]


def multiplications(o):
    """Of every call, from the products of matrices in it, counted by hand; d for the words' width, h for hidden."""
    d, h = o.width, o.hidden
    each = {"forward": d + 3 * h, "gradient": 2 * d + 9 * h, "cross": 2 * d + 9 * h, "hvp": 3 * d + 24 * h}
    return {name: 2 * o.pairs * o.length * h * count for name, count in each.items()}


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("hidden", 256), ("pairs", 128), ("length", 25), ("width", 300)):
        parser.add_argument(f"--{name}", type=int, default=value)
    o = parser.parse_args()
    rng = np.random.default_rng(0)
    vectors = jnp.asarray(rng.normal(size=(5000, o.width)), jnp.float32)
    tokens = tuple(jnp.asarray(rng.integers(1, 5000, size=(o.pairs, o.length)), jnp.int32) for _ in range(2))
    labels = jnp.asarray(rng.integers(3, size=o.pairs))
    model = NLI(vectors)
    y = model.init(jax.random.key(0), o.hidden)
    setting = ub.problems.hyper_cleaning(model, y, (tokens, labels), (tokens, labels), 3.0, batch_size=o.pairs)
    problem, x, y = ub.core.problem.prepare(*setting)
    assert isinstance(problem.g_batches, ub.Dataset)
    batch = problem.g_batches.rows(0, o.pairs)
    v = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), y)
    calls = {
        "forward": jax.jit(lambda p, x, y, v: oracle.value_g(p, x, y, batch)),
        "gradient": jax.jit(lambda p, x, y, v: oracle.grad_g(p, x, y, batch)),
        "hvp": jax.jit(lambda p, x, y, v: oracle.hvp_g(p, x, y, v, batch)),
        "cross": jax.jit(lambda p, x, y, v: oracle.cross_g(p, x, y, v, batch)),
        "hypergradient": jax.jit(lambda p, x, y, v: ub.Neumann(terms=3, scale=100.0)(p, x, y, jax.random.key(0))[0]),
    }
    calls["gradient in a loop"] = jax.jit(lambda p, x, y, v: loop(p, x, y, batch))
    big = jnp.ones((2000, 2000), jnp.float32)
    square = jax.jit(lambda a: a @ a)
    race_calls = {"matmul": lambda: square(big).block_until_ready()}
    for name, call in calls.items():
        began = time.perf_counter()
        jax.block_until_ready(call(problem, x, y, v))
        print(f"{name}: first call {time.perf_counter() - began:.1f} s", flush=True)
        race_calls[name] = partial(lambda call: jax.block_until_ready(call(problem, x, y, v)), call)
    took = race(race_calls | torch_calls(o))
    took["gradient in a loop"] /= STEPS
    for name, seconds in took.items():
        print(f"{name:18s} {1e3 * seconds:8.1f} ms")
    rate, work = 2000**3 / took["matmul"], multiplications(o)
    share = {name: f"{100 * work[name] / took[name] / rate:.0f} %" for name in work}
    looped = 100 * work["gradient"] / took["gradient in a loop"] / rate
    print(f"matmul rate {2e-9 * rate:.0f} GFLOP/s; of it {share}, gradient in a loop {looped:.0f} %")
    for name in ("hvp", "cross", "hypergradient"):
        counted = f" ({work[name] / work['gradient']:.2f} by multiplications)" if name in work else ""
        print(f"{name}: {took[name] / took['gradient']:.2f} gradients{counted}")
    more = (took["hypergradient"] - took["gradient"] - took["cross"]) / 2  # a series of three terms has two products
    print(f"each of the hypergradient's two Hessian-vector products: {more / took['gradient']:.2f} gradients")
    for name in ("forward", "gradient", "gradient in a loop"):
        print(f"{name}: {took[name] / took['PyTorch ' + name.removesuffix(' in a loop')]:.2f} of PyTorch's")


if __name__ == "__main__":
    main()
