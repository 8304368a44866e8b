"""Runs on a mesh: two processes on this machine against one, the death of one of them, and other numbers of devices."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from run import two_processes as runs

from unibio import distributed

SCRIPT = Path(runs.__file__)


def launch(mode, folder):
    """Two processes with one device each, joined over a free port; their (exit code, stderr) and the seconds the first
    outlived the second."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for process in range(2):
        which = {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": str(process)}
        env = os.environ | {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", "JAX_PLATFORMS": "cpu"} | which
        env.pop("XLA_FLAGS", None)
        log = (folder / f"{mode}{process}.log").open("w")
        command = [sys.executable, str(SCRIPT), mode, str(folder)]
        started.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
        log.close()
    try:
        started[1].wait(timeout=240)
        second_ended = time.monotonic()
        started[0].wait(timeout=60)
    finally:
        for process in started:
            process.kill()
            process.wait()
    logs = [(folder / f"{mode}{process}.log").read_text() for process in range(2)]
    return [(p.returncode, text) for p, text in zip(started, logs, strict=True)], time.monotonic() - second_ended


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The folder of the two processes' runs, the first left without the second in the last of them."""
    folder = tmp_path_factory.mktemp("two")
    (first, second), outlived = launch("trajectories", folder)
    assert second[0] == -9, second[1]
    return folder, first, outlived


@pytest.fixture(scope="module")
def saba():
    """The undisturbed run on one process, without a mesh."""
    problem, x, y = runs.regression()
    return runs.columns(runs.solve(problem, runs.SOLVERS["SABA"], x, y))


def assert_close(found, wanted):
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-12, atol=1e-12 * np.max(np.abs(values)), err_msg=name)


@pytest.mark.parametrize("name", ["regression", "cleaning"])
@pytest.mark.parametrize("solver", runs.SOLVERS)
def test_two_processes_give_the_trajectory_of_one(two, saba, name, solver):
    problem, x, y = {"regression": runs.regression, "cleaning": runs.cleaning}[name]()
    again = name == "regression" and solver == "SABA"
    wanted = saba if again else runs.columns(runs.solve(problem, runs.SOLVERS[solver], x, y))
    for process in range(2):
        saved = np.load(two[0] / f"process{process}.npz")
        prefix = f"{name}/{solver}/"
        assert_close({k[len(prefix) :]: saved[k] for k in saved.files if k.startswith(prefix)}, wanted)
    assert np.ptp(wanted["direction_norm"]) > 0


def test_the_survivor_ends_soon_and_says_what_to_do(two):
    _, (code, said), outlived = two
    assert code not in (0, None)
    assert outlived < 30
    assert "process 0 of 2 ended before the run did" in said
    assert "goes on from the last checkpoint" in said


def test_the_run_goes_on_with_one_process_and_again_with_two(two, saba):
    folder = two[0]
    names = sorted(path.name for path in (folder / "checkpoints").iterdir() if "tmp" not in path.name)
    steps = [f"step-{step:012d}" for step in (20, 40)]
    assert names == [f"{step}.{kind}" for step in steps for kind in ("checkpoint", "state")]
    setting = distributed.shard(*runs.regression(), distributed.mesh())
    problem, x, y = setting
    part = runs.solve(problem, runs.SOLVERS["SABA"], x, y, folder / "checkpoints", steps=70)
    assert part.steps == 70
    ends, _ = launch("resume", folder)
    assert [code for code, _ in ends] == [0, 0], ends
    for process in range(2):
        assert_close(dict(np.load(folder / f"resumed{process}.npz")), saba)
    with pytest.raises(ValueError, match="belongs to another run: key"):
        runs.solve(problem, runs.SOLVERS["SABA"], x, y, folder / "checkpoints", key=jax.random.key(1))
