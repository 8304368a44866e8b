"""Objects between stretches: a user's own can do what ours can."""

import json
import re
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.core.protocols import Info
from unibio.solvers.stocbio import State

DOCS = Path(__file__).parents[2] / "docs"
KEY = jax.random.key(0)
QUADRATIC = ub.problems.PROBLEMS["quadratic"]()
SOBA = ub.SOBA(0.1, 0.1, upper_decay=0.0, lower_decay=0.0)


def solve(steps=30, solver=SOBA, **options):
    return ub.solve(QUADRATIC.problem, solver, QUADRATIC.x, QUADRATIC.y, steps=steps, key=KEY, **options)


class Recorder(ub.Between):
    """Notes the steps at which it is asked."""

    def __init__(self):
        self.steps, self.begins = [], []

    def after(self, view):
        self.steps.append(view.record.step)
        self.begins.append(view.begins)


class Every(ub.Between):
    """Ends each stretch at a multiple of 7."""

    def limit(self, step):
        return (step // 7 + 1) * 7


class Until(ub.Between):
    """Lets only the steps count whose direction is longer than a bound, and ends the run there."""

    def __init__(self, bound):
        self.bound, self.found = bound, False

    def keep(self, log):
        short = log["direction_norm"] < self.bound
        self.found = bool(short.any())
        return int(np.argmax(short)) if self.found else len(short)

    def after(self, view):
        return ub.End(ub.Status.ok, "short enough") if self.found else None


class Again(ub.Between):
    """Goes back to where it was at step 10 with half the step size, once."""

    def __init__(self):
        self.kept = None

    def limit(self, step):
        return (step // 10 + 1) * 10

    def after(self, view):
        if view.record.step == 10 and self.kept is None:
            self.kept = view.state
        if view.record.step == 20 and not view.record.restarts:
            return ub.Restart(ub.SOBA(0.05, 0.1, upper_decay=0.0, lower_decay=0.0), self.kept, 10, "halved by hand")
        return None


def test_the_page_shows_one_that_restarts_with_another_solver(capsys):
    page = (DOCS / "long_runs.md").read_text(encoding="utf-8")
    code = page.split("## A rule of your own")[1].split("```python\n")[1].split("```")[0]
    exec(compile(code, "long_runs.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out.strip() == re.findall(r"^# (.*)$", code, re.MULTILINE)[-1]


def test_limit_and_when_it_is_asked():
    seen = Recorder()
    solve(stop=[Every(), seen], chunk=100)
    assert seen.steps == [0, 7, 14, 21, 28, 30]
    assert seen.begins == [True] + [False] * 5


@pytest.mark.parametrize("chunk", [1, 4, None])
def test_steps_that_do_not_count_are_undone(chunk):
    whole = solve().history["direction_norm"]
    bound = float(np.sort(whole)[15])
    count = int(np.argmax(whole < bound))
    result = solve(stop=Until(bound), chunk=chunk)
    assert (result.status, result.message, result.steps) == ("ok", "short enough", count)
    np.testing.assert_array_equal(result.x, solve(count).x)


def test_a_restart_forgets_rows_and_keeps_calls():
    result = solve(callbacks=Again(), metrics=lambda problem, state: {"size": jnp.sum(state.x**2)}, every=5)
    assert result.restarts == ("halved by hand",)
    assert "halved by hand (once)" in result.message
    assert result.history["step"].tolist() == list(range(30))
    assert result.history["restarts"].tolist() == [0] * 10 + [1] * 20
    assert result.metrics["step"].tolist() == [0, 5, 10, 15, 20, 25, 30]
    assert sum(result.calls) == 4 * 40
    part = solve(10)
    by_hand = solve(30, ub.SOBA(0.05, 0.1, upper_decay=0.0, lower_decay=0.0), resume=part)
    np.testing.assert_array_equal(result.x, by_hand.x)


def test_a_run_restarted_with_another_solver_is_not_resumed_by_the_first(tmp_path):
    def run(steps):
        return solve(steps, callbacks=Again(), checkpoint=ub.Checkpoints(tmp_path, every=100))

    run(25)
    with pytest.raises(ValueError, match="the next step from its state comes out differently"):
        run(30)


@pytest.mark.parametrize(
    ("method", "value", "message"),
    [
        ("limit", 0, r"Wrong\.limit\(0\) returned 0; it must return a step after 0"),
        ("limit", None, r"Wrong\.limit\(0\) returned None; it must return a step after 0"),
        ("keep", -1, r"Wrong\.keep\(log\) returned -1; it must return how many steps of the stretch count"),
        ("keep", None, r"Wrong\.keep\(log\) returned None; it must return how many steps of the stretch count"),
    ],
)
def test_answers_that_make_no_sense_are_refused(method, value, message):
    """None is what a method returns whose author forgot to write `return`."""
    wrong = type("Wrong", (ub.Between,), {method: lambda self, argument: value})()
    with pytest.raises(ValueError, match=message):
        solve(stop=wrong, chunk=3)


class Diverging(eqx.Module):
    """x grows by `step_size` in each step and is NaN beyond 100."""

    step_size: float

    def init(self, problem, x, y, key):
        return State(x, y), Info(jnp.zeros(()), ub.Calls(grad_g=1))

    def step(self, problem, state, key):
        x = state.x + self.step_size
        return State(jnp.where(x > 100, jnp.nan, x), state.y), Info(x, ub.Calls(grad_f=1))


class RestartOnce(ub.Between):
    """At a step, once: goes on with a solver from a step of its own choice, from the present state or another."""

    def __init__(self, at, solver, step, state=None):
        self.at, self.solver, self.step, self.state = at, solver, step, state

    def limit(self, step):
        return self.at if step < self.at else sys.maxsize

    def after(self, view):
        if view.record.step == self.at and not view.record.restarts:
            return ub.Restart(self.solver, self.state or view.state, self.step, "by hand")
        return None


def diverging(solver, steps=90, **options):
    return ub.solve(ub.problems.example3(4.0), solver, 0.0, 0.0, steps=steps, key=KEY, **options)


def test_back_off_does_not_go_back_to_an_anchor_that_a_restart_has_left_behind():
    """At step 70 a rule goes back to step 10. The anchor of step 64 belongs to what is forgotten; the divergence that
    follows leads back to step 10, and all 90 steps are recorded."""
    result = diverging(Diverging(1.0), stop=RestartOnce(70, Diverging(3.0), 10), back_off=4)
    assert result.status == "finished"
    assert result.history["step"].tolist() == list(range(90))
    assert result.restarts[0] == "by hand"
    assert float(result.x) == 70 + 80 * 0.375  # 3/8 is the first of these steps that 80 fit into below 100
    assert len(result.restarts) == 4


@pytest.mark.parametrize("chunk", [1, 5, None])
def test_back_off_halves_the_solver_in_force(chunk):
    result = diverging(Diverging(8.0), stop=RestartOnce(5, Diverging(2.0), 5), back_off=2, chunk=chunk, steps=40)
    assert float(result.x) == 40 + 35 * 1.0
    assert result.restarts == ("by hand", "the step sizes were halved")


@pytest.mark.parametrize(("step", "state"), [(-3, True), (6, True), (10**6, True), (3, False)])
def test_a_restart_that_makes_no_sense_is_refused(step, state):
    class Wrong(ub.Between):
        def after(self, view):
            if view.record.step == 5 and not view.record.restarts:
                return ub.Restart(view.solver, view.state if state else None, step, "wrong")
            return None

    with pytest.raises(ValueError, match=r"Restart\(…, step="):
        diverging(Diverging(1.0), stop=Wrong(), chunk=5)


class Always(ub.Between):
    def __init__(self, answer):
        self.answer = answer

    def after(self, view):
        return self.answer(view)


class KeepNothing(ub.Between):
    def keep(self, log):
        return 0


def test_what_would_never_end_is_refused():
    with pytest.raises(RuntimeError, match="restarted 1000 times without making a step"):
        diverging(Diverging(1.0), stop=Always(lambda view: ub.Restart(view.solver, view.state, 0, "again")))
    with pytest.raises(ValueError, match=r"no progress: KeepNothing\.keep\(log\) returned 0, .* after step 0, "):
        diverging(Diverging(1.0), stop=[ub.MaxCalls(10**6), KeepNothing()])
    with pytest.raises(TypeError, match=r"Always\.after must return None, an End or a Restart; got True"):
        diverging(Diverging(1.0), stop=Always(lambda view: True))


class Noting(ub.Between):
    """Notes a number of its own at every look."""

    def after(self, view):
        view.record.note({"own": float(view.record.step)})


@pytest.mark.parametrize("order", [1, -1])
def test_numbers_of_ones_own_stand_beside_the_metrics(order):
    rules = [Noting(), ub.Below("size", -1.0), ub.Below("own", -1.0)][::order]
    rules = sorted(rules, key=lambda rule: isinstance(rule, ub.Below))  # noted before it is asked for
    result = diverging(
        Diverging(1.0), 20, stop=rules, metrics=lambda problem, state: {"size": state.x}, every=5, chunk=5
    )
    assert result.metrics["step"].tolist() == [0, 5, 10, 15, 20]
    assert result.metrics["own"].tolist() == result.metrics["size"].tolist() == [0, 5, 10, 15, 20]


def test_a_nan_of_a_replaced_solver_is_forgotten():
    """The step after 25 would be NaN, but a rule has gone on from there with a smaller step."""

    class Smaller(ub.Between):
        def after(self, view):
            if float(view.state.x) == 100 and view.solver.step_size == 4:
                return ub.Restart(Diverging(0.0), view.state, view.record.step, "smaller")
            return None

    for chunk in (1, 64):
        result = diverging(Diverging(4.0), 40, stop=Smaller(), chunk=chunk)
        assert (result.status, float(result.x)) == ("finished", 100.0)


def test_an_end_from_callbacks_is_measured():
    end = Always(lambda view: ub.End(ub.Status.budget, "enough") if view.record.step >= 14 else None)
    size = {"metrics": lambda problem, state: {"size": state.x}, "every": 10, "chunk": 7}
    assert diverging(Diverging(1.0), 40, callbacks=end, **size).metrics["step"].tolist() == [0, 10, 17]


def test_a_rule_may_say_how_it_ends_a_run():
    def rule(problem, state, row):
        return row["step"] >= 5

    assert diverging(Diverging(1.0), 20, stop=rule, chunk=5).status == "budget"
    rule.status = ub.Status.diverged  # type: ignore[attr-defined]
    assert diverging(Diverging(1.0), 20, stop=rule, chunk=5).status == "diverged"


def test_a_log_of_a_run_that_is_restarted_at_once(tmp_path):
    """Lines of an attempt that was given up are cut off, by step and by the number of restarts."""
    log = ub.logs.JSONLines(tmp_path / "log")
    for step, restarts in ((64, 0), (80, 0), (96, 0), (72, 1), (88, 1)):
        log({"step": step, "restarts": restarts})
    log.begin(90, 0)
    log({"step": 98, "restarts": 0})
    rows = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [(row["step"], row["restarts"]) for row in rows] == [(64, 0), (80, 0), (98, 0)]
