"""The analysis along real trajectories of UniBiO: Example 3 and its coupled form, noisy, 20 seeds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.paper import theory

COUPLING = np.array([[0.6, 0.3, 0.0], [-0.2, 0.5, 0.3], [0.1, -0.4, 0.7]])
ETA, BETA, PERIOD, P = 0.03, 0.9, 2, 4.0


def closed_form(x, coupling):
    b = np.sin(x) @ coupling.T
    gradient = (np.cos(b) @ coupling) * np.cos(x)
    return np.sum(np.sin(b), axis=-1), gradient, np.sign(b) * np.abs(b) ** (1 / (P - 1))


@pytest.fixture(scope="module", params=["example3", "coupled"])
def run(request):
    """x_0..x_T, m_0..m_{T−1}, y_0..y_{T−1} of 20 seeds, and the constants."""
    coupling = np.eye(1) if request.param == "example3" else COUPLING
    noise = ub.Noise(grad_y_g=0.3, grad_z_f=0.3)
    problem = ub.problems.coupled_example3(P, coupling, f_batches=noise, g_batches=noise)
    solver = ub.UniBiO(ETA, momentum=BETA, period=PERIOD, hypergradient=ub.Neumann(terms=1, scale=1.0))
    x0 = jnp.linspace(0.4, 1.0, len(coupling))

    def states(key):
        state, _ = solver.init(problem, x0, x0, key)

        def step(state, t):
            state, _ = solver.step(problem, state, jax.random.fold_in(key, t))
            return state, (state.x, state.momentum, state.y)

        return jax.lax.scan(step, state, jnp.arange(150))[1]

    x, m, y = (np.asarray(a) for a in jax.jit(jax.vmap(states))(jax.random.split(jax.random.key(0), 20)))
    x = np.concatenate([np.broadcast_to(np.asarray(x0), (20, 1, len(coupling))), x], axis=1)
    exact = ub.Problem(problem.f, problem.g, P)
    return x, m, y, coupling, theory.coupled_example3_constants(P, coupling), exact


def descent_excess(run, factor=1.0):
    x, m, _, coupling, c, _ = run
    phi, gradient, _ = closed_form(x, coupling)
    gradient = gradient[:, :-1]
    error = np.linalg.norm(m - gradient, axis=-1)
    right = phi[:, :-1] - ETA * np.linalg.norm(gradient, axis=-1) + 2 * ETA * error
    curvature = (P - 1) / P * c.L_phi1 * ETA ** (P / (P - 1)) + c.L_phi2 / 2 * ETA**2
    return np.max(phi[:, 1:] - right - factor * curvature)


@pytest.mark.slow
def test_descent(run):
    assert descent_excess(run) <= 0
    assert descent_excess(run, factor=-1.0) > 0  # a wrong constant is noticed


def lag(run):
    x, _, _, coupling, _, _ = run
    gradient = closed_form(x[:, :-1], coupling)[1]
    average, worst = gradient[:, 0], 0.0
    for t in range(1, gradient.shape[1]):
        average = BETA * average + (1 - BETA) * gradient[:, t]
        worst = max(worst, np.max(np.linalg.norm(average - gradient[:, t], axis=-1)))
    return worst


@pytest.mark.slow
def test_the_lag_of_the_average(run):
    c = run[4]
    span = ETA * BETA / (1 - BETA)
    sharp = c.L_phi1 * span ** (1 / (P - 1)) + c.L_phi2 * span
    paper = (c.L_phi1 * ETA ** (1 / (P - 1)) + c.L_phi2 * ETA) / (1 - BETA)
    assert lag(run) <= sharp < paper
    assert lag(run) > 1e-3 * sharp  # with constants a thousand times smaller it would fail


def test_the_drift_of_the_lower_solution(run):
    x, _, _, coupling, c, _ = run
    y_star = closed_form(x, coupling)[2]
    for period in (1, 5, 20):
        drift = np.max(np.linalg.norm(y_star[:, period:] - y_star[:, :-period], axis=-1))
        assert drift <= c.l_p * (period * ETA) ** (1 / (P - 1)) * (1 + 1e-9)
        assert drift > 0.05 * c.l_p * (period * ETA) ** (1 / (P - 1))


@pytest.mark.slow
def test_the_bias_at_the_iterates(run):
    x, _, y, coupling, c, problem = run
    x, y = x[:, :-1].reshape(-1, len(coupling))[::7], y.reshape(-1, len(coupling))[::7]
    _, gradient, y_star = closed_form(x, coupling)
    estimate = jax.vmap(lambda x, y: ub.hypergradient(problem, x, y, ub.Exact())[0])(jnp.asarray(x), jnp.asarray(y))
    error = np.linalg.norm(np.asarray(estimate) - gradient, axis=1)
    distance = np.linalg.norm(y - y_star, axis=1)
    assert np.all(error <= c.L_phi2 * distance * (1 + 1e-9))
    assert np.any(error > 1e-2 * c.L_phi2 * distance)


@pytest.mark.slow
def test_neumann_at_the_iterates(run):
    """J = I here, so with C = 2 the series of Q terms misses exactly 2^{−Q} of the second term."""
    x, _, y, coupling, _, problem = run
    x, y = (jnp.asarray(a.reshape(-1, len(coupling))[::29]) for a in (x[:, :-1], y))
    methods = ub.Exact(), ub.Neumann(terms=3, scale=2.0)
    exact, series = (
        jax.vmap(lambda x, y, m=m: ub.hypergradient(problem, x, y, m, key=jax.random.key(0))[0])(x, y) for m in methods
    )
    np.testing.assert_allclose(np.asarray(series - exact), -np.asarray(exact) / 8, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_the_momentum_recursion(run):
    """ε_{t+1} = βε_t + (1−β)ε̂_{t+1} + βS(x_t, x_{t+1}), step by step."""
    x, m, _, coupling, _, _ = run
    gradient = closed_form(x[:, :-1], coupling)[1]
    estimates = np.concatenate([m[:, :1], m[:, 1:] - BETA * m[:, :-1]], axis=1) / (1 - BETA)
    error = m[:, 0] - gradient[:, 0]
    for t in range(1, m.shape[1]):
        error = (
            BETA * error
            + (1 - BETA) * (estimates[:, t] - gradient[:, t])
            + BETA * (gradient[:, t - 1] - gradient[:, t])
        )
        np.testing.assert_allclose(error, m[:, t] - gradient[:, t], atol=1e-12)
