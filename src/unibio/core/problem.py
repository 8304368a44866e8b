"""The one place where a bilevel problem is stated."""

from collections.abc import Callable
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import checks, kinds, show, tree
from unibio.core.batches import AllSamples, Dataset, Full, Sampler
from unibio.core.means import check_means
from unibio.core.noise import AnyBatch, visible
from unibio.core.streams import Site, Turn
from unibio.core.tree import Number, PyTree

_STREAMS = 2**32 - 2  # the streams' number among the steps of a run, which fold theirs into its key


class Function(Protocol):
    """f or g."""

    def __call__(self, x: PyTree, y: PyTree, batch: Any, /) -> jax.Array: ...


class Problem(eqx.Module):
    """min_x f(x, y*(x)) with y*(x) = argmin_y g(x, y) and g(x, ·) uniformly convex of order p.

    Arguments:
        f, g: `f(x, y, batch) -> scalar`. `batch` is None without samples, else a `Batch` whose
            `value` holds the rows and whose `index` their numbers; the value is the mean over the batch.
            Define them once, at module level or as an equinox Module: functions are compared by identity.
        p: order of uniform convexity, a real number ≥ 2 (2 is strong convexity); None if unknown: then methods
            that work in the coordinate z refuse.
        shift: a0 in the coordinate z = spow(y − a0, p−1): a number, or a pytree like y.
        f_batches, g_batches: samplers (`Dataset`, `Noise`); left out, f and g are exact.

    Example:
        >>> def f(x, y, batch): return jnp.sin(y**3)
        >>> def g(x, y, batch): return y**4 / 4 - y * jnp.sin(x)
        >>> problem = Problem(f, g, p=4.0)
    """

    f: Callable[..., jax.Array]
    g: Callable[..., jax.Array]
    p: Any
    shift: PyTree
    f_batches: Sampler
    g_batches: Sampler

    def __init__(
        self,
        f: Callable[..., Any],
        g: Callable[..., Any],
        p: Number | None = None,
        shift: PyTree = 0.0,
        f_batches: Sampler | None = None,
        g_batches: Sampler | None = None,
    ) -> None:
        for name, fn in (("f", f), ("g", g)):
            kinds.is_a(name, fn, Function, f"a function {name}(x, y, batch) -> scalar")
        self.f, self.g = as_pytree(f), as_pytree(g)
        if p is not None:
            checks.number("p", p, low=2.0, remedy="p = 2 is strong convexity; leave it out if you do not know it.")
        self.p, self.shift = checks.as_real(p), checks.as_real(shift)
        self.f_batches = Full() if f_batches is None else f_batches
        self.g_batches = Full() if g_batches is None else g_batches
        for name, sampler in (("f_batches", self.f_batches), ("g_batches", self.g_batches)):
            kinds.is_a(name, sampler, Sampler, "a sampler such as Dataset or Noise")

    def __repr__(self) -> str:
        levels = ((name, getattr(self, name), getattr(self, f"{name}_batches")) for name in ("f", "g"))
        shown = [f"{name}={show.function(fn)}{_where(batches)}" for name, fn, batches in levels]
        return f"Problem({', '.join(shown)}, {'p not stated' if self.p is None else f'p={show.number(self.p)}'})"

    def f_batch(self, key: jax.Array | None, x: PyTree, y: PyTree, site: Site | None = None) -> Any:
        """A random batch for f; everything when there is no key."""
        return _one_batch(self.f_batches, key, x, y, site)

    def g_batch(self, key: jax.Array | None, x: PyTree, y: PyTree, site: Site | None = None) -> Any:
        """A random batch for g; everything when there is no key."""
        return _one_batch(self.g_batches, key, x, y, site)

    def f_draws(self, key: jax.Array, count: int, x: PyTree, y: PyTree, site: Site) -> PyTree:
        """`count` realisations of f's samples, for `f_batches.batch` to turn into batches one by one."""
        return _draws(self.f_batches, key, count, x, y, site)

    def g_draws(self, key: jax.Array, count: int, x: PyTree, y: PyTree, site: Site) -> PyTree:
        """`count` realisations of g's samples, for `g_batches.batch` to turn into batches one by one."""
        return _draws(self.g_batches, key, count, x, y, site)

    def at_step(self, key: jax.Array, t: jax.Array) -> "Problem":
        """The problem as step t of the run with this key sees it: a stream gives the batches of that step."""
        return self._turned(lambda _: Turn(jax.random.fold_in(key, jnp.uint32(_STREAMS)), t))

    def counting(self, turns: Callable[[jax.Array], jax.Array]) -> "Problem":
        """The problem for draws that are not made exactly once a step: in step t a stream gives the batches number
        turns(t)."""
        return self._turned(lambda turn: None if turn is None else turn._replace(t=turns(turn.t)))

    def _turned(self, turned: Callable[[Turn | None], Turn | None]) -> "Problem":
        samplers = (self.f_batches, self.g_batches)
        if not any(isinstance(sampler, Dataset) and sampler.stream for sampler in samplers):
            return self
        f_batches, g_batches = (
            sampler.at(turned(sampler.turn)) if isinstance(sampler, Dataset) else sampler for sampler in samplers
        )
        return Problem(self.f, self.g, self.p, self.shift, f_batches, g_batches)


