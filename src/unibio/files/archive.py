"""Arrays and JSON in one sequence of bytes behind their checksum: no pickle, nothing executable."""

import hashlib
import json
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Facts = dict[str, Any]

_MAGIC = b"unibio checkpoint 1\n"
_DIGEST = 32


def encode(facts: Facts, groups: dict[str, Any]) -> bytes:
    """JSON with the shape of every array, then their bytes. A group is a list of arrays, or a table: arrays by name."""
    arrays = {name: _each(group, plain) for name, group in groups.items()}
    shapes = {name: _each(group, lambda array: (str(array.dtype), array.shape)) for name, group in arrays.items()}
    body = [json.dumps(facts | {"arrays": shapes}).encode(), b"\n"]
    for group in arrays.values():
        _each(group, lambda array: body.append(array.tobytes()))
    content = b"".join(body)
    return _MAGIC + hashlib.sha256(content).digest() + content


def decode(content: bytes) -> tuple[Facts, dict[str, Any]]:
    """Reads what `encode` wrote. Raises a ValueError if that has been changed, or was never written by `encode`."""
    start = len(_MAGIC) + _DIGEST
    if content[: len(_MAGIC)] != _MAGIC or hashlib.sha256(content[start:]).digest() != content[len(_MAGIC) : start]:
        raise ValueError(_DAMAGED)
    try:
        return _decoded(content, start)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        # The checksum is right, so that somebody has made this file by other means.
        raise ValueError(f"{_DAMAGED} ({type(error).__name__}: {error})") from None


_DAMAGED = "it is damaged or no checkpoint."


def _decoded(content: bytes, start: int) -> tuple[Facts, dict[str, Any]]:
    end = content.index(b"\n", start)
    facts = json.loads(content[start:end])
    place = end + 1

    def array(described: tuple[str, list[int]]) -> np.ndarray:
        nonlocal place
        dtype, shape = jnp.dtype(described[0]), described[1]
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or place + size > len(content):
            raise ValueError(f"it has no array of shape {shape}")
        place += size
        return np.frombuffer(content[place - size : place], dtype).reshape(shape)

    groups = {name: _each(group, array) for name, group in facts.pop("arrays").items()}
    if place != len(content):
        raise ValueError("it has more bytes than its arrays")
    return facts, groups


def _each(group: Any, fn: Callable[[Any], Any]) -> Any:
    """Applies fn to every array of a group, in order."""
    return {name: fn(one) for name, one in group.items()} if isinstance(group, dict) else [fn(one) for one in group]


def plain(leaf: Any) -> np.ndarray:
    """The array as a numpy array; for a random key, the array of its numbers."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf, order="C")
