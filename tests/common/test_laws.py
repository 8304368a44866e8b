"""What every solver promises, for every solver of SOLVERS. A new one needs nothing here."""

import dataclasses
import fcntl
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from common import settings
from common.settings import CHUNK, KEY, MODES, STEPS, flatten, nest, nest_x, nest_y, quadratic, regression
from oracles import lp_data

import unibio as ub
from unibio.core import linear, oracle, tree
from unibio.core.problem import prepare
from unibio.core.tree import cast

UNOPTIMISED = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# One solver's laws share what they compile, so they run in one worker: see conftest.py.
SETTINGS = settings.SETTINGS | MODES
every_solver = pytest.mark.parametrize("name", SETTINGS)


@pytest.fixture(autouse=True, scope="module")
def _compile_quickly():
    """Compilation is nearly all of the time here; without XLA's expensive passes it takes half of it."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def solve(name, steps=STEPS, chunk=CHUNK, solver=None, seed=KEY, resume=None, setting=None):
    problem, x, y = regression() if setting is None else setting
    solver = SETTINGS[name] if solver is None else solver
    return ub.solve(problem, solver, x, y, steps=steps, key=jax.random.key(seed), chunk=chunk, resume=resume)


@functools.cache
def reference(name):
    """The run the laws look at, and how often f was traced for it."""
    before = settings.traces["f"]
    result = solve(name)
    return result, settings.traces["f"] - before


def assert_same_run(result, other):
    """Bit by bit, but for the clock."""
    assert result.history.keys() == other.history.keys()
    for column in result.history.keys() - {"seconds"}:
        np.testing.assert_array_equal(result.history[column], other.history[column], err_msg=column)
    for ours, theirs in ((result.x, other.x), (result.y, other.y), (result.state, other.state)):
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_array_equal(a, b)
    assert result.calls == other.calls


def test_every_solver_has_settings():
    assert settings.CHOSEN.keys() <= settings.SETTINGS.keys() == ub.SOLVERS.keys()
    for name, solver in settings.SETTINGS.items():
        assert type(solver) is ub.SOLVERS[name]


class WithTerms(ub.SOBA):
    """A solver with a required field that is no step size."""

    terms: int = dataclasses.field(kw_only=True)


def test_settings_that_cannot_be_found_name_the_line_to_add():
    assert settings.found("SOBA", ub.SOBA) == ub.SOBA(0.1, 0.4)
    with pytest.raises(ValueError, match=r"add the line  'new': ub.WithTerms\(.*terms=…\),  to CHOSEN"):
        settings.found("new", WithTerms)


@every_solver
def test_the_run_is_a_run(name):
    """Otherwise the laws below would compare nothing with nothing."""
    result, _ = reference(name)
    _, x, y = regression()
    assert result.status == ub.Status.finished
    assert np.linalg.norm(result.x - x) > 1e-4
    assert np.linalg.norm(result.y - y) > 1e-4
    norms = result.history["direction_norm"]
    assert norms.shape == (STEPS,)
    assert len(set(norms.tolist())) > STEPS // 2


@every_solver
def test_numbers_are_leaves_and_one_trace_serves_all(name):
    """Twice the step sizes, and 1, 1.0, np and jnp scalars of any dtype: nothing is traced again."""
    _, traced = reference(name)
    assert traced > 0, "the counter does not count"
    before = settings.traces["f"]
    solver = SETTINGS[name]
    sizes = [field.name for field in dataclasses.fields(solver) if field.name.endswith("step_size")]
    sizes = [field for field in sizes if getattr(solver, field) is not None]
    assert "step_size" in sizes
    doubled = dataclasses.replace(solver, **{field: 2 * getattr(solver, field) for field in sizes})
    other = solve(name, steps=CHUNK, solver=doubled)
    assert np.any(other.x != solve(name, steps=CHUNK).x)
    finals = []
    for one in (1, 1.0, np.float32(1), jnp.int32(1), jnp.float32(1), jnp.float64(1)):
        finals.append(solve(name, steps=CHUNK, solver=dataclasses.replace(solver, step_size=one)).x)
    for x in finals[1:]:
        np.testing.assert_array_equal(x, finals[0])
    assert settings.traces["f"] == before


def quadratic_of(name, target=settings.TARGET):
    """SABA needs a finite sum; it gets one of two batches, whose noise it must remove."""
    return settings.finite_sum(target) if name == "SABA" else quadratic(target)


def eager(solver, problem, x, y, steps, key):
    """States and infos of a run in plain Python: what is compiled elsewhere is executed line by line."""
    problem, x, y = prepare(problem, x, y)
    solver = cast(solver, jnp.float64)
    with jax.disable_jit():
        state, info = solver.init(problem, x, y, jax.random.fold_in(key, jnp.uint32(2**32 - 1)))
        states, infos = [state], [info]
        for t in range(steps):
            state, info = solver.step(problem, state, jax.random.fold_in(key, t))
            states.append(state)
            infos.append(info)
    return states, infos


@every_solver
def test_variables_may_be_nested_dictionaries(name):
    problem, x, y = quadratic_of(name)
    key = jax.random.key(3)
    flat, flat_infos = eager(SETTINGS[name], problem, x, y, 2, key)
    nested, nested_infos = eager(SETTINGS[name], nest(problem), nest_x(x), nest_y(y), 2, key)
    for a, b in zip(flat, nested, strict=True):
        assert tree.same_structure(b.x, nest_x(x))
        assert tree.same_structure(b.y, nest_y(y))
        np.testing.assert_allclose(flatten(b.x), a.x, rtol=1e-10)
        np.testing.assert_allclose(flatten(b.y), a.y, rtol=1e-10)
    for a, b in zip(flat_infos, nested_infos, strict=True):
        np.testing.assert_allclose(b.direction_norm, a.direction_norm, rtol=1e-10)
        assert [int(c) for c in a.calls] == [int(c) for c in b.calls]
    assert np.linalg.norm(flat[-1].x - x) > 1e-3


# Closed form: ∇Φ(x) = x/10 + BᵀH⁻¹(H⁻¹Bx − t). Series are long enough for their bias to be below 1e-8 (0.59^40).
CLOSED_FORM = SETTINGS | {
    "UniBiO": ub.UniBiO(
        0.3,
        momentum=0.5,
        lower=ub.SGD(20, 0.5),
        hypergradient=ub.Neumann(terms=80),
        schedule=optax.exponential_decay(1.0, 1, 0.96),
    ),
    "UniBiO-without-p": ub.UniBiO.without_p(
        0.3, steps=100, momentum=0.5, period=1, schedule=optax.exponential_decay(1.0, 1, 0.96)
    ),
    "StocBiO": ub.StocBiO(0.3, 0.5, lower_steps=5, terms=40),
    "VRBO": ub.VRBO(0.3, 0.5, lower_steps=3, terms=40),
    "SOBA": dataclasses.replace(SETTINGS["SOBA"], step_size=0.05),
    "SABA": ub.SABA(0.03, 0.2),
    "MA-SOBA": dataclasses.replace(SETTINGS["MA-SOBA"], step_size=0.05, momentum=0.5),
    "F2SA": ub.F2SA(0.3, 1.0, multiplier=1e7, lower_steps=60, upper_decay=0.0, lower_decay=0.0),
    "TTSA": dataclasses.replace(SETTINGS["TTSA"], terms=10),
    "SUSTAIN": dataclasses.replace(SETTINGS["SUSTAIN"], terms=10),
}
RANDOM_LENGTH, NORMALISED = ("TTSA", "SUSTAIN"), ("BO-REP",)


def solve_quadratic(name, steps=800, target=settings.TARGET, solver=None, start=None):
    problem, x, y = quadratic_of(name, target)
    x, y = (x, y) if start is None else start
    solver = CLOSED_FORM[name] if solver is None else solver
    return ub.solve(problem, solver, x, y, steps=steps, key=jax.random.key(1), chunk=800)


def relative_gradient(x, target=settings.TARGET):
    """‖∇Φ(x)‖ over its value at the start."""
    norm = np.linalg.norm
    return norm(settings.gradient_phi(x, target)) / norm(settings.gradient_phi(quadratic()[1], target))


def test_the_closed_form_is_one():
    """∇Φ by autodiff through a dense solve; and the finite sum is the same problem."""

    def phi(x):
        y = jnp.linalg.solve(settings.HESSIAN, settings.COUPLING @ x)
        return jnp.sum((y - settings.TARGET) ** 2) / 2 + jnp.sum(x**2) / 20

    x = quadratic()[1]
    np.testing.assert_allclose(settings.gradient_phi(x), jax.grad(phi)(x), rtol=1e-12)
    x_star, y_star = settings.stationary_point()
    np.testing.assert_allclose(settings.gradient_phi(x_star), 0.0, atol=1e-14)
    assert np.linalg.norm(x_star) > 0.5
    problem, _, y = settings.finite_sum()
    np.testing.assert_allclose(ub.hypergradient(problem, x, y_star)[0], ub.hypergradient(quadratic()[0], x, y_star)[0])
    np.testing.assert_allclose(ub.lower_solution(problem, jnp.asarray(x_star), y), y_star, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in RANDOM_LENGTH + NORMALISED])
def test_the_closed_form_is_reached(name):
    """Without noise ‖∇Φ‖ falls to 1e-6 of its start, and y to y*. UniBiO's steps have the length of its schedule, which
    falls by 4 % a step. F2SA has a bias of order 1/λ: here λ = 1e7, and enough lower steps for
    λ times their error to be small."""
    result = solve_quadratic(name)
    assert relative_gradient(result.x) <= 1e-6
    x_star, y_star = settings.stationary_point()
    np.testing.assert_allclose(result.x, x_star, rtol=1e-5)
    np.testing.assert_allclose(result.y, y_star, rtol=1e-4, atol=1e-5)


def test_f2sa_reaches_the_stationary_point_of_its_penalty():
    """At λ = 2 it must solve x/10 = λBᵀ(y_λ − y*) with (I + λH)y_λ = t + λBx, which is not ∇Φ = 0."""
    lam, eye = 2.0, np.eye(3)
    inverse, star = np.linalg.inv(eye + lam * settings.HESSIAN), np.linalg.solve(settings.HESSIAN, settings.COUPLING)
    matrix = np.eye(2) / 10 - lam * settings.COUPLING.T @ (lam * inverse @ settings.COUPLING - star)
    expected = np.linalg.solve(matrix, lam * settings.COUPLING.T @ inverse @ settings.TARGET)
    result = solve_quadratic("F2SA", solver=dataclasses.replace(CLOSED_FORM["F2SA"], multiplier=lam))
    np.testing.assert_allclose(result.x, expected, rtol=1e-6)
    assert np.linalg.norm(expected - settings.stationary_point()[0]) > 0.02


def test_bo_rep_stays_within_a_few_of_its_steps_of_the_closed_form():
    """Every step has length η, so it cannot come nearer than about η. Restarted where it ended with a tenth of η, it
    ends within 10η each time, and in the end ‖∇Φ‖ is 1e-6 of its start."""
    x_star, _ = settings.stationary_point()
    _, x, y = quadratic()
    for eta in 10.0 ** -np.arange(1, 9):
        result = solve_quadratic(
            "BO-REP", 150, solver=dataclasses.replace(SETTINGS["BO-REP"], step_size=eta), start=(x, y)
        )
        x, y = result.x, result.y
        assert np.linalg.norm(x - x_star) <= 10 * eta
    assert relative_gradient(x) <= 1e-6


@pytest.mark.parametrize("name", RANDOM_LENGTH)
def test_series_of_random_length_reach_the_closed_form(name):
    """Their noise is not the problem's. For t = 0 it vanishes at x* = 0, and ‖∇Φ‖ falls to 1e-6 of its start. For t ≠ 0
    it does not; but the iteration is linear with independent random coefficients, so that the mean over runs moves like
    a run with the mean estimate. That mean must lie within five standard errors of the stationary point of the
    ten-term series, with a standard error that is small next to the way from the start."""
    zero = np.zeros(3)
    assert relative_gradient(solve_quadratic(name, target=zero).x, zero) <= 1e-6
    problem, x, y = quadratic()
    solver, runs = CLOSED_FORM[name], 400
    many = jax.vmap(lambda key: ub.trajectory(problem, solver, x, y, 300, key)[0].x)
    ends = np.asarray(jax.jit(many, compiler_options=UNOPTIMISED)(jax.random.split(jax.random.key(2), runs)))
    s, series = solver.lower_step_size, np.zeros((3, 3))
    for q in range(solver.terms):
        series += s * np.linalg.matrix_power(np.eye(3) - s * settings.HESSIAN, q)
    to_y = np.linalg.solve(settings.HESSIAN, settings.COUPLING)
    matrix = np.eye(2) / 10 + settings.COUPLING.T @ series @ to_y
    expected = np.linalg.solve(matrix, settings.COUPLING.T @ series @ settings.TARGET)
    error = ends.std(axis=0, ddof=1) / np.sqrt(runs)
    assert np.all(error < 0.05 * np.linalg.norm(expected - x))
    assert np.all(np.abs(ends.mean(axis=0) - expected) <= 5 * error)


@every_solver
def test_chunks_and_resuming_leave_no_trace(name):
    """Chunks of 7, of 1, of what the clock suggests, and 20 steps resumed to 50: the same run, bit by bit."""
    result, _ = reference(name)
    assert_same_run(solve(name, chunk=1), result)
    assert_same_run(solve(name, chunk=None), result)
    assert_same_run(solve(name, resume=solve(name, steps=20)), result)


STREAM_STEPS = 20


@every_solver
def test_a_stream_leaves_no_trace_either(name):
    """Batches that continue from step to step: a run in chunks of 7 and one that is resumed are the same run, and not
    that of independent draws."""
    setting = regression(stream=True)
    result = solve(name, STREAM_STEPS, setting=setting)
    assert np.all(result.y != solve(name, STREAM_STEPS).y)
    part = solve(name, 9, setting=setting)
    assert_same_run(solve(name, STREAM_STEPS, chunk=3, resume=part, setting=setting), result)


@every_solver
@pytest.mark.slow
def test_streams_side_by_side_equal_one_at_a_time(name):
    """Two seeds in one program; in the first tier this law is held for independent draws."""
    setting = regression(stream=True)
    result = solve(name, STREAM_STEPS, setting=setting)

    def one(problem, solver, x, y, key):
        return ub.trajectory(problem, solver, x, y, STREAM_STEPS, key)[0]

    program = jax.jit(jax.vmap(one, (None, None, None, None, 0)), compiler_options=UNOPTIMISED)
    state = program(setting[0], SETTINGS[name], *setting[1:], jax.vmap(jax.random.key)(jnp.arange(KEY, KEY + 2)))
    np.testing.assert_allclose(state.x[0], result.x, rtol=1e-12)
    np.testing.assert_allclose(state.y[0], result.y, rtol=1e-12)
    assert np.any(state.y[1] != state.y[0])


def test_chunks_leave_no_trace_in_optimised_programs():
    """The same with XLA's optimisations on, as users have it; other shapes, so that nothing is taken from the cache."""
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        runs = [solve("SOBA", chunk=chunk, setting=regression(samples=12)) for chunk in (7, 1, None)]
    finally:
        jax.config.update("jax_disable_most_optimizations", True)
    assert_same_run(runs[1], runs[0])
    assert_same_run(runs[2], runs[0])


