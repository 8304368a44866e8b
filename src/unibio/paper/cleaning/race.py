"""One run of the study of hyper-cleaning: a bilevel solver or plain training, measured after every epoch.

An epoch has shown the lower level as many training samples as there are.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from unibio.core import tree
from unibio.core.problem import as_pytree
from unibio.files.tables import Row, Rows
from unibio.hypergradients import Neumann
from unibio.lower.sgd import SGD
from unibio.paper.cleaning.task import Samples, Task
from unibio.problems.hyper_cleaning import as_seen, cross_entropy, hyper_cleaning
from unibio.run.programs import advance, check_solver, initialise, run
from unibio.solvers import MASOBA, SABA, SUSTAIN, TTSA, VRBO, StocBiO, UniBiO
from unibio.solvers.step_sizes import step_sizes, stepping

C = 1e-4


class Entry(NamedTuple):
    """A solver with the paper's step sizes, lower steps (in batches) of one of its steps, upper steps to try."""

    solver: Any
    lower_steps: float
    upper: tuple[float, ...]


# λ_i moves only when sample i is drawn, by the step size times about 1/500: the paper's steps leave λ at its start. The
# others hardly differ; UniBiO's normalised step has another unit.
_UPPER = (1.0, 10.0, 100.0)
_constant: dict[str, Any] = {"upper_decay": 0.0, "lower_decay": 0.0}
SOLVERS = {
    "UniBiO": Entry(UniBiO(0.05, lower=SGD(3, 0.02), hypergradient=Neumann(3, power_steps=3)), 1.5, (0.5, 2.0, 8.0)),
    "StocBiO": Entry(StocBiO(0.01, 0.002, lower_steps=3, terms=3), 3, _UPPER),
    "TTSA": Entry(TTSA(0.001, 0.02, terms=3, **_constant), 1, _UPPER),
    "SABA": Entry(SABA(0.05, 0.02), 1, _UPPER),
    "MA-SOBA": Entry(MASOBA(0.01, 0.01, momentum=0.9), 1, _UPPER),
    "SUSTAIN": Entry(SUSTAIN(0.05, 0.05, decay=0.0, terms=3), 1, _UPPER),
    "VRBO": Entry(VRBO(0.1, 0.05, lower_steps=3, period=3, checkpoint_batches=2, terms=3), 3, _UPPER),
}
LOWER = (0.1, 0.5)


def candidates(name: str) -> list[tuple[float, float]]:
    """The eight pairs of step sizes (upper, lower) that are tried, the paper's among them."""
    paper = step_sizes(SOLVERS[name].solver)
    return [paper, (paper[0], LOWER[1]), *((upper, lower) for upper in SOLVERS[name].upper for lower in LOWER)]


def batch_size(task: Task, name: str) -> int:
    """The task's, or what there is: VRBO takes two batches at its checkpoints. For SABA, which remembers a gradient for
    each batch of a fixed partition, the next that divides the data."""
    sizes = len(task.truth), len(task.validation[1])
    if name != "SABA":
        most = min(sizes) // 2 if name == "VRBO" else min(sizes)
        return max(1, min(task.batch, most))
    return max(size for size in range(1, task.batch + 1) if all(count % size == 0 for count in sizes))


def race(task: Task, name: str, steps: tuple[float, float], p: float, seed: int, epochs: int) -> Rows:
    """A solver for some epochs with a weight for each sample, as in the paper."""
    key_start, key_run = jax.random.split(jax.random.key(seed))
    size = batch_size(task, name)
    problem, x, y = hyper_cleaning(
        task.apply, task.init(key_start), task.train, task.validation, jnp.float32(p), C, batch_size=size
    )
    solver = check_solver(stepping(SOLVERS[name].solver, *steps), tree.dtype(x))
    length = max(1, round(len(task.truth) / size / SOLVERS[name].lower_steps))
    (state, calls), seconds, _ = run(initialise, solver, problem, x, y, key_run)
    spent = sum(int(np.asarray(each)) for each in calls)
    scores = Scores(task)
    rows = [scores.measure(state.y, state.x) | {"epoch": 0, "seconds": seconds, "calls": spent}]
    for epoch in range(1, epochs + 1):
        args = (solver, problem, state, key_run, jnp.int32((epoch - 1) * length), jnp.int32(length))
        (state, log), ran, _ = run(advance, *args, capacity=length)
        seconds, spent = seconds + ran, spent + sum(int(np.asarray(each, np.int64).sum()) for each in log.calls)
        rows.append(scores.measure(state.y, state.x) | {"epoch": epoch, "seconds": seconds, "calls": spent})
    return rows


TRAINING = ("noisy", "clean", "both", "true")


def training_set(task: Task, kind: str) -> Samples:
    """What plain training sees: noisy labels, the clean validation samples, both, or the true labels (the ceiling)."""
    if kind in ("noisy", "true"):
        return task.train[0], task.train[1] if kind == "noisy" else task.truth
    if kind == "clean":
        return task.validation
    return _joined(task.train, task.validation)


def _joined(*parts: Samples) -> Samples:
    inputs = jax.tree.map(lambda *arrays: np.concatenate(arrays), *(part[0] for part in parts))
    return inputs, np.concatenate([part[1] for part in parts])


class Trained(NamedTuple):
    """The curve of a training, and the parameters where the tuning samples were best."""

    rows: Rows
    params: Any


