"""What `HyperInfo` says about the quality of an estimate, against closed forms."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio import Status
from unibio.hypergradients.accuracy import _Around, _bias


def bowl(hessian):
    """g = ½yᵀHy − yᵀx: ∇Φ = H⁻¹∇_y f."""
    return lambda x, y, b: y @ (hessian @ y) / 2 - y @ x


def rotation(angle):
    return jnp.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def test_hilberts_matrix():
    """The residual of CG is below 1e-10, and the answer has three digits. With f = Σy the same matrix does no harm."""
    n = 9
    h = jnp.asarray(1 / (np.arange(n) + np.arange(n)[:, None] + 1.0))
    ones = jnp.ones(n)
    value, info = ub.hypergradient(ub.Problem(lambda x, y, b: y @ (h @ ones), bowl(h), 2.0), h @ ones, ones)
    error = float(jnp.linalg.norm(value - ones))
    assert info.residual < 1e-10
    assert error > 5e-4
    assert info.status == Status.ill_conditioned
    assert error / 10 < float(info.error) < 10 * error
    scaled = np.asarray(h) / np.sqrt(np.outer(np.diag(h), np.diag(h)))
    assert 0.2 < float(info.condition) / np.linalg.cond(scaled) < 5
    value, info = ub.hypergradient(ub.Problem(lambda x, y, b: jnp.sum(y), bowl(h), 2.0), h @ ones, ones)
    # H⁻¹1 in whole numbers.
    f = math.factorial
    exact = [(-1) ** (n + k + 1) * f(n + k) // (f(k) ** 2 * f(n - k - 1)) for k in range(n)]
    np.testing.assert_allclose(value, exact, rtol=1e-4)
    assert info.status == Status.ok


@pytest.mark.parametrize("angle", [np.pi / 4, 0.6, 1.0])
@pytest.mark.slow
def test_singular_along_a_direction_that_is_no_coordinate(angle):
    r = rotation(angle)
    problem = ub.Problem(
        lambda x, y, b: jnp.sum((r @ y) ** 3), lambda x, y, b: jnp.sum((r @ y) ** 4) / 4 - (r @ y) @ jnp.sin(x), 4.0
    )
    value, info = ub.hypergradient(problem, jnp.zeros(2), jnp.zeros(2))
    np.testing.assert_allclose(value, 1.0, atol=1e-6)
    assert info.status == Status.ok


def test_a_coordinate_that_no_preconditioner_brings_to_light():
    """H is 1e-256 in one coordinate and about 2 in the other: CG without a preconditioner cannot see both, and says so.
    It is not a missing limit, because Jacobi finds it."""
    y = jnp.array([0.0, 0.8])
    problem = ub.Problem(lambda x, y, b: jnp.sum(y**3), lambda x, y, b: jnp.sum(y**4) / 4 - y @ jnp.sin(x), 4.0)
    _, info = ub.hypergradient(problem, jnp.arcsin(y**3), y, ub.CG(preconditioner=ub.Identity()))
    assert info.status == Status.ill_conditioned
    assert info.residual > 0.1
    value, info = ub.hypergradient(problem, jnp.arcsin(y**3), y)
    np.testing.assert_allclose(value, jnp.cos(jnp.arcsin(y**3)), rtol=1e-12)
    assert info.status == Status.ok


def test_y_off():
    """Φ' = cos x·cos(sin x) = .360 at x = 1; at y = .5 the formula gives .536."""
    value, info = ub.hypergradient(ub.problems.example3(4.0), 1.0, 0.5)
    assert float(value) == pytest.approx(0.536, abs=1e-3)
    assert info.status == Status.lower_not_solved
    assert 0.05 < float(info.error) < 1.8  # in truth .176
    near = np.sin(1.0) ** (1 / 3) + 1e-3
    value, info = ub.hypergradient(ub.problems.example3(4.0), 1.0, near)
    true = abs(float(value) - np.cos(1) * np.cos(np.sin(1)))
    assert float(info.error) == pytest.approx(2 * true, rel=0.1)  # doubled, to be below the truth rarely


