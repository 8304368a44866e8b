"""Refuse bad input early, by the name of the argument, and say what to do. Values are checked only
where they are concrete: under a caller's own `jit` or `vmap` only shapes and dtypes can be seen."""

import dataclasses
import difflib
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from unibio.core.tree import PyTree, same_structure


def is_traced(leaf: object) -> bool:
    """Whether the value cannot be looked at."""
    return isinstance(leaf, jax.core.Tracer)


def number(
    name: str,
    value: Any,
    *,
    low: float = -float("inf"),
    high: float = float("inf"),
    strict: bool = False,
    remedy: str = "",
) -> None:
    """`value` must be one finite real number ≥ low (> low if strict) and ≤ high."""
    if is_traced(value):
        return
    is_number = isinstance(value, (int, float, np.number, np.ndarray, jax.Array)) and not isinstance(value, bool)
    if not is_number or np.ndim(value) != 0 or not _is_real(value):
        raise TypeError(f"{name} must be one real number; got {value!r}. {remedy}".strip())
    real = as_real(value) if isinstance(value, int) else float(value)
    if not np.isfinite(real) or real < low or real > high or (strict and real == low):
        bound = "" if low == -float("inf") else f" and {'>' if strict else '≥'} {low:g}"
        bound += "" if high == float("inf") else f" and ≤ {high:g}"
        raise ValueError(f"{name} must be finite{bound}; got {value}. {remedy}".strip())


def _is_real(value: Any) -> bool:
    """Whether the dtype of a number is one of real numbers, and not of truth values or of random keys."""
    dtype = value.dtype if isinstance(value, jax.Array) else np.asarray(value).dtype
    return isinstance(value, int) or any(jnp.issubdtype(dtype, kind) for kind in (jnp.floating, jnp.integer))


def fraction(name: str, value: Any) -> None:
    """`value` must be a number in [0, 1)."""
    number(name, value, low=0.0, remedy="It must lie in [0, 1).")
    if not is_traced(value) and float(value) >= 1:
        raise ValueError(f"{name} must be in [0, 1); got {value}. Typical is 0.9; 0 switches it off.")


def step_sizes(solver: Any, *names: str) -> None:
    """The fields of these names must be positive numbers, or None where that is their default."""
    defaults = {field.name: field.default for field in dataclasses.fields(solver)}
    for name in names:
        value, remedy = getattr(solver, name), "Typical values are between 0.01 and 1."
        if value is not None or defaults[name] is not None:
            number(f"{type(solver).__name__}({name}=…)", value, low=0.0, strict=True, remedy=remedy)


def as_real(value: object) -> Any:
    """A whole number as a float, so that 4 and 4.0 are the same program; anything else unchanged."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # 10**400; the checks that follow refuse an infinite number by its name
            return math.inf if value > 0 else -math.inf
    if isinstance(value, (np.ndarray, jax.Array)) and jnp.issubdtype(value.dtype, jnp.integer):
        return value.astype(float)
    return value


def text(name: str, value: object, example: str) -> None:
    """`value` must be a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name} must be a text such as {example!r}; got {value!r}.")


def path(name: str, value: object) -> None:
    """`value` must be the path of a file or folder."""
    if not isinstance(value, (str, os.PathLike)) or "\0" in str(value):
        raise TypeError(f"{name} must be a path; got {value!r}.")


def flag(name: str, value: object) -> None:
    """`value` must be True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False; got {value!r}.")


def optimiser(name: str, value: object) -> None:
    """`value` must be an optax transformation."""
    if not isinstance(value, optax.GradientTransformation):
        raise TypeError(f"{name} must be an optax transformation such as optax.adam(1.0); got {value!r}.")


def optimiser_step(transformation: Any, gradient: PyTree, state: Any, x: PyTree) -> tuple[PyTree, Any]:
    """One update; a transformation that wants more than the gradient is refused by name."""
    try:
        return transformation.update(gradient, state, x)
    except TypeError as error:
        if "keyword-only" not in str(error):
            raise
        raise ValueError(
            f"this optax transformation needs more than a gradient ({error}); a stochastic method has no more to give."
        ) from error


LONGEST = 2**63 - 1  # of what is counted on the host only; what programs count fits into an int32


def whole_number(name: str, value: object, *, low: int, high: int = 2**31 - 1, remedy: str = "") -> None:
    """`value` must be an int from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an int; got {value!r} ({type(value).__name__}).")
    if value < low:
        raise ValueError(f"{name} must be ≥ {low}; got {value}. {remedy}".rstrip())
    if value > high:
        raise ValueError(f"{name} must be ≤ {high}; got a number of {len(str(abs(int(value))))} digits.")


