"""Bad input is refused by name, with the remedy, before anything is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub


def f(x, y, batch):
    return jnp.sum(y)


def g(x, y, batch):
    return jnp.sum(y**2) + jnp.sum(x) * jnp.sum(y)


GOOD = ub.Problem(f, g, 2.0)
ONE = jnp.ones(2)


@pytest.mark.parametrize("p", [1.9, 0.0, -4.0, float("nan"), float("inf"), np.float64(1.0), jnp.array(1.5), 10**400])
def test_p_must_be_at_least_two(p):
    with pytest.raises(ValueError, match=r"p must be finite and ≥ 2.*strong convexity"):
        ub.Problem(f, g, p)


@pytest.mark.parametrize("p", ["4", 4j, [4.0], True])
def test_p_must_be_a_number(p):
    with pytest.raises(TypeError, match="p must be one real number"):
        ub.Problem(f, g, p)


def test_functions_must_be_functions():
    with pytest.raises(TypeError, match=r"g must be a function g\(x, y, batch\)"):
        ub.Problem(f, 3.0, 2.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="f_batches must be a sampler such as Dataset"):
        ub.Problem(f, g, 2.0, f_batches=np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"problem must be a unibio\.Problem"):
        ub.hypergradient(g, ONE, ONE)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="method must be CG"):
        ub.hypergradient(GOOD, ONE, ONE, "cg")  # type: ignore[arg-type]


CALLS = {
    "hypergradient": lambda problem, x, y: ub.hypergradient(problem, x, y),
    "lower_solution": lambda problem, x, y: ub.lower_solution(problem, x, y),
    "argmin": lambda problem, x, y: ub.argmin(problem)(x, y),
    "differentiable_in_z": lambda problem, x, y: ub.differentiable_in_z(problem, x, y),
}
BAD_VARIABLES = [
    (jnp.array([1, 2]), ONE, TypeError, r"x must be real and floating; got dtype int.*1\.0 instead of 1"),
    (jnp.ones(2, jnp.bfloat16), ONE, TypeError, r"x has dtype bfloat16, whose two or three digits.*float32 or float64"),
    (ONE, {"w": jnp.array([1j])}, TypeError, r"y\['w'\] must be real .* dtype complex.*two real arrays"),
    (jnp.zeros(0), ONE, ValueError, r"x is empty"),
    ({}, ONE, ValueError, r"x has no leaves"),
    (ONE, jnp.array([1.0, np.nan]), ValueError, r"y contains NaN or infinity"),
    (jnp.array([np.inf, 0.0]), ONE, ValueError, r"x contains NaN or infinity"),
    (ONE, "abc", TypeError, r"y must be a floating array; got str"),
    (ONE, jnp.ones(2, jnp.float32), TypeError, r"x is float64 and y is float32: mixing.*promote.*Cast"),
    ([ONE, jnp.ones(2, jnp.float32)], ONE, TypeError, r"x mixes dtypes float32, float64"),
]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(("x", "y", "error", "message"), BAD_VARIABLES)
def test_variables(call, x, y, error, message):
    with pytest.raises(error, match=message):
        call(GOOD, x, y)


BAD_FUNCTIONS = [
    (lambda x, y, batch: y, ValueError, "must return a scalar.*jnp.mean"),
    (lambda x, y, batch: jnp.sum(y > 0), TypeError, "must return a real floating number; got dtype int"),
    (
        lambda x, y, batch: jnp.sum(y).astype(complex),
        TypeError,
        "must return a real floating number; got dtype complex",
    ),
    (lambda x, y, batch: jnp.sum(y).astype(jnp.float32), TypeError, "returns float32 for variables of float64"),
    (lambda x, y, batch: (jnp.sum(y), 0.0), ValueError, "must return a scalar"),
]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(("bad", "error", "message"), BAD_FUNCTIONS)
def test_functions(call, bad, error, message):
    with pytest.raises(error, match=r"f\(x, y, batch\) " + message):
        call(ub.Problem(bad, g, 2.0), ONE, ONE)
    with pytest.raises(error, match=r"g\(x, y, batch\) " + message):
        call(ub.Problem(f, bad, 2.0), ONE, ONE)


def test_nothing_was_compiled_before_the_refusal(monkeypatch):
    ub.hypergradient(GOOD, np.ones(2), np.ones(2))  # the look for NaN is a program of its own, of this shape
    monkeypatch.setattr(jax._src.compiler, "backend_compile_and_load", lambda *a, **k: pytest.fail("compiled"))
    with pytest.raises(ValueError, match="scalar"):
        ub.hypergradient(ub.Problem(f, lambda x, y, batch: y, 2.0), np.ones(2), np.ones(2))


@pytest.mark.parametrize(
    ("shift", "message"),
    [
        (jnp.ones(3), r"shift has shape \(3,\), but y has \(2,\)"),
        ({"a": jnp.ones(2)}, "shift must have the structure of y"),
        (float("nan"), "shift must be finite"),
    ],
)
def test_shift(shift, message):
    with pytest.raises(ValueError, match=message):
        ub.hypergradient(ub.Problem(f, g, 2.0, shift=shift), ONE, ONE)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ub.Neumann(scale=0.0), ValueError, "scale must be finite and > 0.*estimated"),
        (lambda: ub.Neumann(scale=-1.0), ValueError, "scale must be finite and > 0"),
        (lambda: ub.Neumann(terms=0), ValueError, "terms must be ≥ 1"),
        (lambda: ub.Neumann(terms=2.0), TypeError, "terms must be an int"),  # type: ignore[arg-type]
        (lambda: ub.CG(max_steps=0), ValueError, "max_steps must be ≥ 1"),
        (lambda: ub.CG(rtol=-1.0), ValueError, "rtol must be finite and ≥ 0"),
        (lambda: ub.Jacobi(probes=6), ValueError, "power of two"),
        (lambda: ub.Unrolled(0, 0.1), ValueError, "steps must be ≥ 1"),
        (lambda: ub.Unrolled(5, 0.0), ValueError, "step_size must be finite and > 0"),
        (lambda: ub.Newton(max_steps=0), ValueError, "max_steps must be ≥ 1"),
    ],
)
def test_methods(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_methods_that_do_not_fit_the_noise():
    noise = ub.Noise(hess_z=1.0)
    problem = ub.Problem(f, g, 2.0, f_batches=noise, g_batches=noise)
    with pytest.raises(ValueError, match=r"CG needs a symmetric Hessian.*Use Neumann"):
        ub.hypergradient(problem, ONE, ONE, ub.CG(), jax.random.key(0))
    with pytest.raises(ValueError, match=r"Unrolled differentiates f and g themselves.*Drop the key"):
        ub.hypergradient(problem, ONE, ONE, ub.Unrolled(3, 0.1), jax.random.key(0))


@pytest.mark.parametrize("key", [0, "seed", jnp.ones(3)])
def test_a_key_must_be_a_key(key):
    with pytest.raises(TypeError, match=r"key must be .*jax.random.key\(0\)"):
        ub.hypergradient(GOOD, ONE, ONE, key=key)


def test_a_number_that_overflows_the_variables_dtype_is_named():
    problem, x = ub.Problem(f, g, 1e300), jnp.ones(2, jnp.float32)
    with pytest.raises(ValueError, match=r"p = 1e\+300 does not fit into float32.*variables in float64"):
        ub.hypergradient(problem, x, x)


SAMPLES = np.ones((4, 2)), np.ones(4)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ub.problems.quadratic(np.eye(2), "B", np.ones(2)), TypeError, "coupling must be an array of real"),
        (lambda: ub.problems.lp_regression(SAMPLES, SAMPLES, 4.0, c=float("nan")), ValueError, "c must be finite"),
        (lambda: ub.problems.lp_regression(None, SAMPLES, 4.0), TypeError, r"train must be a pair \(inputs, labels\)"),  # type: ignore[arg-type]
        (lambda: ub.problems.hyper_cleaning(f, None, SAMPLES, SAMPLES), ValueError, "params has no leaves"),  # type: ignore[arg-type]
        (
            lambda: ub.problems.hyper_cleaning(f, ONE, SAMPLES, SAMPLES, batch_size=0),  # type: ignore[arg-type]
            ValueError,
            "batch_size must be ≥ 1",
        ),
    ],
)
def test_problems(make, error, message):
    with pytest.raises(error, match=message):
        make()


def linear(w, inputs):
    return inputs @ w


def test_x_must_have_an_entry_for_each_sample():
    """x[index] beyond its end would be clamped without a word."""
    regression = ub.problems.lp_regression(SAMPLES, SAMPLES, 4.0)
    with pytest.raises(ValueError, match="x must have an entry for each of the 4 training samples"):
        ub.hypergradient(regression, jnp.ones(3), ONE)
    labelled = SAMPLES[0], np.zeros(4, int)
    cleaning = ub.problems.hyper_cleaning(linear, np.ones((2, 3)), labelled, labelled)
    with pytest.raises(ValueError, match=r"x must have the shapes \(\(4,\),\), as hyper_cleaning made it"):
        ub.hypergradient(cleaning.problem, jnp.ones(3), cleaning.y)


def test_a_structure_that_changes_is_named():
    """g that cannot take the y it is given now, although it took another before."""
    problem = ub.Problem(lambda x, y, batch: jnp.sum(y["a"]), lambda x, y, batch: jnp.sum(y["a"] ** 2) * x, 2.0)
    ub.hypergradient(problem, 1.0, {"a": ONE})
    with pytest.raises(ValueError, match=r"f\(x, y, batch\) failed on x.*y.*float64\[2\]"):
        ub.hypergradient(problem, 1.0, ONE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ub.hypergradient(ub.Problem(f, g, 4.0), 0.5, 0.5, ub.CG), "method must be CG"),  # type: ignore[arg-type]
        (lambda: ub.hypergradient(ub.Problem(f, g, 4.0), 0.5, 0.5, print), "method must be CG"),  # type: ignore[arg-type]
        (lambda: ub.hypergradient(ub.Problem(f, g, 4.0), 0.5, 0.5, ub.Power()), "which is a Precond"),  # type: ignore[arg-type]
        (lambda: ub.CG(preconditioner=ub.Power), "preconditioner must be Auto"),  # type: ignore[arg-type]
        (lambda: ub.CG(preconditioner=None), "preconditioner must be Auto"),  # type: ignore[arg-type]
        (lambda: ub.Neumann(form=ub.Horner), "form must be Horner"),  # type: ignore[arg-type]
        (lambda: ub.Problem(f, g, 4.0, f_batches=ub.Dataset), "f_batches must be a sampler"),  # type: ignore[arg-type]
        (lambda: ub.Dataset(np.ones(3), 1, replace="no"), "replace must be True or False"),  # type: ignore[arg-type]
        (lambda: ub.hypergradient(ub.Problem(f, g, 4.0, shift=True), 0.5, 0.5), "shift must be one real"),
        (
            lambda: ub.hypergradient(ub.Problem(f, g, 4.0), 0.5, 0.5, key=jnp.zeros(5, jnp.uint32)),
            "key must be one random key",
        ),
    ],
)
def test_wrong_kinds(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_hints():
    with pytest.raises(ValueError, match="shift contains NaN"):
        ub.hypergradient(ub.Problem(f, g, 4.0, shift=jnp.array([jnp.nan, 0.0])), 0.5, jnp.ones(2))
    with pytest.raises(ValueError, match=r"A list is a tree of its entries: pass np\.asarray"):
        ub.Dataset([[1.0, 2.0], [3.0, 4.0]], 2)
    needs_data = ub.Problem(lambda x, y, b: jnp.mean(b.value) * y, g, 4.0)
    with pytest.raises(
        ValueError, match=r"f\(x, y, batch\) failed.*batch is None because the problem has no f_batches"
    ):
        ub.hypergradient(needs_data, 0.5, 0.5)
    no_scalar = ub.Problem(lambda x, y, b: jnp.stack([y, y]), g, 4.0)  # the call itself succeeds: no hint
    with pytest.raises(ValueError, match=r"f\(x, y, batch\) must return a scalar") as refused:
        ub.hypergradient(no_scalar, 0.5, 0.5)
    assert "batch is None" not in str(refused.value)
