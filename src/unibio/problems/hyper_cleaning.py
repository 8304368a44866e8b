"""Data hyper-cleaning for any model: the upper level learns from clean samples which training samples to trust."""

import abc
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import checks, kinds, tree
from unibio.core.batches import Batch, Dataset
from unibio.core.coordinates import abs_pow
from unibio.core.problem import Problem, as_pytree
from unibio.core.tree import Number, PyTree


class Setting(NamedTuple):
    """A problem and the x and y to start from."""

    problem: Problem
    x: PyTree
    y: PyTree


class Loss(Protocol):
    """(outputs, labels) ↦ a loss for each sample."""

    def __call__(self, outputs: jax.Array, labels: Any, /) -> jax.Array: ...


class Model(Protocol):
    """(params, inputs) ↦ outputs, a row for each sample."""

    def __call__(self, params: PyTree, inputs: Any, /) -> jax.Array: ...


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """−log softmax(logits)[label], for each sample."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)[:, 0]


class LpLoss(eqx.Module):
    """Σ_j |output_j − target_j|^p for each sample."""

    p: Any = eqx.field(converter=checks.as_real)

    def __check_init__(self) -> None:
        checks.number("LpLoss(p)", self.p, low=1.0)

    def __call__(self, outputs: jax.Array, targets: jax.Array) -> jax.Array:
        return jnp.sum(abs_pow(outputs - targets, self.p).reshape(outputs.shape[0], -1), axis=1)


class Cleaning(Protocol):
    """What the upper variable x is, and how it changes the losses.

    `init` gives the x to start from, `lower` the losses of a batch that the lower level minimises the mean of, and
    `upper` the outputs whose loss on clean samples the upper level minimises.
    """

    def init(self, samples: int, dtype: jnp.dtype) -> PyTree: ...
    def lower(self, x: PyTree, batch: Batch, outputs: jax.Array, loss: Loss) -> jax.Array: ...
    def upper(self, x: PyTree, outputs: jax.Array) -> jax.Array: ...


class Weights(eqx.Module):
    """The lower level minimises weight_i·loss_i, the upper one the loss of the model's own outputs. Subclasses define
    the weights."""

    @abc.abstractmethod
    def weights(self, x: PyTree, batch: Batch, losses: jax.Array) -> jax.Array: ...

    def lower(self, x: PyTree, batch: Batch, outputs: jax.Array, loss: Loss) -> jax.Array:
        losses = loss(outputs, batch.value[1])
        return self.weights(x, batch, losses) * losses

    def upper(self, x: PyTree, outputs: jax.Array) -> jax.Array:
        return outputs


class PerSample(Weights):
    """The weight σ(λ_i), with a logit λ_i for each sample, as in the paper. λ starts at `start`; 0 is the weight ½."""

    start: float = eqx.field(default=0.0, static=True)

    def __check_init__(self) -> None:
        checks.number("PerSample(start=…)", self.start)

    def init(self, samples: int, dtype: jnp.dtype) -> jax.Array:
        return jnp.full(samples, self.start, dtype)

    def weights(self, x: jax.Array, batch: Batch, losses: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(x[batch.index])


class Shared(Weights):
    """The weight σ(λ_k) for all samples of group k. With fewer unknowns than samples, few clean samples suffice.

    Arguments:
        groups: the group of each training sample, whole numbers from 0.
    """

    groups: jax.Array = eqx.field(converter=lambda g: jnp.asarray(g, jnp.int32))

    def init(self, samples: int, dtype: jnp.dtype) -> jax.Array:
        if self.groups.shape != (samples,):
            raise ValueError(
                f"groups must give each of the {samples} training samples its group; got {self.groups.shape}."
            )
        return jnp.zeros(int(self.groups.max()) + 1, dtype)

    def weights(self, x: jax.Array, batch: Batch, losses: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(x[self.groups[batch.index]])


class LossNetwork(Weights):
    """The weight σ(h(loss_i)), where h is a network with one hidden layer of `hidden` units; x holds its parameters.

    The loss enters h without a derivative, so that the lower level cannot lower the weights by raising the losses.
    """

    hidden: int = eqx.field(static=True, default=16)

    def __check_init__(self) -> None:
        checks.whole_number("hidden", self.hidden, low=1)

    def init(self, samples: int, dtype: jnp.dtype) -> dict[str, jax.Array]:
        grid = np.linspace(-1, 1, self.hidden)
        return {
            "w": jnp.asarray(np.where(np.arange(self.hidden) % 2, 1.0, -1.0), dtype),
            "b": jnp.asarray(grid, dtype),
            "v": jnp.zeros(self.hidden, dtype),
            "c": jnp.zeros((), dtype),
        }

    def weights(self, x: dict[str, jax.Array], batch: Batch, losses: jax.Array) -> jax.Array:
        seen = jax.lax.stop_gradient(losses)
        return jax.nn.sigmoid(jnp.tanh((seen[:, None] - 1) * x["w"][None] + x["b"][None]) @ x["v"] + x["c"])


class NoiseRate(eqx.Module):
    """Learns the share r of wrong labels, for a model whose outputs are logits of K classes, with `cross_entropy`.

        g: loss of log((1−r) p + r (1−p)/(K−1)),  p = softmax(outputs),  r = (1−1/K)·σ(x["rate"])
        f: loss of e^s·outputs,  s = x["temperature"]

    If p are the chances of the true classes, (1−r) p + r (1−p)/(K−1) are those of the labels that one sees. The lower
    level fits these to the noisy labels, so that p itself can be right. The unknowns are only r and s, which cannot
    overfit the clean samples. Without the temperature s, a small r would be preferred merely because it makes the
    model less sure of itself. r is below 1 − 1/K, where labels carry no information.

    Arguments:
        start: r/(1−1/K) at the beginning.
    """

    start: float = eqx.field(default=0.05, static=True)

    def __check_init__(self) -> None:
        checks.number("NoiseRate(start=…)", self.start, low=0.0, strict=True, high=0.99)

    def init(self, samples: int, dtype: jnp.dtype) -> dict[str, jax.Array]:
        return {
            "rate": jnp.asarray(np.log(self.start / (1 - self.start)), dtype),
            "temperature": jnp.zeros((), dtype),
        }

    def lower(self, x: dict[str, jax.Array], batch: Batch, outputs: jax.Array, loss: Loss) -> jax.Array:
        return loss(as_seen(self.rate(x, outputs.shape[-1]), outputs), batch.value[1])

    def rate(self, x: dict[str, jax.Array], classes: int) -> jax.Array:
        """The share r of wrong labels."""
        return (1 - 1 / classes) * jax.nn.sigmoid(x["rate"])

    def upper(self, x: dict[str, jax.Array], outputs: jax.Array) -> jax.Array:
        return jnp.exp(x["temperature"]) * outputs


def as_seen(rate: Number, logits: jax.Array) -> jax.Array:
    """log((1−r) p + r (1−p)/(K−1)), p = softmax(logits): the log-probabilities of labels of which a share r is
    wrong."""
    p = jax.nn.softmax(logits)
    return jnp.log((1 - rate) * p + rate * (1 - p) / (logits.shape[-1] - 1))


class _Upper(eqx.Module):
    """The mean loss on clean samples, plus ρ·mean x² if ρ is given."""

    apply: Any
    loss: Any
    weights: Any
    rho: Any = eqx.field(converter=checks.as_real)

    def __call__(self, x: PyTree, y: PyTree, batch: Batch) -> jax.Array:
        inputs, labels = batch.value
        value = jnp.mean(self.loss(self.weights.upper(x, self.apply(y, inputs)), labels))
        return value if self.rho is None else value + self.rho * tree.dot(x, x) / tree.size(x)


class _Lower(eqx.Module):
    """The mean of the losses that `weights.lower` gives, plus c‖w‖_p^p."""

    apply: Any
    loss: Any
    weights: Any
    p: Any = eqx.field(converter=checks.as_real)
    c: Any = eqx.field(converter=checks.as_real)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # of x

    def __call__(self, x: PyTree, y: PyTree, batch: Batch) -> jax.Array:
        if _shapes(x) != self.shapes:  # JAX would clamp an index beyond the end without an error
            raise ValueError(f"x must have the shapes {self.shapes}, as hyper_cleaning made it")
        outputs = self.apply(y, batch.value[0])
        regulariser = sum(jnp.sum(abs_pow(leaf, self.p)) for leaf in jax.tree.leaves(y))
        return jnp.mean(self.weights.lower(x, batch, outputs, self.loss)) + self.c * regulariser


def _shapes(x: PyTree) -> tuple[tuple[int, ...], ...]:
    return tuple(jnp.shape(leaf) for leaf in jax.tree.leaves(x))


def _classes(apply: Model, params: PyTree, dataset: Dataset) -> int:
    """How many outputs the model has for a sample."""
    inputs = jax.tree.map(lambda a: jax.ShapeDtypeStruct((1, *a.shape[1:]), a.dtype), dataset.data[0])
    try:
        outputs = jax.eval_shape(apply, params, inputs)
    except Exception as error:
        raise ValueError(f"apply(params, inputs) failed on one row of the inputs: {error}") from error
    if not isinstance(outputs, jax.ShapeDtypeStruct) or outputs.ndim != 2 or outputs.shape[0] != 1:
        raise ValueError(f"apply(params, inputs) must return an array (samples, classes); on one sample got {outputs}.")
    return int(outputs.shape[1])


def hyper_cleaning(
    apply: Model,
    params: PyTree,
    train: tuple[Any, Any],
    validation: tuple[Any, Any],
    p: Number = 3.0,
    c: Number = 1e-4,
    *,
    batch_size: int = 128,
    loss: Loss = cross_entropy,
    weights: Cleaning = PerSample(),
    rho: float | None = None,
) -> Setting:
    """The problem of data hyper-cleaning and its start. x = λ are the logits of the weights, y = w the parameters.

        f(λ, w) = mean loss of w on clean validation samples (+ ρ·mean λ² if `rho` is given)
        g(λ, w) = mean σ(λ_i)·loss_i(w) + c‖w‖_p^p on training samples

    That is the problem with `weights=PerSample()`; the other choices replace λ and σ(λ_i).

    Arguments:
        apply: `apply(params, inputs) -> outputs`, a pure function or an equinox Module with the model's frozen arrays.
        train, validation: (inputs, labels); inputs is an array or a pytree of arrays with a row for each sample.
        loss: (outputs, labels) ↦ a loss for each sample: `cross_entropy`, `LpLoss(p)`, or your own.
        weights: `PerSample()`, `Shared(groups)`, `LossNetwork()`, `NoiseRate()`, or your own object of the protocol
            `Cleaning`.

    Example:
        >>> linear = lambda w, inputs: inputs @ w
        >>> data = jnp.ones((6, 2)), jnp.zeros(6, int)
        >>> problem, x, y = hyper_cleaning(linear, jnp.zeros((2, 3)), data, data, batch_size=6)
        >>> x.shape, y.shape
        ((6,), (2, 3))
    """
    params = checks.variable("params", params)
    dtype = tree.dtype(params)
    checks.number("p", p, low=2.0)
    checks.number("c", c, low=0.0, remedy="It is the weight of the regulariser.")
    checks.whole_number("batch_size", batch_size, low=1)
    for name, pair in (("train", train), ("validation", validation)):
        checks.pair(name, pair)
    datasets = [Dataset(pair, min(batch_size, len(pair[1]))) for pair in (train, validation)]
    kinds.is_a("apply", apply, Model, "a function (params, inputs) -> outputs")
    kinds.is_a("loss", loss, Loss, "a function (outputs, labels) -> a loss for each sample, such as cross_entropy")
    kinds.is_a("weights", weights, Cleaning, "PerSample(), Shared(groups), LossNetwork(), NoiseRate() or your own")
    if rho is not None:
        checks.number("rho", rho, low=0.0, remedy="It is the weight of mean λ².")
    if loss is cross_entropy:
        for name, dataset in (("train", datasets[0]), ("validation", datasets[1])):
            checks.class_labels(f"the labels of {name}", dataset.data[1], _classes(apply, params, dataset))
    apply, loss = as_pytree(apply), as_pytree(loss)
    x = weights.init(datasets[0].n, dtype)
    upper, lower = _Upper(apply, loss, weights, rho), _Lower(apply, loss, weights, p, c, _shapes(x))
    return Setting(Problem(upper, lower, p, f_batches=datasets[1], g_batches=datasets[0]), x, params)
