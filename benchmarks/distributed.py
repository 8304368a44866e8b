"""How much faster two processes with a core each are than one process with one core.

    python benchmarks/distributed.py [REPEATS]      (3 by default)

Hyper-cleaning of a network with two hidden layers by StocBiO, at a size where the products of matrices dominate: every
device computes its half of each batch. Processes are pinned to cores, talk over loopback (gloo), and are timed by
`result.seconds`, without compilation, the slower of the two. Runs alternate, and the best of each kind counts: another
job on the machine can only make them slower. Needs two idle cores.
"""

import os
import socket
import subprocess
import sys

SAMPLES, INPUTS, HIDDEN, CLASSES, BATCH, STEPS = 8192, 64, 1024, 10, 4096, 2


def network(y, inputs):
    import jax.numpy as jnp

    return jnp.tanh(jnp.tanh(inputs @ y["first"]) @ y["second"]) @ y["out"]


def work():
    """One process of a run; the first prints the seconds of its second half, without compilation and first touches."""
    import jax
    import numpy as np

    import unibio as ub
    from unibio import distributed

    distributed.initialise()
    mesh = distributed.mesh()
    rows = distributed.rows_of_this_process(SAMPLES, mesh)
    rng = np.random.default_rng(jax.process_index())
    local = rng.normal(size=(rows.stop - rows.start, INPUTS)).astype(np.float32)
    labels = rng.integers(0, CLASSES, size=rows.stop - rows.start)
    data = distributed.from_local((local, labels), SAMPLES, mesh)
    same = np.random.default_rng(0)
    shapes = {"first": (INPUTS, HIDDEN), "second": (HIDDEN, HIDDEN), "out": (HIDDEN, CLASSES)}
    params = {name: (same.normal(size=shape) / shape[0] ** 0.5).astype(np.float32) for name, shape in shapes.items()}
    problem, x, y = ub.problems.hyper_cleaning(network, params, data, data, batch_size=BATCH)
    problem, x, y = distributed.shard(problem, x, y, mesh)
    solver = ub.StocBiO(0.1, 0.01, lower_steps=2, terms=1)
    begun = ub.solve(problem, solver, x, y, steps=STEPS, key=jax.random.key(0), chunk=STEPS)
    result = ub.solve(problem, solver, x, y, steps=2 * STEPS, key=jax.random.key(0), chunk=STEPS, resume=begun)
    if distributed.is_leader():
        print(result.seconds - begun.seconds)


def seconds(processes):
    """Of one run, each process pinned to its own core."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    started = []
    for process in range(processes):
        env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | {"JAX_PLATFORMS": "cpu"}
        if processes > 1:
            numbers = {"JAX_NUM_PROCESSES": str(processes), "JAX_PROCESS_ID": str(process)}
            env |= {"JAX_COORDINATOR_ADDRESS": address} | numbers
        core = sorted(os.sched_getaffinity(0))[process]
        command = ["taskset", "-c", str(core), sys.executable, __file__, "work"]
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
    out = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit("a process failed")
    return float(out[0].split()[-1])


def main(repeats):
    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repeats):
        for processes, found in times.items():
            found.append(seconds(processes))
            print(f"{processes} process{'es' if processes > 1 else ''}: {found[-1]:.2f} s", flush=True)
    print(f"{STEPS} steps, best of {repeats}: two processes are {min(times[1]) / min(times[2]):.2f} × as fast as one")


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        work()
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
