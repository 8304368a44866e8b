"""A certified error is never smaller than the true one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.paper import theory

COUPLING = np.array([[0.6, 0.3, 0.0], [-0.2, 0.5, 0.3], [0.1, -0.4, 0.7]])
CASES = {
    "example3": (ub.problems.example3(4.0), theory.example3_constants(4.0), np.eye(1)),
    "coupled": (
        ub.problems.coupled_example3(5.0, COUPLING),
        theory.coupled_example3_constants(5.0, COUPLING),
        COUPLING,
    ),
}


def truth(x, coupling, p):
    """y*(x) and ∇Φ(x) in closed form."""
    b = np.sin(x) @ coupling.T
    return np.sign(b) * np.abs(b) ** (1 / (p - 1)), (np.cos(b) @ coupling) * np.cos(x)


@pytest.mark.parametrize(("problem", "constants", "coupling"), CASES.values(), ids=CASES)
@pytest.mark.slow
def test_the_true_error_never_exceeds_the_certified_one(problem, constants, coupling):
    rng = np.random.default_rng(0)
    dim = len(coupling)
    x = rng.uniform(-3, 3, size=(1000, dim))
    y_star, gradient = truth(x, coupling, constants.p)
    y = y_star + rng.normal(size=x.shape) * 10 ** rng.uniform(-8, -0.5, size=(1000, 1))
    certify = jax.vmap(lambda x, y: theory.certificate(problem, x, y, constants))
    found = certify(jnp.asarray(x), jnp.asarray(y))
    lower = np.linalg.norm(np.asarray(found.y) - y_star, axis=1)
    upper = np.linalg.norm(np.asarray(found.value) - gradient, axis=1)
    assert np.all(lower <= np.asarray(found.lower_error) * (1 + 1e-9))
    assert np.all(upper <= np.asarray(found.gradient_error) * (1 + 1e-9))
    assert np.all(np.linalg.norm(gradient, axis=1) <= np.asarray(found.bound) * (1 + 1e-9))
    ratio = np.median(np.asarray(found.gradient_error) / np.maximum(upper, 1e-300))
    assert 1 < ratio < 1e6  # loose, as worst-case bounds are, but not empty


def test_a_wrong_constant_is_noticed():
    """With m a thousand times too large the bound on ‖y − y*‖ fails somewhere: the test above can fail."""
    problem, constants, coupling = CASES["example3"]
    wrong = theory.Constants(**{f: getattr(constants, f) for f in constants.__dataclass_fields__ if f != "m"}, m=1e3)
    x = np.linspace(0.1, 3, 50)[:, None]
    y_star, _ = truth(x, coupling, 4.0)
    found = jax.vmap(lambda x, y: theory.certificate(problem, x, y, wrong))(jnp.asarray(x), jnp.asarray(y_star + 0.1))
    assert np.any(np.abs(np.asarray(found.y) - y_star)[:, 0] > np.asarray(found.lower_error))


def test_at_a_singular_point():
    problem, constants, _ = CASES["example3"]
    found = theory.certificate(problem, jnp.zeros(1), jnp.zeros(1), constants)
    assert abs(float(found.value[0]) - 1.0) <= float(found.gradient_error)
    assert float(found.lower_error) < 1e-6


@pytest.mark.parametrize("p", [4.0, 20.0])
@pytest.mark.slow
def test_rounding_is_certified_too(p):
    """b = sin x_1 + sin x_2 − 2 sin x_3 cancels to a few units in the last place, and y* is its (p−1)-th root."""
    coupling = np.array([[1.0, 1.0, -2.0]])
    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1, size=(60, 2))
    x = np.concatenate([a, np.arcsin(np.sin(a).sum(axis=1, keepdims=True) / 2)], axis=1)
    exact = np.sin(x.astype(np.longdouble)) @ coupling[0].astype(np.longdouble)
    y_star = (np.sign(exact) * np.abs(exact) ** (1 / np.longdouble(p - 1))).astype(float)
    computed = np.asarray(jnp.sin(x) @ coupling[0])
    y = (np.sign(computed) * np.abs(computed) ** (1 / (p - 1)))[:, None]
    constants, problem = theory.coupled_example3_constants(p, coupling), ub.problems.coupled_example3(p, coupling)
    found = jax.vmap(lambda x, y: theory.certificate(problem, x, y, constants))(jnp.asarray(x), jnp.asarray(y))
    error = np.abs(y[:, 0] - y_star)
    assert error.max() > {4.0: 1e-6, 20.0: 0.05}[p]
    assert np.all(error <= np.asarray(found.lower_error))


def test_float32_underflow_is_certified_too():
    for p, number in ((20.0, 0.00807), (8.0, 0.0)):
        x, y = jnp.zeros((), jnp.float32), jnp.asarray(number, jnp.float32)
        found = theory.certificate(ub.problems.example3(p), x, y, theory.example3_constants(p))
        assert max(float(abs(y)), float(abs(found.y))) <= float(found.lower_error)


@pytest.mark.slow
def test_solve_stops_when_it_is_certified():
    problem, constants, _ = CASES["example3"]
    solver = ub.UniBiO(0.05, lower=ub.SGD(400, 0.3), hypergradient=ub.CG())
    x = jnp.array([0.9])
    result = ub.solve(
        problem, solver, x, x, steps=400, key=jax.random.key(0), stop=theory.Certified(0.3, constants), chunk=1
    )
    assert result.status == "ok"
    _, gradient = truth(np.asarray(result.x), np.eye(1), 4.0)
    assert np.linalg.norm(gradient) <= 0.3
    earlier = ub.solve(problem, solver, x, x, steps=result.steps - 1, key=jax.random.key(0))
    assert theory.certificate(problem, earlier.x, earlier.y, constants).bound > 0.3


def test_refuses_constants_of_another_p():
    problem, _, _ = CASES["example3"]
    with pytest.raises(ValueError, match=r"constants are for p = 6\.0, the problem states p = 4"):
        theory.certificate(problem, jnp.ones(1), jnp.ones(1), theory.example3_constants(6.0))
