"""Hyper-cleaning: the recurrent network's derivatives, and that the hypergradient predicts retraining."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.core import oracle, tree
from unibio.paper.cleaning.nli_rnn import NLI, recurrence

RNG = np.random.default_rng(0)


def plain_recurrence(start, a, w):
    h, out = jnp.zeros_like(a[0]) if start is None else start, []
    for a_t in a:
        h = jnp.tanh(a_t + h @ w)
        out.append(h)
    return jnp.stack(out)


SHAPES = (3, 2), (4, 3, 2), (2, 2)  # of start, a, w


@pytest.mark.parametrize("begun", [False, True], ids=["from 0", "from a state"])
@pytest.mark.slow
def test_recurrence_in_every_mode(begun):
    """Value, gradient, both modes over both, and a third derivative, against the loop written out."""
    at, towards = (list[Any](jnp.asarray(RNG.normal(size=shape)) for shape in SHAPES) for _ in range(2))
    c = jnp.asarray(RNG.normal(size=(4, 3, 2)))
    if not begun:
        at[0] = towards[0] = None

    def everything(fn):
        scalar = lambda *at: jnp.sum(c * fn(*at) ** 2)
        gradient = jax.grad(scalar, (0, 1, 2))
        along = lambda *at: jax.jvp(scalar, at, tuple(towards))[1]
        mixed = lambda *at: jax.jvp(gradient, at, tuple(towards))[1]
        inner = lambda *at: jax.tree.reduce(
            jnp.add, jax.tree.map(lambda u, v: jnp.sum(u * v), gradient(*at), (*towards,))
        )
        third = jax.grad(lambda *at: jax.tree.reduce(jnp.add, jax.tree.map(jnp.sum, mixed(*at))), (0, 1, 2))
        return (
            scalar(*at),
            gradient(*at),
            mixed(*at),
            *(jax.grad(f, (0, 1, 2))(*at) for f in (along, inner)),
            third(*at),
        )

    assert_same(jax.jit(lambda: everything(recurrence))(), everything(plain_recurrence))


@pytest.mark.parametrize("axes", [(0, 0, 0), (None, 1, None), (None, None, 2), (2, None, 0)])
@pytest.mark.slow
def test_many_recurrences_at_once(axes):
    """vmap inside and outside of derivatives, over any of the arguments."""
    at = [
        jnp.asarray(RNG.normal(size=shape if axis is None else (*shape[:axis], 5, *shape[axis:])))
        for shape, axis in zip(SHAPES, axes, strict=True)
    ]
    towards = [jnp.asarray(RNG.normal(size=x.shape)) for x in at]

    def everything(fn):
        scalar = lambda *at: jnp.sum(jnp.sin(fn(*at)))
        many = jax.vmap(jax.grad(scalar, (0, 1, 2)), axes)
        total = jax.grad(lambda *at: jnp.sum(jax.vmap(scalar, axes)(*at)), (0, 1, 2))
        return many(*at), jax.jvp(many, at, towards)[1], total(*at), jax.jvp(total, at, towards)[1]

    assert_same(jax.jit(lambda: everything(recurrence))(), everything(plain_recurrence))


def rows(batches, count):
    assert isinstance(batches, ub.Dataset)
    return batches.rows(0, count)


def assert_same(ours, theirs):
    assert tree.same_structure(ours, theirs)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12), ours, theirs)


@pytest.mark.slow
def test_nan_is_not_hidden_by_the_maximum_over_time():
    vectors = jnp.asarray(RNG.normal(size=(9, 3))).at[8].set(jnp.nan)
    model = NLI(vectors)
    params = model.init(jax.random.key(0), 4)
    sentence = jnp.asarray([[1, 2, 8, 3]])
    assert np.isnan(model(params, (sentence, sentence[:, :2]))).all()
    with pytest.raises(ValueError, match="at least one column"):
        model(params, (sentence, sentence[:, :0]))


@pytest.fixture(scope="module")
def setting():
    """Six pairs with sentences of 1 to 5 words, as a problem with p = 3."""
    lengths = RNG.integers(1, 6, size=(2, 6))
    tokens = tuple(np.where(np.arange(5) < n[:, None], RNG.integers(1, 9, size=(6, 5)), 0) for n in lengths)
    data = tuple(jnp.asarray(t) for t in tokens), jnp.asarray([0, 1, 2, 0, 1, 2])
    model = NLI(jnp.asarray(RNG.normal(size=(9, 3))))
    made = ub.problems.hyper_cleaning(model, model.init(jax.random.key(0), 4), data, data, 3.0, 1e-2, batch_size=6)
    return made._replace(x=jnp.asarray(RNG.normal(size=6))), model, data


@pytest.mark.slow
def test_derivatives_against_finite_differences(setting):
    (problem, x, y), _, _ = setting
    batch = problem.g_batches.rows(0, 6)
    v = jax.tree.map(lambda leaf: jnp.asarray(RNG.normal(size=leaf.shape)), y)
    at = lambda t: jax.tree.map(lambda a, b: a + t * b, y, v)

    @jax.jit
    def derivatives(t):
        gradient = oracle.grad_g(problem, x, at(t), batch)
        return (
            oracle.value_g(problem, x, at(t), batch), gradient, oracle.hvp_g(problem, x, at(t), v, batch),
            oracle.cross_g(problem, x, at(t), v, batch),
            jax.grad(lambda x: oracle.value_g(problem, x, at(t), batch))(x),
        )  # fmt: skip

    h = 1e-5
    plus, middle, minus = (derivatives(t) for t in (h, 0.0, -h))
    slope = sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(middle[1]), jax.tree.leaves(v), strict=True))
    difference = lambda k: jax.tree.map(lambda a, b: (a - b) / (2 * h), plus[k], minus[k])
    assert difference(0) == pytest.approx(float(slope), rel=1e-7)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-8), middle[2], difference(1))
    np.testing.assert_allclose(middle[3], difference(4), rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_padding_and_order_change_nothing(setting):
    (_, _, y), model, (tokens, _) = setting
    logits = model(y, tokens)
    longer = tuple(jnp.pad(t, ((0, 0), (0, 3))) for t in tokens)
    np.testing.assert_allclose(model(y, longer), logits, rtol=1e-12)
    for first, second in ((8, 5), (5, 8)):  # one table longer than the other
        wider = [jnp.pad(t, ((0, 0), (0, width - 5))) for t, width in zip(tokens, (first, second), strict=True)]
        np.testing.assert_allclose(model(y, tuple(wider)), logits, rtol=1e-12)
    cut = tokens[0], tokens[1].at[:, 3:].set(0)
    np.testing.assert_allclose(model(y, (cut[0], cut[1][:, :3])), model(y, cut), rtol=1e-12)
    order = jnp.asarray([3, 1, 5, 0, 4, 2])
    np.testing.assert_allclose(model(y, tuple(t[order] for t in tokens)), logits[order], rtol=1e-12)


@pytest.mark.slow
def test_the_hypergradient_predicts_retraining():
    """Moving one weight and solving the lower level again changes Φ as ∇Φ says; the sample's own, and nobody else's."""
    features, labels = RNG.normal(size=(40, 4)), RNG.integers(3, size=40)
    clean = RNG.normal(size=(30, 4)), RNG.integers(3, size=30)

    def linear(w, inputs):
        return inputs @ w

    start = jnp.asarray(RNG.normal(size=(4, 3)))
    problem, x, y = ub.problems.hyper_cleaning(linear, start, (features, labels), clean, 3.0, 1e-2, batch_size=40)
    x = x + jnp.asarray(RNG.normal(size=40))
    whole = problem.f_batches.whole()
    phi = lambda x: float(oracle.value_f(problem, x, ub.lower_solution(problem, x, y), whole))
    gradient, _ = ub.hypergradient(problem, x, ub.lower_solution(problem, x, y), ub.CG())
    for i in (0, 17, 39):
        step = jnp.zeros(40).at[i].set(1e-3)
        assert (phi(x + step) - phi(x - step)) / 2e-3 == pytest.approx(float(gradient[i]), rel=1e-5)


def test_weights():
    """Shared weights act on their group; a weight network sees the loss but passes no derivative through it."""
    data = jnp.asarray(RNG.normal(size=(6, 2))), jnp.asarray([0, 1, 0, 1, 0, 1])
    groups: Any = np.array([0, 0, 1, 1, 2, 2])  # `Shared` converts it, which type checkers cannot know

    def linear(w, inputs):
        return inputs @ w

    w = jnp.asarray(RNG.normal(size=(2, 2)))
    losses = ub.problems.cross_entropy(data[0] @ w, data[1])
    shared = ub.problems.hyper_cleaning(
        linear, w, data, data, 3.0, 0.0, batch_size=6, weights=ub.problems.Shared(groups)
    )
    batch = rows(shared.problem.g_batches, 6)
    x = jnp.asarray([0.5, -1.0, 2.0])
    expected = np.mean(np.asarray(jax.nn.sigmoid(x))[groups] * np.asarray(losses))
    assert float(oracle.value_g(shared.problem, x, w, batch)) == pytest.approx(expected)
    with pytest.raises(ValueError, match="groups must give each of the 6 training samples its group"):
        ub.problems.hyper_cleaning(linear, w, data, data, weights=ub.problems.Shared(groups[:3]))

    net = ub.problems.hyper_cleaning(linear, w, data, data, 3.0, 0.0, batch_size=6, weights=ub.problems.LossNetwork(4))
    x = jax.tree.map(lambda leaf: leaf + 0.3, net.x)
    weights = ub.problems.LossNetwork(4).weights(x, batch, losses)
    slope = jax.grad(lambda w: jnp.mean(weights * ub.problems.cross_entropy(data[0] @ w, data[1])))(w)
    np.testing.assert_allclose(oracle.grad_g(net.problem, x, w, batch), slope, rtol=1e-10)


@pytest.mark.slow
def test_noise_rate():
    """The lower level's loss written out, and dΦ/dr against retraining."""
    inputs, labels = RNG.normal(size=(30, 2)), RNG.integers(0, 3, size=30)
    held = jnp.asarray(RNG.normal(size=(12, 2))), jnp.asarray(RNG.integers(0, 3, size=12))
    weights = ub.problems.NoiseRate(start=0.3)

    def linear(w, inputs):
        return inputs @ w

    w = jnp.asarray(RNG.normal(size=(2, 3)))
    data = jnp.asarray(inputs), jnp.asarray(labels)
    problem, x, _ = ub.problems.hyper_cleaning(linear, w, data, held, 3.0, 1e-2, batch_size=30, weights=weights)
    r = 2 / 3 * 0.3
    assert float(weights.rate(x, 3)) == pytest.approx(r)
    odds = np.exp(inputs @ np.asarray(w))
    p = odds / odds.sum(axis=1, keepdims=True)
    transition = (1 - r) * np.eye(3) + r / 2 * (1 - np.eye(3))
    seen = (p @ transition)[np.arange(30), labels]
    expected = -np.mean(np.log(seen)) + 1e-2 * np.sum(np.abs(np.asarray(w)) ** 3)
    assert float(oracle.value_g(problem, x, w, rows(problem.g_batches, 30))) == pytest.approx(expected)

    solved = lambda x: ub.lower_solution(problem, x, jnp.zeros((2, 3)))
    phi = lambda x: float(oracle.value_f(problem, x, solved(x), problem.f_batches.whole()))
    x = {"rate": jnp.asarray(-0.4), "temperature": jnp.asarray(0.2)}
    gradient, _ = ub.hypergradient(problem, x, solved(x), ub.CG())
    for name, slope in gradient.items():
        up, down = ({**x, name: x[name] + h} for h in (1e-4, -1e-4))
        assert (phi(up) - phi(down)) / 2e-4 == pytest.approx(float(slope), rel=1e-5)
    with pytest.raises(ValueError, match="NoiseRate"):
        ub.problems.NoiseRate(start=1.0)


def test_lp_loss_and_regularised_weights():
    data = jnp.asarray(RNG.normal(size=(5, 2))), jnp.asarray(RNG.normal(size=5))

    def linear(w, inputs):
        return inputs @ w

    w, x = jnp.asarray([0.3, -0.7]), jnp.asarray(RNG.normal(size=5))
    made = ub.problems.hyper_cleaning(
        linear, w, data, data, 4.0, 1e-2, batch_size=5, loss=ub.problems.LpLoss(4.0), rho=0.1
    )
    value = oracle.value_g(made.problem, x, w, rows(made.problem.g_batches, 5))
    residuals = np.abs(np.asarray(data[0] @ w - data[1])) ** 4
    expected = np.mean(residuals / (1 + np.exp(-np.asarray(x)))) + 1e-2 * np.sum(np.abs(np.asarray(w)) ** 4)
    assert float(value) == pytest.approx(expected)
    upper = oracle.value_f(made.problem, x, w, rows(made.problem.f_batches, 5))
    assert float(upper) == pytest.approx(np.mean(residuals) + 0.1 * np.mean(np.asarray(x) ** 2))
