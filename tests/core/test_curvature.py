"""The compact inverse against the textbook's two loops, and against the matrix itself."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from unibio.core import curvature


def positive(rng, n):
    a = rng.normal(size=(n, n))
    return a @ a.T + 0.1 * np.eye(n)


def two_loops(pairs, q):
    """The L-BFGS inverse as it is written in textbooks, the oldest pair first."""
    q, alphas = q.copy(), []
    for s, t in reversed(pairs):
        alphas.append(s @ q / (s @ t))
        q -= alphas[-1] * t
    s, t = pairs[-1]
    q *= (s @ t) / (t @ t)
    for (s, t), alpha in zip(pairs, reversed(alphas), strict=True):
        q += s * (alpha - t @ q / (s @ t))
    return q


@pytest.mark.parametrize("number", [1, 3, 5, 12])
def test_it_is_the_two_loop_recursion(number):
    rng, n, size = np.random.default_rng(number), 9, 5
    b, pairs = positive(rng, n), curvature.empty(size, n, jnp.float64)
    kept: list[Any] = []
    for _ in range(number):
        s = rng.normal(size=n)
        pairs = curvature.add(pairs, jnp.asarray(s), jnp.asarray(b @ s))
        kept = [*kept, (s, b @ s)][-size:]
    q = rng.normal(size=n)
    np.testing.assert_allclose(curvature.inverse_product(pairs, jnp.asarray(q)), two_loops(kept, q), rtol=1e-10)


def test_conjugate_directions_give_the_inverse():
    rng, n = np.random.default_rng(0), 6
    b = positive(rng, n)
    values, vectors = np.linalg.eigh(b)
    pairs = curvature.empty(8, n, jnp.float64)
    for vector in vectors.T:
        pairs = curvature.add(pairs, jnp.asarray(vector), jnp.asarray(b @ vector))
    q = rng.normal(size=n)
    np.testing.assert_allclose(curvature.inverse_product(pairs, jnp.asarray(q)), np.linalg.solve(b, q), rtol=1e-9)
    assert values.min() > 0


@pytest.mark.parametrize("number", [1, 3, 5, 12])
def test_the_product_undoes_the_inverse(number):
    rng, n = np.random.default_rng(number), 9
    b, pairs = positive(rng, n), curvature.empty(5, n, jnp.float64)
    for _ in range(number):
        s = rng.normal(size=n)
        pairs = curvature.add(pairs, jnp.asarray(s), jnp.asarray(b @ s))
    q = jnp.asarray(rng.normal(size=n))
    np.testing.assert_allclose(curvature.product(pairs)(curvature.inverse_product(pairs, q)), q, rtol=1e-8)
    np.testing.assert_allclose(curvature.product(pairs)(jnp.asarray(s)), b @ s, rtol=1e-8)  # the last pair holds


def test_what_is_not_positive_is_not_remembered():
    e, pairs = jnp.eye(3), curvature.empty(4, 3, jnp.float64)
    for t in (-e[0], e[1], e[0] * jnp.nan, 1e-9 * e[0] + e[1], 0 * e[0], 1e-200 * e[0]):
        pairs = curvature.add(pairs, e[0], t)
    assert pairs.number == 0
    np.testing.assert_array_equal(curvature.inverse_product(pairs, e[2]), e[2])
    pairs = curvature.add(pairs, 2 * e[0], 6 * e[0])
    assert pairs.number == 1
    np.testing.assert_allclose(curvature.inverse_product(pairs, e[0]), e[0] / 3)
