"""Bad numbers: each is named with its step and a remedy; back-off halves the steps and goes on from before."""

import os
import signal
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.core.protocols import Info
from unibio.solvers.step_sizes import scaled
from unibio.solvers.stocbio import State

KEY = jax.random.key(0)


class Doubling(eqx.Module):
    """x ← x·(1 + step_size)^(1/8), not finite beyond 2^12.5, i.e. in step 100 (of 0, 1, …) with step_size = 1."""

    step_size: float

    def init(self, problem, x, y, key):
        return State(x, y), Info(jnp.zeros(()), ub.Calls(grad_g=1))

    def step(self, problem, state, key):
        x = state.x * (1 + self.step_size) ** 0.125
        return State(jnp.where(x > 2.0**12.51, jnp.inf, x), state.y + 1), Info(x, ub.Calls(grad_f=1))


def go(solver=Doubling(1.0), steps=130, **options):
    return ub.solve(ub.problems.example3(4.0), solver, 1.0, 1.0, steps=steps, key=KEY, **options)


@pytest.mark.parametrize("chunk", [None, 7])
def test_back_off_goes_back_to_the_anchor_with_half_the_step(chunk):
    result = go(back_off=3, chunk=chunk)
    assert result.status == "finished"
    # 64 steps make 2^8; then 1.5^(k/8) ≤ 2^4.51 for k ≤ 61, which is step 125: back to 64 once more, and 1.25
    np.testing.assert_allclose(float(result.x), 2.0**8 * 1.25 ** (66 / 8), rtol=1e-12)
    np.testing.assert_array_equal(result.history["restarts"], [0] * 64 + [2] * 66)
    np.testing.assert_array_equal(result.history["step"], np.arange(130))
    assert "the step sizes were halved (2 times)" in result.message
    # All 100 and 61 finite steps from the abandoned attempts were paid for.
    assert result.calls.grad_f == 100 + 61 + 66


def test_back_off_is_what_one_would_do_by_hand():
    problem, x, y = ub.problems.PROBLEMS["quadratic"]()
    solver = ub.SOBA(2.0, 0.9, upper_decay=0, lower_decay=0)
    assert ub.solve(problem, solver, x, y, steps=20_000, key=KEY).status == "diverged"
    result = ub.solve(problem, solver, x, y, steps=20_000, key=KEY, back_off=5)
    assert result.status == "finished"
    restarts = result.history["restarts"]
    assert restarts[-1] == 2
    by_hand: ub.Result | None = None
    for count in np.unique(restarts):
        end = int(np.flatnonzero(restarts == count)[-1]) + 1
        by_hand = ub.solve(problem, scaled(solver, 0.5 ** int(count)), x, y, steps=end, key=KEY, resume=by_hand)
    assert by_hand is not None
    np.testing.assert_array_equal(result.x, by_hand.x)
    np.testing.assert_array_equal(result.y, by_hand.y)
    assert np.linalg.norm(result.x) < 10


def test_back_off_ends_when_its_halvings_are_used_up():
    result = go(back_off=1)
    assert result.status == "diverged"
    assert result.steps == 125
    assert "x became NaN or infinite in step 125: lower step_size" in result.message


class Interrupt:
    """SIGTERM to this process at a step, once."""

    def __init__(self, step):
        self.step = step

    def __call__(self, row):
        if self.step is not None and row["step"] >= self.step:
            self.step = None
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("stop_at", [30, 70, 84])
def test_an_interrupted_run_backs_off_to_the_same_place(tmp_path, stop_at):
    def run(name, **options):
        return go(back_off=3, chunk=3, checkpoint=ub.Checkpoints(tmp_path / name, every=40), **options)

    whole = run("whole")
    cut = run("cut", callbacks=Interrupt(stop_at))
    assert cut.status == "interrupted"
    resumed = run("cut")
    assert float(resumed.x) == float(whole.x)
    assert resumed.calls == whole.calls
    for name in set(whole.history) - {"seconds"}:
        np.testing.assert_array_equal(resumed.history[name], whole.history[name])


class Killed(Exception):
    pass


def killed_after(step, restarts):
    def callback(row):
        if row["restarts"] == restarts and row["step"] >= step:
            raise Killed

    return callback


