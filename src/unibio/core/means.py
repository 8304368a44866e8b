"""Whether f and g are means over their batches, as data that come in parts need them to be."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from unibio.core import checks
from unibio.core.batches import Batch, Dataset
from unibio.core.programs import computed
from unibio.core.tree import PyTree

_ROWS = 4
_CLEARLY = 1e-2  # a function that grows by less than this share of its value is not called a sum
_MOST = 256  # entries of `_passed`; then it is emptied

_passed: set[Any] = set()  # structures and shapes of problems and variables that have passed the check


def check_means(problem: Any, x: PyTree, y: PyTree) -> None:
    """Refuses an f or g that adds up over its batch, where data come in batches or chunks.

    A mean does not change when every row comes twice or three times; a sum, a regulariser in it or not, grows by the
    same amount each time, and nothing else is refused. A structure that has passed is not looked at again, and neither
    is a value that is traced.
    """
    functions = {
        name: (fn, sampler)
        for name, fn, sampler in (("f", problem.f, problem.f_batches), ("g", problem.g, problem.g_batches))
        if isinstance(sampler, Dataset) and sampler.in_parts
    }
    leaves, structure = jax.tree.flatten((functions, x, y))
    if not functions or any(map(checks.is_traced, leaves)):
        return
    known = (structure, tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves))
    if known in _passed:
        return
    try:
        grown = _grown(functions, x, y)
    except Exception:  # the user's function need not take these few rows; on its own batches the run tells better
        return
    for name, values in grown.items():
        n, shown = functions[name][1].n, ", ".join(f"{value:.4g}" for value in values)
        raise ValueError(
            f"{name}(x, y, batch) must be the mean over the rows of the batch, but it adds them up: on one, two and "
            f"three copies of the same {min(_ROWS, n)} rows it is {shown}. The {n} samples come in batches or chunks, "
            f"so write jnp.mean(losses); for their sum, {n} * jnp.mean(losses)."
        )
    if len(_passed) >= _MOST:
        _passed.clear()
    _passed.add(known)


def _grown(functions: dict[str, Any], x: PyTree, y: PyTree) -> dict[str, list[float]]:
    """Finds the functions that grow by the same amount from one copy of a few rows to two and from two to three.
    Returns their three values by the name of the function."""
    found = {}
    for name, values in computed(_copies, functions, x, y, times=(1, 2)).items():
        one, two = map(float, values)
        if abs(two - one) > _CLEARLY * max(abs(one), abs(two)):
            three = float(computed(_copies, {name: functions[name]}, x, y, times=(3,))[name][0])
            if abs((three - two) - (two - one)) <= _CLEARLY * abs(two - one):
                found[name] = [one, two, three]
    return found


def _copies(
    functions: dict[str, Any], x: PyTree, y: PyTree, times: tuple[int, ...]
) -> dict[str, tuple[jax.Array, ...]]:
    """Evaluates each function on repeated rows, by which `check_means` tells a mean from a sum.

    `functions` maps a name to (function, Dataset). For every number k in `times` the batch is at most four rows of the
    data, repeated k times; the result has one value for each k. The point is (x, y) with 0.125 added to every entry,
    because at a start of 0 many losses vanish, and a sum would look like a mean.
    """
    x, y = jax.tree.map(lambda leaf: leaf + jnp.asarray(0.125, leaf.dtype), (x, y))

    def values(fn: Callable[..., jax.Array], sampler: Dataset) -> tuple[jax.Array, ...]:
        rows = sampler.spread(min(_ROWS, sampler.n))
        return tuple(fn(x, y, _repeated(rows, number)) for number in times)

    return {name: values(*function) for name, function in functions.items()}


def _repeated(rows: Batch, times: int) -> Batch:
    index, value = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * times), (rows.index, rows.value))
    return Batch(index, value, rows.slot)
