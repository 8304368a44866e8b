"""What a hostile review once broke."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.core import linear
from unibio.core.protocols import Calls, count
from unibio.core.status import Status
from unibio.hypergradients import _estimate


def quartic(x, y, batch):
    return jnp.sum(y**4) / 4 - jnp.sum(y * jnp.sin(x))


def cubic(x, y, batch):
    return jnp.sum(y**3) + jnp.sum(x)


@pytest.mark.slow
def test_nan_is_never_called_ok():
    with_nan = ub.Dataset(jnp.array([1.0, jnp.nan]), 2)
    upper = ub.Problem(lambda x, y, b: jnp.mean((y - b.value) ** 2) + x, quartic, 4.0, f_batches=with_nan)
    lower = ub.Problem(cubic, lambda x, y, b: jnp.mean((y - b.value) ** 4) - y * jnp.sin(x), 4.0, g_batches=with_nan)
    huge = ub.Problem(lambda x, y, b: jnp.exp(y * 1e4) + x, quartic, 4.0)
    for problem in (upper, lower, huge):
        for method in (ub.CG(), ub.Exact(), ub.Neumann()):
            value, info = ub.hypergradient(problem, 0.5, 0.78, method)
            assert info.status == Status.not_finite, type(method).__name__
            assert not np.isfinite(value)
    value, info = jax.jit(lambda y: ub.hypergradient(ub.Problem(cubic, quartic, 4.0), 0.5, y))(jnp.nan)
    assert info.status == Status.not_finite
    assert np.isnan(value)


def test_argmin_passes_nan_on():
    problem = ub.Problem(cubic, lambda x, y, b: (y - x) ** 2, 2.0)
    assert np.isnan(jax.grad(lambda x: ub.argmin(problem)(x, 0.5) * jnp.nan)(1.0))


@pytest.mark.slow
def test_the_reference_has_no_derivative_and_says_so():
    problem = ub.Problem(cubic, lambda x, y, b: y**2 / 2 - y * jnp.sqrt(x), 2.0)
    for derivative in (jax.grad, jax.jacfwd):
        with pytest.raises(TypeError, match=r"use unibio\.argmin"):
            derivative(lambda x: ub.lower_solution(problem, x, 1.0))(1.0)
    assert float(jax.grad(lambda x: ub.argmin(problem)(x, 1.0))(1.0)) == pytest.approx(0.5)
    frozen = jax.grad(lambda x: x * ub.lower_solution(problem, jax.lax.stop_gradient(x), 1.0))(4.0)
    assert float(frozen) == pytest.approx(2.0)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("scale", [1e-15, 1e-8, 1.0, 1e8])
@pytest.mark.slow
def test_the_lower_level_in_any_unit(scale, dtype):
    problem = ub.Problem(cubic, lambda x, y, b: jnp.asarray(scale, y.dtype) * (y - x) ** 2, 2.0)
    y = ub.lower_solution(problem, jnp.asarray(2.0, dtype), jnp.asarray(0.0, dtype))
    assert float(y) == pytest.approx(2.0, rel=1e-5 if dtype == jnp.float32 else 1e-13)


@pytest.mark.parametrize("y0", [0.0, 1e3])
@pytest.mark.parametrize("d", [10, 50])
@pytest.mark.slow
def test_a_condition_number_of_1e8(d, y0):
    rng = np.random.default_rng(0)
    q, _ = np.linalg.qr(rng.normal(size=(d, d)))
    hessian = q * np.geomspace(1, 1e8, d) @ q.T
    hessian = (hessian + hessian.T) / 2
    problem = ub.problems.quadratic(hessian, np.eye(d), np.zeros(d))
    x = rng.normal(size=d)
    y = ub.lower_solution(problem, jnp.asarray(x), jnp.full(d, y0))
    np.testing.assert_allclose(y, np.linalg.solve(hessian, x), atol=1e-7)


@pytest.mark.slow
def test_many_unknowns_use_cg():
    rng = np.random.default_rng(0)
    coupling = rng.normal(size=(150, 150)) / 12
    problem = ub.problems.coupled_example3(4.0, coupling)
    x = rng.normal(size=150)
    y = ub.lower_solution(problem, jnp.asarray(x), jnp.ones(150))
    np.testing.assert_allclose(np.asarray(y) ** 3, coupling @ np.sin(x), atol=1e-12)


@pytest.mark.slow
def test_exact_sees_what_is_wrong():
    x = jnp.array([0.5, 1.0])
    y = jnp.cbrt(jnp.sin(x))
    saddle = ub.Problem(cubic, lambda x, y, b: (y[0] ** 2 - y[1] ** 2) / 2 - jnp.sum(x * y), 2.0)
    assert ub.hypergradient(saddle, x, y, ub.Exact())[1].status == Status.not_convex
    near = jnp.array([[1.0, 1.0], [1.0, 1 + 1e-15]])
    singular = ub.Problem(cubic, lambda x, y, b: jnp.dot(y, near @ y) / 2 - jnp.sum(x * y), 2.0)
    assert ub.hypergradient(singular, x, y, ub.Exact())[1].status != Status.ok


@pytest.mark.parametrize("p", [4, np.int64(4), jnp.int32(4)])
@pytest.mark.slow
def test_whole_numbers_are_numbers(p):
    x = jnp.array([0.5, 1.0])
    y = jnp.cbrt(jnp.sin(x))
    for problem in (ub.problems.example4(p), ub.problems.example3(p), ub.problems.coupled_example3(p, np.eye(2))):
        value, _ = ub.hypergradient(problem, x, y)
        assert np.all(np.isfinite(value))
    assert jax.grad(lambda y: ub.spow(y, 3))(2.0) == 12.0
    assert jax.grad(lambda y: ub.abs_pow(y, 3))(-2.0) == -12.0


def test_one_program_for_whole_numbers_and_python_floats():
    problem = ub.Problem(cubic, quartic, 4.0)
    ub.hypergradient(problem, 0.7, 0.7, ub.Neumann(scale=5.0))
    size = _estimate._cache_size()  # type: ignore[attr-defined]  # JAX does not declare it
    ub.hypergradient(problem, np.float64(0.7), jnp.asarray(0.7), ub.Neumann(scale=5))
    ub.hypergradient(ub.Problem(cubic, quartic, 4), 0.8, 0.7, ub.Neumann(scale=np.int64(5)))  # type: ignore[arg-type]
    assert _estimate._cache_size() == size  # type: ignore[attr-defined]


def test_counts_never_wrap():
    assert int(count(3, 5)) == 15
    assert int(count(1000, 3_000_000)) == 2**31 - 1
    assert int(count(2, 2**40)) == 2**31 - 1
    assert int(count(0, 2**40)) == 0
    total = Calls(hvp=2**31 - 5).plus(Calls(hvp=10, grad_f=1))
    assert [int(c) for c in total] == [1, 0, 2**31 - 1, 0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ub.hypergradient(ub.Problem(cubic, quartic, 4.0), 0.5, 0.5, ub.CG), "method must be CG"),  # type: ignore[arg-type]
        (lambda: ub.hypergradient(ub.Problem(cubic, quartic, 4.0), 0.5, 0.5, print), "method must be CG"),  # type: ignore[arg-type]
        (lambda: ub.hypergradient(ub.Problem(cubic, quartic, 4.0), 0.5, 0.5, ub.Power()), "Power is no hypergradient"),  # type: ignore[arg-type]
        (lambda: ub.CG(preconditioner=ub.Power), "preconditioner must be Auto"),  # type: ignore[arg-type]
        (lambda: ub.CG(preconditioner=None), "preconditioner must be Auto"),  # type: ignore[arg-type]
        (lambda: ub.Neumann(form=ub.Horner), "form must be Horner"),  # type: ignore[arg-type]
        (lambda: ub.Problem(cubic, quartic, 4.0, f_batches=ub.Dataset), "f_batches must be a sampler"),  # type: ignore[arg-type]
        (lambda: ub.Dataset(np.ones(3), 1, replace="no"), "replace must be True or False"),  # type: ignore[arg-type]
        (lambda: ub.hypergradient(ub.Problem(cubic, quartic, 4.0, shift=True), 0.5, 0.5), "shift must be one real"),
        (
            lambda: ub.hypergradient(ub.Problem(cubic, quartic, 4.0), 0.5, 0.5, key=jnp.zeros(5, jnp.uint32)),
            "key must be one random key",
        ),
    ],
)
def test_wrong_kinds(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_hints():
    with pytest.raises(ValueError, match="shift contains NaN"):
        ub.hypergradient(ub.Problem(cubic, quartic, 4.0, shift=jnp.array([jnp.nan, 0.0])), 0.5, jnp.ones(2))
    with pytest.raises(ValueError, match=r"A list is a tree of its entries: pass np\.asarray"):
        ub.Dataset([[1.0, 2.0], [3.0, 4.0]], 2)
    needs_data = ub.Problem(lambda x, y, b: jnp.mean(b.value) * y, quartic, 4.0)
    with pytest.raises(
        ValueError, match=r"f\(x, y, batch\) failed.*batch is None because the problem has no f_batches"
    ):
        ub.hypergradient(needs_data, 0.5, 0.5)


def test_the_gradient_of_argmin_compiles_once():
    problem = ub.Problem(cubic, quartic, 4.0)
    slope = jax.grad(lambda x: ub.argmin(problem)(x, 0.5))
    slope(0.3)
    compiled = []

    def listener(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listener)
    slope(0.4)
    assert not compiled


def test_cg_with_nan_in_the_right_hand_side():
    result = linear.conjugate_gradients(lambda v: v, jnp.array([1.0, jnp.nan]), jnp.ones(2), 1e-8, 10)
    assert np.isnan(result.residual)
