"""One run of the study of hyper-cleaning: a bilevel solver or plain training, measured after every epoch.

An epoch has shown the lower level as many training samples as there are.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from unibio.core import tree
from unibio.core.batches import Dataset
from unibio.core.problem import as_pytree
from unibio.core.protocols import BilevelSolver
from unibio.core.tree import PyTree
from unibio.files.tables import Row, Rows
from unibio.hypergradients import Neumann
from unibio.lower.sgd import SGD
from unibio.paper.cleaning.task import Samples, Task, take
from unibio.problems.hyper_cleaning import Setting, as_seen, cross_entropy, hyper_cleaning
from unibio.run.driver import stretches
from unibio.run.programs import CAPACITY, check_solver, compiled, initialise
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
CONTESTANTS = {
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
    paper = step_sizes(CONTESTANTS[name].solver)
    return [paper, (paper[0], LOWER[1]), *((upper, lower) for upper in CONTESTANTS[name].upper for lower in LOWER)]


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
    setting = hyper_cleaning(
        task.apply, task.init(key_start), task.train, task.validation, jnp.float32(p), C, batch_size=size
    )
    solver = stepping(CONTESTANTS[name].solver, *steps)
    length = max(1, round(len(task.truth) / size / CONTESTANTS[name].lower_steps))
    scores = Scores(task)
    return [
        scores.measure(state.y, state.x) | {"epoch": epoch, "seconds": seconds, "calls": calls}
        for epoch, (state, seconds, calls) in enumerate(measured(solver, setting, key_run, length, epochs))
    ]


def measured(
    solver: BilevelSolver, setting: Setting, key: jax.Array, length: int, count: int
) -> Iterator[tuple[Any, float, int]]:
    """The state at the start and then `count` times after `length` steps, with the seconds and the oracle calls so
    far."""
    problem, x, y = setting
    solver = check_solver(solver, tree.dtype(x))
    (state, calls), seconds, _ = compiled(initialise, solver, problem, x, y, key)
    total, step = sum(int(each) for each in calls), 0
    yield state, seconds, total

    def limit(step: int) -> int:
        return min(count, step // length + 1) * length

    for stretch in stretches(solver, problem, state, key, step, limit, chunk=CAPACITY):
        step, seconds = step + len(stretch.log.bad), seconds + stretch.seconds
        total += sum(int(np.asarray(each, np.int64).sum()) for each in stretch.log.calls)
        if step % length == 0:
            yield stretch.state, seconds, total


TRAINING = ("noisy", "clean", "both", "true")


def training_set(task: Task, kind: str) -> Samples:
    """What plain training sees: noisy labels, the clean validation samples, both, or the true labels (the ceiling)."""
    if kind == "both":
        return jax.tree.map(lambda *arrays: np.concatenate(arrays), task.train, task.validation)
    return {"noisy": task.train, "clean": task.validation, "true": (task.train[0], task.truth)}[kind]


def train(task: Task, kind: str, rate: float, p: float, seed: int, epochs: int, wrong: float = 0.0) -> tuple[Rows, Any]:
    """Training with Adam: its curve, measured after every epoch (of as many steps for every kind), and the parameters
    where the tuning samples were best.

    Arguments:
        wrong: r, the share of wrong labels that the noisy ones are taken to have (`NoiseRate`).
    """
    key_start, key_run = jax.random.split(jax.random.key(seed))
    samples = training_set(task, kind)
    n = len(samples[1])
    rates = jnp.where(jnp.arange(n) < len(task.truth), jnp.float32(wrong), 0.0)  # clean samples come last
    size, length = min(task.batch, n), max(1, round(len(task.truth) / task.batch))
    data = Dataset((samples, rates[:, None]), size, replace=False)
    numbers = jnp.float32(p), jnp.float32(C), jnp.float32(rate)
    params = task.init(key_start)
    state = (params, _ADAM.init(params))
    scores = Scores(task)
    rows = [scores.measure(params) | {"epoch": 0, "seconds": 0.0, "calls": 0}]
    seconds = 0.0
    for epoch in range(1, epochs + 1):
        args = (as_pytree(task.apply), *numbers, data, state, jax.random.fold_in(key_run, epoch))
        state, ran, _ = compiled(epoch_of_training, *args, length=length)
        seconds += ran
        row = scores.measure(state[0]) | {"epoch": epoch, "seconds": seconds, "calls": epoch * length * size}
        params = state[0] if row["tuning"] > max(before["tuning"] for before in rows) else params
        rows.append(row)
    return rows, params


_ADAM = optax.scale_by_adam()


def epoch_of_training(
    apply: Callable[..., jax.Array],
    p: jax.Array,
    c: jax.Array,
    rate: jax.Array,
    data: Dataset,
    state: PyTree,
    key: jax.Array,
    length: int,
) -> Any:
    """`length` steps of Adam on mean loss_i + c‖w‖_p^p, the loss of labels that are wrong at the rate r_i, on batches
    of a permutation (of several, if the samples are few)."""

    def objective(params: PyTree, inputs: PyTree, labels: jax.Array, wrong: jax.Array) -> jax.Array:
        logits = apply(params, inputs)
        seen = jnp.where(wrong > 0, as_seen(jnp.where(wrong > 0, wrong, 0.5), logits), jax.nn.log_softmax(logits))
        regulariser = sum(jnp.sum(jnp.abs(leaf) ** p) for leaf in jax.tree.leaves(params))
        return jnp.mean(cross_entropy(seen, labels)) + c * regulariser

    def step(state: PyTree, rows: jax.Array) -> tuple[Any, None]:
        params, memory = state
        (inputs, labels), wrong = take(data.data, rows)
        update, memory = _ADAM.update(jax.grad(objective)(params, inputs, labels, wrong), memory, params)
        return (tree.axpy(-rate, update, params), memory), None

    return jax.lax.scan(step, state, data.draw(key, length))[0]


class Scores:
    """Accuracies, and AUROC of three scores for corrupted samples: a low weight, a high loss, a high mean loss over the
    epochs so far."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.sum = np.zeros(len(task.truth))

    def measure(self, y: PyTree, x: PyTree = None) -> Row:
        """At the start and at the end of every epoch."""
        task = self.task
        train = in_chunks(task.apply, y, task.train[0])
        row = {"train_noisy": accuracy(train, task.train[1]), "train_true": accuracy(train, task.truth)}
        for name in ("validation", "tuning", "test"):
            inputs, labels = getattr(task, name)
            row[name] = accuracy(in_chunks(task.apply, y, inputs), labels)
        losses = np.asarray(cross_entropy(jnp.asarray(train), jnp.asarray(task.train[1])))
        self.sum += losses
        row["auroc_loss"] = auroc(losses, task.corrupted)
        row["auroc_mean_loss"] = auroc(self.sum, task.corrupted)
        row["auroc_weights"] = 0.5 if x is None else auroc(-np.asarray(x), task.corrupted)
        row["finite"] = float(tree.all_finite(y))
        return row


def accuracy(outputs: np.ndarray, labels: np.ndarray) -> float:
    """The share of samples whose largest output is that of their label."""
    return float(np.mean(outputs.argmax(axis=1) == labels))


def auroc(scores: np.ndarray, positive: np.ndarray) -> float:
    """The chance that a positive sample has a higher score than a negative one, ties counting half; .5 for NaN."""
    if not np.isfinite(scores).all() or positive.all() or not positive.any():
        return 0.5
    _values, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    many, few = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - many * (many + 1) / 2) / (many * few))


def in_chunks(apply: Callable[..., jax.Array], y: PyTree, inputs: PyTree) -> np.ndarray:
    """apply(y, inputs) for all samples, in chunks of one shape."""
    rows = len(jax.tree.leaves(inputs)[0])
    chunk = min(rows, 512)
    starts = [min(start, rows - chunk) for start in range(0, rows, chunk)]  # the last chunk may overlap the one before
    parts = [
        np.asarray(_apply(apply, y, take(inputs, slice(start, start + chunk))))[: following - start]
        for start, following in itertools.pairwise([*starts, rows])
    ]
    return np.concatenate(parts)


_apply = eqx.filter_jit(lambda apply, y, inputs: apply(y, inputs))
