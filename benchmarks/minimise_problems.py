"""The problems of `minimise.py`, `minimise_ablation.py` and `minimise_rivals.py`.

DEVELOPMENT are those on which rules of `ub.minimise` were chosen or dropped. FRESH were written down before the method
was frozen and run only afterwards: other seeds and sizes of the same families, and families of their own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import unibio as ub


class Setting(NamedTuple):
    """A problem and its start, and ∇Φ as a function of x where it has a closed form."""

    problem: ub.Problem
    x: Any
    y: Any
    gradient: Callable[[Any], Any] | None = None


# ---------------------------------------------------------------- the problems


def lp(p, n, d, seed, batch=None):
    """Hyper-cleaning of an ℓ_p regression: a weight for each sample."""
    data = ub.problems.corrupted_regression(n, d, seed=seed + 7)
    return Setting(ub.problems.lp_regression(data.train, data.validation, p, 1e-2, batch), jnp.zeros(n), jnp.zeros(d))


def tables(rng, n, d, m):
    scale = rng.lognormal(size=d) ** 0.7
    return rng.normal(size=(n, d)) * scale, rng.normal(size=(m, d)) * scale, rng.normal(size=d) * (rng.random(d) < 0.4)


def on_data(f, g, sets, batch):
    validation, train = sets
    return ub.Problem(f, g, f_batches=ub.Dataset(validation, batch), g_batches=ub.Dataset(train, batch))


def poisson(seed, batch=None, n=300, d=15):
    """Poisson regression with a penalty for each feature."""
    rng = np.random.default_rng(seed)
    a, b, w = tables(rng, n, d, 200)
    a, b, w = 0.3 * a, 0.3 * b, 0.5 * w

    def loss(y, batch):
        features, counts = batch.value
        return jnp.mean(jnp.exp(features @ y) - counts * (features @ y))

    f = lambda x, y, batch: loss(y, batch)  # noqa: E731
    g = lambda x, y, batch: loss(y, batch) + 0.5 * jnp.sum(jnp.exp(x) * y**2)  # noqa: E731
    sets = [(z, rng.poisson(np.exp(np.clip(z @ w, -5, 3))).astype(float)) for z in (b, a)]
    return Setting(on_data(f, g, sets, batch), jnp.full(d, -3.0), jnp.zeros(d))


def class_weights(seed, batch=None, n=400, d=8):
    """Multinomial logistic regression with a weight for each class and one penalty; the classes are unbalanced."""
    rng = np.random.default_rng(seed)
    centres, share = rng.normal(size=(5, d)), np.asarray([0.5, 0.25, 0.15, 0.07, 0.03])

    def drawn(n, share):
        labels = rng.choice(5, size=n, p=share)
        return centres[labels] + 1.2 * rng.normal(size=(n, d)), np.eye(5)[labels]

    def loss(y, batch, weights):
        features, labels = batch.value
        return -jnp.mean(jnp.sum(labels * weights * jax.nn.log_softmax(features @ y), axis=1))

    f = lambda x, y, batch: loss(y, batch, jnp.ones(5))  # noqa: E731
    g = lambda x, y, batch: loss(y, batch, jnp.exp(x[:5])) + 0.5 * jnp.exp(x[5]) * jnp.sum(y**2)  # noqa: E731
    problem = on_data(f, g, (drawn(200, np.full(5, 0.2)), drawn(n, share)), batch)
    return Setting(problem, jnp.asarray([0.0] * 5 + [-2.0]), jnp.zeros((d, 5)))


def svm(seed, batch=None, n=250, d=12):
    """A support vector machine with a smooth hinge and a penalty for each feature."""
    rng = np.random.default_rng(seed)
    a, b, w = tables(rng, n, d, 200)

    def loss(y, batch):
        features, labels = batch.value
        return jnp.mean(0.2 * jax.nn.softplus((1 - labels * (features @ y)) / 0.2))

    f = lambda x, y, batch: loss(y, batch)  # noqa: E731
    g = lambda x, y, batch: loss(y, batch) + 0.5 * jnp.sum(jnp.exp(x) * y**2)  # noqa: E731
    sets = [(z, np.sign(z @ w + rng.normal(size=len(z)))) for z in (b, a)]
    return Setting(on_data(f, g, sets, batch), jnp.full(d, -3.0), jnp.zeros(d))


def kernel_ridge(seed, batch=None, n=40):
    """Kernel ridge regression: a length scale for each of 4 features, and the penalty."""
    rng = np.random.default_rng(seed)
    points, others = rng.normal(size=(n, 4)), rng.normal(size=(n, 4))
    target = lambda z: np.sin(2 * z[:, 0]) + 0.5 * z[:, 1] + 0.1 * rng.normal(size=len(z))  # noqa: E731
    t, u = jnp.asarray(target(points)), jnp.asarray(target(others))
    p, q = jnp.asarray(points), jnp.asarray(others)

    def kernel(x, a, b):
        return jnp.exp(-0.5 * jnp.sum(((a[:, None] - b[None]) * jnp.exp(x[:4])) ** 2, axis=-1))

    f = lambda x, y, batch: 0.5 * jnp.mean((kernel(x, q, p) @ y - u) ** 2)  # noqa: E731

    def g(x, y, batch):
        k = kernel(x, p, p)
        return (0.5 * y @ k @ y + 0.5 * jnp.exp(x[4]) * jnp.sum(y**2) - t @ y) / n

    return Setting(ub.Problem(f, g), jnp.asarray([0.0] * 4 + [-1.0]), jnp.zeros(n))


def last_layer(seed, batch=None, n=150, units=8):
    """A network with one hidden layer: x the hidden weights, y the last layer with a ridge penalty."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(n, 3)), rng.normal(size=(n, 3))
    truth = lambda z: np.tanh(z[:, 0] - z[:, 1]) + 0.3 * z[:, 2] + 0.1 * rng.normal(size=len(z))  # noqa: E731

    def residual(x, y, batch):
        features, targets = batch.value
        return jnp.tanh(features @ x.reshape(3, units)) @ y - targets

    f = lambda x, y, batch: 0.5 * jnp.mean(residual(x, y, batch) ** 2) + 1e-3 * jnp.sum(x**2)  # noqa: E731
    g = lambda x, y, batch: 0.5 * jnp.mean(residual(x, y, batch) ** 2) + 0.005 * jnp.sum(y**2)  # noqa: E731
    problem = on_data(f, g, ((b, truth(b)), (a, truth(a))), batch)
    return Setting(problem, jnp.asarray(rng.normal(size=3 * units)), jnp.zeros(units))