@functools.cache
def vmapped(name):
    problem, x, y = regression()

    def one(problem, solver, x, y, key):
        return ub.trajectory(problem, solver, x, y, STEPS, key)

    keys = jax.vmap(jax.random.key)(jnp.arange(3))
    program = jax.jit(jax.vmap(one, (None, None, None, None, 0)), compiler_options=UNOPTIMISED)
    return program(problem, SETTINGS[name], x, y, keys)


@every_solver
def test_seeds_side_by_side_equal_one_at_a_time(name):
    state, log = vmapped(name)
    for seed in range(3):
        result = reference(name)[0] if seed == KEY else solve(name, seed=seed)
        np.testing.assert_allclose(state.x[seed], result.x, rtol=1e-12)
        np.testing.assert_allclose(state.y[seed], result.y, rtol=1e-12)
        np.testing.assert_allclose(log.direction_norm[seed], result.history["direction_norm"], rtol=1e-9)
        assert [int(counts[seed].sum()) for counts in log.calls] == list(result.calls)
    assert np.all(np.ptp(state.y, axis=0) > 1e-6)


def test_a_trajectory_may_close_over_its_start():
    """`trajectory` is there to jit and vmap over anything: the start may be a constant of the caller's function."""
    problem, x, y = regression()
    run = jax.jit(lambda key: ub.trajectory(problem, SETTINGS["SOBA"], x, y, STEPS, key)[0].x)
    np.testing.assert_allclose(run(jax.random.key(KEY)), reference("SOBA")[0].x, rtol=1e-12)


