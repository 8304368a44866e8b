"""Streams: batches without replacement from step to step, in a new random order for each pass through the data, and
without a state to carry along.

Batch number j of a stream is a pure function of (seed, site, j), so that a run can begin anywhere: with s batches to a
pass through the data, it is batch j mod s of pass j div s. Each pass has its own random order, which is never made:
`shuffled` computes single entries of it.
"""

import enum
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

_ROUNDS = 24


class Site(enum.IntEnum):
    """The purposes for which a solver draws batches. Each has a stream of its own, so that no two of them see the same
    batches."""

    lower = 0  # steps of y
    hessian = 1  # products with the Hessian
    cross = 2  # the product with ∇²_xy g
    upper = 3  # the gradients of f
    scale = 4  # a batch that only prepares a linear solver
    penalty = 5  # the gradients of g by F2SA's second lower variable
    penalty_upper = 6  # the gradients of f by the same variable
    gap = 7  # ∇_x g at the same variable


class Turn(NamedTuple):
    """Where a run stands: a seed that is the same in all of its steps, and how often each site has drawn before."""

    seed: jax.Array
    t: jax.Array


def positions(turn: Turn, site: Site, count: int, length: int) -> tuple[jax.Array, jax.Array]:
    """The next `count` places of a site's stream: for each the key of its pass, and its position in it, 0..length−1.

    After 2³² draws the stream begins again.
    """
    number = jnp.asarray(turn.t, jnp.uint32) * jnp.uint32(count) + jnp.arange(count, dtype=jnp.uint32)
    seed = jax.random.fold_in(turn.seed, int(site))
    keys = jax.vmap(lambda which: jax.random.fold_in(seed, which))(number // jnp.uint32(length))
    return keys, number % jnp.uint32(length)


def shuffled(key: jax.Array, position: jax.Array, n: int) -> jax.Array:
    """Entries `position` of a random order of 0..n−1, at a cost that does not depend on n.

    On a grid of ab ≥ n places, rows are moved by a hash of the column and columns by a hash of the row, in turn: each
    move is one-to-one. Where that leads beyond n it is done again, which is one-to-one on 0..n−1.
    """
    rows = math.isqrt(n - 1) + 1
    columns = -(-n // rows)
    salts = jax.random.bits(key, (_ROUNDS,), jnp.uint32).reshape(-1, 2)
    a, b = jnp.uint32(rows), jnp.uint32(columns)

    def moved(place: jax.Array) -> jax.Array:
        def move(place: tuple[jax.Array, jax.Array], salt: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
            row, column = place
            row = (row + _hash(column ^ salt[0]) % a) % a
            return (row, (column + _hash(row ^ salt[1]) % b) % b), None

        (row, column), _ = jax.lax.scan(move, (place // b, place % b), salts)
        return row * b + column

    place = moved(jnp.asarray(position, jnp.uint32))
    if rows * columns > n:
        place = jax.lax.while_loop(
            lambda place: jnp.any(place >= n), lambda place: jnp.where(place >= n, moved(place), place), place
        )
    return place.astype(jnp.int32)


def _hash(word: jax.Array) -> jax.Array:
    """Each bit depends on all (the finaliser of MurmurHash3)."""
    word = (word ^ (word >> jnp.uint32(16))) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> jnp.uint32(13))) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> jnp.uint32(16))
