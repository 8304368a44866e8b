from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import lp_data, lp_gradient, lp_lower, lp_phi, slope

import unibio as ub
from unibio.core import tree
from unibio.core.status import Status

C = 1e-2


def regression(p, seed=0, **sizes):
    train, validation, weights = lp_data(seed, **sizes)
    problem = ub.problems.lp_regression(train, validation, p, C)
    return problem, train, validation, weights


@pytest.mark.slow
def test_the_oracle_to_the_digits_printed():
    problem, train, _, weights = regression(4.0)
    w = jnp.asarray(lp_lower(weights, train, 4.0, C))
    for method in (ub.Exact(), ub.CG(), ub.CG(preconditioner=ub.Power()), ub.Unrolled(20_000, 0.5)):
        value, info = ub.hypergradient(problem, jnp.asarray(weights), w, method)
        assert info.status == Status.ok
        assert float(jnp.linalg.norm(value)) == pytest.approx(5.263117198872e-4, rel=1e-11)
        np.testing.assert_allclose(value[:3], [1.8569305937e-5, -9.745804533e-7, -9.6597918772e-6], rtol=1e-9)


# Steps and step size of the unrolled reference, for each p: enough for its own convergence.
UNROLLED = {2.0: 3000, 2.5: 3000, 3.0: 4000, 3.5: 6000, 4.0: 8000, 6.0: 100_000, 8.0: 400_000}


@pytest.mark.parametrize("p", sorted(UNROLLED))
@pytest.mark.slow
def test_finite_differences_on_regression(p):
    problem, train, validation, weights = regression(p)
    w = ub.lower_solution(problem, jnp.asarray(weights), jnp.zeros(8))
    direction = np.random.default_rng(7).normal(size=60)
    measured = slope(lambda x: lp_phi(x, train, validation, p, C), weights, direction, h=1e-3)
    for method in (ub.Exact(), ub.CG(), ub.Unrolled(UNROLLED[p], 0.3)):
        value, info = ub.hypergradient(problem, jnp.asarray(weights), w, method)
        assert info.status == Status.ok
        assert float(value @ direction) == pytest.approx(measured, rel=1e-6), type(method).__name__


@pytest.mark.parametrize("p", [2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 20.0])
@pytest.mark.parametrize("x", [0.0, 1e-5, 0.4, np.pi / 2, -np.pi / 2, np.pi, -2.0])
def test_example3(p, x):
    problem = ub.problems.example3(p)
    expected = np.cos(x) * np.cos(np.sin(x))
    at_minimiser = np.sign(np.sin(x)) * np.abs(np.sin(x)) ** (1 / (p - 1))
    for y in (at_minimiser, ub.lower_solution(problem, x, 0.5)):
        for method in (ub.Exact(), ub.CG(), ub.Neumann(), ub.Unrolled(3, 1.0, in_z=True)):
            value, info = ub.hypergradient(problem, x, y, method)
            assert info.status == Status.ok
            assert float(value) == pytest.approx(expected, abs=1e-9), type(method).__name__


def nested_f(x, y, batch):
    return jnp.sum(ub.spow(y["a"]["b"] - 0.5, 3.0)) * jnp.cos(x["s"]) + jnp.sum((y["c"] - 0.5) ** 4) * jnp.sum(
        x["t"][0]
    )


def nested_g(x, y, batch):
    """Order 4 around 0.5, coupled; minimiser not at the shift."""
    u, w = y["a"]["b"] - 0.5, y["c"] - 0.5
    quartic = jnp.sum(u**4) + jnp.sum(w**4) + jnp.sum((u[:2] + 2 * w) ** 4)
    return quartic / 4 - jnp.dot(u, x["t"][0]) - jnp.sin(x["s"]) * jnp.sum(w) - w[0] * x["t"][1]


@pytest.mark.slow
def test_nested_dicts_and_a_shift():
    x = {"s": jnp.array(0.7), "t": (jnp.array([0.3, -0.4, 1.0]), jnp.array(0.2))}
    y0 = {"a": {"b": jnp.array([1.0, 0.2, 1.5])}, "c": jnp.array([0.9, 0.1])}
    for shift in (0.5, jax.tree.map(lambda a: jnp.full_like(a, 0.5), y0)):
        problem = ub.Problem(nested_f, nested_g, p=4, shift=shift)
        flat, unravel = jax.flatten_util.ravel_pytree(x)

        def phi(flat, problem=problem, unravel=unravel):
            x = unravel(jnp.asarray(flat))
            return float(nested_f(x, ub.lower_solution(problem, x, y0), None))

        y = ub.lower_solution(problem, x, y0)
        direction = np.array([0.3, -1.0, 0.5, 0.8, 0.4])
        measured = slope(phi, np.asarray(flat), direction, h=1e-3)
        methods = (ub.Exact(), ub.CG(), ub.Unrolled(4000, 0.05), ub.Unrolled(4000, 0.05, forward=True))
        for method in (*methods, ub.Unrolled(4000, 0.02, in_z=True), ub.Neumann(400)):
            value, info = ub.hypergradient(problem, x, y, method)
            assert info.status == Status.ok
            assert tree.same_structure(value, x)
            predicted = float(jax.flatten_util.ravel_pytree(value)[0] @ direction)
            assert predicted == pytest.approx(measured, rel=1e-6), type(method).__name__