@pytest.mark.slow
def test_the_lower_residual_does_not_depend_on_units():
    base, x, y = bowl(jnp.array([[2.0, 0.5], [0.5, 1.0]])), jnp.array([0.3, -0.4]), jnp.array([0.5, 0.7])
    upper = lambda x, y, b: jnp.sum(y)
    plain = ub.hypergradient(ub.Problem(upper, base, 2.0), x, y)[1].lower_residual
    units = jnp.array([1e-3, 1e3])
    scaled = ub.Problem(upper, lambda x, y, b: 1e7 * base(x, y / units, b), 2.0)
    other = ub.hypergradient(scaled, x, y * units)[1].lower_residual
    assert 0.1 < float(plain) < 1
    assert float(other) == pytest.approx(float(plain), rel=1e-6)
    solved = ub.hypergradient(ub.Problem(upper, base, 2.0), jnp.zeros(2), jnp.zeros(2))[1]
    assert solved.lower_residual == 0


@pytest.mark.slow
def test_a_flat_direction_counts_only_if_it_is_seen():
    features = jnp.array([[1.0, 1.0], [2.0, 2.0], [0.5, 0.5]])
    lower = lambda x, y, b: jnp.sum((features @ y - x) ** 2) / 2
    y = jnp.array([0.5, 0.5])
    x = features @ y
    harmless = ub.Problem(lambda x, y, b: jnp.sum(y) ** 2, lower, 2.0)
    value, info = ub.hypergradient(harmless, x, y)
    np.testing.assert_allclose(value, 2 * features[:, 0] / jnp.sum(features[:, 0] ** 2), rtol=1e-6)
    assert info.status == Status.ok
    harmful = ub.Problem(lambda x, y, b: y[0], lower, 2.0)
    assert ub.hypergradient(harmful, x, y)[1].status == Status.ill_conditioned


@pytest.mark.slow
def test_truncated_series_and_unrolled_steps():
    problem = ub.Problem(lambda x, y, b: jnp.sum(y), bowl(jnp.diag(jnp.array([1.0, 0.05]))), 2.0)
    x = jnp.array([0.1, 0.2])
    y = jnp.array([0.1, 4.0])
    for few, many in ((ub.Neumann(10, 1.0), ub.Neumann(400, 1.0)), (ub.Unrolled(10, 1.0), ub.Unrolled(400, 1.0))):
        value, info = ub.hypergradient(problem, x, y, few)
        true = float(jnp.linalg.norm(value - jnp.array([1.0, 20.0])))
        assert info.status == Status.truncated
        assert float(info.error) == pytest.approx(2 * true, rel=0.05)
        assert 0.1 < float(info.residual) < 1
        value, info = ub.hypergradient(problem, x, y, many)
        np.testing.assert_allclose(value, [1.0, 20.0], rtol=1e-7)
        assert info.status == Status.ok
    forward = ub.hypergradient(problem, x, y, ub.Unrolled(10, 1.0, forward=True))[1]
    assert forward.status == Status.truncated
    assert 0.1 < float(forward.residual) < 1


@pytest.mark.slow
def test_what_cannot_be_known_is_nan():
    noise = ub.Noise(grad_y_g=1.0)
    lower, upper = bowl(jnp.eye(2)), lambda x, y, b: jnp.sum(y)
    noisy = ub.Problem(upper, lower, 2.0, f_batches=noise, g_batches=noise)
    for problem, key in ((noisy, None), (noisy, jax.random.key(0)), (ub.Problem(upper, lower, 2.0), jax.random.key(0))):
        info = ub.hypergradient(problem, jnp.ones(2), jnp.ones(2), key=key)[1]
        assert np.isnan(info.error)
        assert np.isnan(info.condition)
    method = ub.Neumann(5, 1.0, ub.Randomised())
    _, info = ub.hypergradient(ub.Problem(upper, lower, 2.0), jnp.ones(2), jnp.ones(2), method, jax.random.key(0))
    assert np.isnan(info.residual)
    _, info = ub.CG()(ub.Problem(upper, lower, 2.0), jnp.ones(2), jnp.ones(2), None)  # as a solver asks
    assert np.isnan(info.error)
    assert info.status == Status.ok


def looks(jumps, near, far):
    """As if these changes had been seen along the directions: looks 0 and 1, then three for each direction."""
    errors, changes = np.zeros(2 + 3 * len(jumps)), np.zeros(2 + 3 * len(jumps))
    errors[2::3], changes[3::3], changes[4::3] = jumps, near, far
    usable, sizes = jnp.ones(len(errors), bool), jnp.ones(len(errors))
    return _Around(None, jnp.asarray(errors), jnp.asarray(changes), usable, sizes, jnp.asarray(False))


