"""What the processes of one run must agree on. In a run of one process these functions do nothing."""

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from unibio.core.tree import PyTree


def spans_processes(variable: PyTree) -> bool:
    """Whether some array lies partly on devices of other processes: then all must run the same programs in the same
    order."""
    return any(isinstance(leaf, jax.Array) and not leaf.is_fully_addressable for leaf in jax.tree.leaves(variable))


def is_leader() -> bool:
    """Whether this is the process that prints and writes."""
    return jax.process_index() == 0


def largest(number: float) -> float:
    """The maximum over all processes, so that all take the same decision."""
    return float(np.max(multihost_utils.process_allgather(np.float32(number))))


def from_leader(content: bytes) -> bytes:
    """Sends the leader's bytes to every process, and returns them."""
    length = int(multihost_utils.broadcast_one_to_all(np.int32(len(content))))
    padded = np.frombuffer(content if is_leader() else bytes(length), np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(padded), np.uint8).tobytes()


def gathered(variable: PyTree) -> PyTree:
    """Every array as a numpy array with all its entries, on each process; every process must ask for it."""

    def gather(leaf: Any) -> np.ndarray:
        if spans_processes(leaf) and not leaf.is_fully_replicated:
            return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))
        return np.asarray(leaf)

    return jax.tree.map(gather, variable)
