import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unibio.core import linear, tree


def spd(seed, d, condition=100.0):
    rng = np.random.default_rng(seed)
    q, _ = np.linalg.qr(rng.normal(size=(d, d)))
    return jnp.asarray(q * np.geomspace(1, condition, d) @ q.T), jnp.asarray(rng.normal(size=d))


@pytest.mark.slow
def test_cg_solves_and_counts():
    h, b = spd(0, 30)
    result = linear.conjugate_gradients(lambda v: h @ v, b, jnp.ones(30), 1e-12, 200, estimate_condition=True)
    np.testing.assert_allclose(result.value, np.linalg.solve(h, b), rtol=1e-9)
    assert result.residual <= 1e-12
    assert 10 < int(result.steps) < 60
    assert result.curvature == linear.POSITIVE
    assert 50 < float(result.condition) < 200  # 100, within a factor of two


def test_cg_on_a_diagonal_of_sixty_orders_of_magnitude():
    """Where H_ii ~ 1e-24 the usual residual norm would stop before v_i has moved."""
    diagonal = jnp.asarray(np.geomspace(1e-40, 1e20, 7))
    v = jnp.asarray([1.0, -2.0, 3.0, 1.0, 0.5, 1.0, 2.0])
    result = linear.conjugate_gradients(lambda u: diagonal * u, diagonal * v, 1 / diagonal, 1e-10, 100)
    np.testing.assert_allclose(result.value, v, rtol=1e-9)
    other = jnp.ones(7).at[0].set(1e-24)
    uneven = linear.conjugate_gradients(lambda u: other * u, other * v, 1 / (other * (1 + v**2)), 1e-10, 100)
    np.testing.assert_allclose(uneven.value, v, rtol=1e-8)


def test_cg_reports_negative_curvature():
    h = jnp.diag(jnp.array([1.0, 2.0, -1.0]))
    result = linear.conjugate_gradients(lambda v: h @ v, jnp.ones(3), jnp.ones(3), 1e-10, 100)
    assert result.curvature == linear.NEGATIVE
    assert np.all(np.isfinite(result.value))
    flat = linear.conjugate_gradients(lambda v: 0.0 * v, jnp.ones(3), jnp.ones(3), 1e-10, 100)
    assert flat.curvature == linear.FLAT


def test_zero_right_hand_side():
    h, _ = spd(0, 5)
    result = linear.conjugate_gradients(lambda v: h @ v, jnp.zeros(5), jnp.ones(5), 1e-10, 10)
    np.testing.assert_array_equal(result.value, 0.0)
    assert result.steps == 0
    assert result.residual == 0


@pytest.mark.slow
def test_the_solve_is_differentiable_in_both_modes():
    h, b = spd(1, 6)

    def solution(t, b):
        h_t = h + t * jnp.eye(6)
        return linear.solve_spd(lambda v: h_t @ v, b, jnp.ones(6), 1e-14, 100).value

    inverse = np.linalg.inv(h)
    expected = -inverse @ inverse @ b
    np.testing.assert_allclose(jax.jacfwd(solution)(0.0, b), expected, rtol=1e-9)
    np.testing.assert_allclose(jax.jacrev(solution)(0.0, b), expected, rtol=1e-9)
    np.testing.assert_allclose(jax.jacrev(solution, 1)(0.0, b), inverse, rtol=1e-8, atol=1e-12)


def test_probes_are_orthogonal_signs():
    z = np.asarray(linear.probes(jnp.zeros(8), 8))
    np.testing.assert_array_equal(np.abs(z), 1.0)
    np.testing.assert_array_equal(z @ z.T, 8 * np.eye(8))


@pytest.mark.parametrize("d", [3, 8])
@pytest.mark.slow
def test_the_diagonal_is_exact_for_few_unknowns(d):
    h, _ = spd(2, d)
    operator = lambda v: h @ v
    estimate, _, refined = linear.estimate_diagonal(operator, jnp.zeros(d), 8, operator)
    np.testing.assert_allclose(estimate, np.diag(h), rtol=1e-12)
    assert not refined
    np.testing.assert_allclose(linear.exact_diagonal(operator, jnp.zeros(d)), np.diag(h), rtol=1e-14)


def test_the_diagonal_of_a_badly_scaled_matrix():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(2000, 100)) * np.geomspace(0.01, 10, 100)
    h = jnp.asarray(features.T @ features / 2000)
    operator = lambda v: {"v": h @ v["v"]}
    estimate, _, refined = linear.estimate_diagonal(operator, {"v": jnp.zeros(100)}, 8, operator)
    assert refined
    ratio = np.asarray(estimate["v"]) / np.diag(h)
    assert 0.5 < ratio.min() < ratio.max() < 2.0


def test_an_even_diagonal_needs_one_block():
    h, _ = spd(3, 64, condition=1.2)
    operator = lambda v: h @ v
    estimate, _, refined = linear.estimate_diagonal(operator, jnp.zeros(64), 8, operator)
    assert not refined
    assert np.all(np.abs(estimate / np.diag(h) - 1) < 0.5)


def test_largest_eigenvalue_from_below():
    h, _ = spd(4, 20)
    m = jnp.asarray(np.linspace(0.5, 2, 20))
    true = np.max(np.linalg.eigvals(np.diag(m) @ h).real)
    value = linear.largest_eigenvalue(lambda v: h @ v, m, 30)
    assert 0.95 * true < value <= true * (1 + 1e-12)


def test_lazily_computes_only_on_demand():
    needed = jax.vmap(lambda n: tree.compute_if_any(n, lambda: jnp.asarray(2.0), jnp.asarray(1.0)))
    np.testing.assert_array_equal(needed(jnp.array([True, False, True])), [2.0, 1.0, 2.0])
    np.testing.assert_array_equal(needed(jnp.array([False, False])), [1.0, 1.0])


def test_cg_with_nan_in_the_right_hand_side():
    result = linear.conjugate_gradients(lambda v: v, jnp.array([1.0, jnp.nan]), jnp.ones(2), 1e-8, 10)
    assert np.isnan(result.residual)
