"""Twenty lines: learn a weight for every training sample, and see which samples were corrupted.

A linear model is fitted with the loss |residual|^4 (uniformly convex of order 4, its Hessian vanishes where the
residuals do) to data of which 30 % come from a faulty sensor; 200 clean samples say how good the fit is.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import unibio as ub


def f(x, y, batch):  # how well the model y does on clean data
    features, targets = batch.value
    return jnp.mean((features @ y - targets) ** 4)


def g(x, y, batch):  # what the model y is fitted to: sample i weighs sigmoid(x_i)
    features, targets = batch.value
    losses = (features @ y - targets) ** 4
    return jnp.mean(jax.nn.sigmoid(x[batch.index]) * losses) + 1e-3 * jnp.sum(y**4)


def main() -> None:
    rng = np.random.default_rng(0)
    n, m, d = 500, 200, 10
    truth, features = rng.normal(size=d), rng.normal(size=(n + m, d))
    targets = features @ truth + 0.3 * rng.normal(size=n + m)
    corrupted = np.arange(n) < 0.3 * n
    targets[:n][corrupted] += 3.0  # a faulty sensor

    train = ub.Dataset((features[:n], targets[:n]), batch_size=n)
    clean = ub.Dataset((features[n:], targets[n:]), batch_size=m)
    problem = ub.Problem(f, g, p=4.0, f_batches=clean, g_batches=train)

    x, y = jnp.zeros(n), jnp.zeros(d)
    optimiser = optax.adam(0.5)
    state = optimiser.init(x)
    print(" step   loss on clean data   suspects found (AUROC)")
    for step in range(61):
        y = ub.lower_solution(problem, x, y)
        gradient, _ = ub.hypergradient(problem, x, y)
        if step % 10 == 0:
            print(f"{step:5d} {float(f(x, y, clean.rows(0, m))):20.4f} {auroc(-x, corrupted):24.3f}")
        update, state = optimiser.update(gradient, state)
        x = optax.apply_updates(x, update)
    worst = np.argsort(np.asarray(x))[:10]
    print(f"ten most suspicious samples: {worst.tolist()} ({int(corrupted[worst].sum())} of them were corrupted)")


def auroc(score: jax.Array, positive: np.ndarray) -> float:
    """Probability that a corrupted sample scores higher than a sound one, ties counted half."""
    high, low = np.asarray(score)[positive], np.asarray(score)[~positive]
    return float(np.mean((high[:, None] > low) + 0.5 * (high[:, None] == low)))


if __name__ == "__main__":
    main()