class Counted:
    """Samples shown to every oracle while Python runs each call; under `disable_jit` that is every evaluation."""

    def __init__(self, monkeypatch):
        self.calls = dict.fromkeys(ub.Calls._fields, 0)
        for oracle_name, column in (
            ("value_f", "grad_f"),
            ("grads_f", "grad_f"),
            ("grad_g", "grad_g"),
            ("grad_x_g", "grad_g"),
            ("hvp_g", "hvp"),
            ("cross_g", "cross"),
        ):
            monkeypatch.setattr(oracle, oracle_name, self.counted(getattr(oracle, oracle_name), column))
        hessian = oracle.hessian_g

        def hessian_g(problem, x, y, batch):
            product = hessian(problem, x, y, batch)
            return self.counted(lambda v, batch: product(v), "hvp", batch)

        monkeypatch.setattr(oracle, "hessian_g", hessian_g)
        # Two transformations that would run Python once for many evaluations: as loops.
        monkeypatch.setattr(jax, "vmap", looped_vmap)
        monkeypatch.setattr(linear, "solve_spd", linear.conjugate_gradients)

    def counted(self, fn, column, *bound):
        def call(*args):
            batch = (*args, *bound)[-1]
            self.calls[column] += len(batch.index) if hasattr(batch, "index") else 1
            return fn(*args, *bound)

        return call