def test_a_run_killed_after_going_back_to_the_start(tmp_path):
    """A checkpoint of step 0 has no history to tell that the steps were halved."""
    fast, files = Doubling(3.0), ub.Checkpoints(tmp_path, every=300)
    whole = go(fast, back_off=4)
    with pytest.raises(Killed):
        go(fast, back_off=4, chunk=10, checkpoint=files, callbacks=killed_after(20, 1))
    assert [path.stem for path in files.files()] == ["step-000000000000"]
    again = go(fast, back_off=4, checkpoint=files)
    assert (float(again.x), again.calls) == (float(whole.x), whole.calls)
    np.testing.assert_array_equal(again.history["restarts"], whole.history["restarts"])


def test_what_was_computed_since_a_back_off_is_not_lost(tmp_path):
    """Files of later steps, from before it, give way to newer ones of earlier steps."""
    files = ub.Checkpoints(tmp_path, every=10, keep=2)

    seen = []

    def stop(row):
        seen.append(row["restarts"])
        if seen.count(1) == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    cut = go(back_off=3, chunk=2, checkpoint=files, callbacks=stop)
    assert cut.status == "interrupted"
    assert 70 < cut.steps < 100
    assert [int(path.stem[5:]) for path in files.files()] == [cut.steps, 70]
    steps = []
    again = go(back_off=3, chunk=2, checkpoint=files, callbacks=lambda row: steps.append(row["step"]))
    assert steps[0] == cut.steps + 2
    assert (float(again.x), again.calls) == (float((whole := go(back_off=3)).x), whole.calls)


@pytest.mark.parametrize("kept", [False, True], ids=["resume", "checkpoint"])
def test_back_off_added_after_a_divergence(tmp_path, kept):
    """The last finite state is beyond help: it goes back to the start."""
    options = {"checkpoint": ub.Checkpoints(tmp_path)} if kept else {}
    steep = Doubling(2.0**44 - 1)  # 2^5.5 a step: the last state is 2^11, more than 1,000 times the first
    broken = go(steep, **options)
    assert (broken.status, broken.steps) == ("diverged", 2)
    result = go(steep, back_off=60, **(options or {"resume": broken}))
    assert result.status == "finished"
    assert float(result.x) == float(go(steep, back_off=60).x)


def test_a_limit_on_the_direction_is_not_asked_before_the_first_step():
    assert go(steps=50, stop=ub.Above("direction_norm", 1e9)).status == "finished"
    assert go(steps=50, stop=ub.Above("direction_norm", 8.5), chunk=1).steps == 25


def test_back_off_of_a_warm_start():
    setting = ub.problems.PROBLEMS["quadratic"]()
    solver = ub.UniBiO(0.1, lower=ub.SGD(10, 0.01), warm_start=ub.SGD(2000, 10.0), hypergradient=ub.CG())
    result = ub.solve(setting.problem, solver, setting.x, setting.y, steps=5, key=KEY, back_off=20)
    assert result.status == "finished"
    assert result.history["restarts"][0] >= 1


def test_every_step_size_is_halved_and_nothing_else():
    lower = ub.EpochSGD(step_size=0.4, radius=3.0)
    solver = ub.UniBiO(0.5, lower=lower, warm_start=ub.SGD(5, 0.2))
    half = scaled(solver, 0.25)
    assert (half.step_size, half.lower.step_size, half.warm_start.step_size) == (0.125, 0.1, 0.05)
    assert (half.momentum, half.lower.radius) == (solver.momentum, lower.radius)


def test_a_solver_without_step_sizes_cannot_back_off():
    class Still(Doubling):
        step_size: None = None  # type: ignore[assignment]
        rate: float = 1.0

    with pytest.raises(ValueError, match="no field named"):
        go(Still(), back_off=1)


def test_the_lower_level_is_named_when_it_diverges():
    setting = ub.problems.PROBLEMS["quadratic"]()
    solver = ub.StocBiO(1e-6, 1e30, lower_steps=8, terms=1, neumann_step=1e-3)
    result = ub.solve(setting.problem, solver, setting.x, setting.y, steps=50, key=KEY)
    assert result.status == "diverged"
    assert "y became NaN or infinite in step" in result.message or "x and y became" in result.message
    assert "lower" in result.message
    assert np.isfinite(np.asarray(result.x)).all()


def _nothing(x, y, batch):
    return jnp.zeros_like(x)


def test_a_hypergradient_of_norm_zero_is_told():
    problem = ub.Problem(_nothing, ub.problems.example3(4.0).g, p=4.0)
    result = ub.solve(problem, ub.StocBiO(0.1, 0.1), 1.0, 1.0, steps=20, key=KEY)
    assert result.status == "finished"
    assert "direction of norm 0 since step 0" in result.message
    assert result.history["ok"].all()


