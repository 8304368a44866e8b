"""Run by test_distributed.py, once for each process, and imported by it for the same runs on one.

    python two_processes.py trajectories FOLDER     a run of 100 steps; then one in which the last process dies
    python two_processes.py resume FOLDER           that run to its end
    python two_processes.py pairs FOLDER            every solver on every problem, and a comparison

JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID say which process this is.
"""

import math
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import unibio as ub
from unibio import distributed
from unibio.core.programs import compiled

N, D, BATCH, STEPS, EVERY = 240, 3, 24, 100, 20
DIES_AT = 50
PAIR = ("regression", "SABA")  # what is run in "trajectories", killed and resumed
# The paper's D would enlarge differences of rounding by 1/|y|^(p−2), without bound near y = 0.
SERIES = ub.Neumann(terms=1, scale=20.0, preconditioner=ub.Identity())
CASES = {
    "UniBiO": ub.UniBiO(0.1, lower=ub.SGD(1, 0.005), hypergradient=SERIES),
    "StocBiO": ub.StocBiO(0.1, 0.005, lower_steps=1, terms=1),
    "SABA": ub.SABA(0.1, 0.002),
}


PAIRS = [(problem, solver) for problem in ("regression", "cleaning") for solver in CASES]
PAIRS.append(("streamed", "StocBiO"))


def regression(**drawing) -> tuple[Any, Any, Any]:
    """ℓ_4 regression, all data on each process; `drawing` says how a Dataset draws if not in random batches."""
    data = ub.problems.corrupted_regression(N, D)
    problem = ub.problems.lp_regression(data.train, data.validation, 4.0, 0.01, BATCH)
    if drawing:
        samplers = [ub.Dataset(pair, **drawing) for pair in (data.validation, data.train)]
        problem = ub.Problem(problem.f, problem.g, problem.p, f_batches=samplers[0], g_batches=samplers[1])
    return problem, jnp.zeros(N), jnp.full(D, 0.1)


def streamed() -> tuple[Any, Any, Any]:
    """The same with batches that continue from step to step without replacement."""
    return regression(batch_size=BATCH, stream=True)


def linear(y, inputs):
    return inputs @ y["w"] + y["b"][None]


def cleaning(rows=slice(None), whole=lambda local: local) -> ub.problems.Setting:
    """Hyper-cleaning of a classifier from some of the rows, and what makes all of them of these."""
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(N, 4)), rng.integers(0, 3, size=N)
    data = whole((inputs[rows], labels[rows]))
    params = {"w": jnp.full((4, 3), 0.1), "b": jnp.zeros(3)}
    return ub.problems.hyper_cleaning(linear, params, data, data, batch_size=BATCH)


def solve(problem, solver, x, y, folder=None, **others):
    keep = None if folder is None else ub.Checkpoints(folder, every=EVERY, keep=2)
    options: dict[str, Any] = {"steps": STEPS, "key": jax.random.key(0), "checkpoint": keep} | others
    return ub.solve(problem, solver, x, y, **options)


def columns(result):
    """All of a result but its clock, as numpy arrays by name."""
    variables = jax.tree_util.tree_leaves_with_path(distributed.gathered({"x": result.x, "y": result.y}))
    named = {jax.tree_util.keystr(path): leaf for path, leaf in variables}
    history = {name: values for name, values in result.history.items() if name != "seconds"}
    return named | history | {"calls of the run": np.asarray(result.calls)}


def on_mesh():
    """The problems on all devices, the cleaning one from this process's rows."""
    mesh = distributed.mesh()
    rows = distributed.rows_of_this_process(N, mesh)
    assert rows.stop - rows.start == N // jax.process_count()
    from_rows = cleaning(rows, lambda local: distributed.from_local(local, N, mesh))
    settings = {"regression": regression(), "streamed": streamed(), "cleaning": from_rows}
    return {name: distributed.shard(*setting, mesh) for name, setting in settings.items()}


def check_pairs(folder, pairs):
    """Runs them; this process's results are in FOLDER/process*.npz."""
    told: list[Any] = []
    found: dict[str, Any] = {}
    settings = on_mesh()
    for name, label in pairs:
        problem, x, y = settings[name]
        result = solve(problem, CASES[label], x, y, callbacks=told.append, chunk=STEPS)
        assert result.status == ub.Status.finished
        assert result.x.sharding.spec == jax.sharding.PartitionSpec("samples")
        found |= {f"{name}/{label}/{column}": values for column, values in columns(result).items()}
        result.save(folder / "result.npz")
    assert bool(told) == distributed.is_leader()
    assert D * BATCH <= largest_collective() < N  # a batch of rows, but never an array with an entry per sample
    np.savez(folder / f"process{jax.process_index()}.npz", **found)
    return settings


def trajectories(folder):
    problem, x, y = check_pairs(folder, [PAIR])["regression"]
    solve(problem, CASES["SABA"], x, y, folder / "checkpoints", stop=die, chunk=EVERY // 2)


def pairs(folder):
    check_pairs(folder, PAIRS)
    np.savez(folder / f"compared{jax.process_index()}.npz", **compared(distributed.mesh()))


def largest_collective():
    """Entries of the largest array that any compiled program so far exchanges."""
    sizes = []
    for _, program in compiled.programs.values():
        lines = re.findall(r"= (.*?) (?:all-|reduce-scatter|collective-)[a-z-]+\(", program.as_text())
        shapes = [shape for line in lines for shape in re.findall(r"\[([\d,]*)\]", line)]
        sizes += [math.prod(int(size) for size in shape.split(",") if size) for shape in shapes]
    return max(sizes)


def die(problem, state, row):
    """A stop rule, because these are asked on every process."""
    if row["step"] >= DIES_AT and jax.process_index() == jax.process_count() - 1:
        print("killed", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return False


def resume(folder):
    problem, x, y = on_mesh()["regression"]
    result = solve(problem, CASES["SABA"], x, y, folder / "checkpoints")
    np.savez(folder / f"resumed{jax.process_index()}.npz", **columns(result))


def compared(mesh=None):
    """A table of three seeds, which two devices cannot share evenly."""
    problem, x, y = regression()
    table = ub.compare(
        problem, {"SOBA": ub.SOBA(0.1, 0.002)}, x, y, seeds=range(3), steps=6, metrics=norm, measurements=2, mesh=mesh
    ).table
    return {name: values for name, values in table.items() if name not in ("solver", "seconds")}


def norm(problem, state):
    return {"norm": jnp.sum(state.x**2)}


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)
    assert distributed.initialise() == int(os.environ["JAX_NUM_PROCESSES"])
    {"trajectories": trajectories, "resume": resume, "pairs": pairs}[sys.argv[1]](Path(sys.argv[2]))
