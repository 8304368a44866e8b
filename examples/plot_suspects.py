"""For engineers with bad data: fits a model that ignores wrong samples, and lists the samples that are probably wrong.

A linear model is fitted with the loss |residual|⁴ to 500 samples, 30 % of which come from a faulty sensor. Each of
these samples gets a weight, and the weights are learnt so that the model fits another 250 samples, which are known to
be good.
"""

import sys

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import unibio as ub

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def f(x, y, batch):  # the loss of the model y on clean data
    features, targets = batch.value
    return jnp.mean((features @ y - targets) ** 4)


def g(x, y, batch):  # what y minimises: the loss of sample i has the weight sigmoid(x_i)
    features, targets = batch.value
    losses = (features @ y - targets) ** 4
    return jnp.mean(jax.nn.sigmoid(x[batch.index]) * losses) + 1e-3 * jnp.sum(y**4)


def main(path: str = "suspects.png") -> None:
    data = ub.problems.corrupted_regression(n=500, d=10, share=0.3)
    train, clean = ub.Dataset(data.train), ub.Dataset(data.validation)
    problem = ub.Problem(f, g, p=4.0, f_batches=clean, g_batches=train)

    x, y = jnp.zeros(500), jnp.zeros(10)
    y = ub.lower_solution(problem, x, y)
    solver = ub.UniBiO(
        step_size=0.3,
        momentum=0.0,
        optimiser=optax.adam(1.0),
        lower=ub.SGD(steps=20, step_size=0.01),
        hypergradient=ub.CG(rtol=1e-3, max_steps=20),
    )
    result = ub.solve(problem, solver, x, y, steps=100, key=jax.random.key(0), metrics=ub.Truth(), every=10)
    print(" step   loss on clean data     ‖∇Φ‖")
    for step, phi, norm in zip(*(result.metrics[name] for name in ("step", "phi", "gradient_norm")), strict=True):
        print(f"{step:5d} {phi:20.4f} {norm:10.2e}")

    weights = np.asarray(jax.nn.sigmoid(result.x))
    print(f"suspects found: AUROC {auroc(-weights, data.corrupted):.3f}")
    worst = np.argsort(weights)[:10]
    print(f"ten most suspicious samples: {worst.tolist()} ({int(data.corrupted[worst].sum())} of them were corrupted)")

    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    bins = np.linspace(0, 1, 21).tolist()
    axes.hist(weights[~data.corrupted], bins, color="#0072B2", alpha=0.7, label="sound samples")
    axes.hist(weights[data.corrupted], bins, color="#D55E00", alpha=0.7, label="corrupted samples")
    axes.set(xlabel="learnt weight", ylabel="samples", title="Learnt weights of sound and corrupted samples")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
    print(f"figure: {path}")


def auroc(score: np.ndarray, positive: np.ndarray) -> float:
    """The share of pairs of a corrupted and a sound sample in which the corrupted one has the higher score; ties count
    half."""
    high, low = score[positive], score[~positive]
    return float(np.mean((high[:, None] > low) + 0.5 * (high[:, None] == low)))


if __name__ == "__main__":
    main(*sys.argv[1:])
