"""How many seconds of CPU a first answer takes: each program in a fresh process, with nothing compiled before.

    python benchmarks/first_answer.py [--repeats 3] [--before FOLDER] [--only TEXT]

Nearly all of it is compilation. CPU seconds of a process and of its threads, the minimum of the repeats, which take
turns; "import" is what importing alone takes, and is contained in every row. `--before` names the `src` folder of an
earlier version, which is then measured beside this one. jaxopt (extra `compare`) is the peer; without it its row is
left out.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

DATA = """
import numpy as np
rng = np.random.default_rng(0)
w, A, B = rng.normal(size=10), rng.normal(size=(500, 10)), rng.normal(size=(200, 10))
train, clean = (A.astype("f"), (A @ w + .1).astype("f")), (B.astype("f"), (B @ w).astype("f"))
"""
LOSSES = """
import jax, jax.numpy as jnp

def outer(x, y):
    return jnp.mean((clean[0] @ y - clean[1]) ** 4)

def inner(x, y):
    return jnp.mean(jax.nn.sigmoid(x) * (train[0] @ y - train[1]) ** 4) + 1e-3 * jnp.sum(y**4)

x, y = np.zeros(500, "f"), np.full(10, .3, "f")
"""
OURS = """
import unibio as ub
problem = ub.Problem(lambda x, y, batch: outer(x, y), lambda x, y, batch: inner(x, y), p=4.0)
"""
SOLVE = """
solver = ub.UniBiO(step_size=0.3, lower=ub.SGD(20, 0.01), hypergradient=ub.CG())
"""
JAXOPT = """
import jaxopt
from jaxopt._src.implicit_diff import root_vjp
from functools import partial
root = jax.grad(inner, argnums=1)

@jax.jit
def implicit(x, y):
    grad_x, grad_y = jax.grad(outer, argnums=(0, 1))(x, y)
    solve = partial(jaxopt.linear_solve.solve_cg, maxiter=100, tol=1e-6)
    return grad_x + root_vjp(lambda y, x: root(x, y), y, (x,), grad_y, solve=solve)[0]

jax.block_until_ready(implicit(x, y))
"""

PROGRAMS = {
    "import jax, numpy": "import jax, jax.numpy, numpy",
    "import unibio": "import unibio",
    "jaxopt: root_vjp with CG": DATA + LOSSES + JAXOPT,
    "ub.hypergradient, a key: no error": DATA
    + LOSSES
    + OURS
    + "print(ub.hypergradient(problem, x, y, key=jax.random.key(0))[1].status)",
    "ub.hypergradient, with its error": DATA + LOSSES + OURS + "print(ub.hypergradient(problem, x, y)[1].status)",
    "ub.lower_solution": DATA + LOSSES + OURS + "ub.lower_solution(problem, x, y)",
    "ub.solve, UniBiO and CG": DATA
    + LOSSES
    + OURS
    + SOLVE
    + "ub.solve(problem, solver, x, y, steps=50, key=jax.random.key(1))",
    "the same with ub.Truth()": DATA
    + LOSSES
    + OURS
    + SOLVE
    + "ub.solve(problem, solver, x, y, steps=50, key=jax.random.key(1), metrics=ub.Truth())",
}


def programs_for(source):
    """Those above, and the programs of the README of this version, as they stand there."""
    blocks = re.findall(r"```python\n(.*?)```", (source.parent / "README.md").read_text(), flags=re.DOTALL)
    return PROGRAMS | {f"README, program {i + 1}": block for i, block in enumerate(blocks)}


def cpu_seconds(program, source, folder):
    """Of one process that runs the program from `folder` with the package in `source`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    environment |= {"PYTHONPATH": str(source), "MPLBACKEND": "agg", "HOME": folder}
    before = os.times()
    subprocess.run([sys.executable, "-c", program], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def measure(names, sources, repeats):
    """{program: [the least CPU seconds with each source]}; versions take turns, so that a slow minute hits all. NaN
    where a version has no such program."""
    least = {name: [float("inf")] * len(sources) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats):
            for name in names:
                for i, source in enumerate(sources):
                    program = programs_for(source).get(name)
                    seconds = float("nan") if program is None else cpu_seconds(program, source, folder)
                    least[name][i] = min(seconds, least[name][i])
    return least


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--before", type=Path, help="the src folder of an earlier version")
    parser.add_argument("--only", default="", help="only programs whose name contains this")
    options = parser.parse_args()
    names = [name for name in programs_for(ROOT / "src") if options.only in name]
    if importlib.util.find_spec("jaxopt") is None:
        names = [name for name in names if "jaxopt" not in name]
    sources = [ROOT / "src"] + ([options.before.resolve()] if options.before else [])
    least = measure(names, sources, options.repeats)
    peer = least.get("jaxopt: root_vjp with CG", [float("nan")])[0]
    title = f"{'CPU seconds of a fresh process':36} {'now':>6} {'/ jaxopt':>9}"
    print(title + ("  before   ratio" if options.before else ""))
    for name, (now, *before) in least.items():
        line = f"{name:36} {now:6.2f} {now / peer:9.2f}"
        print(line + "".join(f" {b:7.2f} {now / b:7.2f}" for b in before))


if __name__ == "__main__":
    main()
