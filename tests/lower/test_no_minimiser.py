"""What has no minimiser is refused, by name; what has one, however scaled, is found; how far it may be is said."""

import types

import jax.numpy as jnp
import numpy as np
import pytest
from lower_examples import WITHOUT, check_nan, check_refused, check_uneven_scales

import unibio as ub
from unibio.core.status import Status

DTYPES = ["float32", "float64"]
SPREAD = np.asarray([-1e-3, 1e-3])  # what cancels in the gradient


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
@pytest.mark.parametrize("name", WITHOUT)
def test_what_is_no_minimiser_is_refused(name, dtype):
    check_refused(name, dtype)


@pytest.mark.parametrize("name", ["exp", "cos at its maximum", "1/(1+y²) from 3", "unused coordinate"])
@pytest.mark.slow
def test_what_is_no_minimiser_is_nan_in_compiled_code(name):
    check_nan(name, "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.slow
def test_uneven_scales(dtype):
    check_uneven_scales(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [2, 4, 8, 20])
@pytest.mark.slow
def test_the_error_covers_what_cannot_be_known(p, dtype):
    """y*(0.3) = 0.3, but |y − 0.3|^(p−1) drowns in the rounding of 0.3 long before y arrives if p is large."""
    problem = ub.Problem(lambda x, y, b: y, lambda x, y, b: (y - x) ** p + 0.3**p * jnp.cos(x))
    x = jnp.asarray(0.3, dtype)
    y, info = ub.Newton()(problem, x, jnp.asarray(1.0, dtype))
    distance = abs(float(y) - float(x))
    assert info.status == Status.ok
    assert distance <= float(info.error) <= 0.5


@pytest.mark.slow
def test_the_truth_does_not_claim_more_than_can_be_known():
    """Started at y* = 1 itself, the distance between y and Newton's result is 0, which nobody can know."""
    problem = ub.Problem(lambda x, y, b: (y - x) ** 19, lambda x, y, b: jnp.mean((y + SPREAD - x) ** 20), p=20.0)
    state = types.SimpleNamespace(x=jnp.asarray(1.0), y=jnp.asarray(1.0))
    y, info = ub.Newton()(problem, state.x, state.y)
    assert abs(float(y) - 1) < float(info.error)
    assert float(ub.Truth()(problem, state)["lower_error"]) >= float(info.error)


def test_budget_is_said():
    problem = ub.Problem(lambda x, y, b: y, lambda x, y, b: jnp.cosh(y - x))
    y, info = ub.Newton(max_steps=2)(problem, jnp.asarray(0.0), jnp.asarray(30.0))
    assert info.status == Status.budget
    assert abs(float(y)) > 20
