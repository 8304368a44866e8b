"""One run of the study of hyper-cleaning: a bilevel solver or plain training, measured after every epoch.

An epoch ends when the lower level has drawn as many samples as there are training samples.
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
from unibio.run.programs import CAPACITY, check_solver, initialise, timed
from unibio.solvers import MASOBA, SABA, SUSTAIN, TTSA, VRBO, StocBiO, UniBiO
from unibio.solvers.step_sizes import step_sizes, stepping

C = 1e-4  # weight of the regulariser ‖w‖_p^p


class Entry(NamedTuple):
    """A solver with the paper's step sizes, the batches that its lower level draws in a step, and the upper step
    sizes to try."""

    solver: Any
    lower_steps: float
    upper: tuple[float, ...]


# λ_i moves only when sample i is drawn, and then by about 1/500 of the step size, so that with the paper's upper step
# sizes λ stays where it started. Larger ones must be tried, and the same for all solvers but UniBiO, whose step is
# normalised and therefore in another unit.
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
    """The eight pairs of step sizes (upper, lower) to try; the paper's pair is the first."""
    paper = step_sizes(CONTESTANTS[name].solver)
    return [paper, (paper[0], LOWER[1]), *((upper, lower) for upper in CONTESTANTS[name].upper for lower in LOWER)]


def batch_size(task: Task, name: str) -> int:
    """The task's batch size, or the largest below it that works.

    VRBO takes two batches at its checkpoints, so that a batch may have at most half of the samples. SABA remembers a
    gradient for each batch of a fixed partition, so that the batch size must divide the numbers of samples.
    """
    sizes = len(task.truth), len(task.validation[1])
    if name != "SABA":
        most = min(sizes) // 2 if name == "VRBO" else min(sizes)
        return max(1, min(task.batch, most))
    return max(size for size in range(1, task.batch + 1) if all(count % size == 0 for count in sizes))


def race(task: Task, name: str, steps: tuple[float, float], p: float, seed: int, epochs: int) -> Rows:
    """Runs a solver with a weight for each sample, as in the paper; a row of scores for the start and each epoch."""
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
    """Runs a solver for `count` times `length` steps. Yields the state, the seconds and the oracle calls so far, first
    at the start and then after every `length` steps."""
    problem, x, y = setting
    solver = check_solver(solver, tree.dtype(x))
    (state, calls), seconds, _ = timed(initialise, solver, problem, x, y, key)
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
    """The samples of plain training, by kind: "noisy" (training samples), "clean" (validation samples), "both", or
    "true" (training samples with their true labels, which nobody has: the best that cleaning can reach)."""
    if kind == "both":
        return jax.tree.map(lambda *arrays: np.concatenate(arrays), task.train, task.validation)
    return {"noisy": task.train, "clean": task.validation, "true": (task.train[0], task.truth)}[kind]


def train(task: Task, kind: str, rate: float, p: float, seed: int, epochs: int, wrong: float = 0.0) -> tuple[Rows, Any]:
    """Plain training with Adam. Returns a row of scores for the start and each epoch, and the parameters after the
    epoch with the highest accuracy on the tuning samples. An epoch has the same number of steps for every kind.

    Arguments:
        wrong: the share r of wrong labels that the loss assumes among the noisy ones (see `NoiseRate`).
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
        state, spent, _ = timed(epoch_of_training, *args, length=length)
        seconds += spent
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
    """`length` steps of Adam on mean loss_i + c‖w‖_p^p, where loss_i takes label i to be wrong with probability r_i.

    The batches go through a random permutation of the samples, and through further ones if the samples are few.
    """

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
    """Measures a network: its accuracies, and the AUROCs of three ways to find the corrupted samples (by a low weight,
    by a high loss, and by a high mean of the losses after the epochs so far)."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.sum = np.zeros(len(task.truth))

    def measure(self, y: PyTree, x: PyTree = None) -> Row:
        """The scores of the parameters y and the weights x. To be called at the start and after every epoch, in
        order."""
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
    """The share of samples whose largest output belongs to their label."""
    return float(np.mean(outputs.argmax(axis=1) == labels))


def auroc(scores: np.ndarray, positive: np.ndarray) -> float:
    """The share of pairs of a positive and a negative sample in which the positive one has the higher score.

    Ties count half. It is 0.5 if a score is not finite or if all samples are of one kind.
    """
    if not np.isfinite(scores).all() or positive.all() or not positive.any():
        return 0.5
    _values, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    many, few = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - many * (many + 1) / 2) / (many * few))


def in_chunks(apply: Callable[..., jax.Array], y: PyTree, inputs: PyTree) -> np.ndarray:
    """apply(y, inputs) for all samples, computed in chunks of equal shape so that one program serves them all."""
    rows = len(jax.tree.leaves(inputs)[0])
    chunk = min(rows, 512)
    starts = [min(start, rows - chunk) for start in range(0, rows, chunk)]  # the last chunk may overlap the one before
    parts = [
        np.asarray(_apply(apply, y, take(inputs, slice(start, start + chunk))))[: following - start]
        for start, following in itertools.pairwise([*starts, rows])
    ]
    return np.concatenate(parts)


_apply = eqx.filter_jit(lambda apply, y, inputs: apply(y, inputs))
