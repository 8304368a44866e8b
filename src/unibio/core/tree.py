"""Algebra on pytrees: what optax.tree does not have, and two idioms of JAX that the package often uses."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.tree_util import KeyPath

PyTree = Any
Number = float | jax.Array  # a Python float, or an array of one number, which may be traced

add = optax.tree.add
sub = optax.tree.sub
mul = optax.tree.mul
divide = optax.tree.div
scale = optax.tree.scale
size = optax.tree.size
where = optax.tree.where
zeros_like = optax.tree.zeros_like
ravel = ravel_pytree


def dot(a: PyTree, b: PyTree) -> jax.Array:
    """⟨a, b⟩ of two real trees."""
    products = jax.tree.map(lambda u, v: jnp.sum(u * v), a, b)
    return jax.tree.reduce(jnp.add, products)


def largest(a: PyTree) -> jax.Array:
    """max |a_i|, NaN if an entry is."""
    return jax.tree.reduce(jnp.maximum, jax.tree.map(lambda leaf: jnp.max(jnp.abs(leaf)), a))


def _unit(a: PyTree) -> jax.Array:
    """A positive number of the size of a's largest entry, to divide by before squaring."""
    most = jax.lax.stop_gradient(largest(a))
    usable = jnp.minimum(most, jnp.finfo(most.dtype).max / 16)  # its reciprocal must not underflow
    return jnp.where((most > 0) & jnp.isfinite(most), usable, jnp.ones_like(most))


def linearly(fn: Callable[[PyTree], PyTree], a: PyTree) -> PyTree:
    """fn(a) of a linear function, computed at a multiple of a whose largest entry is 1: inside fn nothing underflows
    because a is measured in large units. The barrier keeps XLA from turning (a/unit)/c into a/(unit·c), where the
    product may overflow."""
    unit = _unit(a)
    return scale(unit, fn(jax.lax.optimization_barrier(jax.tree.map(lambda leaf: leaf / unit, a))))


def norm(a: PyTree) -> jax.Array:
    """‖a‖, 0 only if every entry is: ‖(1e-30, 1e-30)‖ is not 0 in float32 and ‖(1e30, 1e30)‖ not infinite."""
    unit, length = _measured(a)
    return unit * length


def norms(*several: PyTree) -> list[jax.Array]:
    """The norm of each tree, measured in the largest entry of all of them: one that is twenty decades smaller may be
    0."""
    unit = _unit(several)
    scaled = jax.tree.map(lambda leaf: leaf / unit, several)
    return [unit * jnp.sqrt(dot(a, a)) for a in scaled]


def direction(a: PyTree) -> tuple[PyTree, jax.Array]:
    """a/‖a‖ and ‖a‖; the direction of 0 is 0. It is right even where ‖a‖ itself overflows."""
    unit, length = _measured(a)
    per_length = 1 / jnp.where(length > 0, length, 1.0)
    return jax.tree.map(lambda leaf: per_length * (leaf / unit), a), unit * length


def _measured(a: PyTree) -> tuple[jax.Array, jax.Array]:
    """A unit and ‖a‖ measured in it: 1 where the squares of the entries keep their digits, which saves a pass over a;
    else the largest entry."""
    square = dot(a, a)
    limits = jnp.finfo(square.dtype)

    def scaled() -> tuple[jax.Array, jax.Array]:
        unit = _unit(a)
        fractions = jax.tree.map(lambda leaf: leaf / unit, a)
        return unit, jnp.sqrt(dot(fractions, fractions))

    fine = (square > limits.tiny / limits.eps**2) & (square < limits.max)
    return jax.lax.cond(fine, lambda: (jnp.ones_like(square), jnp.sqrt(square)), scaled)


def axpy(s: Number | np.floating[Any], a: PyTree, b: PyTree) -> PyTree:
    """s·a + b."""
    return jax.tree.map(lambda u, v: s * u + v, a, b)


