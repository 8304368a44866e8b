"""jit, vmap, grad, and that numbers do not recompile."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import lp_data

import unibio as ub
from unibio.core.programs import compiled

METHODS = [ub.Exact(), ub.CG(), ub.Neumann(40), ub.Unrolled(60, 0.5, in_z=True)]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
@pytest.mark.slow
def test_jit_and_vmap_change_nothing(method):
    xs = jnp.array([0.0, 0.4, 1.3, np.pi])
    ys = jnp.array([0.0, 0.5, 0.9, 0.0])
    single = jnp.stack(
        [ub.hypergradient(ub.problems.example3(4.0), x, y, method)[0] for x, y in zip(xs, ys, strict=True)]
    )
    many = jax.jit(jax.vmap(lambda x, y: ub.hypergradient(ub.problems.example3(4.0), x, y, method)[0]))(xs, ys)
    np.testing.assert_allclose(many, single, rtol=1e-12, atol=1e-15)


@pytest.mark.slow
def test_p_can_be_mapped_over():
    ps = jnp.array([2.0, 3.0, 4.0, 8.0])
    values = jax.vmap(lambda p: ub.hypergradient(ub.problems.example3(p), 0.0, 0.0)[0])(ps)
    np.testing.assert_allclose(values, 1.0, atol=1e-9)


@pytest.mark.parametrize("method", [ub.Exact(), ub.CG(), ub.Neumann(200, 1.0)], ids=lambda m: type(m).__name__)
@pytest.mark.slow
def test_the_hypergradient_is_differentiable(method):
    """d/dx and d/dy of h(x, y) = −cos x·cos(y³), reverse and forward; at y away from and at 0."""
    problem = ub.problems.example3(4.0)
    h = lambda x, y: ub.hypergradient(problem, x, y, method)[0]
    x, y = 0.4, 0.6
    by_x, by_y = jax.grad(h, argnums=(0, 1))(x, y)
    assert float(by_x) == pytest.approx(-np.sin(x) * np.cos(y**3), rel=1e-7)
    assert float(by_y) == pytest.approx(-np.cos(x) * np.sin(y**3) * 3 * y**2, rel=1e-7)
    assert float(jax.jvp(lambda y: h(x, y), (y,), (1.0,))[1]) == pytest.approx(float(by_y), rel=1e-9)
    assert float(jax.grad(h)(0.0, 0.0)) == pytest.approx(0.0, abs=1e-9)


def programs():
    """Which programs are compiled and kept."""
    return set(compiled.programs)


@jax.tree_util.Partial
def counted(x, y, batch):
    return y**4 / 4 - y * jnp.sin(x)


def upper(x, y, batch):
    return y**3


@pytest.mark.slow
def test_other_numbers_do_not_recompile():
    after_first = None
    for p, rtol in ((4.0, 1e-8), (3.0, 1e-6), (4, 0.0), (jnp.float64(5.0), 1e-3)):
        ub.hypergradient(ub.Problem(upper, counted, p), 0.3, 0.7, ub.CG(rtol=rtol))
        after_first = after_first or programs()
    assert after_first is not None
    assert programs() == after_first
    ub.hypergradient(ub.Problem(upper, counted, 4.0), 0.3, 0.7, ub.Neumann(5, 1.0))
    one_more = programs()
    ub.hypergradient(ub.Problem(upper, counted, 4.0), 0.3, 0.7, ub.Neumann(5, 2.5))
    assert programs() == one_more
    assert len(one_more - after_first) == 1


@pytest.mark.slow
def test_data_are_arguments_not_constants():
    """Two datasets of one shape share a program."""
    calls = []
    for seed in (0, 1):
        train, validation, weights = lp_data(seed, n=31, m=31)
        problem = ub.problems.lp_regression(train, validation, 4.0)
        ub.hypergradient(problem, jnp.asarray(weights), jnp.ones(8))
        calls.append(programs())
    assert calls[0] == calls[1]


@pytest.mark.slow
def test_float32_stays_float32():
    train, validation, weights = lp_data(0)
    problem = ub.problems.lp_regression(train, validation, 4.0)
    value, info = ub.hypergradient(problem, jnp.asarray(weights, jnp.float32), jnp.ones(8, jnp.float32))
    wide, _ = ub.hypergradient(problem, jnp.asarray(weights), jnp.ones(8))
    assert value.dtype == info.residual.dtype == jnp.float32
    np.testing.assert_allclose(value, wide, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("method", METHODS[1:3], ids=lambda m: type(m).__name__)
@pytest.mark.slow
def test_chunks_change_nothing(method):
    train, validation, weights = lp_data(0, n=101, m=53)
    values = []
    for chunk in (1000, 17):
        small = ub.problems.lp_regression(train, validation, 4.0)
        f_batches, g_batches = (ub.Dataset(pair, 10, chunk_size=chunk) for pair in (validation, train))
        problem = ub.Problem(small.f, small.g, 4.0, f_batches=f_batches, g_batches=g_batches)
        values.append(ub.hypergradient(problem, jnp.asarray(weights), jnp.ones(8), method)[0])
    np.testing.assert_allclose(values[0], values[1], rtol=1e-8, atol=1e-14)
    jax.grad(lambda y: jnp.sum(ub.hypergradient(problem, jnp.asarray(weights), y, method)[0] ** 2))(jnp.ones(8))


@pytest.mark.slow
def test_a_rough_first_look_at_much_data():
    """Above 8192 samples the first block of probes sees 2048 of them, and rare features are corrected."""
    rng = np.random.default_rng(0)
    n, d = 9000, 40
    features = rng.normal(size=(n, d)) * np.geomspace(0.05, 5, d)
    features[:, 3] *= rng.random(n) < 0.01
    targets = features @ rng.normal(size=d) + rng.normal(size=n)
    problem = ub.problems.lp_regression((features, targets), (features[:500], targets[:500]), 2.0, 1e-6)
    x, w = jnp.zeros(n), jnp.full(d, 0.1)
    value, info = ub.CG(rtol=1e-8)(problem, x, w, None)
    exact, _ = ub.hypergradient(problem, x, w, ub.Exact())
    np.testing.assert_allclose(value, exact, rtol=1e-4, atol=1e-7 * float(jnp.max(jnp.abs(exact))))
    assert int(info.calls.hvp) == 8 * 2048 + (8 + int(info.iterations)) * n
    assert int(info.iterations) < 25


def ridge(x, y, batch):
    """A model whose intercept is a leaf of its own, which meets no penalty."""
    residuals = RIDGE[0] @ y["w"] + y["b"] - RIDGE[1]
    return jnp.mean(residuals**2) / 2 + jnp.sum(jnp.exp(x) * y["w"] ** 2) / 2


def ridge_loss(x, y, batch):
    return jnp.sum(jnp.sin(y["w"])) + y["b"] ** 2 + jnp.sum(x**2)


RIDGE = (
    jnp.asarray(np.random.default_rng(0).normal(size=(20, 3))),
    jnp.asarray(np.random.default_rng(1).normal(size=20)),
)


def ridge_solution(x):
    """The same in closed form, from the normal equations."""
    features = jnp.concatenate([RIDGE[0], jnp.ones((20, 1))], axis=1)
    penalty = jnp.diag(jnp.concatenate([jnp.exp(x), jnp.zeros(1)]))
    flat = jnp.linalg.solve(features.T @ features / 20 + penalty, features.T @ RIDGE[1] / 20)
    return {"w": flat[:3], "b": flat[3]}


def one_leaf(flat):
    return {"w": flat[:3], "b": flat[3]}


@pytest.mark.parametrize("leaves", ["one", "several"])
@pytest.mark.slow
def test_every_derivative_of_hypergradient_and_argmin(leaves):
    """Against derivatives of the closed form: jvp, vjp, jacfwd, jacrev, hessian, vmap."""
    several = leaves == "several"
    f = ridge_loss if several else lambda x, y, b: ridge_loss(x, one_leaf(y), b)
    g = ridge if several else lambda x, y, b: ridge(x, one_leaf(y), b)
    solution = (
        ridge_solution if several else lambda x: jnp.concatenate([ridge_solution(x)["w"], ridge_solution(x)["b"][None]])
    )
    problem = ub.Problem(f, g, 2.0)
    x, t = jnp.array([0.1, -0.5, 0.3]), jnp.array([0.3, -1.0, 0.7])
    y0 = jax.tree.map(jnp.zeros_like, solution(x))
    phi = lambda x: f(x, solution(x), None)
    pairs = (
        (lambda x: ub.hypergradient(problem, x, solution(x))[0], jax.grad(phi)),
        (lambda x: jax.flatten_util.ravel_pytree(ub.argmin(problem)(x, y0))[0],
         lambda x: jax.flatten_util.ravel_pytree(solution(x))[0]),
    )  # fmt: skip
    for ours, truth in pairs:
        check = lambda a, b: jax.tree.map(lambda u, v: np.testing.assert_allclose(u, v, rtol=1e-6, atol=1e-9), a, b)
        check(jax.jvp(ours, (x,), (t,)), jax.jvp(truth, (x,), (t,)))
        cotangent = jnp.linspace(1.0, 2.0, truth(x).size)
        check(jax.vjp(ours, x)[1](cotangent), jax.vjp(truth, x)[1](cotangent))
        check(jax.jacfwd(ours)(x), jax.jacfwd(truth)(x))
        check(jax.jacrev(ours)(x), jax.jacfwd(truth)(x))
        check(jax.hessian(lambda x, ours=ours: jnp.sum(ours(x) ** 2))(x),
              jax.hessian(lambda x, truth=truth: jnp.sum(truth(x) ** 2))(x))  # fmt: skip
        xs = jnp.stack([x, t])
        check(jax.vmap(jax.jacfwd(ours))(xs), jax.vmap(jax.jacfwd(truth))(xs))


def test_jacfwd_hands_on_the_info():
    problem = ub.Problem(ridge_loss, ridge, 2.0)
    x = jnp.zeros(3)
    jacobian, info = jax.jacfwd(lambda x: ub.hypergradient(problem, x, ridge_solution(x)), has_aux=True)(x)
    assert jacobian.shape == (3, 3)
    assert info.status == ub.Status.ok


def chain(x, y, batch):
    return (y[0] - x) ** 2 + (y[1] - y[0]) ** 2


def test_a_leaf_that_does_not_meet_x():
    """y[1] sees x only through y[0]: y* = (x, x)."""
    problem = ub.Problem(lambda x, y, b: y[1] ** 2, chain, 2.0)
    slope = jax.grad(lambda x: ub.argmin(problem)(x, (0.0, 0.0))[1] ** 2)(1.5)
    assert float(slope) == pytest.approx(3.0, rel=1e-9)


def test_the_derivative_of_a_failure_is_nan():
    """The minimiser of ½(w−1)² + 2|w| is the kink at 0, which Newton's method cannot confirm."""
    problem = ub.Problem(lambda x, w, b: w, lambda x, w, b: (w - 1) ** 2 / 2 + x * jnp.abs(w))
    value, slope = jax.value_and_grad(lambda x: ub.argmin(problem)(x, 0.5))(2.0)
    assert np.isnan(value)
    assert np.isnan(slope)
    assert np.isnan(jax.jvp(lambda x: ub.argmin(problem)(x, 0.5), (2.0,), (1.0,))[1])


def test_one_program_for_whole_numbers_and_python_floats():
    problem = ub.problems.example4(4.0)
    ub.hypergradient(problem, 0.7, 0.7, ub.Neumann(scale=5.0))
    before = programs()
    ub.hypergradient(problem, np.float64(0.7), jnp.asarray(0.7), ub.Neumann(scale=5))
    ub.hypergradient(ub.problems.example4(4), 0.8, 0.7, ub.Neumann(scale=np.int64(5)))  # type: ignore[arg-type]
    assert programs() == before
