"""Folders of checkpoints in which somebody else has been at work: copies, forgeries, read-only, another key."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.files import archive
from unibio.run import checkpoints

KEY = jax.random.key(3)
PROBLEM = ub.problems.example3(4.0)
SOLVER = ub.SOBA(0.05, 0.1)


def solve(folder=None, steps=40, key=KEY, x=1.0, y=1.0, problem=PROBLEM, solver=SOLVER, **others):
    keep = None if folder is None else ub.Checkpoints(folder, every=10, keep=3)
    return ub.solve(problem, solver, x, y, steps=steps, key=key, checkpoint=keep, **others)


LATER = """
import argparse, sys
import jax, jax.numpy as jnp
import unibio as ub

jax.config.update("jax_enable_x64", True)
args = argparse.Namespace(limit=float(sys.argv[2]))


def f(x, y, batch):
    return -jnp.sum(jnp.where(y < args.limit, y, args.limit))


def g(x, y, batch):
    return jnp.sum((y - x) ** 2) / 2


problem = ub.Problem(f, g, 2.0)
keep = ub.Checkpoints(sys.argv[1], every=20)
done = ub.solve(problem, ub.SOBA(0.01, 0.1), jnp.zeros(2), jnp.zeros(2), steps=int(sys.argv[3]),
                key=jax.random.key(0), checkpoint=keep)
print(done.steps)
"""


def test_a_constant_that_acts_later_is_refused_in_a_new_process(tmp_path):
    """argparse's limit is in the program, although no y has reached it yet."""

    def run(limit, steps):
        command = [sys.executable, "-c", LATER, str(tmp_path), limit, str(steps)]
        return subprocess.run(command, capture_output=True, text=True)

    assert run("100.", 40).stdout == "40\n"
    assert run("100.", 41).stdout == "41\n"  # the same run, in a new process, goes on
    other = run("3.", 60)
    assert "ValueError" in other.stderr
    assert "belongs to another run: a step is another program" in other.stderr


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"key": jax.random.key(4)}, "key"),
        ({"x": 1.5}, "x0"),
        ({"y": 0.5}, "y0"),
        ({"problem": ub.problems.example3(3.0)}, "the problem's numbers or data"),
    ],
)
def test_a_result_is_not_continued_by_another_run(change, field):
    part = solve(steps=20)
    assert float(solve(resume=part).x) == float(solve().x)
    with pytest.raises(ValueError, match=f"resume is a Result of another run, which differs in {field}"):
        solve(resume=part, **change)
    smaller = ub.SOBA(0.025, 0.05)  # which is a decision, not a mistake
    assert solve(resume=part, solver=smaller).steps == 40


def test_the_data_are_digested_when_it_is_asked_for(monkeypatch):
    asked = []

    def digest(variable):
        asked.append(variable)
        return "made"

    monkeypatch.setattr("unibio.run.identity.digest", digest)
    part = solve(steps=20)
    assert not asked
    assert part.origin["x0"] == "made"
    assert pickle.loads(pickle.dumps(part.origin)) == dict(part.origin)
    assert len(asked) == 5  # solver, problem, x0, y0, key: once


def test_copies_and_notes_are_left_alone(tmp_path):
    """Also at the first write, and names that begin like ours."""
    names = ("step-000000000030-backup.checkpoint", "history-notes.log", ".step-mine.checkpoint.old", "step-1.state")
    for name in names:
        (tmp_path / name).write_text("mine")
    whole = solve(tmp_path)
    assert float(whole.x) == float(solve().x)
    assert solve(tmp_path, steps=80, x=1.0).steps == 80
    assert all((tmp_path / name).read_text() == "mine" for name in names)


def nobody(code, *arguments):
    """Runs Python code as a user whom the permissions of a folder bind: of root, only the right to ignore them goes."""
    drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        drop = []
    return subprocess.run([*drop, sys.executable, "-c", code, *arguments], capture_output=True, text=True)


READ_ONLY = """
import sys, warnings
sys.path[:0] = {path!r}
import os
os.environ["HOME"] = "/nonexistent"
import jax
jax.config.update("jax_enable_x64", True)
import test_hostile_folders as t
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        print(t.solve(sys.argv[1], steps=int(sys.argv[2])).steps)
    except OSError as error:
        print("OSError", error)
print([str(each.message)[:400] for each in caught])
"""


