"""Objects between stretches: a user's own can do what ours can."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub

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


@pytest.mark.parametrize(("method", "value"), [("limit", 3), ("keep", -1)])
def test_answers_that_make_no_sense_are_refused(method, value):
    wrong = type("Wrong", (ub.Between,), {method: lambda self, argument: value})()
    with pytest.raises((ValueError, TypeError), match=rf"Wrong\.{method}|not supported between"):
        solve(stop=wrong, chunk=3)
