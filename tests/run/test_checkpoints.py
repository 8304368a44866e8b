"""Checkpoints: bitwise the same run after any stop, damaged files passed over, other runs refused."""

import os
import signal
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unibio as ub
from unibio.files.archive import decode, encode
from unibio.run import checkpoints, history_file, identity

KEY = jax.random.key(3)
NOISE = ub.Noise(grad_y_g=0.1, grad_z_f=0.1)
PROBLEM = ub.problems.example3(4.0, NOISE, NOISE)
SOLVER = ub.UniBiO(0.03, hypergradient=ub.Neumann(terms=2, scale=1.0))


def solve(folder=None, steps=60, solver=SOLVER, problem=PROBLEM, x=1.0, key=KEY, every=20, **others):
    keep = None if folder is None else ub.Checkpoints(folder, every=every, keep=2)
    return ub.solve(problem, solver, x, 1.0, steps=steps, key=key, checkpoint=keep, every=15, **others)


class StopAt:
    """Sends a signal to this process once a step is reached."""

    def __init__(self, step, number):
        self.step, self.number = step, number

    def __call__(self, row):
        if self.step is not None and row["step"] >= self.step:
            self.step = None
            os.kill(os.getpid(), self.number)


def same(a, b):
    assert float(a.x) == float(b.x)
    assert float(a.y) == float(b.y)
    assert a.calls == b.calls
    for one, other in ((a.history, b.history), (a.metrics, b.metrics)):
        assert list(one) == list(other)
        for name in one:
            if name != "seconds":
                np.testing.assert_array_equal(one[name], other[name])


@pytest.fixture(scope="module")
def undisturbed():
    return solve(metrics=size)


def size(problem, state):
    return {"size": jnp.abs(state.x)}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("step", [7, 20, 33])
def test_interrupted_and_gone_on(tmp_path, undisturbed, number, step):
    before = signal.getsignal(number)
    cut = solve(tmp_path, metrics=size, callbacks=StopAt(step, number), chunk=4)
    assert cut.status == ub.Status.interrupted
    assert cut.message.startswith(f"{signal.Signals(number).name} after {cut.steps} steps")
    assert step <= cut.steps < 60
    assert signal.getsignal(number) is before
    whole = solve(tmp_path, metrics=size)
    assert whole.status == ub.Status.finished
    if cut.steps % 15 == 0:  # measured there anyway
        same(whole, undisturbed)
    else:  # one more measurement, at the stop
        assert float(whole.x) == float(undisturbed.x)
        np.testing.assert_array_equal(whole.history["direction_norm"], undisturbed.history["direction_norm"])


def test_killed_between_checkpoints(tmp_path, undisturbed):
    """What a kill leaves: older files, and perhaps half of a new one under another name."""
    solve(tmp_path, steps=45, metrics=size)
    (tmp_path / "step-000000000045.checkpoint").unlink()
    (tmp_path / ".step-000000000060.checkpoint.abc").write_bytes(b"half")
    same(solve(tmp_path, metrics=size), undisturbed)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "history-0.log", "step-000000000040.checkpoint", "step-000000000060.checkpoint",
    ]  # fmt: skip
    again = solve(tmp_path, metrics=size)  # nothing left to do
    same(again, undisturbed)
    longer, at_once = solve(tmp_path, steps=80), solve(steps=80)
    assert float(longer.x) == float(at_once.x)


def test_mutated_files_never_give_a_wrong_result(tmp_path):
    """Truncated, flipped, emptied, extended: the older file is used, or none, and the result is the same."""
    rng = np.random.default_rng(0)
    content = encode({"steps": 3}, {"state": [np.arange(5.0), np.ones((2, 2), np.float32)], "history": []})
    facts, arrays = decode(content)
    assert facts == {"steps": 3}
    np.testing.assert_array_equal(arrays["state"][0], np.arange(5.0))
    for _ in range(200):
        kind, place = rng.integers(3), int(rng.integers(len(content)))
        flipped = content[:place] + bytes([content[place] ^ (1 << int(rng.integers(8)))]) + content[place + 1 :]
        bad = (content[:place], flipped, content + bytes(1 + place % 7))[kind]
        with pytest.raises(ValueError, match="damaged or no checkpoint"):
            decode(bad)


