"""Streams: every sample once a pass, each in another order, each site by itself; batches that are everything."""

import collections
import itertools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common.settings import SETTINGS, regression

import unibio as ub
from unibio.core import oracle, tree
from unibio.core.batches import AllSamples, Dataset
from unibio.core.protocols import Calls, Info
from unibio.core.streams import Site, Turn, shuffled

KEY = jax.random.key(5)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 23, 64, 100, 1023, 1024, 50000])
@pytest.mark.slow
def test_an_order_has_every_number_once(n):
    order = np.asarray(shuffled(jax.random.key(n), jnp.arange(n), n))
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    assert n < 20 or not np.array_equal(order, np.asarray(shuffled(jax.random.key(n + 1), jnp.arange(n), n)))


@pytest.mark.parametrize("n", [3, 4, 5])
def test_all_orders_are_equally_likely(n):
    """χ² of the n! orders of 50,000 keys: its mean is n! − 1, its variance 2(n! − 1)."""
    keys = jax.random.split(KEY, 50_000)
    orders = np.asarray(jax.jit(jax.vmap(lambda key: shuffled(key, jnp.arange(n), n)))(keys))
    counts = collections.Counter(map(tuple, orders.tolist()))
    expected, freedom = len(keys) / math.factorial(n), math.factorial(n) - 1
    statistic = sum((counts[order] - expected) ** 2 / expected for order in itertools.permutations(range(n)))
    assert abs(statistic - freedom) < 5 * math.sqrt(2 * freedom)


def test_pairs_of_an_order_are_equally_likely():
    """χ² of where two places lead, over the n(n − 1) pairs, for neighbours and for places far apart."""
    n, keys = 20, jax.random.split(KEY, 50_000)
    orders = np.asarray(jax.jit(jax.vmap(lambda key: shuffled(key, jnp.arange(n), n)))(keys))
    expected, freedom = len(keys) / (n * (n - 1)), n * (n - 1) - 1
    for i, j in ((0, 1), (0, 4), (0, 5), (3, 17)):
        table = np.zeros((n, n))
        np.add.at(table, (orders[:, i], orders[:, j]), 1)
        statistic = np.sum((table - expected)[~np.eye(n, dtype=bool)] ** 2) / expected
        assert abs(statistic - freedom) < 5 * math.sqrt(2 * freedom)


def draws(data, steps, count, site=Site.lower, seed=KEY):
    """What a site draws in steps 0..steps−1, `count` batches each."""
    return np.concatenate([np.asarray(data.at(Turn(seed, jnp.int32(t))).draw(KEY, count, site=site)) for t in steps])