@pytest.fixture
def read_only(tmp_path):
    """A folder with checkpoints of steps 20, 30 and 40 that can be read but not written."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and there is no setpriv to become another user")
    folder = tmp_path / "run"
    solve(folder)
    yield folder
    folder.chmod(0o755)


def run_read_only(folder, steps):
    for each in (folder, *folder.iterdir()):
        each.chmod(0o555)
    return nobody(READ_ONLY.format(path=sys.path), str(folder), str(steps))


def test_a_read_only_folder_ends_the_run_at_once(read_only):
    done = run_read_only(read_only, 60)
    assert done.stdout.startswith("OSError checkpoints cannot be written into"), done.stdout + done.stderr
    assert "Permission denied. Choose a folder that you may write to" in done.stdout


def test_a_complete_run_is_read_from_a_read_only_folder_and_damage_passed_over(read_only):
    assert run_read_only(read_only, 40).stdout == "40\n[]\n"
    newest = read_only / "step-000000000040.checkpoint"
    read_only.chmod(0o755)
    newest.chmod(0o644)
    newest.write_bytes(newest.read_bytes()[:-3])
    done = run_read_only(read_only, 30)
    assert done.stdout.startswith("30\n"), done.stdout + done.stderr
    assert "step-000000000040.checkpoint is passed over: it is damaged" in done.stdout
    assert newest.exists()


@pytest.mark.parametrize("folder", ["file", "file/inside"])
def test_a_folder_that_cannot_be_made(tmp_path, folder):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match=r"checkpoints cannot be written into .*Choose a folder"):
        solve(tmp_path / folder)
    assert (tmp_path / "file").read_text() == "mine"


class Stop:
    """Sends SIGTERM to this process at a step."""

    def __call__(self, row):
        if row["step"] == 20:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(("full_from", "where"), [(25, "from step 20"), (0, "from the start"), (99, "from there")])
def test_an_interrupted_run_promises_only_what_is_on_disk(tmp_path, monkeypatch, full_from, where):
    write = checkpoints.Checkpoints.write

    def full(files, step, facts, state):
        if step >= full_from:
            raise OSError(28, "No space left on device")
        write(files, step, facts, state)

    monkeypatch.setattr(checkpoints.Checkpoints, "write", full)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cut = solve(tmp_path, callbacks=Stop(), chunk=5)
    assert cut.status == "interrupted"
    assert cut.steps == 25
    assert f"the same call goes on {where}" in cut.message
    assert ("No space left on device" in cut.message) == (full_from < 99)
    assert len(caught) == (full_from < 99)  # said once, not at every checkpoint
    if full_from == 0:
        assert "Earlier ones" not in str(caught[0].message)
    monkeypatch.undo()
    assert float(solve(tmp_path).x) == float(solve().x)


def forged(path, change):
    """Changes the facts or arrays of a checkpoint and gives it the right checksum."""
    facts, arrays = archive.decode(path.read_bytes())
    state = arrays["state"]
    replaced = change(facts, state)
    path.write_bytes(archive.encode(facts, {"state": state if replaced is None else replaced}))


FORGERIES = {
    "no run": lambda facts, state: facts.pop("run") and None,
    "a run that is a list": lambda facts, state: facts.update(run=[]),
    "steps as text": lambda facts, state: facts.update(steps="40"),
    "negative steps": lambda facts, state: facts.update(steps=-1),
    "three calls": lambda facts, state: facts.update(calls=[1, 2, 3]),
    "calls beyond int64": lambda facts, state: facts.update(calls=[2**70] * 4),
    "infinite seconds": lambda facts, state: facts.update(seconds=float("inf")),
    "a history elsewhere": lambda facts, state: facts.update(history=["../../etc/passwd", 10]),
    "a history of text": lambda facts, state: facts.update(history="history-0.log"),
    "an anchor beyond": lambda facts, state: facts.update(anchor=10**6),
    "restarts of numbers": lambda facts, state: facts.update(restarts=[1]),
    "an empty probe": lambda facts, state: facts.update(next_step={}),
    "circumstances of text": lambda facts, state: facts.update(circumstances="here"),
}
MISFITS = {
    "too few arrays": lambda facts, state: state[:-1],
    "another shape": lambda facts, state: [np.ones(3), *state[1:]],
    "another dtype": lambda facts, state: [state[0].astype(np.float32), *state[1:]],
    "text": lambda facts, state: [np.asarray("x"), *state[1:]],
}


@pytest.mark.parametrize("change", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_checkpoint_is_passed_over(tmp_path, change):
    solve(tmp_path)
    forged(tmp_path / "step-000000000040.checkpoint", change)
    with pytest.warns(RuntimeWarning, match="step-000000000040.checkpoint is passed over: its entry"):
        again = solve(tmp_path)
    assert float(again.x) == float(solve().x)


@pytest.mark.parametrize("change", MISFITS.values(), ids=MISFITS)
def test_a_checkpoint_with_another_state_is_refused(tmp_path, change):
    solve(tmp_path)
    forged(tmp_path / "step-000000000040.checkpoint", change)
    with pytest.raises(ValueError, match="state of another solver, or of variables of another shape"):
        solve(tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        b"[]\n", b"3\n", b"null\n", b"{}\n", b'{"arrays": 3}\n', b'{"arrays": {"state": [["f8", [9]]]}}\n',
        b'{"arrays": {"state": [["f8", [-1]]]}}\n', b'{"arrays": {"state": [["nope", [1]]]}}\n',
        b'{"arrays": {"state": [["O", [1]]]}}\n12345678', b'{"arrays": {"state": [["f8", [99999999999, 9]]]}}\n',
        b"[" * 100_000 + b"\n", b"no line", b'{"arrays": {}}\nmore',
    ],
)  # fmt: skip
def test_any_content_with_the_right_checksum_is_called_damaged(body):
    import hashlib

    with pytest.raises(ValueError, match="it is damaged or no checkpoint"):
        archive.decode(archive._MAGIC + hashlib.sha256(body).digest() + body)


@pytest.mark.parametrize(
    "table", [{}, {"step": np.arange(2)}, {"step": np.asarray(["a"]), "calls": np.ones(1)}, [np.ones(3)]]
)
def test_a_forged_history_loses_rows_and_not_the_run(tmp_path, table):
    solve(tmp_path)
    path = tmp_path / "history-0.log"
    block = archive.encode({}, {"history": table, "metrics": {"step": np.arange(2), "more": np.arange(3)}})
    content = len(block).to_bytes(8, "big") + block
    length = path.stat().st_size
    path.write_bytes((content + bytes(length))[:length])
    with pytest.warns(RuntimeWarning, match="is damaged: some of the history"):
        assert float(solve(tmp_path, steps=60).x) == float(solve(steps=60).x)


def f_of(batch_rows, x, y):
    return jnp.mean(batch_rows * jnp.sum(y)) + 0.0 * jnp.sum(x)


def f(x, y, batch):
    return f_of(1.0 if batch is None else batch.value, x, y)


def g(x, y, batch):
    rows = 1.0 if batch is None else batch.value
    return jnp.mean(rows) * jnp.sum((y - x) ** 2)


@pytest.mark.parametrize("level", ["f", "g"])
@pytest.mark.parametrize("solver", [SOLVER, ub.UniBiO(0.1, lower=ub.SGD(3, 0.1), hypergradient=ub.Neumann(3, 4.0))])
def test_nan_in_the_data_is_told_with_its_sample(level, solver):
    rows = np.ones(50)
    rows[[17, 31]] = np.nan
    bad, good = ub.Dataset(rows, batch_size=2), ub.Dataset(np.ones(50), batch_size=2)
    batches = {"f_batches": bad if level == "f" else good, "g_batches": bad if level == "g" else good}
    problem = ub.Problem(f, g, 2.0, **batches)
    end = solve(problem=problem, solver=solver, x=np.ones(2), y=np.ones(2), steps=400, back_off=3)
    assert end.status == "not_finite"
    assert f"{level} is NaN or infinite at the start already, in sample 17 of 50 and 1 others" in end.message
    assert "step size" not in end.message
    assert end.restarts == ()


def test_nan_in_the_data_that_acts_after_a_step_is_told_without_other_advice():
    """SOBA's first step, with v = 0, leaves x where it is and makes v NaN."""
    bad = ub.Dataset(np.asarray([1.0, np.nan, 1.0]))
    problem = ub.Problem(f, g, 2.0, f_batches=bad, g_batches=ub.Dataset(np.ones(3)))
    end = solve(problem=problem, x=np.ones(2), y=np.ones(2), steps=400)
    assert end.message.endswith("in sample 1 of 3 (counted from 0): mend these rows of f_batches, or leave them out")


def test_a_start_where_f_is_not_finite_is_told():
    problem = ub.Problem(lambda x, y, batch: jnp.sqrt(x) + y, lambda x, y, batch: (y - x) ** 2, 2.0)
    end = solve(problem=problem, x=-1.0)
    assert end.status == "not_finite"
    assert "f is NaN or infinite at the start already, at x0 and y0" in end.message
    edge = ub.Problem(lambda x, y, batch: jnp.sqrt(x) + y, lambda x, y, batch: (y - x) ** 2, 2.0)
    assert "the gradient of f is NaN or infinite at the start" in solve(problem=edge, x=0.0).message


def test_a_run_that_diverges_from_a_good_start_is_told_so():
    end = solve(solver=ub.SOBA(1e3, 1e3, upper_decay=0.0, lower_decay=0.0), x=30.0, y=30.0, steps=200)
    assert end.status == "diverged"
    assert "at the start" not in end.message