def test_mutated_files_of_a_run_are_passed_over(tmp_path):
    """200 more, of a real file: what a run would go on from is what was written, or nothing."""
    solve(tmp_path, steps=20)
    (path,) = ub.Checkpoints(tmp_path).files()
    content, rng = path.read_bytes(), np.random.default_rng(1)
    run = decode(content)[0]["run"]
    assert ub.Checkpoints(tmp_path).newest(run) is not None
    for _ in range(200):
        place, bit = int(rng.integers(len(content))), 1 << int(rng.integers(8))
        flipped = content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]
        path.write_bytes((content[:place], flipped, flipped, b"")[rng.integers(4)])
        with pytest.warns(RuntimeWarning, match="is passed over: it is damaged"):
            assert ub.Checkpoints(tmp_path).newest(run) is None


@pytest.mark.parametrize("damaged", [1, 2])
def test_damaged_checkpoints_are_passed_over(tmp_path, undisturbed, damaged):
    solve(tmp_path, steps=45, metrics=size)
    files = ub.Checkpoints(tmp_path).files()
    for path in files[:damaged]:
        path.write_bytes(path.read_bytes()[:-10])
    with pytest.warns(RuntimeWarning, match="is passed over: it is damaged"):
        whole = solve(tmp_path, metrics=size)
    assert float(whole.x) == float(undisturbed.x)
    assert (tmp_path / "step-000000000060.checkpoint").exists()
    assert len(list(tmp_path.glob("*.damaged"))) == damaged


def test_stop_rules_and_logs_after_a_stop_between_measurements(tmp_path):
    """Below asks for a metric that was last measured before the stop."""
    rule = ub.Below("size", 0.5)
    whole = solve(metrics=size, stop=rule)
    assert whole.status == "ok"
    log = ub.logs.JSONLines(tmp_path / "log.jsonl")
    cut = solve(tmp_path, metrics=size, stop=rule, callbacks=StopAt(7, signal.SIGTERM), chunk=4)
    assert cut.steps % 15
    gone_on = solve(tmp_path, metrics=size, stop=rule, callbacks=log)
    assert gone_on.status == "ok"
    same(gone_on, whole)
    assert "size" in (tmp_path / "log.jsonl").read_text().splitlines()[0]


class Edited(ub.SGD):
    """The same fields, another method."""

    def __call__(self, gradient, draw, y, p):
        return super().__call__(gradient, draw, y, p)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"solver": ub.UniBiO(0.031, hypergradient=ub.Neumann(terms=2, scale=1.0))}, "solver"),
        ({"solver": ub.UniBiO(0.03, hypergradient=ub.Neumann(terms=3, scale=1.0))}, "solver"),
        ({"x": 0.9}, "x0"),
        ({"key": jax.random.key(4)}, "key"),
        ({"problem": ub.problems.example3(6.0, NOISE, NOISE)}, "the problem's numbers or data"),
        ({"problem": ub.problems.example3(4.0, NOISE, ub.Noise(grad_y_g=0.2, grad_z_f=0.1))}, "the problem's numbers"),
    ],
)
def test_another_run_is_refused(tmp_path, change, field):
    solve(tmp_path, steps=20)
    with pytest.raises(ValueError, match=f"belongs to another run, which differs in .*{field}"):
        solve(tmp_path, steps=20, **change)