@pytest.mark.parametrize("count", [1, 3, 7])
@pytest.mark.slow
def test_each_pass_shows_each_sample_once(count):
    """Whatever is drawn at a time, and wherever a run begins."""
    data = Dataset(np.arange(24.0), 4, stream=True)
    batches = draws(data, range(12), count)
    passes = batches[: len(batches) // 6 * 6].reshape(-1, 24)
    assert len(passes) >= 2
    for one in passes:
        np.testing.assert_array_equal(np.sort(one), np.arange(24))
    assert len({tuple(one) for one in passes.tolist()}) == len(passes)
    np.testing.assert_array_equal(draws(data, range(5, 12), count), batches[5 * count :])


def test_a_remainder_is_left_out_of_each_pass_at_random():
    """Three of 23 samples, each with probability 3/23 in each of 400 passes: binomial."""
    data = Dataset(np.arange(23.0), 5, stream=True)
    passes = draws(data, range(1), 1600).reshape(400, 20)
    assert all(len(set(one)) == 20 for one in passes.tolist())
    left_out = 400 - np.bincount(passes.ravel(), minlength=23)
    assert np.all(np.abs(left_out - 400 * 3 / 23) < 5 * np.sqrt(400 * (3 / 23) * (20 / 23)))


@pytest.mark.slow
def test_sites_and_seeds_have_streams_of_their_own():
    data = Dataset(np.arange(100.0), 5, stream=True)
    seen = [draws(data, range(4), 2, site).tobytes() for site in Site]
    seen += [draws(data, range(4), 2, seed=jax.random.key(6)).tobytes()]
    seen += [draws(data.at(Turn(KEY, jnp.int32(0))).resized(5), range(1), 8).tobytes()]
    assert len(set(seen)) == len(Site) + 1  # `at` puts the seed of the run in the place of the resized one
    large = data.at(Turn(KEY, jnp.int32(0))).resized(10).draw(KEY, 2, site=Site.lower)
    assert large is not None
    assert not np.array_equal(np.ravel(large), np.ravel(draws(data, range(1), 4)))


def test_a_batch_of_a_stream_is_unbiased():
    """The mean of a batch over 4,000 seeds, at a step in the middle of a pass: within five standard errors."""
    values = np.random.default_rng(0).normal(size=50) ** 3
    data = Dataset(values, 7, stream=True)

    def mean(seed):
        drawn = data.at(Turn(seed, jnp.int32(4))).draw(seed, 1, site=Site.upper)
        assert drawn is not None
        return jnp.mean(data._lookup(drawn[0]).value)

    means = np.asarray(jax.jit(jax.vmap(mean))(jax.random.split(KEY, 4000)))
    assert abs(means.mean() - values.mean()) < 5 * means.std() / np.sqrt(4000)
    exact = values.std() * np.sqrt((50 - 7) / (7 * 49))  # without replacement within the batch
    np.testing.assert_allclose(means.std(), exact, rtol=0.06)


def test_without_a_run_or_a_site_a_stream_is_drawn_by_its_key():
    stream, plain = (Dataset(np.arange(30.0), 4, **how) for how in ({"stream": True}, {"replace": False}))
    for data in (stream, stream.at(Turn(KEY, jnp.int32(3)))):
        np.testing.assert_array_equal(data.draw(KEY, 9), plain.draw(KEY, 9))
    np.testing.assert_array_equal(stream.draw(KEY, 9, site=Site.lower), plain.draw(KEY, 9))


class Seen(NamedTuple):
    x: jax.Array
    y: jax.Array
    f: jax.Array
    g: jax.Array


class Recorder(eqx.Module):
    """A solver that only notes which samples it was given: two batches of g and one of f a step."""

    def init(self, problem, x, y, key):
        return Seen(x, y, jnp.zeros(4, jnp.int32), jnp.zeros((2, 4), jnp.int32)), Info(jnp.ones(()), Calls())

    def step(self, problem, state, key):
        f = problem.f_batch(key, state.x, state.y, Site.upper).index
        return state._replace(f=f, g=problem.g_draws(key, 2, state.x, state.y, Site.lower)), Info(jnp.ones(()), Calls())


@pytest.mark.slow
def test_a_run_goes_through_the_data_and_each_seed_in_its_own_order():
    problem, x, y = regression(samples=12, stream=True)

    def run(key):
        return ub.trajectory(problem, Recorder(), x, y, 7, key, watch=lambda state: (state.f, state.g))[1].watched

    several = jax.vmap(run)(jnp.stack([KEY, jax.random.key(6)]))
    for lane, key in enumerate((KEY, jax.random.key(6))):
        f, g = run(key)
        np.testing.assert_array_equal(several[0][lane], f)
        np.testing.assert_array_equal(several[1][lane], g)
        for seen in (np.asarray(f)[1:], np.asarray(g)[1:].reshape(-1, 4)):  # before the first step there is nothing
            for one in seen.reshape(-1, 12):
                np.testing.assert_array_equal(np.sort(one), np.arange(12))
    assert not np.array_equal(several[1][0], several[1][1])
    assert not np.array_equal(np.asarray(f)[1:4].ravel(), np.asarray(g)[1:].ravel()[:12])


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.slow
def test_every_site_of_a_solver_goes_through_the_data(name, monkeypatch):
    """Every draw of eight steps, in plain Python: those of one site, one size and one count follow each other through
    the data, though a lower level is refreshed only now and then, VRBO draws in a loop, and a series at two points sees
    the same samples."""
    problem, x, y = regression(samples=16, stream=True)
    solver, slots = SETTINGS[name], []
    seen: dict[Any, list[Any]] = collections.defaultdict(list)
    draw, draw_slot = Dataset.draw, Dataset.draw_slot

    def spy(self, key, count, x, y, site=None):
        out = draw(self, key, count, x, y, site)
        assert out is not None
        kind, numbers = (site, count, self.batch_size), np.ravel(out).tolist()
        if self.turn is not None and numbers not in seen[kind]:  # at two points the same samples
            seen[kind].append(numbers)
        return out

    def spy_slot(self, *args):
        slots.append(draw_slot(self, *args))
        return slots[-1]

    monkeypatch.setattr(Dataset, "draw", spy)
    monkeypatch.setattr(Dataset, "draw_slot", spy_slot)
    with jax.disable_jit():
        state, _ = solver.init(problem, x, y, KEY)
        for t in range(8):
            state, _ = solver.step(problem.at_step(KEY, jnp.int32(t)), state, jax.random.fold_in(KEY, t))
    if name == "SABA":
        for level in (slots[0::2], slots[1::2]):
            for one in np.asarray(level).reshape(-1, 4):
                np.testing.assert_array_equal(np.sort(one), np.arange(4))
        return
    assert len(seen) >= 2
    for batches in seen.values():
        numbers = np.concatenate(batches)
        assert len(numbers) >= 16
        for one in numbers[: len(numbers) // 16 * 16].reshape(-1, 16):
            np.testing.assert_array_equal(np.sort(one), np.arange(16))


def everything(chunk_size=None):
    """The regression with all samples in every batch."""
    problem, x, y = regression()
    data = [Dataset(sampler.data, chunk_size=chunk_size) for sampler in (problem.f_batches, problem.g_batches)]
    return ub.Problem(problem.f, problem.g, 4.0, f_batches=data[0], g_batches=data[1]), x, y


def test_without_a_batch_size_a_batch_is_everything():
    data = Dataset((np.arange(10.0), np.ones((10, 3))))
    assert data.draw(KEY, 1000) is None
    batch = data.batch(data.draw(KEY, 1))
    assert isinstance(batch, AllSamples)
    assert oracle.samples(batch) == 10
    assert data.slots == 1
    assert isinstance(data.slot(0), AllSamples)
    np.testing.assert_array_equal(data.sample(KEY).index, np.arange(10))
    assert not data.in_parts


@pytest.mark.parametrize("chunk_size", [None, 3])
@pytest.mark.slow
def test_oracles_on_everything_are_exact(chunk_size):
    """Bitwise the oracles of `whole()`, in one chunk or in three."""
    problem, x, y = everything(chunk_size)
    value = ub.hypergradient(problem, x, y, ub.Exact(), key=KEY)[0]
    np.testing.assert_array_equal(value, ub.hypergradient(problem, x, y, ub.Exact())[0])
    batch, whole = problem.g_batch(KEY, x, y), problem.g_batch(None, x, y)
    for of in (oracle.grad_g, oracle.grad_x_g):
        np.testing.assert_array_equal(of(problem, x, y, batch), of(problem, x, y, whole))


@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in ("TTSA", "SUSTAIN")])
@pytest.mark.slow
def test_a_run_on_everything_is_the_run_of_exact_functions(name):
    """f and g as functions without samples, their data inside, give the same run (TTSA and SUSTAIN draw the lengths of
    their series); calls count n samples where those count one."""
    problem, x, y = everything()
    batches = [sampler.sample(KEY) for sampler in (problem.f_batches, problem.g_batches)]
    exact = ub.Problem(lambda x, y, _: problem.f(x, y, batches[0]), lambda x, y, _: problem.g(x, y, batches[1]), 4.0)
    state, log = ub.trajectory(problem, SETTINGS[name], x, y, 4, KEY)
    if name == "SABA":  # without slots it refuses; with one it is SOBA without decay
        other, _ = ub.trajectory(exact, ub.SOBA(0.1, 0.3, 0.0, 0.0), x, y, 4, KEY)
    else:
        other, counted = ub.trajectory(exact, SETTINGS[name], x, y, 4, KEY)
        assert [int(calls.sum()) for calls in log.calls] == [8 * int(calls.sum()) for calls in counted.calls]
    np.testing.assert_allclose(state.x, other.x, rtol=1e-9)
    np.testing.assert_allclose(state.y, other.y, rtol=1e-9)
    again, _ = ub.trajectory(problem, SETTINGS[name], x, y, 4, jax.random.key(77))
    np.testing.assert_array_equal(tree.ravel(again.x)[0], tree.ravel(state.x)[0])