def test_a_first_direction_of_zero_is_no_news():
    setting = ub.problems.PROBLEMS["quadratic"]()
    result = ub.solve(setting.problem, ub.SOBA(0.1, 0.1), setting.x * 0, setting.y, steps=20, key=KEY)
    assert result.history["direction_norm"][0] == 0
    assert "norm 0" not in result.message


@pytest.mark.slow
def test_indefinite_curvature_and_a_diverging_series_are_told_with_their_first_step():
    concave = ub.Problem(ub.problems.example3(2.0).f, _concave)
    result = ub.solve(
        concave, ub.UniBiO(1e-3, lower=ub.SGD(1, 1e-3), hypergradient=ub.CG()), 1.0, 1.0, steps=4, key=KEY
    )
    assert "hypergradient in 4 of 4 steps, first in step 0: g has negative curvature" in result.message
    assert not result.history["ok"].any()
    solver = ub.UniBiO(1e-3, hypergradient=ub.Neumann(terms=5, scale=0.01))
    result = go(solver, steps=4)
    assert "first in step 0: numbers grew without bound" in result.message


def _concave(x, y, batch):
    return -(y**2) / 2 + x * y


def test_a_lower_level_that_does_not_converge_is_told_and_can_end_the_run():
    setting = ub.problems.PROBLEMS["quadratic"]()
    lower = setting.problem.g
    start = np.linalg.solve(np.asarray(lower.hessian), np.asarray(lower.coupling) @ np.asarray(setting.x)) + 1e-3
    measured = ub.solve(
        setting.problem, ub.SOBA(5.0, 1e-9), setting.x, start, steps=30, key=KEY, metrics=ub.LowerResidual()
    )
    gap = np.asarray(lower.hessian) @ np.asarray(measured.y) - np.asarray(lower.coupling) @ np.asarray(measured.x)
    np.testing.assert_allclose(measured.metrics["lower_residual"][-1], np.linalg.norm(gap), rtol=1e-6)
    values = measured.metrics["lower_residual"]
    early, late = np.median(values[1:16]), np.median(values[16:])
    assert f"the lower level is not converging: lower_residual was {values[0]:.3g} at first" in measured.message
    assert f"{early:.3g} (median) in the first half of the run and {late:.3g} in the second" in measured.message
    options: dict[str, Any] = {"steps": 30, "key": KEY, "metrics": ub.LowerResidual(), "every": 1}
    rule = ub.Above("lower_residual", float(measured.metrics["lower_residual"].max()) / 4)
    ended = ub.solve(setting.problem, ub.SOBA(5.0, 1e-9), setting.x, start, stop=rule, **options)
    assert ended.status == "diverged"
    assert ended.steps < 30
    assert "Above(name='lower_residual'" in ended.message
    fine = ub.solve(setting.problem, ub.StocBiO(1e-9, 0.3), setting.x, start, **options)
    assert "not converging" not in fine.message


def test_a_warm_start_that_was_better_is_no_complaint():
    """y begins at y*(x_0), and x moves on: the lower residual is larger than at first in every step, but falls."""
    setting = ub.problems.PROBLEMS["quadratic"]()
    lower = setting.problem.g
    best = np.linalg.solve(np.asarray(lower.hessian), np.asarray(lower.coupling) @ np.asarray(setting.x))
    result = ub.solve(
        setting.problem, ub.AmIGO(0.2, 0.3), setting.x, best, steps=60, key=KEY, metrics=ub.LowerResidual(), every=1
    )
    values = result.metrics["lower_residual"]
    assert values[0] < values[-1] < values[20:40].min()
    assert "not converging" not in result.message


@pytest.mark.parametrize("solver", [ub.TTSA(0.1, 0.1), ub.SOBA(0.1, 0.1)], ids=["TTSA", "SOBA"])
@pytest.mark.slow
def test_an_x_that_has_not_moved_is_told(solver):
    start = 0.001
    result = ub.solve(ub.problems.example3(12.0), solver, start, start, steps=50, key=KEY)
    assert float(result.x) == start
    assert "x has not moved in 50 steps" in result.message
    moving = ub.solve(ub.problems.example3(12.0), ub.UniBiO(0.02), start, start, steps=2, key=KEY)
    assert "has not moved" not in moving.message
