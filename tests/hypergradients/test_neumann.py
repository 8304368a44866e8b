import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import lp_data, lp_lower

import unibio as ub
from unibio.core import coordinates, linear, oracle
from unibio.core.status import Status

MU, SCALE, Q, D = 0.3, 1.0, 10, 5
ORTHOGONAL, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(D, D)))
J = jnp.asarray(ORTHOGONAL * np.linspace(MU, SCALE, D) @ ORTHOGONAL.T)
B = jnp.asarray(ORTHOGONAL[:, 0])  # the eigenvector of μ: the largest bias there is


def quadratic(hess_variance=None):
    """p = 2, so D = 1 and J is the Hessian; f = ⟨b, y⟩ and A = I, so the hypergradient is −v."""
    noise = ub.Noise(hess_z=hess_variance)
    lower = lambda x, y, batch: jnp.dot(y, J @ y) / 2 + jnp.dot(x, y)
    return ub.Problem(lambda x, y, batch: jnp.dot(B, y), lower, 2.0, f_batches=noise, g_batches=noise)


FORMS = [ub.Horner(), ub.Independent(), ub.Randomised()]


def estimates(form, variance, count):
    problem, method = quadratic(variance), ub.Neumann(Q, SCALE, form)
    keys = jax.random.split(jax.random.key(0), count)
    zero = jnp.zeros(D)
    return jax.vmap(lambda key: ub.hypergradient(problem, zero, zero, method, key))(keys)


def truncated():
    """s Σ_{q<Q} (I − sJ)^q b."""
    term, total = np.asarray(B), np.zeros(D)
    for _ in range(Q):
        total, term = total + term / SCALE, term - np.asarray(J) @ term / SCALE
    return total


@pytest.mark.parametrize("form", FORMS[:2], ids=repr)
def test_the_bias_is_the_formulas(form):
    value, info = ub.hypergradient(quadratic(), jnp.zeros(D), jnp.zeros(D), ub.Neumann(Q, SCALE, form))
    bias = np.linalg.norm(-value - np.linalg.solve(J, B))
    assert bias == pytest.approx((1 / MU) * (1 - MU / SCALE) ** Q, rel=1e-10)
    assert bias == pytest.approx(0.094158, abs=5e-7)
    np.testing.assert_allclose(-value, truncated(), rtol=1e-12)
    assert float(info.residual) == pytest.approx(0.7 ** (Q - 1), rel=1e-10)


@pytest.mark.parametrize("form", FORMS, ids=repr)
@pytest.mark.slow
def test_all_forms_have_the_same_expectation(form):
    count = 20_000
    values, _ = estimates(form, 0.1, count)
    error = np.asarray(-values.mean(0) - truncated())
    assert np.all(np.abs(error) < 5 * np.asarray(values.std(0)) / np.sqrt(count))


@pytest.mark.slow
def test_the_order_of_their_variances():
    variance = {type(form).__name__: float(jnp.sum(jnp.var(estimates(form, 0.1, 4000)[0], axis=0))) for form in FORMS}
    assert variance["Independent"] < variance["Horner"] < variance["Randomised"] / 10