def looped_vmap(fn, in_axes=0, out_axes=0):
    assert in_axes == 0

    def looped(*args):
        lanes = len(jax.tree.leaves(args)[0])
        outs = [fn(*jax.tree.map(lambda leaf, i=i: leaf[i], args)) for i in range(lanes)]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=out_axes), *outs)

    return looped


def sums(infos):
    return {column: sum(int(getattr(info.calls, column)) for info in infos) for column in ub.Calls._fields}


@every_solver
def test_calls_are_what_an_instrumented_run_counts(name, monkeypatch):
    """Two steps in plain Python, one that refreshes y and one that need not, every call of an oracle counted: the sums
    equal what the solver reports there, and what the compiled run with the same keys recorded."""
    result, _ = reference(name)
    counted = Counted(monkeypatch)
    _, infos = eager(SETTINGS[name], *regression(), 2, jax.random.key(KEY))
    assert sums(infos) == counted.calls
    assert {column: int(result.history[column][1]) for column in ub.Calls._fields} == counted.calls
    assert counted.calls["grad_f"] > 0
    assert counted.calls["grad_g"] > 0


@pytest.mark.parametrize(
    "method", [ub.CG(max_steps=4), ub.Exact(), ub.Unrolled(3, 0.1), ub.Neumann(3, form=ub.Independent())], ids=repr
)
def test_calls_of_the_other_hypergradients(method, monkeypatch):
    counted = Counted(monkeypatch)
    solver = dataclasses.replace(SETTINGS["UniBiO"], hypergradient=method)
    _, infos = eager(solver, *regression(), 1, jax.random.key(KEY))
    assert sums(infos) == counted.calls