def real_array(name: str, value: object) -> jax.Array:
    """`value` as an array, if it is one of real numbers."""
    array = numbers(name, value)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise TypeError(f"{name} must be an array of real numbers; got {value!r}.")
    return array


def matrix(name: str, value: object, rows: int | None = None) -> jax.Array:
    """`value` as an array of real numbers with two axes, and so many rows if that is known."""
    array = real_array(name, value)
    if array.ndim != 2 or rows not in (None, array.shape[0]) or array.size == 0:
        wanted = "a matrix" if rows is None else f"a matrix with {rows} rows"
        raise ValueError(f"{name} must be {wanted}; got shape {array.shape}.")
    return array


def class_labels(name: str, value: object, classes: int | None = None) -> None:
    """`value` must be an array of whole numbers, one for each sample, from 0; below `classes`, if that is known."""
    array = real_array(name, value)
    if is_traced(array):
        return
    if array.is_fully_addressable:
        whole = np.asarray(array)
    else:  # rows on several processes: each checks its own
        whole = np.concatenate([np.asarray(shard.data) for shard in array.addressable_shards])
    if whole.ndim != 1 or not np.all(whole == np.floor(whole)) or not np.issubdtype(whole.dtype, np.integer):
        raise TypeError(
            f"{name} must be whole numbers, one for each sample (the number of its class, from 0); got "
            f"{whole.dtype} of shape {whole.shape}. Use .astype(int) if they are whole."
        )
    most = np.inf if classes is None else classes - 1
    wrong = np.flatnonzero((whole < 0) | (whole > most))
    if wrong.size:
        more = f", and {wrong.size - 1} more are wrong" if wrong.size > 1 else ""
        known = "0, 1, …" if classes is None else f"0 to {classes - 1}, because the model has {classes} outputs"
        raise ValueError(
            f"{name}: sample {wrong[0]} has the label {whole[wrong[0]]}{more}; labels are numbers of classes, {known}."
        )


def numbers(name: str, value: object) -> jax.Array:
    """`value` as an array, if it is one that JAX can hold: of numbers or booleans, neither text nor objects."""
    if isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return value
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):  # rows of different lengths, or a random key
        array = np.asarray(None)
    if array.dtype.kind not in "biufc" and not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name} must be an array of real numbers; got {_short(value)}.")
    return jnp.asarray(array)


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) < 200 else f"{shown[:200]}…"


def variable(name: str, value: PyTree) -> PyTree:
    """A variable as a tree of arrays: non-empty, real floating, finite, all of one dtype."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(value)
    if not leaves:
        raise ValueError(f"{name} has no leaves; pass an array or a pytree of arrays, e.g. jnp.ones(3).")
    arrays = [_leaf(name + jax.tree_util.keystr(path), leaf) for path, leaf in leaves]
    dtypes = sorted({str(leaf.dtype) for leaf in arrays})
    if len(dtypes) > 1:
        raise TypeError(f"{name} mixes dtypes {', '.join(dtypes)}; cast every leaf to one of them.")
    return jax.tree.unflatten(structure, arrays)


def _leaf(name: str, leaf: object) -> jax.Array:
    if not isinstance(leaf, (jax.Array, np.ndarray, np.generic, float, int, complex)):
        raise TypeError(f"{name} must be a floating array; got {type(leaf).__name__}.")
    array = numbers(name, leaf)
    array = jnp.asarray(array, array.dtype)  # a Python float is weakly typed and would be a second program
    if not jnp.issubdtype(array.dtype, jnp.floating):
        is_complex = jnp.issubdtype(array.dtype, jnp.complexfloating)
        remedy = "Write 1.0 instead of 1, or use .astype(float)."
        remedy = "Pass the real and the imaginary part as two real arrays." if is_complex else remedy
        raise TypeError(f"{name} must be real and floating; got dtype {array.dtype}. {remedy}")
    if jnp.finfo(array.dtype).bits < 32:
        raise TypeError(
            f"{name} has dtype {array.dtype}, whose two or three digits are too few for second derivatives. Keep x and "
            "y in float32 or float64; f and g may compute in a shorter dtype inside."
        )
    if array.size == 0:
        raise ValueError(f"{name} is empty (shape {array.shape}); remove it or give it entries.")
    if not is_traced(array) and not _all_finite(array):
        raise ValueError(f"{name} contains NaN or infinity; start from finite values.")
    return array


def _all_finite(array: jax.Array) -> bool:
    if len(array.sharding.device_set) > 1:  # looked at where it lies; another process may have a part of it
        return bool(jnp.isfinite(array).all())
    return bool(np.isfinite(np.asarray(array)).all())


def variables(x: PyTree, y: PyTree) -> tuple[PyTree, PyTree]:
    """x and y as trees of arrays of one common dtype."""
    x, y = variable("x", x), variable("y", y)
    x_dtype, y_dtype = jax.tree.leaves(x)[0].dtype, jax.tree.leaves(y)[0].dtype
    if x_dtype != y_dtype:
        raise TypeError(
            f"x is {x_dtype} and y is {y_dtype}: mixing them would promote silently. "
            f"Cast one of them, e.g. y = jax.tree.map(lambda a: a.astype('{x_dtype}'), y)."
        )
    return x, y


def same_shape(name: str, value: PyTree, reference_name: str, reference: PyTree) -> None:
    """`value` must have the structure and the shapes of `reference`."""
    if not same_structure(value, reference):
        raise ValueError(
            f"{name} must have the structure of {reference_name}: "
            f"{jax.tree.structure(reference)}; got {jax.tree.structure(value)}."
        )
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(value), jax.tree.leaves(reference), strict=True):
        if jnp.shape(a) != jnp.shape(b):
            where = jax.tree_util.keystr(path)
            raise ValueError(f"{name}{where} has shape {jnp.shape(a)}, but {reference_name}{where} has {jnp.shape(b)}.")


def arrays(name: str, value: PyTree) -> PyTree:
    """A tree of arrays; anything else in it is refused by its place."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(value)
    return jax.tree.unflatten(structure, [numbers(name + jax.tree_util.keystr(path), leaf) for path, leaf in leaves])


