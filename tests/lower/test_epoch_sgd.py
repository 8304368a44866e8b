"""Epoch-SGD against Algorithm 1 in plain Python, its schedule by hand, its rates at a degenerate minimiser; and SGD
and Optax against plain loops."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unibio as ub

ORDERS = (2.0, 4.0, 6.0, 8.0)

# Sums of ⌊5·2^{τ(k−1)}⌋, τ = 2(p−1)/p, each in the first budget that affords it.
CUMULATIVE = {
    2.0: (5, 15, 35, 75, 155),
    4.0: (5, 19, 59, 172, 492),
    6.0: (5, 20, 70, 230, 737, 2349),
    8.0: (5, 21, 77, 267, 907, 3059, 10299),
}


def epochs(steps, first, p, tau=None):
    """[T_1, T_2, …] by the rule: epoch k runs iff the real lengths up to it add up to at most T."""
    tau = 2 * (p - 1) / p if tau is None else tau
    lengths: list[int] = []
    real_sum, k = 0.0, 0
    while True:
        real = first * 2 ** (tau * k)
        real_sum += real
        if real_sum > steps + 1e-9:
            return lengths
        lengths.append(math.floor(real + 1e-9))
        k += 1


def algorithm1(gradient, draws, w, lengths, gamma, radius, p, shrink=True, largest=math.inf):
    """Plain numpy on a dictionary of arrays; also how often the ball was active."""
    w, t, hits = {name: np.asarray(leaf) for name, leaf in w.items()}, 0, 0
    for k, length in enumerate(lengths):
        centre, total = w, {name: np.zeros_like(leaf) for name, leaf in w.items()}
        ball = min(largest, radius / 2 ** (k / p) if shrink else radius)
        for _ in range(length):
            total = {name: total[name] + w[name] for name in w}
            slope = gradient(w, {name: leaf[t] for name, leaf in draws.items()})
            moved = {name: w[name] - gamma / 2**k * slope[name] for name in w}
            distance = math.sqrt(sum(float(np.sum((moved[name] - centre[name]) ** 2)) for name in w))
            if distance > ball:
                moved = {name: centre[name] + ball / distance * (moved[name] - centre[name]) for name in w}
                hits += 1
            w, t = moved, t + 1
        w = {name: total[name] / length for name in w}
    return w, t, hits


START = {"a": jnp.array([1.0, -0.5]), "b": jnp.array([[0.3], [1.2]])}


def cubic(w, noise):
    """∇ of Σ w⁴/4 + noise, in numpy or jax."""
    return {name: w[name] ** 3 + noise[name] for name in w}


def draws(count, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(count, *leaf.shape)) for name, leaf in START.items()}


def run(lower, p, noise, start=START):
    return jax.jit(lambda lower, p, w, noise: lower(cubic, lambda count: noise, w, p))(lower, p, start, noise)


@jax.jit
def schedule_of(lower, p):
    return lower.schedule(p)


def total(steps, p, dtype=jnp.float64, **options):
    return int(schedule_of(ub.EpochSGD(steps=steps, **options), jnp.asarray(p, dtype)).total)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.slow
def test_an_epoch_runs_once_the_budget_affords_its_real_length(p):
    sums = CUMULATIVE[p]
    lengths = np.diff((0, *sums))
    for k, expected in enumerate(sums):
        afford = math.ceil(sum(5 * 2 ** (2 * (p - 1) / p * j) for j in range(k + 1)) - 1e-9)
        assert total(afford, p) == expected
        np.testing.assert_array_equal(epochs(afford, 5, p), lengths[: k + 1])
    assert total(afford - 1, p) == sums[-2]


def test_a_budget_of_a_hundred():
    for dtype in (jnp.float64, jnp.float32):
        assert [total(100, p, dtype) for p in ORDERS] == [75, 59, 70, 77]


def test_the_numbers_of_every_step():
    p, lower = 4.0, ub.EpochSGD(steps=100, step_size=0.7, radius=2.0)
    schedule = schedule_of(lower, p)
    lengths = epochs(100, 5, p)
    member = np.repeat(np.arange(len(lengths)), lengths)
    taken = np.asarray(schedule.taken)
    np.testing.assert_array_equal(taken, np.arange(100) < 59)
    np.testing.assert_allclose(schedule.step_size[taken], 0.7 / 2**member, rtol=1e-15)
    np.testing.assert_allclose(schedule.radius[taken], 2.0 / 2 ** (member / p), rtol=1e-14)
    np.testing.assert_array_equal(np.flatnonzero(schedule.last & taken), np.cumsum(lengths) - 1)


def test_no_budget_is_overrun_and_a_real_first_epoch_is_not_rounded_again():
    for first in (2.0, 2.5, 3.7):
        for p in (2.0, 3.0, 7.5):
            for steps in (5, 64):
                assert total(steps, p, first_epoch=first) == sum(epochs(steps, first, p)) <= steps


@pytest.mark.parametrize(
    ("options", "p"),
    [
        ({}, 4.0),
        ({}, 2.0),
        ({"largest_radius": 0.4}, 4.0),
        ({"tau": 2.0}, 4.0),
        ({"shrink": False}, 6.0),
        ({"tau": 1.0, "shrink": False, "largest_radius": 0.3}, 3.0),
    ],
)
def test_algorithm_1_in_plain_python(options, p):
    """A pytree, noise, a budget that is not used up, and a ball that is active in some steps but not in all."""
    steps, first, gamma, radius = 60, 3, 0.25, 0.7
    lower = ub.EpochSGD(steps=steps, step_size=gamma, first_epoch=first, radius=radius, **options)
    noise = draws(steps)
    lengths = epochs(steps, first, p, options.get("tau"))
    expected, used, hits = algorithm1(
        cubic, noise, START, lengths, gamma, radius, p, options.get("shrink", True), options.get("largest_radius", 9e9)
    )
    w, count = run(lower, p, noise)
    assert int(count) == used < steps
    assert 3 < hits < used
    for name, leaf in expected.items():
        np.testing.assert_allclose(w[name], leaf, rtol=1e-12, atol=1e-14)


def test_a_budget_can_be_spent_to_the_last_gradient():
    for p in (2.0, 3.0, 8.0):
        for steps in (5, 14, 100):
            schedule = schedule_of(ub.EpochSGD(steps=steps, spend=True), p)
            lengths = np.diff(np.flatnonzero(np.asarray(schedule.last)), prepend=-1)
            assert int(schedule.total) == steps == lengths.sum()
            assert bool(schedule.taken.all())
            plain = epochs(steps, 5, p)
            assert len(lengths) == len(plain)  # the same epochs, each at least as long
            assert np.all(lengths >= plain)
    steps, p = 50, 4.0
    lower = ub.EpochSGD(steps=steps, step_size=0.2, first_epoch=3, radius=0.6, spend=True)
    lengths = np.diff(np.flatnonzero(np.asarray(schedule_of(lower, p).last)), prepend=-1)
    expected, used, _ = algorithm1(cubic, draws(steps), START, lengths, 0.2, 0.6, p)
    w, count = run(lower, p, draws(steps))
    assert int(count) == used == steps
    np.testing.assert_allclose(w["b"], expected["b"], rtol=1e-12)


def test_the_largest_radius_caps_the_balls_that_are_larger():
    capped, plain = (
        schedule_of(ub.EpochSGD(steps=200, radius=1.0, largest_radius=largest), 4.0) for largest in (0.7, None)
    )
    radii = np.asarray(plain.radius)[np.asarray(plain.taken)]
    np.testing.assert_allclose(capped.radius[capped.taken], np.minimum(radii, 0.7), rtol=1e-15)
    assert radii.max() > 0.7 > radii.min()


def test_without_p_epochs_and_balls_need_their_own_rule():
    schedule = ub.EpochSGD(steps=150, tau=2.0, shrink=False, radius=0.8).schedule(None)
    assert int(schedule.total) == 5 + 20 + 80
    np.testing.assert_array_equal(schedule.radius[schedule.taken], 0.8)
    for options in ({}, {"tau": 2.0}, {"shrink": False}):
        with pytest.raises(ValueError, match="states no p"):
            ub.EpochSGD(**options).schedule(None)


def test_orders_side_by_side_equal_one_at_a_time():
    lower, noise = ub.EpochSGD(steps=100, step_size=0.2, radius=0.6), draws(100)
    together, counts = jax.jit(jax.vmap(lambda p: lower(cubic, lambda count: noise, START, p)))(jnp.array(ORDERS))
    np.testing.assert_array_equal(counts, [75, 59, 70, 77])
    for i, p in enumerate(ORDERS):
        alone, _, _ = algorithm1(cubic, noise, START, epochs(100, 5, p), 0.2, 0.6, p)
        for name, leaf in alone.items():
            np.testing.assert_allclose(together[name][i], leaf, rtol=1e-12, atol=1e-14)


# The rate. With γ_k ∝ 2^{−k}, D_k ∝ 2^{−k/p} and T_k ∝ 2^{τk}, τ = 2(p−1)/p, the distance to a degenerate minimiser
# falls like 2^{−k/p} = T^{−1/(2(p−1))}.
BUDGETS, REPETITIONS = (100, 400, 1600, 6400, 25600), 200


def distances(budget):
    """|w| after Epoch-SGD on |w|^p/p from w = 1 with noise N(0, 1): (orders, repetitions); and the gradients taken."""
    lower = ub.EpochSGD(steps=budget, step_size=0.5, first_epoch=5, radius=1.0)

    def one(p, key):
        def gradient(w, noise):
            return ub.spow(w, p - 1) + noise

        w, count = lower(gradient, lambda count: jax.random.normal(key, (count,)), jnp.asarray(1.0), p)
        return jnp.abs(w), count

    keys = jax.random.split(jax.random.key(budget), REPETITIONS)
    values, counts = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(jnp.array(ORDERS), keys)
    return np.asarray(values), np.asarray(counts)[:, 0]


@pytest.mark.slow
def test_the_rates_at_a_degenerate_minimiser():
    """The slope of log(mean distance) in log(gradients taken), over budgets 100 to 25600, by least squares.

    Asserted for each p: −1/(2(p−1)) lies in the 99 % bootstrap interval of the fitted slope (repetitions resampled
    for each budget), and the slopes of the other orders lie outside, but that 200 repetitions do not tell −1/10 of
    p = 6 from −1/14 of p = 8.
    """
    results = [distances(budget) for budget in BUDGETS]
    rng = np.random.default_rng(0)
    choice = rng.integers(0, REPETITIONS, (1000, len(BUDGETS), REPETITIONS))
    for i, p in enumerate(ORDERS):
        t = np.log([counts[i] for _, counts in results])
        t = (t - t.mean()) / np.sum((t - t.mean()) ** 2)
        samples = np.stack([values[i] for values, _ in results])
        means = np.take_along_axis(samples[None], choice, axis=2).mean(axis=2)
        low, high = np.quantile(np.log(means) @ t, (0.005, 0.995))
        inside = [q for q in ORDERS if low <= -1 / (2 * (q - 1)) <= high]
        assert p in inside, f"p = {p}: slope in [{low:.4f}, {high:.4f}]"
        assert inside == [p] or set(inside) == {6.0, 8.0}


def test_sgd_is_the_plain_loop():
    noise, w = draws(9), {name: np.asarray(leaf) for name, leaf in START.items()}
    for t in range(9):
        w = {name: w[name] - 0.1 * (w[name] ** 3 + noise[name][t]) for name in w}
    out, count = run(ub.SGD(9, 0.1), None, noise)
    assert int(count) == 9
    for name, leaf in w.items():
        np.testing.assert_allclose(out[name], leaf, rtol=1e-13)


def test_optax_is_the_plain_loop_started_afresh():
    """Momentum by its formula, in numpy; a second call does not remember the first."""
    noise, steps, rate, factor = draws(6), 6, 0.1, 0.5
    lower = ub.Optax(optax.sgd(rate, momentum=0.9), steps, factor)

    def heavy_ball(w):
        w = {name: np.asarray(leaf) for name, leaf in w.items()}
        m = {name: np.zeros_like(leaf) for name, leaf in w.items()}
        for t in range(steps):
            m = {name: 0.9 * m[name] + w[name] ** 3 + noise[name][t] for name in w}
            w = {name: w[name] - factor * rate * m[name] for name in w}
        return w

    once, count = run(lower, None, noise)
    twice, _ = run(lower, None, noise, once)
    assert int(count) == steps
    for name, leaf in heavy_ball(START).items():
        np.testing.assert_allclose(once[name], leaf, rtol=1e-12)
    for name, leaf in heavy_ball(heavy_ball(START)).items():
        np.testing.assert_allclose(twice[name], leaf, rtol=1e-12)


def test_a_schedule_without_epochs_is_refused():
    with pytest.raises(ValueError, match="no epoch fits"):
        ub.EpochSGD(steps=4)