RNG = np.random.default_rng(5)
FEATURES = jnp.asarray(RNG.normal(size=(40, 4)) * np.geomspace(0.1, 3, 4))
TARGETS = FEATURES @ jnp.asarray([2.0, -1.5, 1.0, 0.7]) + 0.5 * jnp.asarray(RNG.normal(size=40))


def mixed_g(x, y, batch):
    """Four coupled, badly scaled coordinates, and two whose curvature vanishes at y_i = 0, i.e. at x_i = 0."""
    inner, outer = y[:4], y[4:]
    fit = jnp.mean(jax.nn.sigmoid(x[2:]) * (FEATURES @ inner - TARGETS) ** 4)
    return fit / 4 + 0.05 * jnp.sum(inner**4) + jnp.sum(outer**4) / 4 - jnp.dot(outer, jnp.sin(x[:2]))


def mixed_f(x, y, batch):
    inner, outer = y[:4], y[4:]
    return jnp.sum(jnp.sin(outer**3)) * (1 + inner[0] ** 2) + jnp.sum(jnp.cos(inner)) + outer[1] ** 3


@pytest.mark.slow
def test_a_hessian_full_badly_scaled_and_partly_singular():
    problem = ub.Problem(mixed_f, mixed_g, p=4.0)
    x = jnp.concatenate([jnp.zeros(2), jnp.asarray(np.random.default_rng(1).normal(size=40))])
    y = ub.lower_solution(problem, x, jnp.ones(6)).at[4:].set(0.0)
    hessian = np.asarray(jax.hessian(mixed_g, 1)(x, y, None))
    assert np.all(hessian[4:] == 0)
    assert np.diag(hessian)[:4].max() / np.diag(hessian)[:4].min() > 30
    direction = np.random.default_rng(2).normal(size=42)

    def phi(x):
        # The singular coordinates in closed form: y_i = cbrt(sin x_i).
        x = jnp.asarray(x)
        y = ub.lower_solution(problem, x, jnp.ones(6)).at[4:].set(jnp.cbrt(jnp.sin(x[:2])))
        return float(mixed_f(x, y, None))

    measured = slope(phi, np.asarray(x), direction, h=1e-3)
    methods: dict[str, Any] = {
        "Exact": ub.Exact(),
        "CG": ub.CG(),
        "Jacobi": ub.CG(preconditioner=ub.Jacobi(None)),
        "Power": ub.CG(preconditioner=ub.Power()),
        "Unrolled": ub.Unrolled(20_000, 0.05, in_z=True),
    }
    for name, method in methods.items():
        value, info = ub.hypergradient(problem, x, y, method)
        assert info.status == Status.ok, name
        assert float(value @ direction) == pytest.approx(measured, rel=1e-6), name
        assert int(info.floored) == 2


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.slow
def test_the_papers_order_is_wrong(seed):
    """D H is right; H D, which the paper's formula means with its own definition, is off by 40 % and more."""
    problem, train, validation, weights = regression(4.0, seed)
    w = lp_lower(weights, train, 4.0, C)
    literal = lp_gradient(w, weights, train, validation, 4.0, C, literal=True)
    right = lp_gradient(w, weights, train, validation, 4.0, C)
    direction = np.random.default_rng(seed).normal(size=60)
    measured = slope(lambda x: lp_phi(x, train, validation, 4.0, C), weights, direction, h=1e-3)
    assert right @ direction == pytest.approx(measured, rel=1e-6)
    assert np.linalg.norm(literal - right) > 0.4 * np.linalg.norm(right)
    for method in (ub.Exact(), ub.CG(), ub.CG(preconditioner=ub.Power()), ub.Neumann(3000, preconditioner=ub.Jacobi())):
        ours, _ = ub.hypergradient(problem, jnp.asarray(weights), jnp.asarray(w), method)
        assert np.linalg.norm(ours - right) < 1e-5 * np.linalg.norm(right), type(method).__name__