def singular(dim, p, seed, batch=None):
    """g = ‖y‖_p^p/p − yᵀB sin x with the start at x = y = 0, where the lower Hessian is 0."""
    rng = np.random.default_rng(seed)
    coupling = jnp.asarray(rng.normal(size=(dim, dim)) / np.sqrt(dim))
    t = jnp.asarray(0.5 * rng.normal(size=dim))
    f = lambda x, y, batch: jnp.sum(jnp.sqrt(1 + (ub.spow(y, p - 1) - t) ** 2)) + 0.05 * jnp.sum(x**2)  # noqa: E731
    g = lambda x, y, batch: jnp.sum(ub.abs_pow(y, p)) / p - y @ (coupling @ jnp.sin(x))  # noqa: E731

    def gradient(x):
        z = coupling @ np.sin(x) - t
        return 0.1 * x + np.cos(x) * (coupling.T @ (z / np.sqrt(1 + z**2)))

    return Setting(ub.Problem(f, g), jnp.zeros(dim), jnp.zeros(dim), gradient)


def logistic(n, d, groups, seed, batch=None):
    """Logistic regression with a penalty for each group of features."""
    rng = np.random.default_rng(seed)
    a, b, w = tables(rng, n, d, n // 2)
    group = jnp.asarray(np.arange(d) % groups)

    def loss(y, batch):
        features, labels = batch.value
        return jnp.mean(jax.nn.softplus(-labels * (features @ y)))

    f = lambda x, y, batch: loss(y, batch)  # noqa: E731
    g = lambda x, y, batch: loss(y, batch) + 0.5 * jnp.sum(jnp.exp(x[group]) * y**2)  # noqa: E731
    sets = [(z, np.sign(z @ w + rng.normal(size=len(z)) * np.sqrt(d) / 3)) for z in (b, a)]
    return Setting(on_data(f, g, sets, batch), jnp.full(groups, -3.0), jnp.zeros(d))


def sources(seed, batch=None, n=400, d=10):
    """Regression with a robust loss on data of 8 sources, some of them biased: a weight for each source."""
    rng = np.random.default_rng(seed)
    a, b, w = rng.normal(size=(n, d)), rng.normal(size=(150, d)), rng.normal(size=d)
    source = rng.integers(0, 8, size=n)
    bias = (source % 3 == 0) * 2.0
    robust = lambda z: jnp.sqrt(1 + z**2) - 1  # noqa: E731

    def f(x, y, batch):
        features, targets = batch.value
        return jnp.mean(robust(features @ y - targets))

    def g(x, y, batch):
        features, targets, group = batch.value
        return jnp.mean(8 * jax.nn.softmax(x)[group] * robust(features @ y - targets)) + 1e-3 * jnp.sum(y**2)

    train = a, a @ w + bias + 0.3 * rng.normal(size=n), source
    validation = b, b @ w + 0.3 * rng.normal(size=150)
    return Setting(on_data(f, g, (validation, train), batch), jnp.zeros(8), jnp.zeros(d))


def dictionary(seed, batch=None, n=60, rows=12, atoms=6):
    """Smooth sparse coding: x the dictionary, y the codes of n signals, with a hidden part of each signal above."""
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(rows, atoms))
    codes = rng.normal(size=(atoms, n)) * (rng.random((atoms, n)) < 0.4)
    signals = true @ codes + 0.05 * rng.normal(size=(rows, n))
    hidden = rng.random((rows, n)) < 0.3

    def f(x, y, batch):
        return 0.5 * jnp.sum(hidden * (x @ y - signals) ** 2) / n + 1e-3 * jnp.sum(x**2)

    def g(x, y, batch):
        fit = 0.5 * jnp.sum(~hidden * (x @ y - signals) ** 2)
        return (fit + 0.1 * jnp.sum(jnp.sqrt(y**2 + 0.01)) + 0.005 * jnp.sum(y**2)) / n

    start = jnp.asarray(true + 0.5 * rng.normal(size=true.shape))
    return Setting(ub.Problem(f, g), start, jnp.zeros((atoms, n)))