def test_a_block_of_draws_of_everything_takes_no_memory():
    """A thousand lower steps on 4 MB of data: the compiled step holds no second copy."""
    data = Dataset(np.ones((10_000, 100), np.float32), chunk_size=10_000)

    def g(x, y, batch):
        return jnp.mean((batch.value @ y - x) ** 2)

    problem = ub.Problem(g, g, f_batches=data, g_batches=data)
    x, y = jnp.float32(1.0), jnp.zeros(100, jnp.float32)
    solver = ub.StocBiO(0.1, 0.001, lower_steps=1000, terms=3)
    step = jax.jit(lambda problem, state, key: solver.step(problem, state, key)[0])
    state, _ = solver.init(problem, x, y, KEY)
    used = step.lower(problem, state, KEY).compile().memory_analysis()
    assert used is not None
    assert used.temp_size_in_bytes < 4e6


def test_bad_choices():
    with pytest.raises(ValueError, match="a stream draws without replacement: leave out replace=True, or stream=True"):
        Dataset(np.ones(3), 2, replace=True, stream=True)
    with pytest.raises(TypeError, match="stream must be True or False; got 1"):
        Dataset(np.ones(3), 2, stream=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="replace must be True or False; got 'no'"):
        Dataset(np.ones(3), 2, replace="no")  # type: ignore[arg-type]