def test_the_rest_of_a_power_law():
    """c·h^q + limit at h, Rh, R²h, seen from two sides."""
    h, r, c, small = 1e-3, 10.0, 0.7, jnp.asarray(1e-12)
    for q in (0.5, 1.0, 2.0):
        values = c * h**q * np.array([1.0, r**q, r ** (2 * q)])
        near, far = [values[1] - values[0]] * 2, [values[2] - values[1]] * 2
        assert float(_bias(looks([0.0, 2 * values[0]], near, far), small)) == pytest.approx(c * h**q, rel=1e-9)
        assert np.isinf(_bias(looks([0.0, 2 * values[0] + 0.5], near, far), small))
    assert np.isinf(_bias(looks([0.0], [1.0], [0.9]), small))


@pytest.mark.parametrize("p", [2.0, 8.0, 20.0])
@pytest.mark.slow
def test_double_precision_at_singular_points(p):
    value, info = ub.hypergradient(ub.problems.example4(p), jnp.zeros(2), jnp.zeros(2))
    np.testing.assert_allclose(value, 1.0, atol=1e-10)
    assert info.status == Status.ok


def test_norms_neither_underflow_nor_overflow():
    from unibio.core import tree

    for size in (1e-200, 1e-30, 1.0, 1e200):
        a = {"u": jnp.full(2, 3 * size), "v": jnp.full(2, -4 * size)}
        assert float(tree.norm(a)) == pytest.approx(np.sqrt(50) * size, rel=1e-14)
        unit, _ = tree.direction(a)
        assert float(tree.norm(unit)) == pytest.approx(1.0, rel=1e-14)
    assert tree.norm(jnp.zeros(3)) == 0
    np.testing.assert_array_equal(tree.direction(jnp.zeros(3))[0], 0.0)
    huge, length = tree.direction(jnp.full(4, 1.7e308))
    np.testing.assert_allclose(huge, 0.5, rtol=1e-15)
    assert np.isinf(length)
    assert np.isnan(tree.norm(jnp.array([1.0, jnp.nan])))


@pytest.mark.slow
def test_normalised_solvers_survive_a_huge_momentum():
    problem = ub.Problem(lambda x, y, b: 1e308 * jnp.sum(x) + jnp.sum(y), bowl(jnp.eye(4)), 2.0)
    solvers: list[Any] = [ub.UniBiO(0.1, hypergradient=ub.CG()), ub.BOREP(0.1, 0.1)]
    for solver in solvers:
        state, _ = solver.init(problem, jnp.zeros(4), jnp.zeros(4), jax.random.key(0))
        for step in range(3):
            state, _ = solver.step(problem, state, jax.random.key(step))
        assert float(jnp.linalg.norm(state.x)) == pytest.approx(0.3, rel=1e-6)


@pytest.mark.slow
def test_few_tiny_eigenvalues_beside_a_cluster():
    """CG on a cluster converges in one step, and three eigenvalues of 1e-13 would hide behind it."""
    d, rng = 30, np.random.default_rng(10)
    q, _ = np.linalg.qr(rng.normal(size=(d, d)))
    h = (q.T * np.r_[1e-13, 2e-13, 3e-13, np.ones(d - 3)]) @ q
    h, x = jnp.asarray((h + h.T) / 2), jnp.asarray(rng.normal(size=d))
    problem = ub.Problem(lambda x, y, b: jnp.asarray(q[-1]) @ y, bowl(h), 2.0)
    _, info = ub.hypergradient(problem, x, jnp.linalg.solve(h, x))
    assert info.condition > 1e11
    assert info.status != Status.ok


@pytest.mark.slow
def test_a_cross_derivative_that_vanishes_with_the_hessian():
    """y* = x and Φ' = 1, but at x = 0 both A and H are 0, and v is infinite."""
    problem = ub.Problem(lambda x, y, b: y, lambda x, y, b: y**4 / 4 - y * x**3, p=4.0)
    for method in (ub.CG(), ub.Exact()):
        assert ub.hypergradient(problem, 0.0, 0.0, method)[1].status == Status.no_limit


