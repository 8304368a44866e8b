"""Runs on a mesh: two processes on this machine against one, the death of one of them, and other numbers of devices."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from common import two_processes as runs
from jax.sharding import PartitionSpec

import unibio as ub
from unibio import distributed
from unibio.distributed import placement
from unibio.distributed.dataset import Sharded
from unibio.run import identity

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
        flags = os.environ.get("XLA_FLAGS", "").split()
        env["XLA_FLAGS"] = " ".join(flag for flag in flags if "device_count" not in flag)
        log = (folder / f"{mode}{process}.log").open("w")
        command = [sys.executable, str(SCRIPT), mode, str(folder)]
        started.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
        log.close()
    try:
        started[1].wait(timeout=500)
        second_ended = time.monotonic()
        started[0].wait(timeout=60)
    finally:
        for running in started:
            running.kill()
            running.wait()
    logs = [(folder / f"{mode}{process}.log").read_text() for process in range(2)]
    return [(p.returncode, text) for p, text in zip(started, logs, strict=True)], time.monotonic() - second_ended


def assert_close(found, wanted):
    """Within 1e-12: of each entry of a table, and of the largest entry of x and y (whose names are paths)."""
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        scale = np.max(np.abs(values)) if name.startswith("[") else 0.0
        np.testing.assert_allclose(found[name], values, rtol=1e-12, atol=1e-12 * scale, err_msg=name)


def test_two_processes(tmp_path):
    """They give the trajectory of one; when one dies the other ends soon and says so; the run goes on with one
    process, and again with two, to the undisturbed end. (One test, so that no second worker starts them all again.)"""
    (first, second), outlived = launch("trajectories", tmp_path)
    assert second[0] == -signal.SIGKILL, second[1]
    saba = check_trajectories(tmp_path, [runs.PAIR])[runs.PAIR]
    assert first[0] not in (0, None)
    assert outlived < 30
    assert re.search("another task died|(reset|closed) by peer", first[1]), first[1]  # JAX's own message
    check_resumes(tmp_path, saba)


@pytest.mark.slow
def test_every_solver_on_every_problem_in_two_processes(tmp_path):
    """Each of the seven pairs gives the trajectory of one process, and a comparison its table."""
    ends, _ = launch("pairs", tmp_path)
    assert [code for code, _ in ends] == [0, 0], ends
    check_trajectories(tmp_path, runs.PAIRS)
    table = runs.compared()
    for process in range(2):
        assert_close(dict(np.load(tmp_path / f"compared{process}.npz")), table)


def check_trajectories(folder, pairs):
    """Against runs in this process, without a mesh, which are returned."""
    saved = [np.load(folder / f"process{process}.npz") for process in range(2)]
    settings = {"cleaning": runs.cleaning(), "regression": runs.regression(), "streamed": runs.streamed()}
    single = {}
    for name, solver in pairs:
        problem, x, y = settings[name]
        wanted = single[name, solver] = runs.columns(runs.solve(problem, runs.CASES[solver], x, y))
        assert np.ptp(wanted["direction_norm"]) > 0
        for file in saved:
            start = f"{name}/{solver}/"
            assert_close({key.removeprefix(start): file[key] for key in file.files if start in key}, wanted)
    return single


def check_resumes(folder, saba):
    names = sorted(path.name for path in (folder / "checkpoints").iterdir())
    steps = [f"step-{step:012d}" for step in (20, 40)]
    assert names == ["history-0.log", *(f"{step}.{kind}" for step in steps for kind in ("checkpoint", "state"))]
    problem, x, y = distributed.shard(*runs.regression(), distributed.mesh())
    with pytest.warns(RuntimeWarning, match=r"written under other circumstances \(devices\)"):
        part = runs.solve(problem, runs.CASES["SABA"], x, y, folder / "checkpoints", steps=70)
    assert part.steps == 70
    ends, _ = launch("resume", folder)
    assert [code for code, _ in ends] == [0, 0], ends
    for process in range(2):
        assert_close(dict(np.load(folder / f"resumed{process}.npz")), saba)
    with pytest.raises(ValueError, match="belongs to another run, which differs in key"):
        runs.solve(problem, runs.CASES["SABA"], x, y, folder / "checkpoints", key=jax.random.key(1))


def test_what_does_not_fit_on_a_mesh_is_refused():
    """Two devices on paper: the refusals look at numbers only."""
    mesh = jax.sharding.AbstractMesh((2, 1), ("samples", "parameters"))
    with pytest.raises(ValueError, match="7 samples cannot be cut evenly over 2 devices: use 6 of them, or 1 device"):
        distributed.rows_of_this_process(7, mesh)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3 samples in a batch cannot be cut evenly over 2 devices: use 2 of them"):
        Sharded(ub.Dataset(np.zeros(8), batch_size=3), mesh)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="this process has to give the samples 0 to 7, 8 rows; got an array of shape"):
        distributed.from_local(np.zeros(7), 8, distributed.mesh())
    with pytest.raises(ValueError, match="parameters=2 does not divide the number of devices, 1"):
        distributed.mesh(parameters=2)


def test_half_an_address_is_refused(monkeypatch):
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    with pytest.raises(ValueError, match="give all of coordinator_address"):
        distributed.initialise()


def test_checksums_know_every_entry_and_its_place():
    array = jax.random.normal(jax.random.key(0), (5, 3))
    sums = np.asarray(identity._checksums(array))
    for other in (array.at[4, 2].multiply(1 + 1e-15), array[::-1], array.at[0, 0].multiply(-1), array.T.reshape(5, 3)):
        assert np.any(np.asarray(identity._checksums(other)) != sums)
    for dtype in (np.int8, np.int32, np.int64, np.float32, bool):
        assert identity._checksums(array.astype(dtype)).dtype == np.uint32


@pytest.mark.parametrize("drawing", [{"batch_size": runs.BATCH, "stream": True}, {"batch_size": None}], ids=repr)
@pytest.mark.slow
def test_streams_and_everything_on_a_mesh(drawing):
    """VRBO, which enlarges batches, on a mesh of one device: the run without a mesh."""
    problem, x, y = runs.regression(**drawing)
    solver = ub.VRBO(0.1, 0.002, terms=1)
    wanted = runs.columns(runs.solve(problem, solver, x, y, steps=10))
    problem, x, y = distributed.shard(problem, x, y, distributed.mesh())
    assert_close(runs.columns(runs.solve(problem, solver, x, y, steps=10)), wanted)


def test_a_rule_places_the_parameters():
    """On one device nothing moves, but state and result lie where the rule says."""
    mesh = distributed.mesh()
    _, x, y = distributed.shard(*runs.regression(), mesh, lambda path, shape: PartitionSpec("parameters"))
    assert y.sharding.spec == PartitionSpec("parameters")
    saba: Any = runs.CASES["SABA"]
    state = placement.placed(saba, x, y).shardings({"x": x, "y": y, "table": np.zeros((9, runs.D))})
    specs = {name: sharding.spec for name, sharding in state.items()}
    wanted = {"x": ("samples",), "y": ("parameters",), "table": (None, "parameters")}
    assert specs == {name: PartitionSpec(*spec) for name, spec in wanted.items()}


@pytest.mark.slow
def test_a_damaged_state_is_refused_with_what_to_do(tmp_path):
    problem, x, y = distributed.shard(*runs.regression(), distributed.mesh())
    arguments = (problem, runs.CASES["StocBiO"], x, y, tmp_path)
    runs.solve(*arguments, steps=40, back_off=1)  # so that an anchor is in the files too
    shutil.rmtree(tmp_path / "step-000000000040.state")
    with pytest.raises(ValueError, match=r"(?s)could not be read .* delete the file step-0+40\.checkpoint beside"):
        runs.solve(*arguments, steps=60, back_off=1)
    (tmp_path / "step-000000000040.checkpoint").unlink()
    assert_close(runs.columns(runs.solve(*arguments, back_off=1)), runs.columns(runs.solve(*arguments[:-1])))


@pytest.mark.slow
def test_a_state_of_another_solver_is_not_called_damaged_alone(tmp_path):
    """With `strict=False` it is read, and its arrays do not fit: the checkpoint is a good one of another run."""
    problem, x, y = distributed.shard(*runs.regression(), distributed.mesh())
    keep = ub.Checkpoints(tmp_path, every=5, strict=False)
    runs.solve(problem, runs.CASES["StocBiO"], x, y, steps=10, checkpoint=keep)
    with (
        pytest.warns(RuntimeWarning, match="belongs to another run, which differs in solver"),
        pytest.raises(ValueError, match=r"(?s)state could not be read .* Or it holds the state of another solver"),
    ):
        runs.solve(problem, runs.CASES["SABA"], x, y, steps=20, checkpoint=keep)
