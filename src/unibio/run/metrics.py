"""What can be measured at a point of a run, and when `solve` does so.

A metric is `metric(problem, state) -> dict of numbers`. Metrics are compiled into one program, which is evaluated
between stretches of steps; its time does not count as time of the run. A metric with the attribute `eager = True` is
not part of that program but called as it is, because it runs programs that are compiled already.
"""

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import checks, kinds, oracle, show, tree
from unibio.core.problem import Problem, as_pytree
from unibio.core.programs import compiled, computed
from unibio.core.protocols import Calls, Hypergradient, HyperInfo, LowerInfo, State, Watch
from unibio.core.status import Status
from unibio.core.tree import PyTree
from unibio.hypergradients import CG, evaluated
from unibio.lower.newton import solved
from unibio.run.between import Between, End, View


class Metric(Protocol):
    """Numbers by name at the state of a run."""

    def __call__(self, problem: Problem, state: State) -> dict[str, jax.Array]: ...


class Truth(eqx.Module):
    """‖∇Φ(x)‖, Φ(x) and ‖y − y*(x)‖ on all data: `gradient_norm`, `phi`, `lower_error`.

    y*(x) comes from Newton's method started at y, ∇Φ from `method` at y*; all three are NaN where one of them fails.
    `lower_error` is at least the error of y*(x) itself (`LowerInfo.error`): where g is so flat at its minimiser that
    floating point cannot place it, a smaller distance would be made up.
    """

    method: Hypergradient = CG()

    def __check_init__(self) -> None:
        kinds.is_a("method", self.method, Hypergradient, "CG() or Exact()")

    eager: ClassVar[bool] = True  # called as it is: it shares programs with `lower_solution` and `hypergradient`

    def __call__(self, problem: Problem, state: State) -> dict[str, jax.Array]:
        y_star, lower = solved(problem, state.x, state.y)
        gradient, info, _ = evaluated(self.method, problem, state.x, y_star)
        return computed(_truth, problem, state.x, state.y, y_star, lower, gradient, info)


def _truth(
    problem: Problem, x: PyTree, y: PyTree, y_star: PyTree, lower: LowerInfo, gradient: PyTree, info: HyperInfo
) -> dict[str, jax.Array]:
    values = {
        "gradient_norm": tree.norm(gradient),
        "phi": oracle.value_f(problem, x, y_star, problem.f_batches.whole()),
        "lower_error": jnp.maximum(tree.norm(tree.sub(y, y_star)), lower.error),
    }
    return tree.or_nan((lower.status == Status.ok) & (info.status == Status.ok), values)


class LowerResidual(eqx.Module):
    """‖∇_y g(x, y)‖ on all data, `lower_residual`: cheap, and 0 only at y*(x)."""

    def __call__(self, problem: Problem, state: State) -> dict[str, jax.Array]:
        gradient = oracle.grad_g(problem, state.x, state.y, problem.g_batches.whole())
        return {"lower_residual": tree.norm(gradient)}


class Apply(Protocol):
    """A model: its parameters and a batch of inputs to its outputs, a row for each."""

    def __call__(self, y: PyTree, inputs: Any, /) -> jax.Array: ...


class Accuracy(eqx.Module):
    """Share of samples whose largest logit is their label.

    Arguments:
        apply: `apply(y, inputs) -> logits`, (n, classes).
        inputs: what `apply` takes.
        labels: n whole numbers.
        name: what to call it.
    """

    apply: Apply = eqx.field(converter=as_pytree)
    inputs: Any
    labels: jax.Array
    name: str = eqx.field(static=True, default="accuracy")

    def __check_init__(self) -> None:
        kinds.is_a("apply", self.apply, Apply, "a function (y, inputs) -> logits")
        checks.arrays("inputs", self.inputs)
        checks.class_labels("labels", self.labels)
        checks.text("name", self.name, "accuracy")

    def __call__(self, problem: Problem, state: State) -> dict[str, jax.Array]:
        right = jnp.argmax(self.apply(state.y, self.inputs), axis=-1) == jnp.asarray(self.labels)
        return {self.name: jnp.mean(right, dtype=tree.dtype(state.y))}


def _as_names(value: object) -> object:
    """A list as a tuple; anything else as it is, for the check."""
    return tuple(value) if isinstance(value, list) else value


class OnHost(eqx.Module):
    """A metric in plain Python: numbers that JAX cannot compute, such as a score from another library.

    Arguments:
        function: `function(state) -> dict of numbers`; the arrays in the state are NumPy's.
        names: the names of those numbers.

    Example:
        >>> largest = OnHost(lambda state: {"largest": max(state.x)}, names=("largest",))
    """

    function: Callable[[Any], dict[str, float]] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True, converter=_as_names)

    def __check_init__(self) -> None:
        kinds.is_a("function", self.function, Watch, "a function of the state")
        if not isinstance(self.names, tuple) or not self.names or not all(isinstance(name, str) for name in self.names):
            raise TypeError(f"names must be the names of the numbers, such as ('score',); got {self.names!r}.")

    def __call__(self, problem: Problem, state: State) -> dict[str, jax.Array]:
        dtype = tree.dtype(state.x)

        def numbers(state: State) -> dict[str, np.ndarray]:
            named = self.function(jax.tree.map(np.asarray, state))
            if set(named) != set(self.names):
                raise ValueError(f"the metric {self.function!r} returned {sorted(named)}, not {sorted(self.names)}.")
            return {name: np.asarray(named[name], dtype) for name in self.names}

        shapes = {name: jax.ShapeDtypeStruct((), dtype) for name in self.names}
        return jax.pure_callback(numbers, shapes, state, vmap_method="sequential")


