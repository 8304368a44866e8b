"""Properties over p, dimensions, dtypes and tree structures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import unibio as ub
from unibio.core import tree
from unibio.core.status import Status

SETTINGS = settings(max_examples=6, deadline=None, derandomize=True)
ORDERS = st.floats(2.0, 10.0)


def split(vector, parts):
    """The same numbers as a vector, a nested dict or a list of arrays."""
    d = vector.size
    if parts == "vector":
        return vector
    if parts == "dict":
        return {"a": {"x": vector[: d // 2 + 1]}, "b": vector[d // 2 + 1 :]} if d > 2 else {"b": vector}
    return [vector[i] for i in range(d)]


def power_g(x, y, batch):
    x, y = jax.flatten_util.ravel_pytree(x)[0], jax.flatten_util.ravel_pytree(y)[0]
    return jnp.sum(ub.abs_pow(y, 4.0)) / 4 + jnp.sum((y - jnp.roll(y, 1)) ** 2) - jnp.dot(y, x)


def power_f(x, y, batch):
    y = jax.flatten_util.ravel_pytree(y)[0]
    return jnp.sum(jnp.sin(y)) + jnp.sum(ub.spow(y, 3.0))


@SETTINGS
@given(
    st.integers(1, 5),
    st.sampled_from(["vector", "dict", "list"]),
    st.sampled_from([jnp.float32, jnp.float64]),
    st.integers(0, 10**6),
)
@pytest.mark.slow
def test_methods_agree_whatever_the_structure(d, parts, dtype, seed):
    rng = np.random.default_rng(seed)
    x = jnp.asarray(rng.normal(size=d), dtype)
    flat_y = jnp.asarray(rng.normal(size=d), dtype)
    problem = ub.Problem(power_f, power_g, 4.0)
    exact, _ = ub.hypergradient(problem, x, flat_y, ub.Exact())
    x_tree, y_tree = split(x, parts), split(flat_y, parts)
    value, info = ub.hypergradient(problem, x_tree, y_tree, ub.CG())
    assert tree.same_structure(value, x_tree)
    assert tree.dtype(value) == dtype
    assert info.status in (Status.ok, Status.lower_not_solved)  # y is no minimiser; the linear system is what counts
    # κ(H) ≤ about 100 here; CG stops at 1e-10, or 50 units of rounding.
    error = np.linalg.norm(jax.flatten_util.ravel_pytree(value)[0] - exact) / (1e-30 + np.linalg.norm(exact))
    assert error < (1e-7 if dtype == jnp.float64 else 3e-3)


@SETTINGS
@given(ORDERS, st.floats(-3.0, 3.0), st.sampled_from([jnp.float32, jnp.float64]))
@example(2.0001, 0.0, jnp.float32)
@pytest.mark.slow
def test_example3_for_real_p(p, x, dtype):
    x = jnp.asarray(x, dtype)
    y = jnp.asarray(np.sign(np.sin(float(x))) * np.abs(np.sin(float(x))) ** (1 / (p - 1)), dtype)
    value, info = ub.hypergradient(ub.problems.example3(p), x, y)
    tolerance = 1e-9 if dtype == jnp.float64 else 2e-4
    np.testing.assert_allclose(value, np.cos(float(x)) * np.cos(np.sin(float(x))), atol=tolerance)
    assert info.status == Status.ok


@SETTINGS
@given(ORDERS, st.lists(st.floats(-2.0, 2.0), min_size=1, max_size=4), st.floats(-1.0, 1.0))
def test_the_coordinate_goes_there_and_back(p, values, shift):
    from unibio.core import coordinates

    y = jnp.asarray(values)
    back = coordinates.from_z(coordinates.to_z(y, p, shift), p, shift)
    np.testing.assert_allclose(back, y, atol=1e-9)
    d, inverse = coordinates.scaling(y, p, shift), coordinates.inverse_scaling(y, p, shift)
    regular = np.abs(np.asarray(y) - shift) > 1e-10
    np.testing.assert_allclose(np.asarray(d * inverse)[regular], 1.0, rtol=1e-9)
    assert np.all(np.isfinite(d))


@SETTINGS
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 50))
def test_any_chunk_gives_the_same_mean(n, batch, chunk):
    data = ub.Dataset(np.arange(float(n)) ** 2, batch_size=min(batch, n), chunk_size=chunk)
    total = data.whole().total(lambda b, weight: weight * jnp.mean(b.value))
    np.testing.assert_allclose(total, np.mean(np.arange(float(n)) ** 2), rtol=1e-12)


@SETTINGS
@given(st.floats(2.0, 20.0), st.floats(-1.0, 1.0), st.sampled_from([jnp.float32, jnp.float64]))
def test_the_lower_level_of_example3_for_real_p(p, s, dtype):
    x = jnp.asarray(np.arcsin(s), dtype)
    y = ub.lower_solution(ub.problems.example3(p), x, jnp.asarray(0.7, dtype))
    residual = np.sign(float(y)) * np.abs(float(y)) ** (p - 1) - np.sin(float(x))
    assert abs(residual) <= (1e-12 if dtype == jnp.float64 else 5e-4)