def _where(batches: Sampler) -> str:
    return "" if isinstance(batches, Full) else f" on {batches!r}"


def as_pytree(fn: Any) -> Any:
    """A plain function becomes a leafless pytree, compared by identity; a Module keeps its leaves. Anything else stays
    as it is, for `kinds.is_a` to refuse it by name."""
    is_pytree = isinstance(fn, (eqx.Module, jax.tree_util.Partial))
    return fn if is_pytree or isinstance(fn, type) or not callable(fn) else jax.tree_util.Partial(fn)


def _draws(sampler: Sampler, key: jax.Array, count: int, x: PyTree, y: PyTree, site: Site | None) -> PyTree:
    if isinstance(sampler, Dataset):
        return sampler.draw(key, count, x, y, site)
    return sampler.draw(key, count, x, y)


def _one_batch(sampler: Sampler, key: jax.Array | None, x: PyTree, y: PyTree, site: Site | None = None) -> Any:
    if key is None:
        return sampler.whole()
    draws = _draws(sampler, key, 1, x, y, site)
    return sampler.batch(jax.tree.map(lambda leaf: leaf[0], draws))


def _shown(batch: AnyBatch) -> Any:
    """What f and g are called with: the batch, or if it is all samples, its first chunk."""
    if isinstance(batch, AllSamples):
        return batch.rows(0, min(batch.dataset.chunk_size, batch.length))
    return visible(batch)


_NUMBERS = (jax.Array, np.ndarray, np.generic, float, int)


def prepare(problem: Problem, x: PyTree, y: PyTree) -> tuple[Problem, PyTree, PyTree]:
    """Checks x, y and the problem, and returns them with every floating number of the problem in the dtype of x."""
    x, y = checks.variables(x, y)
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a unibio.Problem; got {type(problem).__name__}.")
    if tree.same_structure(problem.shift, 0.0) and jnp.ndim(problem.shift) == 0:
        checks.number("shift", problem.shift)
    else:
        checks.same_shape("shift", checks.variable("shift", problem.shift), "y", y)
    if not all(isinstance(leaf, _NUMBERS) for leaf in jax.tree.leaves(problem)):
        path, leaf = next(at for at in jax.tree_util.tree_leaves_with_path(problem) if not isinstance(at[1], _NUMBERS))
        raise TypeError(
            f"problem{jax.tree_util.keystr(path)} is a {type(leaf).__name__} and no array. Keep it out of the "
            "leaves of f and g: eqx.field(static=True), or split a model by equinox.partition(model, eqx.is_array)."
        )
    problem = tree.cast(problem, tree.dtype(x))
    check_means(problem, x, y)
    return problem, x, y


def check_functions(problem: Problem, x: PyTree, y: PyTree) -> None:
    """f and g must give one floating number on a batch of their sampler; called while tracing."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    for name, fn, sampler in (("f", problem.f, problem.f_batches), ("g", problem.g, problem.g_batches)):

        def value(x: PyTree, y: PyTree, key: jax.Array, fn: Any = fn, sampler: Sampler = sampler) -> Any:
            return fn(x, y, _shown(_one_batch(sampler, key, x, y)))

        exact = isinstance(sampler, Full)
        hint = f"batch is None because the problem has no {name}_batches" if exact else ""
        checks.scalar_function(name, value, x, y, key, hint=hint)