def train(task: Task, kind: str, rate: float, p: float, seed: int, epochs: int, wrong: float = 0.0) -> Trained:
    """Training with Adam, measured after every epoch (of as many steps for every kind).

    Arguments:
        wrong: r, the share of wrong labels that the noisy ones are taken to have (`NoiseRate`).
    """
    key_start, key_run = jax.random.split(jax.random.key(seed))
    samples = jax.tree.map(jnp.asarray, training_set(task, kind))
    fit = Fit(as_pytree(task.apply), jnp.float32(p), jnp.float32(C), jnp.float32(rate))
    params = task.init(key_start)
    state = (params, _ADAM.init(params))
    rates = jnp.where(jnp.arange(len(samples[1])) < len(task.truth), jnp.float32(wrong), 0.0)  # clean samples come last
    length = max(1, round(len(task.truth) / task.batch))
    scores = Scores(task)
    rows = [scores.measure(params) | {"epoch": 0, "seconds": 0.0, "calls": 0}]
    seconds = 0.0
    for epoch in range(1, epochs + 1):
        args = (fit, state, samples, rates, jax.random.fold_in(key_run, epoch))
        state, ran, _ = run(epoch_of_training, *args, length=length, size=min(task.batch, len(rates)))
        seconds += ran
        row = scores.measure(state[0]) | {
            "epoch": epoch,
            "seconds": seconds,
            "calls": epoch * length * min(task.batch, len(rates)),
        }
        params = state[0] if row["tuning"] > max(before["tuning"] for before in rows) else params
        rows.append(row)
    return Trained(rows, params)


class Fit(eqx.Module):
    """Adam on mean loss_i + c‖w‖_p^p, the loss of labels that are wrong at the rate r_i."""

    apply: Any
    p: Any
    c: Any
    rate: Any

    def step(self, state: Any, samples: Any, rates: jax.Array, rows: jax.Array) -> Any:
        params, memory = state
        (inputs, labels), wrong = jax.tree.map(lambda a: a[rows], (samples, rates[:, None]))

        def objective(params: Any) -> jax.Array:
            logits = self.apply(params, inputs)
            seen = jnp.where(wrong > 0, as_seen(jnp.where(wrong > 0, wrong, 0.5), logits), jax.nn.log_softmax(logits))
            size = sum(jnp.sum(jnp.abs(leaf) ** self.p) for leaf in jax.tree.leaves(params))
            return jnp.mean(cross_entropy(seen, labels)) + self.c * size

        update, memory = _ADAM.update(jax.grad(objective)(params), memory, params)
        return tree.axpy(-self.rate, update, params), memory


_ADAM = optax.scale_by_adam()


def epoch_of_training(
    fit: Fit, state: Any, samples: Any, rates: jax.Array, key: jax.Array, length: int, size: int
) -> Any:
    """`length` steps on batches of a permutation (of several, if the samples are few)."""
    n = len(samples[1])
    orders = [
        jax.random.permutation(k, n)[: n // size * size] for k in jax.random.split(key, -(-length // (n // size)))
    ]
    batches = jnp.concatenate(orders).reshape(-1, size)[:length]
    return jax.lax.scan(lambda state, rows: (fit.step(state, samples, rates, rows), None), state, batches)[0]


class Scores:
    """Accuracies, and AUROC of three scores for corrupted samples: a low weight, a high loss, a high mean loss over the
    epochs so far."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.sum = np.zeros(len(task.truth))

    def measure(self, y: Any, x: Any = None) -> Row:
        """At the start and at the end of every epoch."""
        task = self.task
        labels = {"train_noisy": task.train[1], "train_true": task.truth}
        train = in_chunks(task.apply, y, task.train[0])
        row = {name: float(np.mean(train.argmax(axis=1) == seen)) for name, seen in labels.items()}
        for name in ("validation", "tuning", "test"):
            inputs, seen = getattr(task, name)
            row[name] = float(np.mean(in_chunks(task.apply, y, inputs).argmax(axis=1) == seen))
        losses = np.asarray(cross_entropy(jnp.asarray(train), jnp.asarray(task.train[1])))
        self.sum += losses
        row["auroc_loss"] = auroc(losses, task.corrupted)
        row["auroc_mean_loss"] = auroc(self.sum, task.corrupted)
        row["auroc_weights"] = 0.5 if x is None else auroc(-np.asarray(x), task.corrupted)
        row["finite"] = float(all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(y)))
        return row


def auroc(scores: np.ndarray, positive: np.ndarray) -> float:
    """The chance that a positive sample has a higher score than a negative one, ties counting half; .5 for NaN."""
    if not np.isfinite(scores).all() or positive.all() or not positive.any():
        return 0.5
    _values, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    many, few = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - many * (many + 1) / 2) / (many * few))


def in_chunks(apply: Any, y: Any, inputs: Any) -> np.ndarray:
    """apply(y, inputs) for all samples, in chunks of one shape."""
    rows = len(jax.tree.leaves(inputs)[0])
    chunk = min(rows, 512)
    starts = [min(start, rows - chunk) for start in range(0, rows, chunk)]
    parts = [np.asarray(_apply(apply, y, jax.tree.map(lambda a, s=s: a[s : s + chunk], inputs))) for s in starts]
    out = np.empty((rows, parts[0].shape[1]), parts[0].dtype)
    for start, part in zip(starts, parts, strict=True):
        out[start : start + chunk] = part
    return out


@eqx.filter_jit
def _apply(apply: Any, y: Any, inputs: Any) -> jax.Array:
    return apply(y, inputs)