def returned(name: str, value: PyTree, like: PyTree) -> PyTree:
    """What a user's function has returned: a tree of real arrays shaped like `like`, as arrays of its dtype."""
    value = jax.tree.map(lambda leaf: real_array(name, leaf), value)
    same_shape(name, value, "what is expected", like)
    return jax.tree.map(lambda a, b: a.astype(b.dtype), value, like)


def pair(name: str, value: object) -> None:
    """`value` must be two things, a row per sample in each."""
    if not isinstance(value, (tuple, list)) or len(value) != 2 or np.ndim(numbers(f"{name}[1]", value[1])) == 0:
        raise TypeError(f"{name} must be a pair (inputs, labels); got {type(value).__name__}.")


def random_key(key: object) -> None:
    """`key` must be one jax random key, or None."""
    if key is None:
        return
    is_key = isinstance(key, jax.Array) and (
        (jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ())
        or (key.dtype == jnp.uint32 and key.shape == (2,))
    )
    if not is_key:
        raise TypeError(f"key must be one random key such as jax.random.key(0), or None for all data; got {key!r}.")


def given_key(who: str, key: object) -> None:
    """`key` must be there, and be one random key."""
    if key is None:
        raise ValueError(f"{who} needs key=…, e.g. key=jax.random.key(0): every random number comes from it.")
    random_key(key)


def scalar_function(name: str, fn: Callable[..., Any], *args: Any, hint: str = "") -> None:
    """`fn(*args)` must be one floating number, of the dtype of the variables. `hint` is added to the message if the
    call itself fails."""
    try:
        out = jax.eval_shape(fn, *args)
    except Exception as error:
        x, y = (_described(tree) for tree in args[:2])
        raise ValueError(f"{name}(x, y, batch) failed on x = {x}, y = {y}: {error}. {hint}".rstrip()) from error
    if not hasattr(out, "shape") or out.shape != ():
        raise ValueError(f"{name}(x, y, batch) must return a scalar; got {out}. Average over the batch with jnp.mean.")
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise TypeError(f"{name}(x, y, batch) must return a real floating number; got dtype {out.dtype}.")
    wanted = jax.tree.leaves(args[0])[0].dtype
    if out.dtype != wanted:
        raise TypeError(
            f"{name}(x, y, batch) returns {out.dtype} for variables of {wanted}: "
            f"some constant or data inside it has another dtype; cast it to {wanted}."
        )


def _described(variable: PyTree) -> str:
    """The dtype and shape of each array in a tree, with its place."""
    leaves = jax.tree_util.tree_leaves_with_path(variable)
    return ", ".join(f"{jax.tree_util.keystr(path)} {leaf.dtype}{list(leaf.shape)}".lstrip() for path, leaf in leaves)


def nearest(name: str, known: Sequence[str] | dict[str, Any], what: str) -> str:
    """The name if it is known; else a ValueError that proposes the nearest."""
    if name in known:
        return name
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    hint = f" Did you mean {by_lower[close[0]]!r}?" if close else ""
    raise ValueError(f"no {what} {name!r}.{hint} There are {', '.join(known)}.")
