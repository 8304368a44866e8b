import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unibio import Dataset
from unibio.core.batches import Batch


@pytest.fixture
def data():
    rows = np.arange(23 * 3.0).reshape(23, 3)
    return Dataset({"a": rows, "b": np.arange(23)}, batch_size=5, replace=False, chunk_size=4)


def test_a_batch_holds_the_rows_of_its_indices(data):
    for replace in (True, False):
        batch = Dataset(data.data, 5, replace).sample(jax.random.key(3))
        np.testing.assert_array_equal(batch.value["a"], np.asarray(data.data["a"])[np.asarray(batch.index)])
        np.testing.assert_array_equal(batch.value["b"], batch.index)
        assert batch.slot == -1


def test_same_key_same_samples(data):
    first, second = data.sample(jax.random.key(7)), data.sample(jax.random.key(7))
    np.testing.assert_array_equal(first.index, second.index)
    other = data.sample(jax.random.key(8))
    assert not np.array_equal(first.index, other.index)


def test_without_replacement_an_epoch_is_a_permutation_without_its_remainder(data):
    draws = np.asarray(data.draw(jax.random.key(0), 10))
    assert draws.shape == (10, 5)
    epochs = draws[:8].reshape(2, 20)
    for epoch in epochs:
        assert len(set(epoch.tolist())) == 20
    assert not np.array_equal(epochs[0], epochs[1])
    counts = np.bincount(np.asarray(data.draw(jax.random.key(1), 4000)).ravel(), minlength=23)
    # Each sample is left out of an epoch with probability 3/23, independently: binomial, 1000 epochs.
    assert np.all(np.abs(counts - 1000 * 20 / 23) < 5 * np.sqrt(1000 * (20 / 23) * (3 / 23)))


def test_with_replacement_draws_are_uniform():
    data = Dataset(np.arange(7.0), 3)
    counts = np.bincount(np.asarray(data.draw(jax.random.key(1), 10000)).ravel(), minlength=7)
    assert np.all(np.abs(counts - 30000 / 7) < 5 * np.sqrt(30000 * (1 / 7) * (6 / 7)))


def test_slots_partition_the_data(data):
    assert data.slots == 4
    seen = np.concatenate([np.asarray(data.slot(k).index) for k in range(4)])
    np.testing.assert_array_equal(seen, np.arange(20))
    assert data.slot(2).slot == 2


@pytest.mark.parametrize("chunk", [1, 4, 5, 22, 23, 100, None])
def test_the_whole_counts_every_sample_once(data, chunk):
    whole = Dataset(data.data, 5, chunk_size=chunk).whole()

    def mean(batch: Batch, weight):
        return weight * jnp.mean(batch.value["a"], axis=0), weight * jnp.mean(batch.index.astype(float))

    rows, index = whole.total(mean)
    np.testing.assert_allclose(rows, np.mean(np.asarray(data.data["a"]), axis=0), rtol=1e-14)
    np.testing.assert_allclose(index, 11.0, rtol=1e-14)


def test_the_whole_is_differentiable(data):
    def loss(x):
        return data.whole().total(lambda batch, weight: weight * jnp.mean(x[batch.index] ** 3))

    x = jnp.linspace(-1, 1, 23)
    np.testing.assert_allclose(jax.grad(loss)(x), 3 * x**2 / 23, rtol=1e-13)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dataset((np.ones(3), np.ones(4)), 2), r"different numbers of samples.*\[0\].*3.*\[1\].*4"),
        (lambda: Dataset(np.ones(3), 0), "batch_size must be ≥ 1"),
        (lambda: Dataset(np.ones(3), 4), "batch_size 4 is larger than the data"),
        (lambda: Dataset((), 1), "no arrays"),
        (lambda: Dataset(np.ones((0, 2)), 1), "no samples"),
        (lambda: Dataset((np.ones(3), 2.0), 1), "scalar"),
        (lambda: Dataset(np.ones(3), 1, chunk_size=0), "chunk_size must be ≥ 1"),
    ],
)
def test_bad_data(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_batch_size_that_is_no_int():
    with pytest.raises(TypeError, match="batch_size must be an int"):
        Dataset(np.ones(3), 2.0)  # type: ignore[arg-type]
