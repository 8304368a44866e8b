"""Arrays and JSON in one sequence of bytes behind their checksum: no pickle, nothing executable."""

import hashlib
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Facts = dict[str, Any]

_MAGIC = b"unibio checkpoint 1\n"
_DIGEST = 32


def encode(facts: Facts, groups: dict[str, list[Any]]) -> bytes:
    """JSON with the shape of every array, then their bytes."""
    arrays = {name: [plain(leaf) for leaf in leaves] for name, leaves in groups.items()}
    shapes = {name: [(str(a.dtype), a.shape) for a in leaves] for name, leaves in arrays.items()}
    head = json.dumps(facts | {"arrays": shapes}).encode() + b"\n"
    body = head + b"".join(a.tobytes() for leaves in arrays.values() for a in leaves)
    return _MAGIC + hashlib.sha256(body).digest() + body


def decode(content: bytes) -> tuple[Facts, dict[str, list[np.ndarray]]]:
    """What `encode` wrote, or a ValueError."""
    start = len(_MAGIC) + _DIGEST
    if content[: len(_MAGIC)] != _MAGIC or hashlib.sha256(content[start:]).digest() != content[len(_MAGIC) : start]:
        raise ValueError("it is damaged or no checkpoint.")
    end = content.index(b"\n", start)
    facts = json.loads(content[start:end])
    place = end + 1
    groups: dict[str, list[np.ndarray]] = {}
    for name, shapes in facts.pop("arrays").items():
        groups[name] = []
        for kind, shape in shapes:
            dtype = jnp.dtype(kind)
            size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            groups[name].append(np.frombuffer(content[place : place + size], dtype).reshape(shape))
            place += size
    return facts, groups


def plain(leaf: Any) -> np.ndarray:
    """An array on the host; a key as its numbers."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf, order="C")
