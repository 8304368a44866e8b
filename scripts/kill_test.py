"""Kills a run with SIGKILL at random moments, resumes it, and compares its result with that of an undisturbed run.

    python scripts/kill_test.py [KILLS] [STEPS]     (50 kills of runs of 4000 steps by default)

A run is killed up to 3 seconds after its first steps (earlier for fewer steps). It writes a checkpoint every four
steps, so that kills also happen while one is written. The final iterate and the history without the seconds must be the
same bit by bit. Compiled programs are cached between the starts, because only what comes after compilation is tested.
"""

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


def run(folder: Path, out: Path, steps: int) -> None:
    """Runs UniBiO on a hyper-cleaning problem to the end, or until the process is killed, and writes the result to
    `out`."""
    import jax
    import jax.numpy as jnp

    import unibio as ub

    rng = np.random.default_rng(0)
    centres = rng.normal(size=(5, 20))
    labels = rng.integers(0, 5, size=1200)
    inputs = (centres[labels] + rng.normal(size=(1200, 20))).astype(np.float32)
    noisy = np.where(rng.random(1000) < 0.3, rng.integers(0, 5, size=1000), labels[:1000])

    def linear(w, inputs):
        return inputs @ w

    problem, x, y = ub.problems.hyper_cleaning(
        linear, jnp.zeros((20, 5), jnp.float32), (inputs[:1000], noisy), (inputs[1000:], labels[1000:]), batch_size=64
    )
    solver = ub.UniBiO(0.5, lower=ub.SGD(3, 0.2), hypergradient=ub.Neumann(terms=3, scale=5.0))

    def print_step(row):
        print(row["step"], flush=True)

    checkpoints = ub.Checkpoints(folder, every=4, keep=3)
    result = ub.solve(
        problem, solver, x, y, steps=steps, key=jax.random.key(0), checkpoint=checkpoints, callbacks=print_step, chunk=4
    )
    columns: dict[str, Any] = {name: values for name, values in result.history.items() if name != "seconds"}
    temporary = out.with_suffix(".tmp.npz")
    np.savez(temporary, x=np.asarray(result.x), y=np.asarray(result.y), **columns)
    temporary.rename(out)


def start(folder: Path, out: Path, steps: int) -> "subprocess.Popen[bytes]":
    """Starts `run` in a process of its own."""
    command = [sys.executable, __file__, "run", str(folder), str(out), str(steps)]
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


def main(kills: int, steps: int) -> None:
    """Kills and resumes runs until there were enough kills, and prints a line for each run; exit code 1 if a bit
    differs."""
    random.seed(0)
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        finish(start(base / "undisturbed", base / "undisturbed.npz", steps))
        wanted = dict(np.load(base / "undisturbed.npz"))
        done = round_ = wrong = 0
        while done < kills:
            folder, out = base / f"killed{round_}", base / f"killed{round_}.npz"
            round_ += 1
            while not out.exists():
                process = start(folder, out, steps)
                assert process.stdout is not None
                began = process.stdout.readline()
                if done < kills and began:
                    time.sleep(random.uniform(0, min(3.0, 3 * steps / STEPS)))
                    if process.poll() is None:
                        process.send_signal(signal.SIGKILL)
                        done += 1
                        process.communicate()
                        continue
                finish(process)
            found = dict(np.load(out))
            same = found.keys() == wanted.keys() and all(np.array_equal(found[k], wanted[k]) for k in wanted)
            wrong += not same
            print(f"{done} kills, run {round_}: {'the same bits' if same else 'DIFFERENT'}", flush=True)
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        numbers = [int(text) for text in sys.argv[1:]]
        main(*(numbers + [50, STEPS][len(numbers) :]))