@pytest.mark.parametrize(
    ("sizes", "p", "best"),
    [
        ({"n": 200, "m": 200, "d": 50}, 4.0, "Jacobi"),
        pytest.param({"n": 200, "m": 200, "d": 50}, 8.0, "Jacobi", marks=pytest.mark.slow),
        ({"n": 200, "m": 200, "d": 50, "scale": np.geomspace(0.1, 10, 50)}, 4.0, "Jacobi"),
        ({"n": 20, "m": 20, "d": 50}, 4.0, "Power"),
        pytest.param({"n": 20, "m": 20, "d": 50}, 6.0, "Power", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_which_preconditioner_is_best(sizes, p, best):
    problem, _, _, weights = regression(p, 1, **sizes)
    x = jnp.asarray(weights)
    w = ub.lower_solution(problem, x, jnp.zeros(50))
    candidates: dict[str, Any]
    candidates = {"none": ub.Identity(), "Power": ub.Power(), "Jacobi": ub.Jacobi(None), "probes": ub.Jacobi()}
    steps = {}
    for name, preconditioner in {**candidates, "Auto": ub.Auto()}.items():
        _, info = ub.hypergradient(problem, x, w, ub.CG(1e-8, 3000, preconditioner))
        assert info.status == Status.ok
        steps[name] = int(info.iterations)
    assert steps[best] <= min(steps.values()) + 2
    assert steps["Auto"] <= 1.2 * steps[best] + 1
    assert steps["probes"] <= 1.3 * steps["Jacobi"]
    if best == "Jacobi":
        assert steps["Power"] > 2 * steps["Jacobi"]


def test_negative_curvature_is_reported():
    saddle = ub.Problem(lambda x, y, b: jnp.sum(y), lambda x, y, b: y[0] ** 2 - y[1] ** 2 + x * y[0] * y[1], p=2.0)
    value, info = ub.hypergradient(saddle, 1.0, jnp.array([0.1, 0.2]), ub.CG(preconditioner=ub.Identity()))
    assert info.status == Status.not_convex
    assert np.isfinite(value)


def test_max_steps_is_reported():
    problem, train, _, weights = regression(4.0)
    w = jnp.asarray(lp_lower(weights, train, 4.0, C))
    _, info = ub.hypergradient(problem, jnp.asarray(weights), w, ub.CG(max_steps=2))
    assert info.status == Status.budget
    assert info.iterations == 2
    assert info.residual > 1e-10


@pytest.mark.slow
def test_calls_are_exact():
    problem, train, _, weights = regression(4.0)
    x, w = jnp.asarray(weights), jnp.asarray(lp_lower(weights, train, 4.0, C))
    _, info = ub.Exact()(problem, x, w, None)  # as a solver calls it; one product looks for rows that vanish
    assert [int(c) for c in info.calls] == [60, 0, (1 + 8) * 60, 60]
    _, info = ub.CG(preconditioner=ub.Identity())(problem, x, w, None)
    assert [int(c) for c in info.calls] == [60, 0, (1 + int(info.iterations)) * 60, 60]
    _, info = ub.CG()(problem, x, w, None)  # one block of 8 products gives the diagonal and shows the rows
    assert [int(c) for c in info.calls] == [60, 0, (int(info.iterations) + 8) * 60, 60]
    _, info = ub.Unrolled(7, 0.1)(problem, x, w, None)
    assert [int(c) for c in info.calls] == [60, 7 * 60, 0, 0]
    _, assessed = ub.hypergradient(problem, x, w, ub.CG())
    assert int(assessed.calls.grad_f) == 3 * 60  # the estimate, and two looks at other points


def test_stochastic_cg_uses_the_batches():
    train, validation, weights = lp_data(0, n=300, m=300)
    problem = ub.problems.lp_regression(train, validation, 2.0, C, batch_size=100)
    x, w = jnp.asarray(weights), jnp.asarray(lp_lower(weights, train, 2.0, C))
    one, info = ub.hypergradient(problem, x, w, ub.CG(), jax.random.key(0))
    two, _ = ub.hypergradient(problem, x, w, ub.CG(), jax.random.key(0))
    other, _ = ub.hypergradient(problem, x, w, ub.CG(), jax.random.key(1))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)
    assert int(info.calls.grad_f) == int(info.calls.cross) == 100
    assert np.count_nonzero(one) <= 100


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


@pytest.mark.slow
def test_exact_sees_what_is_wrong():
    x = jnp.array([0.5, 1.0])
    y = jnp.cbrt(jnp.sin(x))
    saddle = ub.Problem(cubic, lambda x, y, b: (y[0] ** 2 - y[1] ** 2) / 2 - jnp.sum(x * y), 2.0)
    assert ub.hypergradient(saddle, x, y, ub.Exact())[1].status == Status.not_convex
    near = jnp.array([[1.0, 1.0], [1.0, 1 + 1e-15]])
    singular = ub.Problem(cubic, lambda x, y, b: jnp.dot(y, near @ y) / 2 - jnp.sum(x * y), 2.0)
    assert ub.hypergradient(singular, x, y, ub.Exact())[1].status != Status.ok
