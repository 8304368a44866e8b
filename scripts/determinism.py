"""Checks that the same seed gives the same bytes in two fresh processes, for solvers and for files of experiments.

    python scripts/determinism.py [--small]

Each process has an empty cache, so that it compiles everything itself. Every solver runs 200 steps on minibatches. Of
its result x, y and the history without the seconds are compared by SHA-256; of the experiments, every table and figure.
The exit code is 1 if a byte differs. docs/determinism.md lists what may change the bytes. With --small there is one
solver and one experiment.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SMALL = ("UniBiO",)
EXPERIMENTS = ("schedules", "noise")
CLOCK = ("seconds.csv", "seconds.json")  # the files that hold times


def digests(names: list[str]) -> dict[str, str]:
    """By name of the solver, the status of its run and the SHA-256 of the result."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import unibio as ub

    data = ub.problems.corrupted_regression(40, 5)
    train, validation = jax.tree.map(lambda array: array.astype(np.float32), (data.train, data.validation))
    problem = ub.problems.lp_regression(train, validation, 4.0, batch_size=4)
    found = {}
    for name in names:
        solver = ub.SOLVERS[name](*((0.01,) if name == "UniBiO" else (0.01, 0.01)))
        x, y = jnp.zeros(40, jnp.float32), jnp.zeros(5, jnp.float32)
        result = ub.solve(problem, solver, x, y, steps=200, key=jax.random.key(7))
        digest = hashlib.sha256(np.asarray(result.x).tobytes() + np.asarray(result.y).tobytes())
        for column, values in result.history.items():
            digest.update(b"" if column == "seconds" else values.tobytes())
        found[name] = f"{result.status} {digest.hexdigest()}"
    return found


def fresh(folder: Path, names: list[str], experiments: list[str]) -> dict[str, str]:
    """The digests of the solvers' results and of the experiments' files, made in new processes with an empty cache."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    fonts = {"MPLCONFIGDIR": str(caches / "matplotlib")}  # matplotlib's list of fonts, which takes long to make
    environment = fonts | os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)

    def output(*command: str) -> str:
        done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
        return done.stdout

    found: dict[str, str] = json.loads(output(__file__, "--digests", *names))
    out = folder / "results"
    output("-m", "unibio.cli", "reproduce", *experiments, "--seeds", "2", "--seed", "3", "--out", str(out))
    for path in sorted(out.rglob("*")):
        if path.is_file() and path.name not in CLOCK:
            found[str(path.relative_to(out))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def main(names: list[str], experiments: list[str]) -> int:
    """Compares two sets of digests and prints the result; the exit code."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        first, second = (fresh(Path(folder), names, experiments) for folder in (one, other))
    differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    print(f"{len(names)} solvers and {len(first) - len(names)} files, each in two fresh processes: ", end="")
    print(f"DIFFERENT: {', '.join(differing)}" if differing else "the same bytes")
    return 1 if differing else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--digests"]:
        print(json.dumps(digests(sys.argv[2:])))
        sys.exit()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    from unibio.solvers import SOLVERS

    sys.exit(main(list(SMALL if small else SOLVERS), list(EXPERIMENTS[:1] if small else EXPERIMENTS)))
