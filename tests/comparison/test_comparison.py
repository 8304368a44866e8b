"""compare and tune: the same as single runs, tidy tables, files that come back."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.comparison.tuning import STEP_SIZES
from unibio.core.protocols import Info
from unibio.solvers.step_sizes import replaced, step_size_fields

LP = ub.problems.PROBLEMS["lp_regression"](n=40, d=4, batch_size=8)
QUADRATIC = ub.problems.PROBLEMS["quadratic"]()


def norm_of_x(problem, state):
    return {"size": jax.numpy.sum(state.x**2)}


CASES: dict[str, Any] = {"SOBA": ub.SOBA(10.0, 0.01), "TTSA": ub.TTSA(10.0, 0.01, terms=4)}


@pytest.fixture(scope="module")
def contest():
    return ub.compare(LP.problem, CASES, LP.x, LP.y, seeds=[3, 5], steps=20, metrics=norm_of_x, measurements=4)


@pytest.mark.slow
def test_seeds_equal_single_runs(contest):
    for name, solver in CASES.items():
        for seed in (3, 5):
            lane = contest.lane(name, seed)
            single = ub.solve(
                LP.problem, solver, LP.x, LP.y, steps=20, key=jax.random.key(seed), metrics=norm_of_x, every=5
            )
            assert lane["step"].tolist() == [0, 5, 10, 15, 20]
            np.testing.assert_allclose(lane["size"], single.metrics["size"], rtol=1e-11)
            for column in ("grad_f", "grad_g", "hvp", "cross", "calls"):
                np.testing.assert_array_equal(lane[column], single.metrics[column])


def test_the_table_is_tidy(contest):
    lengths = {len(values) for values in contest.table.values()}
    assert lengths == {2 * 2 * 5}
    assert contest.solvers == ["SOBA", "TTSA"]
    assert "SOBA" in str(contest)
    with pytest.raises(ValueError, match=r"no run of 'UniBiO' with seed 3\. The solvers are SOBA, TTSA; the seeds"):
        contest.lane("UniBiO", 3)


def test_reach(contest):
    lane = contest.lane("SOBA", 3)
    target = lane["size"][2]
    reached = contest.reach(-1.0, "size")
    assert np.isinf(reached["SOBA"]["calls"]).all()
    at_once = contest.reach(0.0, "size")["SOBA"]  # x starts at 0
    assert at_once["calls"].tolist() == [0.0, 0.0]
    assert target > 0
    with pytest.raises(ValueError, match="no metric 'phi' was measured"):
        contest.reach(1.0, "phi")


def test_files_come_back_and_repeat(contest, tmp_path):
    folder = contest.save(tmp_path / "a")
    again = ub.compare(LP.problem, CASES, LP.x, LP.y, seeds=[3, 5], steps=20, metrics=norm_of_x, measurements=4)
    again.save(tmp_path / "b")
    assert (folder / "comparison.csv").read_bytes() == (tmp_path / "b" / "comparison.csv").read_bytes()
    loaded = ub.Comparison.load(folder)
    assert loaded.facts == contest.facts
    for name, values in contest.table.items():
        np.testing.assert_array_equal(loaded.table[name], values)
        assert loaded.table[name].dtype.kind == values.dtype.kind
    assert sorted(path.name for path in folder.iterdir()) == ["comparison.csv", "comparison.json", "timings.csv"]
    assert "seconds" not in (folder / "comparison.csv").read_text().splitlines()[0]


def test_a_budget_of_calls():
    contest = ub.compare(LP.problem, CASES, LP.x, LP.y, seeds=[0, 1], max_calls=2000, metrics=norm_of_x, measurements=5)
    for name in CASES:
        calls = np.asarray([contest.lane(name, seed)["calls"] for seed in (0, 1)]).mean(axis=0)
        assert calls[-1] >= 2000
        assert calls[-1] < 2000 + 2 * 8 * 8  # one step too many at most
        assert len(calls) == 6


@pytest.mark.slow
def test_steps_by_name():
    steps = {"SOBA": 4, "TTSA": 6}
    contest = ub.compare(LP.problem, CASES, LP.x, LP.y, seeds=[0], steps=steps, metrics=norm_of_x, measurements=2)
    assert contest.lane("SOBA", 0)["step"].tolist() == [0, 2, 4]
    assert contest.lane("TTSA", 0)["step"].tolist() == [0, 3, 6]


def test_more_measurements_than_steps_measures_every_step():
    solvers = {"SOBA": CASES["SOBA"]}
    contest = ub.compare(LP.problem, solvers, LP.x, LP.y, seeds=[3, 5], steps=3, metrics=norm_of_x, measurements=50)
    assert contest.lane("SOBA", 3)["step"].tolist() == [0, 1, 2, 3]


@pytest.mark.slow
def test_tune_finds_the_best_of_a_grid():
    """On the quadratic the upper step with the smallest gradient after 30 steps, found by separate runs."""
    grid = {"step_size": [0.01, 0.3, 1.0, 1e6], "lower_step_size": [0.4]}
    tuned = ub.tune(
        QUADRATIC.problem, ub.AmIGO(1.0, 1.0), QUADRATIC.x, QUADRATIC.y, seeds=[0], steps=30, grid=grid, measurements=5
    )
    ends = []
    for size in grid["step_size"][:3]:
        solver = ub.AmIGO(size, 0.4)
        result = ub.solve(
            QUADRATIC.problem,
            solver,
            QUADRATIC.x,
            QUADRATIC.y,
            steps=30,
            key=jax.random.key(0),
            metrics=ub.Truth(),
            every=30,
        )
        ends.append(result.metrics["gradient_norm"][-1])
    np.testing.assert_allclose([score[0] for score in tuned.scores[:3]], ends, rtol=1e-6)
    assert tuned.scores[3] == (np.inf,)
    assert tuned.best == int(np.argmin(ends))
    assert tuned.solver.step_size == grid["step_size"][tuned.best]
    assert tuned.solver.lower_step_size == 0.4


@pytest.mark.slow
def test_tuning_in_turns_changes_nothing():
    options: dict[str, Any]
    options = {"seeds": [0, 1], "steps": 10, "metrics": norm_of_x, "criterion": ub.Final("size"), "measurements": 2}
    grid = {"step_size": [0.1, 1.0, 10.0], "lower_step_size": [0.001, 0.01]}
    results = [
        ub.tune(LP.problem, ub.SOBA(1.0, 1.0), LP.x, LP.y, grid=grid, lanes=lanes, **options) for lanes in (1, 8, 100)
    ]
    for other in results[1:]:
        np.testing.assert_allclose(other.scores, results[0].scores, rtol=1e-10)


def test_the_default_grid_has_one_size_for_every_solver():
    made = [cls(1.0) if name == "UniBiO" else cls(1.0, 1.0) for name, cls in ub.SOLVERS.items()]
    for solver in made:
        upper, lower = step_size_fields(solver)
        changed = replaced(replaced(solver, upper, 0.25), lower, 0.125)
        assert changed.step_size == 0.25
        assert (changed.lower.step_size if "." in lower else changed.lower_step_size) == 0.125
    assert (min(STEP_SIZES), max(STEP_SIZES)) == (0.01, 1.0)


def test_criteria():
    table = {
        "gradient_norm": np.asarray([[4.0, 2.0, 1.0, 1.0, 1.0], [4.0, 3.0, 3.0, np.nan, np.nan]]),
        "calls": np.asarray([[0, 10, 20, 30, 40]] * 2),
    }
    assert ub.Final(share=0.4)(table) == (np.inf,)
    assert ub.Final(share=0.4)({name: values[:1] for name, values in table.items()}) == (1.0,)
    assert ub.CallsToReach(2.5)(table)[0] == np.inf
    assert ub.CallsToReach(3.0)(table)[0] == 10.0
    with pytest.raises(ValueError, match="no metric 'phi' was measured"):
        ub.Final("phi")(table)


@pytest.mark.slow
def test_everything_diverged():
    with pytest.raises(ValueError, match=r"none of the 1 settings has a finite score.*smaller"):
        ub.tune(
            QUADRATIC.problem,
            ub.AmIGO(1.0, 1.0),
            QUADRATIC.x,
            QUADRATIC.y,
            seeds=[0],
            steps=30,
            grid={"step_size": [1e6]},
            measurements=5,
        )


EXAMPLE3, SOBA = ub.problems.example3(4.0), ub.SOBA(0.1, 0.1)


def test_a_budget_between_float_coincidences_ends():
    solver = {"T": ub.TTSA(0.1, 0.1)}
    contest = ub.compare(
        EXAMPLE3, solver, 1.0, 1.0, seeds=[114, 115, 116], max_calls=700, measurements=30, metrics=norm_of_x
    )
    steps = contest.lane("T", 114)["step"]
    assert np.all(np.diff(steps) > 0)


class Idle(eqx.Module):
    """Reports no calls."""

    def init(self, problem, x, y, key):
        return ub.solvers.stocbio.State(x, y), Info(jnp.zeros(()), ub.Calls())

    step = lambda self, problem, state, key: (state, Info(jnp.zeros(()), ub.Calls()))


def test_a_solver_without_calls_has_no_budget():
    with pytest.raises(ValueError, match="Idle reports no calls"):
        ub.compare(EXAMPLE3, {"idle": Idle()}, 1.0, 1.0, seeds=[0], max_calls=10, metrics=norm_of_x)


def test_a_diverged_lane_is_worst_whatever_its_metric_says():
    table = {"accuracy": np.asarray([[0.5, 0.5]]), "finite": np.asarray([[True, False]]), "calls": np.zeros((1, 2))}
    assert ub.Final("accuracy", share=0.5)(table) == (np.inf,)


def test_nothing_to_choose_from():
    def hopeless(problem, state):
        return {"q": state.x * jnp.nan}

    with pytest.raises(ValueError, match=r"none of the 25 settings.*NaN everywhere"):
        ub.tune(EXAMPLE3, SOBA, 1.0, 1.0, seeds=[0], steps=2, metrics=hopeless, criterion=ub.Final("q"))


def test_a_boolean_metric_comes_back_from_disk(tmp_path):
    def right(problem, state):
        return {"right": state.x > 0}

    contest = ub.compare(EXAMPLE3, {"a": SOBA}, 1.0, 1.0, seeds=[0], steps=2, metrics=right, measurements=1)
    loaded = ub.Comparison.load(contest.save(tmp_path))
    assert loaded.table["right"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("seeds", [[0, 0], [-1], [2**32], 3, [], [0.5]])
def test_seeds_are_checked(seeds):
    with pytest.raises(ValueError, match="seeds must"):
        ub.compare(EXAMPLE3, {"a": SOBA}, 1.0, 1.0, seeds=seeds, steps=2)
