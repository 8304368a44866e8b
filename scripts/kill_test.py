"""Kills a hyper-cleaning run with SIGKILL at random moments, goes on, and compares its end with an undisturbed run.

    python scripts/kill_test.py [KILLS] [STEPS]     (50 kills of runs of 4000 steps by default)

Each kill strikes between 0 and 3 seconds (for fewer steps, less) after the run has begun to step, so also during the
write of a checkpoint: one is written every four steps. The history (its seconds apart) and the final iterate must be
the same, bit by bit. Compiled programs are kept for the next start: what is tested comes after them.
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
    """One run to its end, or until it is killed."""
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

    def begun(row):
        print(row["step"], flush=True)

    keep = ub.Checkpoints(folder, every=4, keep=3)
    result = ub.solve(
        problem, solver, x, y, steps=steps, key=jax.random.key(0), checkpoint=keep, callbacks=begun, chunk=4
    )
    columns: dict[str, Any] = {name: values for name, values in result.history.items() if name != "seconds"}
    temporary = out.with_suffix(".tmp.npz")
    np.savez(temporary, x=np.asarray(result.x), y=np.asarray(result.y), **columns)
    temporary.rename(out)


def start(folder: Path, out: Path, steps: int) -> "subprocess.Popen[bytes]":
    """A run in a process of its own."""
    command = [sys.executable, __file__, "run", str(folder), str(out), str(steps)]
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | cache)


def finish(process: "subprocess.Popen[bytes]") -> None:
    """Waits; a traceback is a failure of the test."""
    _, errors = process.communicate()
    if process.returncode or b"Traceback" in errors:
        raise SystemExit(f"the run failed:\n{errors.decode()}")


def main(kills: int, steps: int) -> None:
    """Prints what happened; exit code 1 if a bit differs."""
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
