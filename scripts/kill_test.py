"""Kills runs with SIGKILL at random moments, resumes them, and compares each result with that of an undisturbed run.

    python scripts/kill_test.py [KILLS] [STEPS] [--solver NAME] [--megabytes MB] [--seed SEED]

By default 50 kills of runs of 4000 steps. The runs take turns through five solvers (`--solver` picks one), with
back-off and a log; each begins with step sizes at which it diverges, so that it goes back and on with smaller ones
before or after it is killed. A run is killed up to 3 seconds after its first steps (earlier for fewer steps). It writes
a checkpoint every four steps, so that kills also happen while one is written. The final iterate, the history without
the seconds and the steps of the log must be the same bit by bit. Compiled programs are cached between the starts,
because only what comes after compilation is tested.

With `--megabytes` the state of the run is at least so large, and every kill happens *during* a write: as soon as the
temporary file of a checkpoint has appeared beside the checkpoints.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 4000
SOLVERS = ("UniBiO", "SOBA", "SABA", "StocBiO", "BO-REP")
BACK_OFF = 12


def make(name: str, megabytes: int) -> tuple[Any, Any, Any, Any]:
    """A solver whose step sizes are too large at first, and a problem with its start."""
    import jax.numpy as jnp

    import unibio as ub

    rng = np.random.default_rng(0)
    if megabytes:  # y is what is large: a checkpoint holds y and the anchor's y
        size = megabytes * 2**20 // 4
        y = jnp.asarray(rng.normal(size=size), jnp.float32)
        problem = ub.Problem(_large_f, _large_g, 2.0)
        return ub.SOBA(0.1, 0.1, upper_decay=0.0, lower_decay=0.0), problem, jnp.ones(3, jnp.float32), y
    centres = rng.normal(size=(5, 20))
    labels = rng.integers(0, 5, size=1200)
    inputs = (centres[labels] + rng.normal(size=(1200, 20))).astype(np.float32)
    noisy = np.where(rng.random(1000) < 0.3, rng.integers(0, 5, size=1000), labels[:1000])
    data = (inputs[:1000], noisy), (inputs[1000:], labels[1000:])
    problem, x, y = ub.problems.hyper_cleaning(_linear, jnp.zeros((20, 5), jnp.float32), *data, batch_size=50)
    too_large = 200.0
    solver = {
        "UniBiO": lambda: ub.UniBiO(0.5, lower=ub.SGD(3, too_large), hypergradient=ub.Neumann(terms=3, scale=5.0)),
        "SOBA": lambda: ub.SOBA(0.5, too_large),
        "SABA": lambda: ub.SABA(0.5, too_large),
        "StocBiO": lambda: ub.StocBiO(0.5, too_large, terms=2),
        "BO-REP": lambda: ub.BOREP(0.5, too_large, refinement=ub.SGD(3, 0.2), radius=1e30),
    }[name]()
    return solver, problem, x, y


def _linear(w: Any, inputs: Any) -> Any:
    return inputs @ w


def _large_f(x: Any, y: Any, batch: Any) -> Any:
    return (y[:1000] ** 2).mean() + (x**2).sum()


def _large_g(x: Any, y: Any, batch: Any) -> Any:
    return 0.5 * ((y - x.sum()) ** 2).sum()


def run(folder: Path, out: Path, steps: int, name: str, megabytes: int) -> None:
    """Runs a solver to the end, or until the process is killed, and writes the result to `out`."""
    import jax

    import unibio as ub

    solver, problem, x, y = make(name, megabytes)

    def print_step(row: dict[str, Any]) -> None:
        print(row["step"], flush=True)

    log = ub.logs.JSONLines(folder.parent / f"{folder.name}.jsonl")
    result = ub.solve(
        problem, solver, x, y, steps=steps, key=jax.random.key(0), checkpoint=ub.Checkpoints(folder, every=4, keep=3),
        callbacks=[log, print_step], chunk=4, back_off=BACK_OFF, stop=() if megabytes else ub.Above("size", 1e3),
        metrics=() if megabytes else _size, every=4,
    )  # fmt: skip
    columns: dict[str, Any] = {name: values for name, values in result.history.items() if name != "seconds"}
    columns["status"] = np.asarray(str(result.status))
    columns["why"] = np.asarray(result.restarts)
    temporary = out.with_suffix(".tmp.npz")
    np.savez(temporary, x=np.asarray(result.x), y=np.asarray(result.y), **columns)
    temporary.rename(out)


def _size(problem: Any, state: Any) -> dict[str, Any]:
    """The length of y, which tells a divergence before numbers overflow."""
    return {"size": abs(state.y).max()}


def start(folder: Path, out: Path, steps: int, name: str, megabytes: int) -> "subprocess.Popen[bytes]":
    """Starts `run` in a process of its own."""
    command = [sys.executable, __file__, "run", str(folder), str(out), str(steps), name, str(megabytes)]
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | cache)


def finish(process: "subprocess.Popen[bytes]") -> None:
    """Waits for the end of a run that is not killed; it must end without an error."""
    _, errors = process.communicate()
    if process.returncode or b"Traceback" in errors:
        raise SystemExit(f"the run failed:\n{errors.decode()}")


def kill(process: "subprocess.Popen[bytes]", folder: Path, pause: float, megabytes: int) -> str:
    """Kills the run after the pause, or with `megabytes` amid the next write after it; what was hit, "" if the run was
    over before."""
    time.sleep(pause)
    while megabytes and process.poll() is None and not _writing(folder):
        time.sleep(0.0005)
    if process.poll() is not None:
        return ""
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = _writing(folder)
    size = left[0].stat().st_size if left else 0
    return f"amid a write, {size / 2**20:.1f} MB of it done" if left else "between writes"


def _writing(folder: Path) -> list[Path]:
    """The temporary files of a checkpoint that is being written."""
    with contextlib.suppress(OSError):
        return [path for path in folder.iterdir() if path.name.startswith(".step-")]
    return []


def log_of(path: Path) -> list[str]:
    """The lines of a log without the seconds."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [json.dumps({name: value for name, value in row.items() if name != "seconds"}) for row in rows]


