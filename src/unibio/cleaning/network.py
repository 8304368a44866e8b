"""Networks for the recipe: any equinox Module that maps the features of one row to logits.

One training gives several models: the network as it is after a few passes over the data, and after more. Stopping early
is what keeps a network from learning wrong labels by heart, and the recipe's weights choose where to stop.
"""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from unibio.cleaning.recipe import Fitted
from unibio.core.tree import PyTree

Array = np.ndarray
EPOCHS = (4, 12, 36)  # passes over the data after which a network is kept
WIDTH = 64
_BATCH, _STEP_SIZE, _PENALTY, _LEAST_STEPS = 128, 2e-3, 1.0, 20
_OPTIMISER = optax.adam(_STEP_SIZE)


def mlp(columns: int, classes: int, seed: int) -> eqx.nn.MLP:
    """A network with one hidden layer."""
    return eqx.nn.MLP(columns, classes, WIDTH, 1, key=jax.random.key(seed))


class NetworkModel(NamedTuple):
    """A weighted sum of the logits of several networks."""

    module: eqx.Module  # the shape of each; its numbers are replaced
    weights: Array
    parameters: list[Array]  # each leaf with one more axis in front: the networks

    def logits(self, table: Array) -> Array:
        parameters, rest = eqx.partition(self.module, eqx.is_inexact_array)
        leaves = [jnp.asarray(leaf) for leaf in self.parameters]
        stacked = jax.tree.unflatten(jax.tree.structure(parameters), leaves)
        each = _outputs(stacked, rest, jnp.asarray(table, jnp.float32))
        return np.tensordot(self.weights, np.asarray(each, np.float64), axes=1)


@dataclasses.dataclass(frozen=True)
class Network:
    """Networks trained by Adam on a table with scaled columns, from the numbers that `module` has."""

    table: Array
    module: eqx.Module
    seed: int

    @property
    def members(self) -> int:
        return len(EPOCHS)

    def fit(self, likelihood: Array, weights: Array, folds: Array, start: object) -> Fitted:
        """`models` are the stacked parameters (lanes in front) after each of EPOCHS. Every fit starts anew: a network
        that went on from an earlier fit would keep the wrong labels it has learnt by heart."""
        lanes, rows = int(folds.max()) + 2, len(folds)
        seen = np.stack([weights * (folds != fold) for fold in range(lanes)]).astype(np.float32)
        parameters, rest = eqx.partition(self.module, eqx.is_inexact_array)
        stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (lanes, *leaf.shape)), parameters)
        state = _init(stacked)
        data = [jnp.asarray(array, jnp.float32) for array in (self.table, likelihood, seen.T)]
        models, done = [], 0
        out = np.empty((rows, self.members, likelihood.shape[1]), np.float32)
        for member, epochs in enumerate(EPOCHS):
            until = max(_LEAST_STEPS * epochs, epochs * -(-rows // _BATCH))
            stacked, state = _train(
                stacked, state, rest, data, jnp.int32(done), jnp.int32(until), jax.random.key(self.seed)
            )
            done = until
            models.append(stacked)
            each = np.asarray(_outputs(stacked, rest, data[0]))
            out[:, member] = each[folds, np.arange(rows)]
        return Fitted(out, models)

    def blend(self, parts: list[tuple[float, Any, int]]) -> NetworkModel:
        """The weighted sum of the networks' logits."""
        last = [jax.tree.map(lambda leaf: leaf[-1], models[member]) for _, models, member in parts]
        leaves = zip(*(jax.tree.leaves(one) for one in last), strict=True)
        return NetworkModel(
            self.module, np.array([weight for weight, _, _ in parts]), [np.stack(group) for group in leaves]
        )


@jax.jit
def _init(stacked: PyTree) -> PyTree:
    return jax.vmap(_OPTIMISER.init)(stacked)


def _loss(parameters: PyTree, rest: PyTree, x: jax.Array, likelihood: jax.Array, w: jax.Array, rows: int) -> jax.Array:
    module = eqx.combine(parameters, rest)
    log_p = jax.nn.log_softmax(jax.vmap(module)(x))
    seen = jax.scipy.special.logsumexp(log_p, axis=1, b=likelihood)
    squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(parameters))
    return -jnp.mean(w * seen) + (0.5 * _PENALTY / rows) * squares


@eqx.filter_jit
def _train(
    stacked: PyTree,
    state: PyTree,
    rest: PyTree,
    data: list[jax.Array],
    begin: jax.Array,
    end: jax.Array,
    key: jax.Array,
) -> tuple[PyTree, PyTree]:
    """Steps `begin` to `end` of Adam for every lane. All lanes draw the same rows; each has its own weights."""
    table, likelihood, seen = data
    rows = table.shape[0]

    def one(parameters: PyTree, state: PyTree, x: jax.Array, E: jax.Array, w: jax.Array) -> tuple[PyTree, PyTree]:
        gradient = jax.grad(_loss)(parameters, rest, x, E, w, rows)
        update, state = _OPTIMISER.update(gradient, state, parameters)
        return optax.apply_updates(parameters, update), state

    def step(t: jax.Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        drawn = jax.random.randint(jax.random.fold_in(key, t), (min(_BATCH, rows),), 0, rows)
        return jax.vmap(one, in_axes=(0, 0, None, None, 1))(*carry, table[drawn], likelihood[drawn], seen[drawn])

    out: tuple[PyTree, PyTree] = jax.lax.fori_loop(begin, end, step, (stacked, state))
    return out


@eqx.filter_jit
def _outputs(stacked: PyTree, rest: PyTree, table: jax.Array) -> jax.Array:
    """The logits of every network for every row, an array (lanes, rows, classes)."""
    return jax.vmap(lambda parameters: jax.vmap(eqx.combine(parameters, rest))(table))(stacked)
