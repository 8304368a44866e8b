"""Example 2 of the paper: hyper-cleaning of a linear ℓ_p regression."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import checks
from unibio.core.batches import Batch, Dataset
from unibio.core.checks import as_real
from unibio.core.coordinates import abs_pow
from unibio.core.problem import Problem
from unibio.core.tree import Number


class _ValidationLoss(eqx.Module):
    """f(λ, w) = mean |X w − t|^p / p over the validation samples."""

    p: Any = eqx.field(converter=as_real)

    def __call__(self, x: jax.Array, y: jax.Array, batch: Batch) -> jax.Array:
        features, targets = batch.value
        return jnp.mean(abs_pow(features @ y - targets, self.p)) / self.p


class _WeightedLoss(eqx.Module):
    """g(λ, w) = mean σ(λ_i)|X w − t|_i^p + c‖w‖_p^p over the training samples; λ = x has an entry for each."""

    p: Any = eqx.field(converter=as_real)
    c: Any = eqx.field(converter=as_real)
    samples: int = eqx.field(static=True)

    def __call__(self, x: jax.Array, y: jax.Array, batch: Batch) -> jax.Array:
        if jnp.shape(x) != (self.samples,):  # JAX would clamp an index beyond the end without an error
            raise ValueError(f"x must have an entry for each of the {self.samples} training samples")
        features, targets = batch.value
        losses = jax.nn.sigmoid(x[batch.index]) * abs_pow(features @ y - targets, self.p)
        return jnp.mean(losses) + self.c * jnp.sum(abs_pow(y, self.p))


def lp_regression(
    train: tuple[Any, Any], validation: tuple[Any, Any], p: Number, c: Number = 1e-2, batch_size: int | None = None
) -> Problem:
    """The problem in which x = λ are the logits of a weight for each training sample, and y = w are the coefficients.

    Arguments:
        train, validation: (features (n, d), targets (n,)); the validation targets are the clean ones.
        p: order of the loss and of the regulariser.
        c: weight of ‖w‖_p^p.
        batch_size: samples in a random batch, at both levels; by default a batch is every sample once.
    """
    checks.number("p", p, low=2.0)
    checks.number("c", c, low=0.0, remedy="It is the weight of the regulariser.")
    for name, pair in (("train", train), ("validation", validation)):
        checks.pair(name, pair)
    datasets = [Dataset(pair, batch_size) for pair in (train, validation)]
    lower = _WeightedLoss(p, c, datasets[0].n)
    return Problem(_ValidationLoss(p), lower, p, f_batches=datasets[1], g_batches=datasets[0])


class CorruptedRegression(NamedTuple):
    """Samples of a linear model: `train` and `validation` are pairs (features (n, d), targets (n,)). Some training
    targets are shifted; `corrupted` has a boolean for each training sample, True for those."""

    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    corrupted: np.ndarray


def corrupted_regression(
    n: int = 500, d: int = 20, *, share: float = 0.3, shift: float = 3.0, seed: int = 0
) -> CorruptedRegression:
    """n training samples, a random `share` of them with targets too large by `shift`, and n // 2 clean samples."""
    checks.whole_number("n", n, low=2)
    checks.whole_number("d", d, low=1)
    checks.number("share", share, low=0.0, high=1.0)
    checks.number("shift", shift)
    checks.whole_number("seed", seed, low=0, high=checks.LONGEST)
    rng = np.random.default_rng(seed)
    truth, features = rng.normal(size=d), rng.normal(size=(n + n // 2, d))
    targets = features @ truth + 0.3 * rng.normal(size=n + n // 2)
    corrupted = rng.permutation(n) < share * n
    targets[:n][corrupted] += shift
    return CorruptedRegression((features[:n], targets[:n]), (features[n:], targets[n:]), corrupted)