def same_structure(a: PyTree, b: PyTree) -> bool:
    """Whether two trees have the same structure, whatever their leaves."""
    return bool(jax.tree.structure(a) == jax.tree.structure(b))  # type: ignore[operator]


def select(which: PyTree, a: PyTree, b: PyTree) -> PyTree:
    """a where the entry of the tree `which` is true, else b."""
    return jax.tree.map(jnp.where, which, a, b)


def any_true(tree: PyTree) -> jax.Array:
    """Whether some entry of a tree of booleans is true."""
    return jax.tree.reduce(jnp.logical_or, jax.tree.map(jnp.any, tree))


def all_finite(tree: PyTree) -> jax.Array:
    """Whether every entry is finite."""
    return ~any_true(jax.tree.map(lambda leaf: ~jnp.isfinite(leaf), tree))


def count_true(tree: PyTree) -> jax.Array:
    """Number of true entries, int32."""
    counts = jax.tree.map(lambda leaf: jnp.sum(leaf, dtype=jnp.int32), tree)
    return jax.tree.reduce(jnp.add, counts)


def dtype(tree: PyTree) -> jnp.dtype:
    """The dtype that all leaves of a checked variable share."""
    return jax.tree.leaves(tree)[0].dtype


def cast(tree: PyTree, to: jnp.dtype) -> PyTree:
    """Every floating leaf (Python floats too) as an array of dtype `to`, the rest as it is."""

    def convert(path: KeyPath[Any], leaf: Any) -> Any:
        if isinstance(leaf, jax.Array) and leaf.dtype == to and not leaf.weak_type:
            return leaf
        floating = isinstance(leaf, float) or (hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating))
        if isinstance(leaf, (float, np.floating)) and float(jnp.finfo(to).max) < abs(float(leaf)) < math.inf:
            name = jax.tree_util.keystr(path).lstrip(".") or "a number"
            raise ValueError(
                f"{name} = {leaf} does not fit into {to}, the dtype of the variables: choose a smaller number, or "
                "variables in float64."
            )
        if isinstance(leaf, float):
            return _number(leaf.hex(), to, jax.config.values["jax_default_device"])
        return jnp.asarray(leaf, to) if floating else leaf

    return jax.tree_util.tree_map_with_path(convert, tree)


@functools.lru_cache(maxsize=4096)
def _number(value: str, to: jnp.dtype, device: Any) -> jax.Array:
    """A Python float, in hexadecimal, as an array on the default device. Making one takes 25 µs, and a call has several
    to make, the same ones each time. It is a number also where somebody's jit is tracing, so that it can be kept."""
    with jax.ensure_compile_time_eval():
        return jnp.asarray(float.fromhex(value), to)


def compute_if_any(needed: jax.Array, compute: Callable[..., PyTree], otherwise: PyTree, *operands: PyTree) -> PyTree:
    """`compute(*operands)` where `needed`, else `otherwise`; nothing is computed when nobody needs it.

    A `lax.cond` turns into a select under `vmap` and pays for both branches. A loop of at most one
    round runs only if some lane asks for it, which is what a rare repair wants.

    Whatever follows from values that do not change in the loop, the compiler may compute ahead of it, every time. So
    what `compute` begins with must be among the `operands`: they are tied to the round in which they are used.
    """

    def keep_going(carry: tuple[jax.Array, PyTree]) -> jax.Array:
        return carry[0]

    def once(carry: tuple[jax.Array, PyTree]) -> tuple[jax.Array, PyTree]:
        _, inputs = jax.lax.optimization_barrier((carry[0], operands))
        return jnp.asarray(False), compute(*inputs)

    return jax.lax.while_loop(keep_going, once, (needed, otherwise))[1]


def or_nan(good: jax.Array, value: PyTree) -> PyTree:
    """The value where it is good, NaN elsewhere."""
    return jax.tree.map(lambda leaf: jnp.where(good, leaf, jnp.full_like(leaf, jnp.nan)), value)
