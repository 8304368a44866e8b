"""UniBiO's practical setting for a network on noisy labels: it learns the share r of wrong labels, then trains with it.

    1. Train the network on one half of the noisy samples, up to the epoch that is best on the tuning samples.
    2. Let UniBiO learn r on the other half, with the last layer as the only lower variable (`NoiseRate`).
    3. Train the network from the start on the clean samples and on all noisy ones, whose loss takes r into account.

Why one rate: 10,000 weights, one for each sample, overfit 1,000 clean samples. Why the last layer alone: the
hypergradient says something about r only where the lower level has been solved, and that is possible for one layer, not
for a whole network a few steps from its start. Why two halves: a network has fitted the labels it was trained on, also
the wrong ones, so that its outputs for those samples hide which labels are wrong.
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

STEPS, PIECE, BATCH = 300, 30, 2000  # steps of UniBiO, how many between two rows of the table, samples in a batch
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
    """The weight c of the regulariser c‖W‖_p^p of the last layer W.

    With this c the regulariser is 1e-5·‖10 W‖_p^p. For entries near 0.1, which W has here, that is about the same for
    every p. If c is too small, the last layer is too sure of its classes and r comes out too high.
    """
    return 1e-5 * 10**p


def learn_rate(task: Task, rate: float, p: float, seed: int, epochs: int) -> Rows:
    """Steps 1 and 2. Returns a row for every thirty steps of UniBiO: r, the logarithm s of the temperature, the
    accuracy of the last layer on the tuning samples, and the seconds so far."""
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
    """The input of the last layer, with a column of ones for its bias."""
    seen = in_chunks(task.features, params, inputs)
    return np.concatenate([seen, np.ones((len(seen), 1), seen.dtype)], axis=1)


def _last_layer(weights: jax.Array, seen: jax.Array) -> jax.Array:
    return seen @ weights
