"""Hyper-cleaning on all devices of all processes; alone, the same script runs on this machine.

    python examples/many_processes.py FOLDER
    srun --ntasks=16 python examples/many_processes.py FOLDER       (with SLURM; all processes must see FOLDER)

Each process makes only its own samples, as it would read only its own part of a large file. If the run is killed, the
same command resumes from the last checkpoint in FOLDER, also with another number of processes.
"""

import sys

import jax
import numpy as np

import unibio as ub
from unibio import distributed

SAMPLES, INPUTS, CLASSES = 4096, 20, 4


def samples(rows, seed):
    """Points around the centre of their class. Each is drawn from its sample number, so that any process makes the
    same."""
    centres = np.random.default_rng(0).normal(size=(CLASSES, INPUTS))
    draws = [np.random.default_rng((seed, i)) for i in range(rows.start, rows.stop)]
    labels = np.asarray([rng.integers(CLASSES) for rng in draws])
    inputs = centres[labels] + np.stack([rng.normal(size=INPUTS) for rng in draws])
    wrong = np.asarray([seed == 1 and rng.random() < 0.3 for rng in draws])
    return (inputs.astype(np.float32), np.where(wrong, (labels + 1) % CLASSES, labels)), wrong


def linear(w, inputs):
    return inputs @ w


def main(folder):
    processes = distributed.initialise()  # before any other use of JAX
    mesh = distributed.mesh()
    rows = distributed.rows_of_this_process(SAMPLES, mesh)
    noisy, wrong = samples(rows, seed=1)
    train = distributed.from_local(noisy, SAMPLES, mesh)
    clean = distributed.from_local(samples(rows, seed=2)[0], SAMPLES, mesh)
    start = np.zeros((INPUTS, CLASSES), np.float32)
    problem, x, y = ub.problems.hyper_cleaning(linear, start, train, clean, batch_size=512)
    problem, x, y = distributed.shard(problem, x, y, mesh)

    solver = ub.UniBiO(2.0, lower=ub.SGD(5, 0.3), hypergradient=ub.Neumann(terms=3, scale=5.0))
    checkpoints = ub.Checkpoints(folder, every=100)
    result = ub.solve(problem, solver, x, y, steps=200, key=jax.random.key(0), checkpoint=checkpoints)

    weights = jax.nn.sigmoid(distributed.gathered(result.x))  # every process must call this, and gets all of them
    marked = distributed.gathered(distributed.from_local(wrong, SAMPLES, mesh))
    if distributed.is_leader():
        print(f"{processes} processes, {len(jax.devices())} devices: {result.status} after {result.steps} steps")
        print(f"mean weight of wrong labels {weights[marked].mean():.3f}, of right ones {weights[~marked].mean():.3f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Name one folder for checkpoints, which all processes see: python many_processes.py FOLDER")
    main(sys.argv[1])
