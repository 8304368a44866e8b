import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unibio.core import coordinates
from unibio.core.coordinates import abs_pow, spow


@pytest.mark.parametrize("a", [1.0, 1.5, 2.0, 3.0, 7.0])
def test_powers_and_their_derivatives(a):
    y = jnp.array([-1.7, -0.3, 0.4, 2.0])
    np.testing.assert_allclose(spow(y, a), np.sign(y) * np.abs(y) ** a, rtol=1e-14)
    np.testing.assert_allclose(abs_pow(y, a), np.abs(y) ** a, rtol=1e-14)
    np.testing.assert_allclose(jax.vmap(jax.grad(spow), (0, None))(y, a), a * np.abs(y) ** (a - 1), rtol=1e-13)
    second = jax.vmap(jax.grad(jax.grad(abs_pow)), (0, None))(y, a)
    np.testing.assert_allclose(second, a * (a - 1) * np.abs(y) ** (a - 2), rtol=1e-12, atol=1e-14)


def test_derivatives_at_zero_are_the_true_ones():
    assert jax.grad(spow)(0.0, 1.0) == 1.0  # sign(y)|y| = y; jnp.sign(y)*jnp.abs(y) would give 0
    assert jax.grad(spow)(0.0, 3.0) == 0.0
    assert jax.grad(jax.grad(abs_pow))(0.0, 2.0) == 2.0  # y²
    assert jax.grad(jax.grad(abs_pow))(0.0, 2.5) == 0.0
    assert jax.grad(abs_pow, argnums=1)(0.0, 2.0) == 0.0
    np.testing.assert_allclose(jax.grad(spow, argnums=1)(-2.0, 3.0), -8 * np.log(2), rtol=1e-14)


@pytest.mark.parametrize(("p", "delta"), [(6.0, 1.3e-9), (8.0, 1.9e-6), (12.0, 6.4e-4), (20.0, 3.1e-2)])
def test_the_floor_in_float32(p, delta):
    assert float(coordinates.floor(p, jnp.float32)) == pytest.approx(delta, rel=0.02)


@pytest.mark.parametrize("p", [2.0, 2.5, 3.0, 4.0, 8.0, 20.0])
def test_the_floor_in_float64_and_that_powers_of_it_are_normal(p):
    assert float(coordinates.floor(p, jnp.float64)) == 1e-12
    for dtype in (jnp.float32, jnp.float64):
        delta = float(coordinates.floor(p, dtype))
        assert delta ** (p - 2) >= float(jnp.finfo(dtype).tiny)


def test_scaling_is_dy_dz_and_finite_at_the_shift():
    y, shift, p = {"a": jnp.array([0.5, -2.0]), "b": jnp.array(1.0)}, 1.0, 3.5
    d = coordinates.scaling(y, p, shift)
    z = coordinates.to_z(y, p, shift)
    h = 1e-6
    moved = coordinates.from_z(jax.tree.map(lambda t: t + h, z), p, shift)
    np.testing.assert_allclose((moved["a"] - y["a"]) / h, d["a"], rtol=1e-5)
    assert np.isfinite(d["b"])
    back = coordinates.from_z(z, p, shift)
    np.testing.assert_allclose(back["a"], y["a"], rtol=1e-14)
    assert float(back["b"]) == 1.0 + 1e-12


def test_the_root_has_the_derivative_of_the_point_it_returns():
    p = 4.0
    slope = jax.grad(lambda z: coordinates.from_z(z, p, 0.0))(0.0)
    assert slope == pytest.approx(1 / (3 * 1e-24), rel=1e-12)