@pytest.mark.slow
def test_a_saddle_that_f_does_not_see():
    saddle = ub.Problem(lambda x, y, b: y[0], lambda x, y, b: (y[0] - x) ** 2 - y[1] ** 2 + y[1] ** 4)
    assert ub.hypergradient(saddle, 0.0, jnp.zeros(2))[1].status == Status.not_convex
    top = ub.Problem(lambda x, y, b: y**3, lambda x, y, b: y**4 / 4 - 1e-20 * y * y - x * y)
    assert ub.hypergradient(top, 0.0, 0.0)[1].status == Status.not_convex


@pytest.mark.slow
def test_a_coordinate_that_f_needs_and_g_leaves_open():
    problem = ub.Problem(lambda x, y, b: y[0] ** 3 + y[1], lambda x, y, b: y[0] ** 4 / 4 - x * y[0] + 0 * y[1])
    for method in (ub.CG(), ub.Exact()):
        assert ub.hypergradient(problem, 0.0, jnp.array([0.0, 3.0]), method)[1].status != Status.ok


@pytest.mark.slow
def test_unrolled_steps_at_a_singular_point_are_not_ok():
    """∇_y f and H both vanish at y = 0, so steps in y see no dependence on x: −1 instead of 0, and nothing is left of
    the start. The eager call has to look at the rows of H, as the one inside jit does."""
    problem = ub.Problem(lambda x, y, b: jnp.sum(y**3 - x), lambda x, y, b: jnp.sum(y**4) / 4 - y @ jnp.sin(x), 4.0)
    method, zero = ub.Unrolled(steps=20, step_size=0.3), jnp.zeros(2)
    value, info = ub.hypergradient(problem, zero, zero, method)
    inside = jax.jit(lambda x: ub.hypergradient(problem, x, zero, method)[1])(zero)
    assert float(jnp.max(jnp.abs(value + 1))) == 0
    assert info.status != Status.ok
    assert inside.status == info.status
    assert float(info.error) > 1


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.slow
def test_a_solution_is_called_stationary_and_not_ill_conditioned(dtype):
    """f = Σ(y³ − c)² is least where ∇_y f = 0, so that nothing is left of the hypergradient but rounding."""
    c = jnp.array([0.3, 0.7], dtype)
    problem = ub.Problem(lambda x, y, b: jnp.sum((y**3 - c) ** 2), lambda x, y, b: jnp.sum(y**4) / 4 - y @ x, p=4.0)
    value, info = ub.hypergradient(problem, c, jnp.cbrt(c))
    assert info.status == "stationary"
    assert np.linalg.norm(value) <= float(info.error) < 1e3 * jnp.finfo(dtype).eps


@pytest.mark.slow
def test_large_data_are_assessed_on_a_part_for_the_diagonal_and_on_all_for_the_rest():
    """Least squares on 9,000 samples, whose ∇Φ is known, at a y that is off by a known step; what it asked for."""
    n, d, rng = 9000, 3, np.random.default_rng(0)
    a, t = rng.normal(size=(n, d)) * [1.0, 10.0, 0.1], rng.normal(size=n)
    data = ub.Dataset((a, t))
    problem = ub.Problem(
        lambda x, y, b: jnp.mean((b.value[0] @ y - b.value[1]) ** 2) / 2,
        lambda x, y, b: jnp.mean((b.value[0] @ y - b.value[1] * x) ** 2) / 2,
        2.0,
        f_batches=data,
        g_batches=data,
    )
    x, hessian, slope = 2.0, a.T @ a / n, a.T @ t / n
    exact = slope @ (x * np.linalg.solve(hessian, slope)) - slope @ np.linalg.solve(hessian, slope)
    off = np.array([1e-3, 1e-4, 1e-2])
    value, info = ub.hypergradient(problem, x, jnp.asarray(x * np.linalg.solve(hessian, slope) + off))
    error = abs(float(value) - exact)
    assert error > 1e-4 * abs(exact)
    assert info.status == Status.lower_not_solved
    assert error < float(info.error) < 10 * error
    bare = jax.jit(lambda problem, x, y: ub.CG()(problem, x, y, None))(problem, x, info.at.y)[1].calls
    extra = ub.Calls(*(int(a) - int(b) for a, b in zip(info.calls, bare, strict=True)))
    assert (extra.grad_f, extra.grad_g, extra.cross) == (n, 2 * n, n)  # one more estimate, two gradients
    assert (extra.hvp - d * 2048) % n == 0
