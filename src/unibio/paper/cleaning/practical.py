"""UniBiO's practical setting for a network on noisy labels: learn how many are wrong, then train once more.

    1. train on one half of the noisy samples, stopped where the tuning samples are best
    2. UniBiO with `NoiseRate` on the last layer alone, over the other half: small, and solved well
    3. train from the start on all noisy labels, seen through r, and on the clean ones

A weight for each of 10,000 samples overfits 1,000 clean ones; one rate does not. Through a whole network, a few steps
from unibio.core.tree import PyTree
from its start, the hypergradient says nothing about r: it must come from a lower level that has been solved. And what a
network makes of samples it was trained on betrays their labels, which is why the halves differ.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from unibio.core.tree import PyTree
from unibio.files.tables import Rows
from unibio.hypergradients import CG
from unibio.hypergradients.preconditioners import Identity
from unibio.lower.optax import Optax
from unibio.paper.cleaning.race import accuracy, in_chunks, measured, train
from unibio.paper.cleaning.task import Task, take
from unibio.problems.hyper_cleaning import NoiseRate, hyper_cleaning
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
    first, second = (
        task._replace(train=take(task.train, rows), truth=task.truth[rows]) for rows in (np.s_[:half], np.s_[half:])
    )
    curve, params = train(first, "noisy", rate, p, seed, epochs)
    noisy, clean = ((features(task, params, inputs), labels) for inputs, labels in (second.train, task.validation))
    classes = int(task.truth.max()) + 1
    head = jnp.zeros((noisy[0].shape[1], classes), jnp.float32)
    size, c = min(BATCH, len(second.truth)), regularisation(p)
    setting = hyper_cleaning(_last_layer, head, noisy, clean, jnp.float32(p), c, batch_size=size, weights=WEIGHTS)
    held = features(task, params, task.tuning[0])
    rows: Rows = []
    for k, (state, seconds, _) in enumerate(measured(SOLVER, setting, jax.random.key(seed), PIECE, STEPS // PIECE)):
        r, s = WEIGHTS.rate(state.x, classes), state.x["temperature"]
        rows.append({
            "step": k * PIECE, "rate": float(r), "temperature": float(s),
            "tuning": accuracy(held @ np.asarray(state.y), task.tuning[1]), "seconds": curve[-1]["seconds"] + seconds,
        })  # fmt: skip
    return rows


def features(task: Task, params: PyTree, inputs: PyTree) -> np.ndarray:
    """What the last layer sees, with a column of ones for its bias."""
    seen = in_chunks(task.features, params, inputs)
    return np.concatenate([seen, np.ones((len(seen), 1), seen.dtype)], axis=1)


def _last_layer(weights: jax.Array, seen: jax.Array) -> jax.Array:
    return seen @ weights