@pytest.mark.slow
def test_a_stream_goes_on_from_a_checkpoint_and_is_no_other_way_to_draw(tmp_path):
    """Bitwise after a stop in the middle of a pass; and whoever drew otherwise did not write that checkpoint."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(24, 3)), rng.normal(size=24)
    x, y = jnp.zeros(24), jnp.zeros(3)

    def run(folder, steps, **drawing):
        sampler = ub.Dataset(data, 4, **drawing)
        of_data = ub.problems.lp_regression(data, data, 2.0)
        problem = ub.Problem(of_data.f, of_data.g, 2.0, f_batches=sampler, g_batches=sampler)
        keep = None if folder is None else ub.Checkpoints(folder, every=5)
        return ub.solve(problem, ub.SOBA(0.1, 0.1), x, y, steps=steps, key=KEY, checkpoint=keep)

    run(tmp_path, 10, stream=True)
    whole, at_once = run(tmp_path, 23, stream=True), run(None, 23, stream=True)
    np.testing.assert_array_equal(whole.x, at_once.x)
    np.testing.assert_array_equal(whole.y, at_once.y)
    for other in ({"replace": False}, {"replace": True}):
        with pytest.raises(ValueError, match="how samples are drawn"):
            run(tmp_path, 23, **other)


@pytest.mark.slow
def test_optimisers_that_differ_in_a_number_they_close_over(tmp_path):
    """It stands in the program of a step, though in no field of the solver."""
    with jax.numpy_dtype_promotion("standard"):
        made = [ub.UniBiO(0.1, optimiser=optax.adam(rate)) for rate in (1e-3, 1e-3, 1e-2)]
        solve(tmp_path, steps=20, solver=made[0])
        assert solve(tmp_path, steps=25, solver=made[1]).steps == 25
        with pytest.raises(ValueError, match="belongs to another run: a step is another program"):
            solve(tmp_path, steps=25, solver=made[2])


def test_not_strict(tmp_path):
    """What differs is told, and the run goes on from the checkpoint."""
    solve(tmp_path, steps=20)
    other = ub.UniBiO(0.031, hypergradient=ub.Neumann(terms=3, scale=1.0))
    keep = ub.Checkpoints(tmp_path, strict=False)
    with pytest.warns(RuntimeWarning, match="goes on from it") as warned:
        result = ub.solve(PROBLEM, other, 1.0, 1.0, steps=30, key=KEY, checkpoint=keep)
    assert result.steps == 30
    assert "differs in solver" in str(warned[0].message)
    assert "a step is another program" in str(warned[1].message)


def slightly_other(factor):
    """Example 3 with a constant of its own in f, which no field of the problem has."""
    problem = ub.problems.example3(4.0)
    return ub.Problem(lambda x, y, batch: factor * problem.f(x, y, batch), problem.g, 4.0)


@pytest.mark.parametrize(("factor", "refused"), [(1.0, False), (1 + 1e-9, False), (1.001, True)])
def test_other_circumstances(tmp_path, monkeypatch, factor, refused):
    """With other versions the bits may differ, but not the numbers."""
    smooth = ub.SOBA(0.1, 0.1)
    solve(tmp_path, steps=20, problem=slightly_other(1.0), solver=smooth)
    where = identity.circumstances()
    monkeypatch.setattr(checkpoints, "circumstances", lambda: where | {"versions": ["jax 0.0"]})
    if refused:
        with pytest.raises(ValueError, match="differs by more than 1e-06, also in versions"):
            solve(tmp_path, steps=25, problem=slightly_other(factor), solver=smooth)
    elif factor != 1:
        with pytest.warns(RuntimeWarning, match=r"written under other circumstances \(versions\)"):
            solve(tmp_path, steps=25, problem=slightly_other(factor), solver=smooth)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert solve(tmp_path, steps=25, problem=slightly_other(factor), solver=smooth).steps == 25


def test_files_of_older_versions_are_refused_with_a_sentence(tmp_path):
    content = encode({"fingerprint": {}, "steps": 20, "anchor": None, "halvings": 0}, {"state": [np.ones(2)]})
    (tmp_path / "step-000000000020.checkpoint").write_bytes(content)
    with pytest.raises(ValueError, match="was written by an older version of unibio"):
        solve(tmp_path)


def test_files_of_others_are_left_alone(tmp_path, undisturbed):
    """A copy made by hand, and somebody's notes."""
    solve(tmp_path, steps=20, metrics=size)
    names = ("step-000000000020-backup.checkpoint", "notes.txt", "step-20.checkpoint")
    for name in names:
        (tmp_path / name).write_text("mine")
    assert float(solve(tmp_path, metrics=size).x) == float(undisturbed.x)
    assert all((tmp_path / name).read_text() == "mine" for name in names)


def test_a_history_is_appended_and_its_end_cut_off(tmp_path):
    """Each checkpoint writes its own rows only; what a killed run wrote beyond its last checkpoint is not read."""
    path = tmp_path / "history-0.log"
    solve(tmp_path, steps=20)
    first = path.read_bytes()
    solve(tmp_path, steps=40)
    second = path.read_bytes()
    assert second.startswith(first)
    assert len(second) < 2.2 * len(first)
    path.write_bytes(second + b"half a block of a run that was killed")
    longer, at_once = solve(tmp_path, steps=60), solve(steps=60)
    same(longer, at_once)
    assert path.read_bytes().startswith(second)


@pytest.mark.parametrize("place", [0, 3, 300, -5])
def test_a_damaged_history_loses_rows_and_not_the_run(tmp_path, undisturbed, place):
    solve(tmp_path, steps=40)
    path = tmp_path / "history-0.log"
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)
    with pytest.warns(RuntimeWarning, match="some of the history before step 40 is lost"):
        whole = solve(tmp_path)
    assert float(whole.x) == float(undisturbed.x)
    kept = whole.history["step"]
    np.testing.assert_array_equal(whole.history["direction_norm"], undisturbed.history["direction_norm"][kept])
    assert set(range(40, 60)) <= set(kept.tolist())
    with warnings.catch_warnings():  # the file has been written anew
        warnings.simplefilter("error")
        again = solve(tmp_path)
    np.testing.assert_array_equal(again.history["step"], kept)


