"""UniBiO's practical setting for a network on noisy labels: learn how many are wrong, then train once more.

    1. train on one half of the noisy samples, stopped where the tuning samples are best
    2. UniBiO with `NoiseRate` on the last layer alone, over the other half: small, and solved well
    3. train from the start on all noisy labels, seen through r, and on the clean ones

A weight for each of 10,000 samples overfits 1,000 clean ones; one rate does not. Through a whole network, a few steps
from its start, the hypergradient says nothing about r: it must come from a lower level that has been solved. And what a
network makes of samples it was trained on betrays their labels, which is why the halves differ.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from unibio.core import tree
from unibio.files.tables import Rows
from unibio.hypergradients import CG
from unibio.hypergradients.preconditioners import Identity
from unibio.lower.optax import Optax
from unibio.paper.cleaning.race import in_chunks, train
from unibio.paper.cleaning.task import Task
from unibio.problems.hyper_cleaning import NoiseRate, hyper_cleaning
from unibio.run.programs import advance, check_solver, initialise, run
from unibio.solvers import UniBiO

STEPS, PIECE, BATCH = 300, 30, 2000
_ADAM = optax.adam(1.0)
SOLVER = UniBiO(
    0.05,
    momentum=0.5,
    period=1,
    lower=Optax(_ADAM, 15, 3e-3),
    warm_start=Optax(_ADAM, 300, 1e-2),
    hypergradient=CG(max_steps=30, preconditioner=Identity()),
    schedule=optax.cosine_decay_schedule(1.0, STEPS),
    optimiser=_ADAM,
)


WEIGHTS = NoiseRate(start=0.1)


def regularisation(p: float) -> float:
    """c, for 1e-5·‖10 W‖_p^p: about the same for entries near .1, as they are here, whatever p is. With a c that is too
    small the last layer is too sure of itself, the temperature answers, and r comes out too high."""
    return 1e-5 * 10**p


def learn_rate(task: Task, rate: float, p: float, seed: int, epochs: int) -> Rows:
    """Steps 1 and 2: r, s and the last layer's accuracy on clean samples, every thirty steps of UniBiO."""
    half = len(task.truth) // 2
    first, second = (part(task, rows) for rows in (slice(None, half), slice(half, None)))
    trained = train(first, "noisy", rate, p, seed, epochs)
    params, seconds = trained.params, trained.rows[-1]["seconds"]
    noisy, clean = ((features(task, params, inputs), labels) for inputs, labels in (second.train, task.validation))
    classes = int(task.truth.max()) + 1
    head = jnp.zeros((noisy[0].shape[1], classes), jnp.float32)
    size, c = min(BATCH, len(second.truth)), regularisation(p)
    problem, x, y = hyper_cleaning(_last_layer, head, noisy, clean, jnp.float32(p), c, batch_size=size, weights=WEIGHTS)
    solver = check_solver(SOLVER, tree.dtype(y))
    key = jax.random.key(seed)
    (state, _), ran, _ = run(initialise, solver, problem, x, y, key)
    seconds += ran
    held = features(task, params, task.tuning[0])
    rows: Rows = []
    for step in range(0, STEPS + 1, PIECE):
        found = np.asarray(held @ np.asarray(state.y)).argmax(axis=1)
        rows.append({
            "step": step, "rate": float(WEIGHTS.rate(state.x, classes)), "temperature": float(state.x["temperature"]),
            "tuning": float(np.mean(found == task.tuning[1])), "seconds": seconds,
        })  # fmt: skip
        if step < STEPS:
            args = (solver, problem, state, key, jnp.int32(step), jnp.int32(PIECE))
            (state, _), ran, _ = run(advance, *args, capacity=PIECE)
            seconds += ran
    return rows


def part(task: Task, rows: slice) -> Task:
    """The task with these training samples alone."""
    inputs, labels = task.train
    return task._replace(train=(jax.tree.map(lambda a: a[rows], inputs), labels[rows]), truth=task.truth[rows])


def features(task: Task, params: Any, inputs: Any) -> np.ndarray:
    """What the last layer sees, with a column of ones for its bias."""
    seen = in_chunks(task.features, params, inputs)
    return np.concatenate([seen, np.ones((len(seen), 1), seen.dtype)], axis=1)


def _last_layer(weights: jax.Array, seen: jax.Array) -> jax.Array:
    return seen @ weights
