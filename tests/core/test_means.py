"""An f or g that adds up over its batch is refused where data come in parts, and nothing else is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.core import means
from unibio.core.problem import prepare

ROWS = np.random.default_rng(0).normal(size=(13, 2))
X, Y = jnp.zeros(13), jnp.array([0.3, -0.2])


def losses(x, y, batch):
    return (1 + x[batch.index] ** 2) * (batch.value @ y - 1) ** 2


def a_mean(x, y, batch):
    return jnp.mean(losses(x, y, batch)) + jnp.sum(y**2)


def a_sum(x, y, batch):
    return jnp.sum(losses(x, y, batch))


def a_sum_with_regulariser(x, y, batch):
    return jnp.sum(losses(x, y, batch)) / 13 + jnp.sum(y**2)


def checked(fn, of="g", **how):
    """`prepare` of a problem with fn at one level."""
    data = ub.Dataset(ROWS, **how)
    other = {"f": "g", "g": "f"}[of]
    return prepare(ub.Problem(**{of: fn, other: a_mean}, f_batches=data, g_batches=data), X, Y)


@pytest.mark.parametrize("of", ["f", "g"])
@pytest.mark.parametrize("fn", [a_sum, a_sum_with_regulariser])
@pytest.mark.parametrize("how", [{"chunk_size": 5}, {"batch_size": 4}, {"batch_size": 13, "chunk_size": 12}])
def test_a_sum_is_refused_where_data_come_in_parts(of, fn, how):
    for _ in range(2):  # every time
        with pytest.raises(
            ValueError, match=rf"^{of}\(x, y, batch\) must be the mean .*, but it adds them up.* 13 \* jnp.mean"
        ):
            checked(fn, of, **how)


def test_the_message_has_the_right_numbers():
    """One, two and three times the sum over the rows 0, 3, 6, 9, at y + 1/8 and x = 1/8."""
    once = np.sum((1 + 0.125**2) * (ROWS[[0, 3, 6, 9]] @ (np.asarray(Y) + 0.125) - 1) ** 2)
    shown = ", ".join(f"{k * once:.4g}" for k in (1, 2, 3))
    with pytest.raises(ValueError, match=f"the same 4 rows it is {shown}. The 13 samples"):
        checked(a_sum, chunk_size=5)


@pytest.mark.parametrize("call", [
    lambda problem: ub.solve(problem, ub.SOBA(0.1, 0.1), X, Y, steps=1, key=jax.random.key(0)),
    lambda problem: ub.hypergradient(problem, X, Y),
    lambda problem: ub.lower_solution(problem, X, Y),
    lambda problem: ub.compare(problem, {"a": ub.SOBA(0.1, 0.1)}, X, Y, seeds=[0], steps=1),
])  # fmt: skip
def test_everybody_checks(call):
    data = ub.Dataset(ROWS, chunk_size=5)
    with pytest.raises(ValueError, match=r"^g.* adds them up"):
        call(ub.Problem(a_mean, a_sum, 2.0, f_batches=data, g_batches=data))


def test_a_sum_over_all_at_once_is_a_function_like_any_other():
    checked(a_sum)
    checked(a_sum, batch_size=13)


def pairs(x, y, batch):
    """A sum over pairs of samples: no mean over samples, but no sum over them either."""
    scores = batch.value @ y
    return jnp.sum(jnp.abs(scores[:, None] - scores[None, :]))


def noisy(x, y, batch):
    """Random numbers by the size of the batch."""
    noise = jax.random.normal(jax.random.key(0), batch.index.shape)
    return jnp.mean(losses(x, y, batch) * (1 + 0.1 * noise))


def of_one_size(x, y, batch):
    assert len(batch.index) == 5, "of another size"
    return jnp.mean(losses(x, y, batch))


def normalised(x, y, batch):
    values = (batch.value - jnp.mean(batch.value, axis=0)) / jnp.std(batch.value, axis=0)
    return jnp.mean((values @ y - 1) ** 2)


def infinite(x, y, batch):
    return a_sum(x, y, batch) * jnp.inf


@pytest.mark.parametrize("fn", [a_mean, pairs, noisy, of_one_size, normalised, infinite])
def test_what_is_no_sum_passes(fn):
    checked(fn, batch_size=5)


def test_what_has_passed_is_not_looked_at_again():
    traced = []

    def g(x, y, batch):
        traced.append(len(batch.index))
        return a_mean(x, y, batch)

    checked(g, chunk_size=5)
    assert traced == [4, 8]
    checked(g, chunk_size=5)
    checked(g, chunk_size=5)
    assert traced == [4, 8]
    checked(g, chunk_size=6)
    assert traced == [4, 8] * 2


def test_the_memory_of_what_has_passed_is_bounded(monkeypatch):
    monkeypatch.setattr(means, "_MOST", 2)
    monkeypatch.setattr(means, "_passed", set())
    for chunk in range(1, 6):
        checked(a_mean, chunk_size=chunk)
        assert 0 < len(means._passed) <= 2


def test_traced_values_are_not_looked_at():
    """Inside somebody's jit nothing can be: the value is what the chunks give, here the mean of sums."""
    data = ub.Dataset(ROWS, chunk_size=5)
    problem = ub.Problem(a_mean, a_sum, 2.0, f_batches=data, g_batches=data)
    jax.jit(lambda x: ub.hypergradient(problem, x, Y)[0])(X)