def test_calls_at_a_singular_point(monkeypatch):
    """At x = y = 0 the lower gradient and Hessian vanish: the probes that find this out are counted too."""
    problem = ub.problems.example3(4.0)
    counted = Counted(monkeypatch)
    states, infos = eager(SETTINGS["UniBiO"], problem, jnp.zeros(2), jnp.zeros(2), 1, jax.random.key(KEY))
    assert sums(infos) == counted.calls
    assert np.all(states[0].y == 0)
    assert counted.calls["grad_f"] > 1


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """Where every solver arrives with x and the training data cut along the samples over two devices: a process of its
    own, which the first worker starts and the others wait for."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    report = folder / "sharded.json"
    with (folder / "sharded.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not report.exists():
            report.write_text(run_sharded())
    return json.loads(report.read_text())


def run_sharded():
    tests = Path(__file__).parents[1]
    devices = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
    path = os.pathsep.join([str(tests), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(tests / "common" / "sharded.py"), json.dumps(UNOPTIMISED)],
        env=os.environ | {"XLA_FLAGS": devices, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@every_solver
def test_sharded_equals_single(name, sharded):
    """The run on two devices against the run here."""
    assert sharded["shards"] == [[settings.SAMPLES // 2]] * 2
    result, _ = reference(name)
    there = sharded[name]
    assert there["devices"] == 2
    assert there["calls"] == list(result.calls)
    np.testing.assert_allclose(there["x"], result.x, rtol=1e-12)
    np.testing.assert_allclose(there["y"], result.y, rtol=1e-12)


@every_solver
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_step_keeps_the_structure_of_the_state(name, dtype):
    """Tree, shapes and dtypes, weak types included; floating entries have the dtype of x, counts are int32."""
    problem, x, y = prepare(*regression(dtype=dtype))
    solver, key = cast(SETTINGS[name], dtype), jax.random.key(0)
    state, _ = jax.eval_shape(solver.init, problem, x, y, key)
    after, info = jax.eval_shape(solver.step, problem, state, key)
    described = [
        jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)), tree)
        for tree in (state, after)
    ]
    assert described[0] == described[1]
    for leaf in jax.tree.leaves((after, info.direction_norm)):
        assert leaf.dtype in (dtype, jnp.int32)
    for part, like in ((after.x, x), (after.y, y)):
        assert (part.shape, part.dtype) == (like.shape, like.dtype)
    for counts in jax.eval_shape(lambda state: solver.step(problem, state, key)[1].calls, state):
        assert jnp.issubdtype(counts.dtype, jnp.integer)


def _lp():
    train, clean, weights = lp_data(0, n=8, m=8, d=2, scale=0.5)
    return (
        ub.problems.lp_regression(train, clean, 3.0, 0.05, batch_size=4),
        jnp.asarray(weights),
        jnp.array([0.3, -0.4]),
    )


def _two(problem):
    return problem, jnp.array([0.5, -0.8]), jnp.array([0.6, -0.7])


_NOISE = ub.Noise(grad_y_g=0.1, grad_z_f=0.1)
EVERYWHERE = "coupled_example3", "lp_regression", "noisy example3"  # the others are simpler: in the second tier
PROBLEMS = {
    "example1": lambda: _two(ub.problems.example1()),
    "example3": lambda: _two(ub.problems.example3(4.0)),
    "example4": lambda: _two(ub.problems.example4(3.0)),
    "coupled_example3": lambda: _two(ub.problems.coupled_example3(4.0, np.array([[1.0, 0.2], [-0.3, 0.8]]))),
    "lp_regression": _lp,
    "quadratic": quadratic,
    "noisy example3": lambda: _two(ub.problems.example3(4.0, _NOISE, _NOISE)),
}


@every_solver
@pytest.mark.parametrize(
    "problem_name", [name if name in EVERYWHERE else pytest.param(name, marks=pytest.mark.slow) for name in PROBLEMS]
)
def test_two_steps_on_every_problem(name, problem_name):
    """Finite, and x and y move (MA-SOBA's x in its third step: where f knows no x, its first two directions are 0)."""
    problem, x, y = PROBLEMS[problem_name]()
    if name == "SABA" and problem_name != "lp_regression":
        with pytest.raises(ValueError, match="or use SOBA"):
            eager(SETTINGS[name], problem, x, y, 1, jax.random.key(0))
        return
    states, infos = eager(SETTINGS[name], problem, x, y, 3 if name == "MA-SOBA" else 2, jax.random.key(0))
    for leaf in jax.tree.leaves((states, [info.direction_norm for info in infos])):
        assert np.all(np.isfinite(leaf))
    assert np.any(states[-1].x != x)
    assert np.any(states[-1].y != y)


def test_solve_refuses_what_saba_cannot_do():
    for problem, x, y in (quadratic(), PROBLEMS["noisy example3"]()):
        with pytest.raises(ValueError, match="or use SOBA"):
            ub.solve(problem, SETTINGS["SABA"], x, y, steps=1, key=jax.random.key(0))
