"""Where samples come from: a sampler turns a random key into a `Batch`, and the same key into the same samples.

A realisation is the random part of one batch: the numbers of its samples for a `Dataset`, the noise itself for
`Noise`. Every sampler has three methods: `draw(key, count, x, y)` gives `count` realisations stacked along a first
axis (a lower loop draws all of its samples as one block), `batch(realisation)` turns one of them into the batch that
the oracles take, and `whole()` gives what they take for the exact mean over all samples.
"""

import copy
from collections.abc import Callable
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import checks, show, tree
from unibio.core.streams import Site, Turn, positions, shuffled
from unibio.core.tree import PyTree

_CHUNK_ROWS = 2048
_CHUNK_BYTES = 2**23  # a chunk that stays in cache is read from memory once for two products


class Batch(eqx.Module):
    """What f and g get as their argument `batch`.

    `index` holds the number of each sample in the data, and `value` the data arrays cut down to the rows of these
    samples. `slot` says which batch of the fixed partition this is (see `Dataset.slot`), −1 if it is none of them.
    """

    index: jax.Array
    value: PyTree
    slot: jax.Array


class Sampler(Protocol):
    """Gives a Problem its samples. The text at the top of this file says what each method returns."""

    def draw(self, key: jax.Array, count: int, x: PyTree, y: PyTree) -> PyTree: ...
    def batch(self, realisation: PyTree) -> Any: ...
    def whole(self) -> Any: ...


class Full(eqx.Module):
    """No samples: f and g are called with `batch=None` and are exact."""

    def draw(self, key: jax.Array, count: int, x: PyTree, y: PyTree) -> PyTree:
        return None

    def batch(self, realisation: PyTree) -> None:
        return None

    def whole(self) -> None:
        return None