@pytest.mark.slow
def test_the_number_of_products():
    calls = {type(form).__name__: estimates(form, 0.1, 4000)[1].calls for form in FORMS}
    assert np.all(np.asarray(calls["Horner"].hvp) == Q - 1)  # D tells which rows vanish
    assert np.all(np.asarray(calls["Independent"].hvp) == Q * (Q - 1) // 2)
    drawn = np.asarray(calls["Randomised"].hvp)
    assert set(drawn.tolist()) == set(range(Q))
    assert abs(drawn.mean() - 4.5) < 5 * drawn.std() / np.sqrt(4000)
    for count in calls.values():
        assert np.all(np.asarray(count.grad_f) == 1)
        assert np.all(np.asarray(count.cross) == 1)
        assert np.all(np.asarray(count.grad_g) == 0)


@pytest.mark.slow
def test_products_count_samples():
    train, validation, weights = lp_data(0)
    problem = ub.problems.lp_regression(train, validation, 4.0, batch_size=16)
    x, w = jnp.asarray(weights), jnp.ones(8)
    _, info = ub.hypergradient(problem, x, w, ub.Neumann(5, 100.0), jax.random.key(0))
    assert [int(c) for c in info.calls] == [16, 0, 4 * 16, 16]
    _, info = ub.hypergradient(problem, x, w, ub.Neumann(5), jax.random.key(0))
    assert int(info.calls.hvp) == (4 + 10) * 16
    _, info = ub.Neumann(5, 100.0)(problem, x, w, None)
    assert [int(c) for c in info.calls] == [60, 0, (4 + 1) * 60, 60]  # on all data a product looks at the rows


def test_variance_grows_geometrically():
    """One dimension, J = C = 1, variance σ²: that of the independent form is Σ_{q=1}^{Q−1} σ^{2q}."""
    sigma2, count, terms = 0.5, 40_000, 6
    noise = ub.Noise(hess_z=sigma2)
    problem = ub.Problem(lambda x, y, b: y, lambda x, y, b: y**2 / 2 + x * y, 2.0, f_batches=noise, g_batches=noise)
    keys = jax.random.split(jax.random.key(2), count)
    method = ub.Neumann(terms, 1.0, ub.Independent())
    values = np.asarray(jax.vmap(lambda key: ub.hypergradient(problem, 0.0, 0.0, method, key)[0])(keys))
    squares = (values - values.mean()) ** 2
    expected = sum(sigma2**q for q in range(1, terms))
    assert abs(squares.mean() - expected) < 5 * squares.std() / np.sqrt(count)


@pytest.mark.slow
def test_a_scale_that_is_too_small_is_refused():
    """With C at the median λ_max of a family of regressions the series diverges on many of them."""
    problems, tops = [], []
    for seed in range(12):
        train, validation, weights = lp_data(seed)
        problem = ub.problems.lp_regression(train, validation, 4.0, 1e-2)
        w = jnp.asarray(lp_lower(weights, train, 4.0, 1e-2))
        operator = oracle.hessian_g(problem, jnp.asarray(weights), w, problem.g_batches.whole())
        matrix = np.asarray(coordinates.scaling(w, 4.0, 0.0))[:, None] * np.asarray(linear.dense(operator, w))
        problems.append((problem, jnp.asarray(weights), w))
        tops.append(np.max(np.linalg.eigvals(matrix).real))
    scale = float(np.median(tops))
    diverging = [top >= 2 * scale for top in tops]
    assert 1 <= sum(diverging) <= 6
    for (problem, x, w), wrong in zip(problems, diverging, strict=True):
        value, info = ub.hypergradient(problem, x, w, ub.Neumann(200, scale))
        assert (info.status == Status.diverged) == wrong
        assert np.all(np.isnan(value)) == wrong
        estimated, info = ub.hypergradient(problem, x, w, ub.Neumann(200))
        exact, _ = ub.hypergradient(problem, x, w, ub.Exact())
        error = np.linalg.norm(estimated - exact) / np.linalg.norm(exact)
        assert info.status == (Status.ok if error < 5e-5 else Status.truncated), error
        assert np.all(np.isfinite(estimated))


def test_the_generalised_hessian_of_regression_is_unbounded():
    train, validation, weights = lp_data(0)
    problem = ub.problems.lp_regression(train, validation, 4.0, 1e-2)
    x, w = jnp.asarray(weights), jnp.asarray(lp_lower(weights, train, 4.0, 1e-2))
    whole = problem.g_batches.whole()

    def top(w):
        operator = oracle.hessian_g(problem, x, w, whole)
        return float(linear.largest_eigenvalue(operator, coordinates.scaling(w, 4.0, 0.0), 100))

    small = w.at[0].set(1e-4)
    assert top(small) > 1e6
    assert np.linalg.cond(np.asarray(linear.dense(oracle.hessian_g(problem, x, small, whole), w))) < 100
    np.testing.assert_allclose(top(w.at[0].set(1e-3)) / top(w.at[0].set(1e-4)), 1e-2, rtol=0.1)


def test_symmetric_bias_bound_in_the_weighted_norm():
    """For nonsymmetric D H the bound (1/μ)(1−μ/C)^Q ‖b‖ holds in the norm of D⁻¹."""
    train, validation, weights = lp_data(4)
    problem = ub.problems.lp_regression(train, validation, 3.0, 1e-1)
    x, w = jnp.asarray(weights), jnp.asarray(lp_lower(weights, train, 3.0, 1e-1))
    d = np.asarray(coordinates.scaling(w, 3.0, 0.0))
    h = np.asarray(linear.dense(oracle.hessian_g(problem, x, w, problem.g_batches.whole()), w))
    eigenvalues = np.linalg.eigvalsh(np.sqrt(d)[:, None] * h * np.sqrt(d))
    mu, c = eigenvalues[0], eigenvalues[-1]
    b = d * np.asarray(oracle.grads_f(problem, x, w, problem.f_batches.whole())[1])
    term, total = b.copy(), np.zeros_like(b)
    for _ in range(50):
        total, term = total + term / c, term - d * (h @ term) / c
    norm = lambda u: np.sqrt(u @ (u / d))
    error = norm(total - np.linalg.solve(d[:, None] * h, b))
    assert error <= (1 / mu) * (1 - mu / c) ** 50 * norm(b) * (1 + 1e-9)
    ours, _ = ub.hypergradient(problem, x, w, ub.Neumann(50, float(c)))
    r = train[0] @ np.asarray(w) - train[1]
    s = 1 / (1 + np.exp(-weights))
    expected = -(s * (1 - s) / 60) * 3 * np.sign(r) * r**2 * (train[0] @ total)
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-15)


def test_randomised_needs_a_key():
    with pytest.raises(ValueError, match="pass key="):
        ub.hypergradient(quadratic(), jnp.zeros(D), jnp.zeros(D), ub.Neumann(form=ub.Randomised()))