def main(kills: int, steps: int, solvers: tuple[str, ...], megabytes: int, seed: int) -> int:
    """Kills and resumes runs until there were enough kills, and prints a line for each run; exit code 1 if a bit
    differs."""
    random.seed(seed)
    with tempfile.TemporaryDirectory() as base_name:
        base = Path(base_name)
        done = hit = round_ = wrong = 0
        while done < kills:
            name = solvers[round_ % len(solvers)]
            plain = base / f"{name} undisturbed.npz"
            if not plain.exists():
                finish(start(base / f"{name} undisturbed", plain, steps, name, megabytes))
            folder, out = base / f"killed{round_}", base / f"killed{round_}.npz"
            before, goal = done, min(kills, done + max(2, -(-kills // len(solvers))))
            while not out.exists():
                process = start(folder, out, steps, name, megabytes)
                assert process.stdout is not None
                began = process.stdout.readline()
                if done < goal and began:
                    pause = random.uniform(0, 0.3 if megabytes else min(3.0, 3 * steps / STEPS))
                    what = kill(process, folder, pause, megabytes)
                    if what:
                        done, hit = done + 1, hit + what.startswith("amid")
                        process.communicate()
                        continue
                finish(process)
            found, wanted = dict(np.load(out)), dict(np.load(plain))
            same = found.keys() == wanted.keys() and all(np.array_equal(found[k], wanted[k]) for k in wanted)
            same &= log_of(base / f"killed{round_}.jsonl") == log_of(base / f"{name} undisturbed.jsonl")
            wrong += not same
            restarts = len(wanted["why"])
            print(
                f"{name}: {done - before} kills, {restarts} back-offs: {'the same bits' if same else 'DIFFERENT'}",
                flush=True,
            )
            round_ += 1
            if megabytes:
                for path in folder.iterdir():
                    path.unlink()
    print(f"{done} kills, {hit} of them amid a write, {wrong} runs with other bits")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5], int(sys.argv[6]))
        sys.exit()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kills", nargs="?", type=int, default=50)
    parser.add_argument("steps", nargs="?", type=int, default=STEPS)
    parser.add_argument("--solver", choices=SOLVERS)
    parser.add_argument("--megabytes", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    solvers = (chosen.solver,) if chosen.solver else ("SOBA",) if chosen.megabytes else SOLVERS
    sys.exit(main(chosen.kills, chosen.steps, solvers, chosen.megabytes, chosen.seed))