class Dataset(eqx.Module):
    """A finite sum: n samples, the rows of every array in `data`.

    On a batch, f and g are the mean over its samples (any regulariser in each), so that a batch is an
    unbiased estimate of `whole()`, which is exact: a short last chunk counts by its size.

    Arguments:
        data: pytree of arrays that share their first axis.
        batch_size: samples in each random batch, at most n. Left out, every batch is all samples, each once: nothing is
            random, and nothing is copied.
        replace: whether a sample may come twice. True (the default): independent draws. False: the batches of one draw
            (a lower loop's, say) are cut from a fresh random order; draws with other keys are independent.
        chunk_size: rows per chunk of `whole()`; by default at most 2048 rows and 8 MB.
        stream: True: without replacement from step to step. In a run (`solve`, `trajectory`, `compare`) the batches of
            each kind (for lower steps, for Hessian products, for f, …) go through the data again and again, each time
            in another random order. Outside a run it is `replace=False`.

    Where batches do not divide n, each random order leaves out its last samples.

    Example:
        >>> data = Dataset((jnp.ones((10, 3)), jnp.zeros(10)), batch_size=4)
        >>> data.sample(jax.random.key(0)).value[0].shape
        (4, 3)
    """

    data: PyTree
    turn: Turn | None
    batch_size: int | None = eqx.field(static=True)
    replace: bool = eqx.field(static=True)
    chunk_size: int = eqx.field(static=True)
    stream: bool = eqx.field(static=True)

    def __init__(
        self,
        data: PyTree,
        batch_size: int | None = None,
        replace: bool | None = None,
        chunk_size: int | None = None,
        stream: bool = False,
    ) -> None:
        self.data = jax.tree_util.tree_map_with_path(
            lambda path, leaf: checks.numbers("data" + jax.tree_util.keystr(path), leaf), data
        )
        rows = _common_length(self.data)
        if batch_size is not None:
            checks.whole_number("batch_size", batch_size, low=1)
            if batch_size > rows:
                raise ValueError(
                    f"batch_size {batch_size} is larger than the data ({rows} samples); leave it out to use them all."
                )
        self.turn = None
        self.batch_size = batch_size
        checks.flag("stream", stream)
        replace = not stream if replace is None else replace
        checks.flag("replace", replace)
        if stream and replace:
            raise ValueError("a stream draws without replacement: leave out replace=True, or stream=True.")
        self.replace, self.stream = replace, stream
        if chunk_size is None:
            row_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(self.data)) // rows
            chunk_size = _chunk(rows, min(rows, _CHUNK_ROWS, max(1, _CHUNK_BYTES // max(1, row_bytes))))
        checks.whole_number("chunk_size", chunk_size, low=1)
        self.chunk_size = min(chunk_size, rows)

    def __repr__(self) -> str:
        how = "" if self.batch_size is None else f" in batches of {self.batch_size}"
        how += ", without replacement" if how and not self.replace else ""
        return f"Dataset({self.n} samples of {show.shapes(self.data)}{how}{', as a stream' if self.stream else ''})"

    @property
    def n(self) -> int:
        """Number of samples."""
        return int(jax.tree.leaves(self.data)[0].shape[0])

    @property
    def in_parts(self) -> bool:
        """Whether f and g see fewer than all samples at a time."""
        return self.chunk_size < self.n or (self.batch_size or self.n) < self.n

    @property
    def slots(self) -> int:
        """Number of batches of the fixed partition 0..batch_size−1, batch_size..2·batch_size−1, …"""
        return self.n // (self.batch_size or self.n)

    def slot(self, k: jax.Array | int) -> "Batch | AllSamples":
        """Batch k of the fixed partition, for methods that remember one gradient per batch."""
        if self.batch_size is None:
            return self.whole()
        k = jnp.asarray(k, jnp.int32)
        return self.rows(k * self.batch_size, self.batch_size, slot=k)

    def draw_slot(self, key: jax.Array, site: Site | None = None) -> jax.Array:
        """The number of a random slot, int32."""
        if self.turn is None or site is None:
            return jax.random.randint(key, (), 0, self.slots, jnp.int32)
        keys, place = positions(self.turn, site, 1, self.slots)
        return shuffled(keys[0], place[0], self.slots)

    def draw(
        self, key: jax.Array, count: int, x: PyTree = None, y: PyTree = None, site: Site | None = None
    ) -> jax.Array | None:
        """The numbers of the samples of `count` batches, int32[count, batch_size]; None where a batch is all samples.
        In a stream each site, a purpose such as the lower steps, has batches of its own; `site` says for which they
        are drawn."""
        if self.batch_size is None:
            return None
        if self.replace:
            return jax.random.randint(key, (count, self.batch_size), 0, self.n, jnp.int32)
        if self.turn is not None and site is not None:
            keys, place = positions(self.turn, site, count, self.slots)
            within = jnp.arange(self.batch_size, dtype=jnp.uint32)
            numbers = place[:, None] * jnp.uint32(self.batch_size) + within[None, :]
            return jax.vmap(lambda key, numbers: shuffled(key, numbers, self.n))(keys, numbers)
        epochs = -(-count // self.slots)
        orders = jax.vmap(lambda k: jax.random.permutation(k, self.n))(jax.random.split(key, epochs))
        batches = orders[:, : self.slots * self.batch_size].reshape(-1, self.batch_size)
        return batches[:count].astype(jnp.int32)

    def at(self, turn: Turn | None) -> "Dataset":
        """This Dataset as step `turn.t` of a run sees it: a stream draws the batches of that step from it. Without
        `stream=True` it is returned unchanged."""
        return self._with(turn=turn) if self.stream else self

    def resized(self, batch_size: int) -> "Dataset":
        """The same data in batches of another size. If this is a stream, the new one has random orders of its own."""
        turn = self.turn
        if turn is not None:
            turn = turn._replace(seed=jax.random.fold_in(turn.seed, batch_size))
        return self._with(batch_size=batch_size, turn=turn)

    def _with(self, **changes: Any) -> "Dataset":
        other = copy.copy(self)  # also of a subclass, whatever its arguments
        for name, value in changes.items():
            object.__setattr__(other, name, value)
        return other

    def batch(self, realisation: jax.Array | None) -> "Batch | AllSamples":
        if realisation is None:
            return self.whole()
        return self._lookup(realisation)

    def _lookup(self, index: jax.Array) -> Batch:
        value = jax.tree.map(lambda a: a.at[index].get(mode="promise_in_bounds"), self.data)
        return Batch(index, value, jnp.asarray(-1, jnp.int32))

    def sample(self, key: jax.Array) -> Batch:
        """One random batch."""
        realisation = self.draw(key, 1)
        return self.rows(0, self.n) if realisation is None else self._lookup(realisation[0])

    def whole(self) -> "AllSamples":
        return AllSamples(self)

    def rows(self, start: jax.Array | int, count: int, slot: jax.Array | int = -1) -> Batch:
        """`count` consecutive samples."""
        value = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, start, count), self.data)
        index = jnp.asarray(start, jnp.int32) + jnp.arange(count, dtype=jnp.int32)
        return Batch(index, value, jnp.asarray(slot, jnp.int32))

    def spread(self, count: int) -> Batch:
        """`count` samples at even distances, for a rough look at all of them."""
        return self._lookup(jnp.arange(count, dtype=jnp.int32) * (self.n // count))


class AllSamples(eqx.Module):
    """All samples of a Dataset at once, streamed in chunks so that memory does not grow with n."""

    dataset: Dataset

    @property
    def n(self) -> int:
        return self.dataset.n

    @property
    def length(self) -> int:
        """How many rows `total` walks through; in `Sharded` those of one device."""
        return self.n

    @property
    def in_one_chunk(self) -> bool:
        return self.dataset.chunk_size >= self.length

    def rows(self, start: jax.Array | int, count: int) -> Batch:
        """`count` consecutive rows."""
        return self.dataset.rows(start, count)

    def total(self, fn: Callable[[Batch, float], PyTree]) -> PyTree:
        """Σ over chunks of fn(chunk, weight), weight = chunk's share of the samples.

        The weight goes into `fn`, ahead of any derivative: so XLA turns the gradient by a per-sample
        variable x[index] into one in-place scatter, where a product after it would cost O(n) a chunk.
        """
        length, chunk = self.length, self.dataset.chunk_size
        chunks, rest = divmod(length, chunk)
        if self.in_one_chunk:
            return fn(self.rows(0, length), 1.0)

        @jax.checkpoint
        def one(k: jax.Array) -> PyTree:
            return fn(self.rows(k * chunk, chunk), chunk / length)

        def accumulate(total: PyTree, k: jax.Array) -> tuple[PyTree, None]:
            return tree.add(total, one(k)), None

        shapes = jax.eval_shape(one, jnp.int32(0))
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        total, _ = jax.lax.scan(accumulate, zeros, jnp.arange(chunks, dtype=jnp.int32))
        if rest:
            total = tree.add(total, fn(self.rows(chunks * chunk, rest), rest / length))
        return total


def _chunk(rows: int, most: int) -> int:
    """At most `most` rows for each chunk, and no fewer than half of that: as many as divide all rows, if such a number
    exists. Chunks are then all alike, and a program need not contain f and g a second time for a shorter last one."""
    fewest = -(-rows // most)
    return next((rows // count for count in range(fewest, 2 * fewest + 1) if rows % count == 0), most)


def _common_length(data: PyTree) -> int:
    leaves = jax.tree_util.tree_leaves_with_path(data)
    if not leaves:
        raise ValueError("data has no arrays; pass e.g. Dataset((X, y)).")
    lengths = {}
    for path, leaf in leaves:
        name = "data" + jax.tree_util.keystr(path)
        if np.ndim(leaf) == 0:
            raise ValueError(
                f"{name} is a scalar; every data array needs the samples as its first axis. "
                "(A list is a tree of its entries: pass np.asarray(list).)"
            )
        lengths[name] = int(np.shape(leaf)[0])
    if len(set(lengths.values())) > 1:
        raise ValueError(f"data arrays have different numbers of samples: {lengths}; they must agree.")
    rows = next(iter(lengths.values()))
    if rows == 0:
        raise ValueError("data has no samples (first axis of length 0).")
    return rows