class Measure(eqx.Module):
    """Several metrics as one."""

    metrics: tuple[Metric, ...]

    def __call__(self, problem: Problem, state: State) -> dict[str, jax.Array]:
        return _joined([_checked(metric(problem, state), tree.dtype(state.x)) for metric in self.metrics])

    def measured(self, problem: Problem, state: State) -> tuple[dict[str, jax.Array], float]:
        """Returns the numbers of all metrics at one state, by name, and the seconds that compilation took. Metrics are
        compiled into one program, except for `eager` ones, which call compiled programs themselves."""
        eager, others = (
            Measure(tuple(each for each in self.metrics if getattr(each, "eager", False) == which))
            for which in (True, False)
        )
        before = compiled.compile_seconds
        values = eager(problem, state)
        if others.metrics:
            values = _joined([values, compiled.quick(evaluate, others, problem, state)[0]])
        return values, compiled.compile_seconds - before


def _joined(several: list[dict[str, jax.Array]]) -> dict[str, jax.Array]:
    """All numbers in one dictionary."""
    values: dict[str, jax.Array] = {}
    for named in several:
        if twice := sorted(set(named) & set(values)):
            raise ValueError(f"two metrics have the same name {', '.join(twice)}; give one another name.")
        values |= named
    return values


_RESERVED = {"step", "calls", "seconds", "direction_norm", "finite", "ok", "status", "restarts", *Calls._fields}
_RESERVED |= {"solver", "seed"}  # of a comparison


def _checked(named: Any, dtype: jnp.dtype) -> dict[str, jax.Array]:
    """Checks that a metric returned numbers by name, and gives them the dtype of x."""
    if not isinstance(named, dict):
        raise TypeError(f"a metric must return a dictionary of numbers by name; got {type(named).__name__}.")
    for name, value in named.items():
        if not isinstance(name, str) or name in _RESERVED:
            raise ValueError(f"a metric may not be called {name!r}: the record already has it. Choose another name.")
        if not isinstance(value, (bool, int, float, np.generic, np.ndarray, jax.Array)):
            raise TypeError(f"metric {name!r} must be one number; got {type(value).__name__}.")
        if jnp.ndim(value) != 0:
            raise ValueError(
                f"metric {name!r} must be one number; got shape {jnp.shape(value)}. Give each its own name."
            )
    return {name: jnp.asarray(value, dtype) for name, value in named.items()}


def as_measure(metrics: object) -> Measure:
    """One metric, or several, or none, as one callable pytree."""
    several = tuple(metrics) if isinstance(metrics, (list, tuple)) else (metrics,)
    for metric in several:
        if callable(metric) and not isinstance(metric, type):
            _check_signature(metric)
        kinds.is_a("a metric", metric, Metric, "a function (problem, state) -> dict, such as Truth()")
    return Measure(tuple(as_pytree(metric) for metric in several))


def _check_signature(metric: Callable[..., Any]) -> None:
    """Refuses a metric that cannot be called with a problem and a state."""
    try:
        signature = inspect.signature(metric)
    except ValueError:  # some functions written in C have none
        return
    try:
        signature.bind("problem", "state")
    except TypeError as error:
        raise TypeError(
            f"a metric is called as metric(problem, state); {show.function(metric)}{signature} cannot be: {error}. "
            "Write for example: def distance(problem, state): return {'distance': jnp.linalg.norm(state.x)}."
        ) from None


def evaluate(measure: Measure, problem: Problem, state: State) -> dict[str, jax.Array]:
    """The program that is compiled for a measurement."""
    return measure(problem, state)


class Measurements(Between):
    """Measures at every step that `every` divides, at the last one, and where the run ends. `solve` asks it before the
    rules, which need its numbers, and once more after them.

    Arguments:
        known: whether the run goes on from a checkpoint. Then the step where it goes on is not measured again, unless
            a metric is new, so that the table of metrics is the same as without the interruption.
    """

    def __init__(self, measure: Measure, every: int, known: bool) -> None:
        self.measure, self.every, self.known = measure, every, known
        self.names: set[str] | None = None  # of the metrics, as soon as somebody asks

    def limit(self, step: int) -> int:
        return (step // self.every + 1) * self.every

    def after(self, view: View) -> End | None:
        record = view.record
        due = record.step % self.every == 0 or record.step == view.steps or view.end is not None
        if view.begins:
            due = not (self.known and self._names(view) <= set(record.latest))
        if due and view.state is not None and not (record.has(set()) and record.has(self._names(view))):
            values, compiling = self.measure.measured(view.problem, view.state)
            record.spent_compiling(compiling)
            record.note(values)
            self.names = set(values)
        return None

    def _names(self, view: View) -> set[str]:
        """What the metrics are called."""
        if self.names is None:
            self.names = set(jax.eval_shape(evaluate, self.measure, view.problem, view.state))
        return self.names
