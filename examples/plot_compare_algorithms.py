"""For researchers: compares several algorithms on one problem, with the same seeds and the same budget of oracle calls.

This is the paper's comparison on its Example 3, where Φ(x) = sin(sin x), from (0.001, 0.001) with the paper's step
sizes. The start is close to a point where the lower Hessian (p−1)y^(p−2) is 0. At p = 4 the baselines get away from
there; as there is no noise, they then end closer to the solution than UniBiO, whose steps have a constant length. At
p = 12 none of the baselines moves.
"""

import sys
from typing import Any

import jax.numpy as jnp
import matplotlib
import numpy as np

import unibio as ub

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"UniBiO": "#0072B2", "StocBiO": "#E69F00", "TTSA": "#009E73", "MA-SOBA": "#CC79A7"}
ALGORITHMS: dict[str, Any] = {
    "UniBiO": ub.UniBiO(0.02, period=10, hypergradient=ub.Neumann(terms=10, scale=1.0)),
    "StocBiO": ub.StocBiO(0.5, 0.1, lower_steps=5, terms=10),
    "TTSA": ub.TTSA(0.1, 0.1, terms=10, upper_decay=0.0, lower_decay=0.0),
    "MA-SOBA": ub.MASOBA(1.0, 0.01, linear_step_size=0.01, momentum=0.9),
}


def truth(problem, state):  # ∇Φ in closed form; for your own problem use metrics=ub.Truth()
    return {"gradient_norm": jnp.abs(jnp.cos(state.x) * jnp.cos(jnp.sin(state.x)))}


def main(path: str = "compare_algorithms.png") -> None:
    figure, panels = plt.subplots(1, 2, figsize=(8, 3.6), sharey=True, layout="constrained")
    for p, axes in zip((4.0, 12.0), panels, strict=True):
        problem = ub.problems.example3(p)
        contest = ub.compare(problem, ALGORITHMS, 0.001, 0.001, seeds=range(5), max_calls=6000, metrics=truth)
        print(f"p = {p:g}\n{contest}\ncalls until ‖∇Φ‖ ≤ 0.05, median of 5 seeds:")
        for name, reached in contest.reach(0.05).items():
            calls = np.median(reached["calls"])
            print(f"  {name:10s} {'never' if np.isinf(calls) else int(calls)}")
            lanes = [contest.lane(name, seed) for seed in range(5)]
            x = np.mean([lane["calls"] for lane in lanes], axis=0)
            low, middle, high = np.quantile([lane["gradient_norm"] for lane in lanes], [0.1, 0.5, 0.9], axis=0)
            axes.semilogy(x, middle, color=COLOURS[name], label=name)
            axes.fill_between(x, low, high, color=COLOURS[name], alpha=0.2, lw=0)
        note = " (the baselines coincide)" if p == 12 else ""
        axes.set(xlabel="oracle calls", title=f"p = {p:g}{note}", ylim=(1e-4, 2))
    panels[0].set_ylabel("‖∇Φ(x)‖")
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=150)
    print(f"figure: {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
