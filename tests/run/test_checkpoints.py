"""Checkpoints: bitwise the same run after any stop, damaged files passed over, other runs refused."""

import os
import signal
import subprocess
import sys
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unibio as ub
from unibio.run import checkpoints, fingerprints
from unibio.run.checkpoints import decode, encode

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
    assert cut.status == ub.Outcome.interrupted
    assert cut.message.startswith(f"{signal.Signals(number).name} after {cut.steps} steps")
    assert step <= cut.steps < 60
    assert signal.getsignal(number) is before
    whole = solve(tmp_path, metrics=size)
    assert whole.status == ub.Outcome.finished
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
        "step-000000000040.checkpoint", "step-000000000060.checkpoint",
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
    (path,) = tmp_path.iterdir()
    content, rng = path.read_bytes(), np.random.default_rng(1)
    run = decode(content)[0]["fingerprint"]
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
    assert whole.status == ub.Outcome.stopped
    log = ub.logs.CSVLog(tmp_path / "log.csv")
    cut = solve(tmp_path, metrics=size, stop=rule, callbacks=StopAt(7, signal.SIGTERM), chunk=4)
    assert cut.steps % 15
    gone_on = solve(tmp_path, metrics=size, stop=rule, callbacks=log)
    assert gone_on.status == ub.Outcome.stopped
    same(gone_on, whole)
    assert "size" in (tmp_path / "log.csv").read_text().splitlines()[0]


class Edited(ub.SGD):
    """The same fields, another method."""

    def __call__(self, gradient, draw, y, p):
        return super().__call__(gradient, draw, y, p)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"solver": ub.UniBiO(0.031, hypergradient=ub.Neumann(terms=2, scale=1.0))}, "solver differs"),
        ({"solver": ub.UniBiO(0.03, hypergradient=ub.Neumann(terms=3, scale=1.0))}, "solver differs"),
        ({"x": 0.9}, "x0, f, g or their gradients at the start differ"),
        ({"key": jax.random.key(4)}, "key"),
        ({"problem": ub.problems.example3(6.0, NOISE, NOISE)}, "the problem's numbers or data"),
        ({"problem": ub.problems.example3(4.0, NOISE, ub.Noise(grad_y_g=0.2, grad_z_f=0.1))}, "the problem's numbers"),
    ],
)
def test_another_run_is_refused(tmp_path, change, field):
    solve(tmp_path, steps=20)
    with pytest.raises(ValueError, match=f"belongs to another run: .*{field}"):
        solve(tmp_path, steps=20, **change)


def test_fingerprints_look_into_closures():
    """Two optimisers that differ only in a number they closed over; the same one made twice is the same."""
    with jax.numpy_dtype_promotion("standard"):
        made = [ub.UniBiO(0.1, optimiser=optax.adam(rate)) for rate in (1e-3, 1e-2, 1e-3)]
    described = [fingerprints._described(solver) for solver in made]
    assert described[0] == described[2] != described[1]
    lower = [fingerprints._described(ub.UniBiO(0.1, lower=kind(3, 0.1))) for kind in (ub.SGD, ub.SGD, Edited)]
    assert lower[0] == lower[1] != lower[2]


FACTOR = 1.0


class Power:
    """An object of a plain class, with a number in it."""

    def __init__(self, exponent):
        self.exponent = exponent

    def __call__(self, x, y, batch):
        return y**self.exponent


def test_fingerprints_look_into_globals_objects_and_wrapped_functions(monkeypatch):
    def scaled(x, y, batch):
        return (lambda: FACTOR * jnp.sum(y))()

    def closing_over(number):
        return jax.jit(lambda x, y, batch: number * y)

    first = fingerprints._code(scaled)
    assert fingerprints._code(scaled) == first
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert fingerprints._code(scaled) != first
    for make in (Power, closing_over):
        assert fingerprints._code(make(1)) == fingerprints._code(make(1)) != fingerprints._code(make(2))


def test_a_probe_beside_the_start():
    """At y = 0 the quartic term of g and its gradient vanish."""
    made = [
        ub.Problem(lambda x, y, batch: jnp.sum(y * x), Quartic(jnp.asarray(scale)), p=4.0) for scale in (1.0, 1.0, 2.0)
    ]
    zero = jnp.zeros(2)
    probes = [fingerprints._bytes(fingerprints._probe(problem, zero, zero, jax.random.key(0))) for problem in made]
    assert probes[0] == probes[1] != probes[2]


def test_metrics_added_to_a_run_on_disk(tmp_path):
    """A rule on a number that was not measured before the stop: it is measured where the run goes on."""
    solve(tmp_path, steps=20)
    more = solve(tmp_path, steps=40, metrics=size, stop=ub.Below("size", 1e-9))
    assert list(more.metrics["step"][:1]) == [20]
    assert "size" in solve(tmp_path, steps=40, metrics=(size, twice), stop=ub.Below("twice", 1e-9)).metrics


def twice(problem, state):
    return {"twice": 2 * jnp.abs(state.x)}


class Quartic(eqx.Module):
    scale: jax.Array

    def __call__(self, x, y, batch):
        return self.scale * jnp.sum(y**4) - jnp.sum(x * y)


def test_a_full_disk(tmp_path, undisturbed, monkeypatch):
    """The run goes on with a warning; earlier files stay."""
    solve(tmp_path, steps=20, metrics=size)
    (first,) = tmp_path.iterdir()
    content = first.read_bytes()

    def full(path, write):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_file", full)
    with pytest.warns(RuntimeWarning, match="no checkpoint at step [46]0: No space left on device"):
        whole = solve(tmp_path, metrics=size)
    assert float(whole.x) == float(undisturbed.x)
    assert first.read_bytes() == content


def test_a_disk_that_fills_up_during_a_write(tmp_path, undisturbed, monkeypatch):
    """Nothing is left of the file that did not fit, and the next one is written when there is room again."""
    failing = iter([False, True, False])
    fsync = os.fsync

    def full(handle):
        if next(failing):
            raise OSError(28, "No space left on device")
        fsync(handle)

    monkeypatch.setattr("unibio.run.result.os.fsync", full)
    with pytest.warns(RuntimeWarning, match="no checkpoint at step 40: No space left on device"):
        whole = solve(tmp_path, metrics=size)
    same(whole, undisturbed)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-000000000020.checkpoint", "step-000000000060.checkpoint",
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
        ub.solve(PROBLEM, SOLVER, 1.0, 1.0, steps=1, key=KEY, checkpoint=str(tmp_path))
    with pytest.raises(ValueError, match="every"):
        ub.Checkpoints(tmp_path, every=0)
    for folder in (3, None, "a\0b"):
        with pytest.raises(TypeError, match="must be a path"):
            ub.Checkpoints(folder)
    done = solve(steps=2)
    with pytest.raises(ValueError, match="either resume=… or checkpoint=…"):
        solve(tmp_path, resume=done)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert solve(tmp_path / "new", steps=2).steps == 2