def test_a_history_without_its_file(tmp_path):
    tables, intact = history_file.read(tmp_path / "history-0.log", 100)
    assert not intact
    assert tables == {"history": {}, "metrics": {}}


def test_metrics_added_to_a_run_on_disk(tmp_path):
    """A rule on a number that was not measured before the stop: it is measured where the run goes on."""
    solve(tmp_path, steps=20)
    more = solve(tmp_path, steps=40, metrics=size, stop=ub.Below("size", 1e-9))
    assert list(more.metrics["step"][:1]) == [20]
    assert "size" in solve(tmp_path, steps=40, metrics=(size, twice), stop=ub.Below("twice", 1e-9)).metrics


def twice(problem, state):
    return {"twice": 2 * jnp.abs(state.x)}


def test_a_full_disk(tmp_path, undisturbed, monkeypatch):
    """The run goes on with a warning; earlier files stay."""
    solve(tmp_path, steps=20, metrics=size)
    (first,) = ub.Checkpoints(tmp_path).files()
    content = first.read_bytes()

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_bytes", full)
    with pytest.warns(RuntimeWarning, match="no checkpoint at step [46]0: No space left on device"):
        whole = solve(tmp_path, metrics=size)
    assert float(whole.x) == float(undisturbed.x)
    assert first.read_bytes() == content


@pytest.mark.parametrize("write", [2, 3], ids=["the history", "the checkpoint"])
def test_a_disk_that_fills_up_during_a_write(tmp_path, undisturbed, monkeypatch, write):
    """Nothing is left of what did not fit, and the next checkpoint is written when there is room again."""
    failing = iter([number == write for number in range(6)])
    fsync = os.fsync

    def full(handle):
        if next(failing):
            raise OSError(28, "No space left on device")
        fsync(handle)

    monkeypatch.setattr("unibio.files.atomic.os.fsync", full)
    with pytest.warns(RuntimeWarning, match="no checkpoint at step 40: No space left on device"):
        whole = solve(tmp_path, metrics=size)
    same(whole, undisturbed)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "history-0.log", "step-000000000020.checkpoint", "step-000000000060.checkpoint",
    ]  # fmt: skip


SMALL_DISK = """
import sys, warnings
sys.path[:0] = {path!r}
import test_checkpoints as t
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    whole = t.solve({folder!r}, metrics=t.size, every=5)
files = t.ub.Checkpoints({folder!r}).files()
for file in files:
    t.decode(file.read_bytes())
t.same(whole, t.solve(metrics=t.size))
print(len(files), len(caught), caught[-1].message)
"""


@pytest.mark.slow
def test_a_small_disk(tmp_path):
    """A real one, 32 KB, filled by somebody else but for 8: the run ends as ever, older checkpoints are whole."""
    code = SMALL_DISK.format(path=sys.path, folder=str(tmp_path))
    disk = f"mount -t tmpfs -o size=32k none {tmp_path} && head -c 24576 /dev/zero > {tmp_path}/other"
    own_mounts = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]  # nobody else sees the disk
    try:
        tried = subprocess.run([*own_mounts, disk], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no unshare here, so no small disk can be mounted")
    if tried.returncode:
        pytest.skip(f"a small disk may not be mounted here: {tried.stderr.strip()}")
    command = [*own_mounts, f'{disk} && exec "$0" -c "$1"', sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    files, warned, last = done.stdout.strip().split(" ", 2)
    assert int(files) >= 1
    assert int(warned) >= 1
    assert "No space left on device. Earlier ones in" in last


def test_bad_arguments(tmp_path):
    with pytest.raises(TypeError, match="checkpoint must be Checkpoints"):
        ub.solve(PROBLEM, SOLVER, 1.0, 1.0, steps=1, key=KEY, checkpoint=str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="every"):
        ub.Checkpoints(tmp_path, every=0)
    for folder in (3, None, "a\0b"):
        with pytest.raises(TypeError, match="must be a path"):
            ub.Checkpoints(folder)  # type: ignore[arg-type]
    done = solve(steps=2)
    with pytest.raises(ValueError, match="either resume=… or checkpoint=…"):
        solve(tmp_path, resume=done)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert solve(tmp_path / "new", steps=2).steps == 2
