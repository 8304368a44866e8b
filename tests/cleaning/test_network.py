"""Networks: the loss against its formula, folds that are not seen, and sums of models."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unibio.cleaning import network


@pytest.fixture(autouse=True)
def _as_users_have_it():
    """Networks are float32, also where the default is float64."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def data(rows=120, seed=0):
    random = np.random.default_rng(seed)
    table = random.normal(size=(rows, 3)).astype(np.float32)
    values = (table[:, 0] > 0).astype(int) + (table[:, 1] > 0.5)
    return table, values, np.arange(rows) % 3


def test_the_loss_is_the_corrected_likelihood():
    table, values, _ = data()
    module = network.mlp(3, 3, 0)
    parameters, rest = eqx.partition(module, eqx.is_inexact_array)
    T = np.array([[0.8, 0.1, 0.1], [0.3, 0.7, 0.0], [0.2, 0.2, 0.6]])
    weights = np.linspace(0, 1, 120)
    found = network._loss(
        parameters, rest, jnp.asarray(table), jnp.asarray(T.T[values]), jnp.asarray(weights), len(table)
    )
    p = np.asarray(jax.nn.softmax(jax.vmap(module)(jnp.asarray(table)), axis=1))
    squares = sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(parameters))
    by_hand = -np.mean([w * np.log(q @ T[:, v]) for w, q, v in zip(weights, p, values, strict=True)])
    np.testing.assert_allclose(found, by_hand + 0.5 * squares / 120, rtol=1e-5)


def test_a_fold_is_judged_by_networks_that_have_not_seen_it():
    """Other labels in one fold change the networks of the other folds only."""
    table, values, folds = data()
    learner = network.Network(table, network.mlp(3, 3, 0), 0)
    fitted = learner.fit(np.eye(3)[values], np.ones(120), folds, None)
    turned = np.where(folds == 1, (values + 1) % 3, values)
    again = learner.fit(np.eye(3)[turned], np.ones(120), folds, None)
    np.testing.assert_array_equal(fitted.held_out[folds == 1], again.held_out[folds == 1])
    assert np.abs(fitted.held_out[folds != 1] - again.held_out[folds != 1]).max() > 0.1
    assert np.mean(fitted.held_out[:, -1].argmax(axis=1) == values) > 0.75
    model = learner.blend([(0.3, fitted.models, 0), (0.7, fitted.models, 2)])
    by_hand = sum(
        share
        * np.asarray(network._outputs(fitted.models[j], eqx.partition(learner.module, eqx.is_inexact_array)[1], table))[
            -1
        ]
        for share, j in ((0.3, 0), (0.7, 2))
    )
    np.testing.assert_allclose(model.logits(table), by_hand, rtol=1e-4, atol=1e-5)
