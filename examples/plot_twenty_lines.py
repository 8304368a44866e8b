"""For anyone: write f and g, and get the solution.

The lower level minimises g = y⁴/4 − y·sin x over y. Its curvature 3y² is 0 at the solution y*(x) if sin x = 0. The
upper level minimises f = y³ at y = y*(x). In closed form that is Φ(x) = sin x, so that the solution must be x = −π/2.
The way there leads through x = 0, where ordinary implicit differentiation computes 0/0.
"""

import sys

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import unibio as ub

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def f(x, y, batch):
    return y**3


def g(x, y, batch):
    return y**4 / 4 - y * jnp.sin(x)


def main(path: str = "twenty_lines.png") -> None:
    problem = ub.Problem(f, g, p=4.0)
    solver = ub.UniBiO(step_size=0.05, hypergradient=ub.CG())
    result = ub.solve(
        problem,
        solver,
        1.2,
        1.0,
        steps=100,
        key=jax.random.key(0),
        metrics=lambda problem, state: {"x": state.x},
        every=1,
    )
    xs = result.metrics["x"]
    print(f"{result.status} after {result.steps} steps: x = {float(result.x):.3f} (−π/2 = {-np.pi / 2:.3f})")
    print(f"calls: {result.calls}, {result.seconds:.2f} s and {result.compile_seconds:.1f} s to compile")

    grid = np.linspace(-2.5, 1.8, 200)
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.plot(grid, np.sin(grid), color="#999999", label="Φ(x) = sin x")
    axes.plot(xs, np.sin(xs), "o", ms=3, color="#0072B2", label="UniBiO's iterates")
    axes.axvline(0, color="#D55E00", lw=1, ls="--", label="singular lower Hessian")
    axes.set(xlabel="x", ylabel="Φ(x)", title="Downhill through a singular point")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
    print(f"figure: {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