def distillation(seed, batch=None, m=12, d=6, n=200):
    """Dataset distillation: x are the features of m synthetic samples on which a logistic regression is trained."""
    rng = np.random.default_rng(seed)
    w = 2 * rng.normal(size=d)
    b = rng.normal(size=(n, d))
    labels = np.where(np.arange(m) % 2, 1.0, -1.0)

    def f(x, y, batch):
        features, targets = batch.value
        return jnp.mean(jax.nn.softplus(-targets * (features @ y))) + 1e-4 * jnp.sum(x**2)

    def g(x, y, batch):
        return jnp.mean(jax.nn.softplus(-labels * (x.reshape(m, d) @ y))) + 0.05 * jnp.sum(y**2)

    data = ub.Dataset((b, np.sign(b @ w + rng.normal(size=n))), batch)
    return Setting(ub.Problem(f, g, f_batches=data), jnp.asarray(rng.normal(size=m * d)), jnp.zeros(d))


Maker = Callable[..., Setting]  # (batch=None) ↦ the problem, with random batches of that size

DEVELOPMENT: dict[str, Maker] = {
    "ℓ_2.5, n = 400": lambda batch=None: lp(2.5, 400, 12, 0, batch),
    "ℓ_5, n = 300": lambda batch=None: lp(5.0, 300, 25, 0, batch),
    "ℓ_8, n = 200": lambda batch=None: lp(8.0, 200, 8, 0, batch),
    "Poisson": lambda batch=None: poisson(0, batch),
    "class weights": lambda batch=None: class_weights(0, batch),
    "smooth SVM": lambda batch=None: svm(0, batch),
    "kernel ridge": lambda batch=None: kernel_ridge(0, batch),
    "last layer": lambda batch=None: last_layer(0, batch),
    "singular, 20, p = 4": lambda batch=None: singular(20, 4.0, 0, batch),
    "singular, 100, p = 6": lambda batch=None: singular(100, 6.0, 0, batch),
}

FRESH: dict[str, Maker] = {
    "ℓ_2.5, n = 1,000, d = 40": lambda batch=None: lp(2.5, 1000, 40, 31, batch),
    "ℓ_5, n = 500, d = 10": lambda batch=None: lp(5.0, 500, 10, 32, batch),
    "ℓ_8, n = 400, d = 20": lambda batch=None: lp(8.0, 400, 20, 33, batch),
    "Poisson, d = 25": lambda batch=None: poisson(34, batch, 500, 25),
    "class weights, n = 1,000": lambda batch=None: class_weights(35, batch, 1000, 12),
    "smooth SVM, d = 30": lambda batch=None: svm(36, batch, 500, 30),
    "kernel ridge, 60 points": lambda batch=None: kernel_ridge(37, batch, 60),
    "last layer, 12 units": lambda batch=None: last_layer(38, batch, 300, 12),
    "singular, 50, p = 3": lambda batch=None: singular(50, 3.0, 39, batch),
    "singular, 100, p = 8": lambda batch=None: singular(100, 8.0, 40, batch),
    "8 sources, robust": lambda batch=None: sources(41, batch),
    "dictionary": lambda batch=None: dictionary(42, batch),
    "distillation": lambda batch=None: distillation(43, batch),
    "n = 50,000": lambda batch=None: logistic(50_000, 20, 20, 44, batch),
    "lower level of 10,000": lambda batch=None: logistic(400, 10_000, 5, 45, batch),
}
