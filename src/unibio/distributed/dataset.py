"""A Dataset whose rows lie on the devices of a mesh. Which rows a key draws does not depend on the mesh.

Nothing here or in a solver names a collective: arrays are told where to lie, and the compiler moves what must move.
Random rows come from wherever they are (each device looks up its own, the rest is zero, one sum), and then every device
works on its share of the batch. A pass over everything needs no exchange of rows: each device walks through its own.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from unibio.core.batches import AllSamples, Batch, Dataset

SAMPLES = "samples"  # the mesh axis along which data and per-sample variables are cut


class Sharded(Dataset):
    """A Dataset on a mesh with the axis `samples`, over which rows and batches are cut evenly."""

    mesh: Mesh = eqx.field(static=True)

    def __init__(self, dataset: Dataset, mesh: Mesh) -> None:
        check_divides("samples", dataset.n, mesh.shape[SAMPLES])
        if dataset.batch_size is not None:
            check_divides("samples in a batch", dataset.batch_size, mesh.shape[SAMPLES])
        self.data, self.turn = dataset.data, dataset.turn
        self.batch_size, self.replace, self.stream = dataset.batch_size, dataset.replace, dataset.stream
        self.chunk_size, self.mesh = dataset.chunk_size, mesh

    def cut(self, array: jax.Array) -> jax.Array:
        """Cuts the first axis over the devices; if it does not divide evenly, the compiler decides."""
        if array.shape[0] % self.mesh.shape[SAMPLES]:
            return array
        return jax.lax.with_sharding_constraint(array, NamedSharding(self.mesh, PartitionSpec(SAMPLES)))

    def everywhere(self, array: jax.Array) -> jax.Array:
        """Puts a copy of the whole array on each device."""
        return jax.lax.with_sharding_constraint(array, NamedSharding(self.mesh, PartitionSpec()))

    def _lookup(self, index: jax.Array) -> Batch:
        # Were the numbers cut like the rows, a lookup x[index] would bring all of x to each device.
        found = super()._lookup(self.everywhere(index))
        return Batch(found.index, jax.tree.map(self.cut, found.value), found.slot)

    def rows(self, start: jax.Array | int, count: int, slot: jax.Array | int = -1) -> Batch:
        # As a lookup: a slice across devices would bring all rows to each of them.
        index = jnp.asarray(start, jnp.int32) + jnp.arange(count, dtype=jnp.int32)
        return Batch(index, self._lookup(index).value, jnp.asarray(slot, jnp.int32))

    def whole(self) -> "ShardedWhole":
        return ShardedWhole(self)


class ShardedWhole(AllSamples):
    """All samples: chunk k is the k-th chunk of every device's own rows."""

    dataset: Sharded

    @property
    def length(self) -> int:
        return self.n // self.dataset.mesh.shape[SAMPLES]

    def rows(self, start: jax.Array | int, count: int) -> Batch:
        data, parts = self.dataset, self.dataset.mesh.shape[SAMPLES]

        def part(array: jax.Array) -> jax.Array:
            own = data.cut(array.reshape(parts, self.length, *array.shape[1:]))
            return data.cut(jax.lax.dynamic_slice_in_dim(own, start, count, axis=1).reshape(-1, *array.shape[1:]))

        first = jnp.arange(parts, dtype=jnp.int32) * self.length + jnp.asarray(start, jnp.int32)
        index = (first[:, None] + jnp.arange(count, dtype=jnp.int32)[None, :]).reshape(-1)
        return Batch(data.everywhere(index), jax.tree.map(part, data.data), jnp.asarray(-1, jnp.int32))


def check_divides(name: str, count: int, parts: int) -> None:
    """Refuses a number of samples that cannot be cut evenly, and names the nearest number that can."""
    if count % parts:
        fewer, devices = count - count % parts, math.gcd(count, parts)
        raise ValueError(
            f"{count} {name} cannot be cut evenly over {parts} devices: use {fewer or parts} of them, or {devices} "
            f"device{'s' if devices > 1 else ''}."
        )
