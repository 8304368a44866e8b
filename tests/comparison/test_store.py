"""Sweeps on disk: what is finished is not computed again, and nothing else is mistaken for it."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import unibio as ub
from unibio.cli.app import app
from unibio.run import ensemble

SETTING = ub.problems.PROBLEMS["quadratic"]()
CASES: dict[str, Any] = {"SOBA": ub.SOBA(0.1, 0.1), "TTSA": ub.TTSA(0.1, 0.1, terms=2)}


def size(problem, state):
    return {"gradient_norm": jnp.sum(state.x**2)}


@pytest.fixture
def counted(monkeypatch):
    """How often an ensemble was really run."""
    runs = []
    real = ensemble.run_ensemble

    def run(*args, **options):
        runs.append(options["title"])
        return real(*args, **options)

    monkeypatch.setattr(ensemble, "run_ensemble", run)
    return runs


def compare(folder, solvers=CASES, **changes):
    options: dict[str, Any] = {"seeds": [1, 2], "steps": 12, "measurements": 3, "metrics": size} | changes
    return ub.compare(SETTING.problem, solvers, SETTING.x, SETTING.y, folder=folder, **options)


@pytest.mark.slow
def test_a_second_comparison_reads_what_the_first_kept(tmp_path, counted):
    first = compare(tmp_path)
    second = compare(tmp_path)
    assert counted == ["SOBA", "TTSA"]
    for name in first.table:
        np.testing.assert_array_equal(first.table[name], second.table[name])
    alone = compare(None)
    for name in set(first.table) - {"seconds"}:
        np.testing.assert_array_equal(first.table[name], alone.table[name])


def test_only_what_is_missing_is_computed(tmp_path, counted):
    compare(tmp_path, {"SOBA": CASES["SOBA"]})
    both = compare(tmp_path)
    assert counted == ["SOBA", "TTSA"]
    assert both.solvers == ["SOBA", "TTSA"]


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": [1, 3]},
        {"steps": 13},
        {"measurements": 4},
        {"metrics": ub.LowerResidual()},
        {"solvers": CASES | {"SOBA": ub.SOBA(0.2, 0.1)}},
    ],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.slow
def test_another_sweep_is_another_piece(tmp_path, counted, change):
    compare(tmp_path)
    compare(tmp_path, **change)
    assert len(counted) == (3 if "solvers" in change else 4)


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unibio.files.store.write_bytes", full)
    with pytest.warns(RuntimeWarning, match="is not kept: No space left on device"):
        found = compare(tmp_path)
    np.testing.assert_array_equal(found.table["gradient_norm"], compare(None).table["gradient_norm"])


def test_a_damaged_piece_is_made_anew(tmp_path, counted):
    first = compare(tmp_path)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(RuntimeWarning, match="is made anew"):
        again = compare(tmp_path)
    assert len(counted) == 4
    np.testing.assert_array_equal(first.table["gradient_norm"], again.table["gradient_norm"])


@pytest.mark.slow
def test_a_grid_search_continues(tmp_path, counted):
    def tune(**options):
        grid = {"step_size": [0.1, 0.2, 0.3]}
        where = (SETTING.problem, CASES["SOBA"], SETTING.x, SETTING.y)
        return ub.tune(*where, seeds=[0], steps=10, grid=grid, lanes=1, metrics=size, **options)

    tune(folder=tmp_path)
    next(tmp_path.iterdir()).unlink()
    found = tune(folder=tmp_path)
    assert len(counted) == 4  # three turns, then the one that is gone
    assert found.scores == tune().scores


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.slow
def test_the_command_line_resumes(tmp_path, monkeypatch, resume):
    titles = []
    real = ensemble.run_ensemble

    def run(*args, **options):
        titles.append(options["title"])
        if titles == ["SOBA", "TTSA"]:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(ensemble, "run_ensemble", run)
    command = ["compare", "SOBA", "TTSA", "--steps", "10", "--seeds", "1", "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(app, command).exit_code != 0
    assert len(list(tmp_path.glob("out/.pieces/*.table"))) == 1
    again = CliRunner().invoke(app, [*command, "--resume"] if resume else command)
    assert again.exit_code == 0, again.output
    assert titles == ["SOBA", "TTSA", *(["TTSA"] if resume else ["SOBA", "TTSA"])]
    assert not (tmp_path / "out" / ".pieces").exists()
    assert (tmp_path / "out" / "comparison.csv").exists()


def test_resume_needs_a_folder():
    result = CliRunner().invoke(app, ["compare", "SOBA", "--resume"])
    assert isinstance(result.exception, ValueError)
    assert "--out" in str(result.exception)
