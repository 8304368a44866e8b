"""The paper's network for sentence pairs.

Two recurrent layers with tanh read each sentence; the largest state of the upper layer over the words is the vector of
the sentence. A linear layer maps (u, v, |u − v|, u·v), with u and v the vectors of both sentences, to the classes.

It is fast because large matrix products stand outside the loop over the words. The inputs X enter as one product X U
before the loop. In the derivative of the loop the change dW of the recurrent weights enters as one product h dW, with h
all states, so that its transpose, the gradient by W, is one product too, where a plain loop adds up small ones.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

from unibio.core import checks
from unibio.core.tree import PyTree
from unibio.paper.cleaning.recurrence import before, product, sweep
from unibio.paper.data.snli import LABELS

PADDING = 0  # the word number that fills up short sentences; words have numbers from 1


@jax.custom_jvp
def recurrence(start: jax.Array | None, a: jax.Array, w: jax.Array) -> jax.Array:
    """h_t = tanh(a_t + h_{t−1} W), h_{−1} = start or 0, for a of shape (time, rows, hidden)."""

    def step(t: ArrayLike, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        h, states = carry
        h = jnp.tanh(states[t] + h @ w)  # states[t] still holds a_t: it is overwritten in the next line
        return h, jax.lax.dynamic_update_index_in_dim(states, h, t, 0)

    return jax.lax.fori_loop(0, a.shape[0], step, (jnp.zeros_like(a[0]) if start is None else start, a))[1]


@recurrence.defjvp
def _recurrence_jvp(primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
    """dh_t = (1 − h_t²)∘(da_t + h_{t−1} dW + dh_{t−1} W)."""
    (start, a, w), (dstart, da, dw) = primals, tangents
    h = recurrence(start, a, w)
    drive = da + product(before(h, start), dw)
    if dstart is not None:
        drive = drive.at[0].add(dstart @ w)
    return h, sweep(h, w, drive)


class NLI(eqx.Module):
    """The network as a function `network(params, (words1, words2)) -> logits`.

    words1 and words2 are arrays (rows, length) of word numbers, padded with 0 at the end of each row. The word vectors
    are not trained: they belong to the network, not to `params`.

    Arguments:
        vectors: an array (words, width). Row 0 belongs to the padding and does not influence the result.
    """

    vectors: jax.Array

    def init(self, key: jax.Array, hidden: int) -> dict[str, jax.Array]:
        """Parameters to start from: uniform between ±1/√hidden, in the last layer between ±1/√(4·hidden)."""
        checks.whole_number("hidden", hidden, low=1)
        classes = len(LABELS)
        width = self.vectors.shape[1]
        shapes = {
            "u1": (width, hidden), "w1": (hidden, hidden), "b1": (hidden,),
            "u2": (hidden, hidden), "w2": (hidden, hidden), "b2": (hidden,),
            "out": (4 * hidden, classes), "bias": (classes,),
        }  # fmt: skip
        keys = jax.random.split(key, len(shapes))
        bound = {name: 1 / math.sqrt(4 * hidden if name in ("out", "bias") else hidden) for name in shapes}
        return {
            name: jax.random.uniform(k, shape, self.vectors.dtype, -bound[name], bound[name])
            for k, (name, shape) in zip(keys, shapes.items(), strict=True)
        }

    def __call__(self, params: dict[str, jax.Array], inputs: tuple[jax.Array, jax.Array]) -> jax.Array:
        return self.features(params, inputs) @ params["out"] + params["bias"][None]

    def features(self, params: dict[str, jax.Array], inputs: tuple[jax.Array, jax.Array]) -> jax.Array:
        """(u, v, |u − v|, u·v), the input of the last layer."""
        u, v = self.sentences(params, *inputs)
        return jnp.concatenate([u, v, jnp.abs(u - v), u * v], axis=-1)

    def sentences(
        self, params: dict[str, jax.Array], first: jax.Array, second: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """u and v, each (rows, hidden): the largest states of the upper layer over the words of each sentence.

        The first min(length1, length2) words of both sentences go through the layers as one batch; then the rest of
        the longer array goes alone.
        """
        rows, common = first.shape[0], min(first.shape[1], second.shape[1])
        if common == 0:
            raise ValueError(f"sentences need at least one column of words; got {first.shape} and {second.shape}.")
        together = jnp.concatenate([first[:, :common], second[:, :common]])
        states = self._layers(params, together.T, (None, None))
        best = _largest(states[1], together.T)
        u, v = best[:rows], best[rows:]
        if first.shape[1] > common:
            rest = self._layers(params, first[:, common:].T, [layer[-1, :rows] for layer in states])
            u = jnp.maximum(u, _largest(rest[1], first[:, common:].T))
        if second.shape[1] > common:
            rest = self._layers(params, second[:, common:].T, [layer[-1, rows:] for layer in states])
            v = jnp.maximum(v, _largest(rest[1], second[:, common:].T))
        return u, v

    def _layers(self, params: dict[str, jax.Array], steps: jax.Array, starts: Any) -> list[jax.Array]:
        words = product(self.vectors[steps], params["u1"]) + params["b1"][None, None]
        lower = recurrence(starts[0], words, params["w1"])
        upper = recurrence(starts[1], product(lower, params["u2"]) + params["b2"][None, None], params["w2"])
        return [lower, upper]


def _largest(states: jax.Array, steps: jax.Array) -> jax.Array:
    """The largest state over the real words of a sentence, (rows, hidden).

    A scan finds at which word it is, and then it is taken from there: the derivative of `max` would go over all states
    five times, and the derivative of taking touches only what was taken.
    """

    def step(carry: PyTree, at: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        most, place, t = carry
        state, word = at
        better = ((state > most) | jnp.isnan(state)) & (word != PADDING)[:, None]  # a NaN must show in the result
        return (jnp.where(better, state, most), jnp.where(better, t, place), t + 1), None

    shape = states.shape[1:]
    start = jnp.full(shape, -2.0, states.dtype), jnp.zeros(shape, jnp.int32), jnp.int32(0)
    (_, place, _), _ = jax.lax.scan(step, start, (jax.lax.stop_gradient(states), steps))
    taken = jnp.take_along_axis(states, place[None], axis=0)[0]
    return jnp.where((steps[0] != PADDING)[:, None], taken, -1.0)  # a sentence without words gets −1, below every state
