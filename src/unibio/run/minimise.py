"""`minimise`: min_x f(x, y*(x)) without settings."""

import contextlib
import dataclasses
import math
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import checks, show, tree
from unibio.core.noise import Noise
from unibio.core.problem import Problem, as_pytree, check_functions, prepare
from unibio.core.programs import compiled, computed
from unibio.core.protocols import Calls
from unibio.core.status import Status
from unibio.core.tree import PyTree
from unibio.distributed.placement import on_mesh
from unibio.files import figures
from unibio.files.archive import Facts
from unibio.run.between import NEVER, Between, End, View
from unibio.run.checkpoints import Checkpoints, Keeper
from unibio.run.driver import Driver, Stretch
from unibio.run.identity import identity, probe
from unibio.run.logs import Callback, Teller
from unibio.run.programs import Log
from unibio.run.progress import terminal_progress
from unibio.run.record import Record
from unibio.run.result import Table
from unibio.run.signals import Interruption, noted
from unibio.run.solve import Listener, several
from unibio.solvers.newton_cg import Budget, evaluated_at
from unibio.solvers.quasi_newton import QuasiNewton
from unibio.solvers.quasi_newton_state import RUNNING, Control, State

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NO_PHI = {"not_convex", "no_minimiser", "ill_conditioned"}  # there is no y*(x), so that there is no Φ(x) either
TOLERANCE = {"float64": 1e-6, "float32": 1e-3}


@dataclasses.dataclass(frozen=True)
class Minimum:
    """What `minimise` found.

    `phi` ≈ Φ(x) and `gradient_norm` ≈ ‖∇Φ(x)‖ with estimates of their errors; v ≈ H⁻¹∇_y f, the multiplier of the lower
    level. `status` is a word and `message` says in a sentence what happened. `history` has a row for each step: `phi`,
    `gradient_norm`, their errors, the calls so far of each oracle and their sum `calls`, `seconds`. What was not found
    out is NaN: `gradient_error` is known where y and v were tightened at one x, at the start and at the end.
    """

    x: PyTree
    y: PyTree
    v: PyTree
    phi: float
    phi_error: float
    gradient_norm: float
    gradient_error: float
    status: Status
    message: str
    steps: int
    calls: Calls
    seconds: float
    compile_seconds: float
    history: Table

    def __repr__(self) -> str:
        return (
            f"Minimum({self.status!r} after {show.quantity(self.steps, 'step')}: Φ = {self.phi:.6g} ± "
            f"{self.phi_error:.1g}, ‖∇Φ‖ = {self.gradient_norm:.3g} ± {self.gradient_error:.1g}; "
            f"{show.quantity(sum(self.calls), 'call')}, {self.seconds:.2g} s and {self.compile_seconds:.2g} s of "
            f"compilation; x: {show.shapes(self.x)}, y: {show.shapes(self.y)})"
        )

    def plot(self, path: str | os.PathLike[str] | None = None) -> "Figure":
        """Draws Φ and ‖∇Φ‖ against the oracle calls. Needs the extra `plot`. With a path the figure is also written
        there (.png, .svg or .pdf)."""
        curves = {name: (self.history["calls"], self.history[name]) for name in ("gradient_norm", "phi")}
        return figures.drawn(figures.curves, curves, "oracle calls", path=path)


def minimise(
    problem: Problem,
    x0: PyTree,
    y0: PyTree,
    *,
    tolerance: float | None = None,
    max_calls: int | None = None,
    max_seconds: float | None = None,
    project: Callable[[PyTree], PyTree] | None = None,
    callbacks: Listener | Sequence[Listener] = (),
    checkpoint: Checkpoints | None = None,
) -> Minimum:
    """Minimises Φ(x) = f(x, y*(x)) from (x0, y0), on all data, without settings: no p, no step sizes, no lower solver.

    It ends `ok` where ‖∇Φ‖ has fallen to `tolerance` times its start, and otherwise says what kept it from that; see
    `docs/minimise.md` for every status. It is a method for full batches: for problems with noise, or so large that one
    pass over the data is too much, use `solve`.

    Arguments:
        tolerance: 1e-6 in float64 and 1e-3 in float32 if left out.
        max_calls: the most calls (samples of all four oracles); exceeded by less than one pass over the data.
        project: `Box(low, high)`, `Simplex()`, or the projection on a convex set of your own, in which x begins and
            stays. ‖x − P(x − ∇Φ)‖ then takes the place of ‖∇Φ‖.
        max_seconds: the most seconds of computing; compilation does not count. Looked at between the solutions of
            linear systems.
        callbacks: called with what was last recorded, a dictionary, after every step; or rules and logs as for `solve`.
        checkpoint: `Checkpoints(folder, every=10)` keeps the run on disk, in steps; the same call goes on from there.

    Example:
        >>> result = minimise(problems.example3(4.0), 1.0, 1.0)
        >>> result.status, abs(float(result.x) + jnp.pi / 2) < 0.01  # Φ(x) = sin(sin x) is least at −π/2
        (ok, True)
    """
    budget = _budget(max_calls, max_seconds)
    problem, x0, y0 = checked(problem, x0, y0)
    project = _projection(project, x0)
    x0 = x0 if project is None else checks.variable("project(x0)", computed(_projected, project, x0))
    solver = QuasiNewton(_tolerance(tolerance, tree.dtype(x0)), project)
    listeners = several("callbacks", callbacks, Callback, Teller, "functions of one dictionary")
    key = jax.random.key(0)  # nothing is random; the driver and the identity of a run want one
    keeper, state, resumed = None, None, None
    if checkpoint is not None:
        if not isinstance(checkpoint, Checkpoints):
            raise TypeError(f"checkpoint must be Checkpoints(folder, …); got {checkpoint!r}.")
        keeper = _Keeper(checkpoint, identity(problem, solver, x0, y0, key), key)
        resumed = (keeper.resumed(jax.eval_shape(lambda: solver.init(x0, y0))) or (None, None))[0]
        keeper.files.check_writable()
    record = Record(x0, resumed)
    if resumed is not None:
        state = _going_on(resumed.state)
        budget.calls += record.calls
        budget.seconds = record.seconds
        if keeper is not None:
            keeper.check(View(problem, solver, state, record, NEVER, begins=True))
    with contextlib.ExitStack() as stack:
        deciding = [each for each in listeners if not isinstance(each, Callback)]
        between: list[Between] = [_Told(), _Verdict(budget, float(solver.tolerance)), *deciding]
        if keeper is not None:
            between.append(Interruption(stack.enter_context(noted(signal.SIGINT, signal.SIGTERM)), together=False))
        between += [each for each in listeners if isinstance(each, Callback)]
        between.append(Callback(stack.enter_context(terminal_progress(None))))
        if keeper is not None:
            between.append(keeper)
        driver = _Driver(problem, x0, y0, key, NEVER, record, between, None)
        driver.budget = budget
        state, end = driver.run(solver, state)  # type: ignore[arg-type]
    return _minimum(state, end, record)


def _projection(project: Callable[[PyTree], PyTree] | None, x: PyTree) -> Callable[[PyTree], PyTree] | None:
    """The projection as a pytree with numbers in the dtype of x, if it maps x to a variable like x."""
    if project is None:
        return None
    if isinstance(project, type) or not callable(project):
        raise TypeError(f"project must be Box(low, high), Simplex() or a projection of your own; got {project!r}.")
    project = tree.cast(as_pytree(project), tree.dtype(x))
    checks.same_shape("project(x)", jax.eval_shape(project, x), "x", x)
    return project


def _projected(project: Callable[[PyTree], PyTree], x: PyTree) -> PyTree:
    return checks.returned("project(x)", project(x), x)


def _tolerance(tolerance: float | None, dtype: jnp.dtype) -> float:
    if tolerance is None:
        return TOLERANCE[str(dtype)]
    checks.number("tolerance", tolerance, low=0.0, strict=True, remedy="It is relative to ‖∇Φ‖ at the start.")
    if not tolerance < 1:
        raise ValueError(f"tolerance must be < 1, because it is relative to ‖∇Φ‖ at the start; got {tolerance}.")
    return float(tolerance)


def _budget(max_calls: int | None, max_seconds: float | None) -> Budget:
    if max_calls is not None:
        checks.whole_number("max_calls", max_calls, low=1)
    if max_seconds is not None:
        checks.number("max_seconds", max_seconds, low=0.0, strict=True)
    return Budget(math.inf if max_calls is None else max_calls, math.inf if max_seconds is None else max_seconds)


def checked(problem: Problem, x: PyTree, y: PyTree) -> tuple[Problem, PyTree, PyTree]:
    """The arguments of a run, checked, with every number in the dtype of x."""
    problem, x, y = prepare(problem, x, y)
    if any(checks.is_traced(leaf) for leaf in jax.tree.leaves((problem, x, y))):
        raise TypeError("minimise decides on the host: it cannot run inside jit or vmap. There, use trajectory(…).")
    noisy = [f"{name}_batches" for name in ("f", "g") if isinstance(getattr(problem, f"{name}_batches"), Noise)]
    if noisy:
        raise ValueError(
            f"minimise needs exact oracles, but {' and '.join(noisy)} is Noise: its Newton steps and line search would "
            "chase the noise. Use solve(…) with a stochastic method such as UniBiO or MASOBA, or state the problem "
            "without noise."
        )
    if on_mesh((problem, x, y)):
        raise ValueError("minimise works on one device: for arrays on a mesh use solve(…).")
    jax.eval_shape(lambda x, y: check_functions(problem, x, y), x, y)
    return problem, x, y


class _Driver(Driver):
    """Feeds the driver with single steps that run on the host."""

    budget: Budget

    def _initialised(self, solver: QuasiNewton) -> tuple[tuple[State, Calls], float, float]:
        budget = self.budget
        state = solver.step(self.problem, solver.init(self.x0, self.y0), budget)
        return (state, Calls(*budget.calls.copy())), budget.seconds, budget.compile_seconds

    def _stretches(
        self, solver: QuasiNewton, state: PyTree, limit: Callable[[int], int], keep: Callable[[Log], int]
    ) -> Iterator[Stretch]:
        budget = self.budget
        while limit(self.record.step) > self.record.step:
            calls, seconds, compiling = budget.calls.copy(), budget.seconds, budget.compile_seconds
            after = solver.step(self.problem, state, budget)
            made = budget.calls - calls
            spent = budget.seconds - seconds, budget.compile_seconds - compiling
            log = Log(
                jnp.asarray(state.control.norm)[None],
                Calls(*made[:, None]),
                Status(np.asarray([int(Status.ok.code)])),
                jnp.zeros(1, jnp.int32),
            )
            if int(after.code) == int(Status.budget.code) or keep(log) < 1:  # the step was cut off, or is undone
                self.record.spent(Calls(*made), spent[0])
                log = jax.tree.map(lambda leaf: leaf[:0], log)
                state = after if int(after.code) == int(Status.budget.code) else state
                yield Stretch(state, log, 0.0, spent[1])
            else:
                state = after
                yield Stretch(state, log, *spent)


class _Told(Between):
    """Records what is known of Φ after each step."""

    def after(self, view: View) -> None:
        control = view.state.control
        if not view.record.has({"phi"}):
            view.record.note(
                {
                    "phi": control.phi,
                    "phi_error": control.phi_error,
                    "gradient_norm": control.norm,
                    "gradient_error": control.error,
                }
            )


class _Verdict(Between):
    """Ends the run where the method has ended."""

    def __init__(self, budget: Budget, tolerance: float) -> None:
        self.budget, self.tolerance = budget, tolerance

    def after(self, view: View) -> End | None:
        code = int(view.state.code)
        if code == RUNNING:
            return None
        status = Status(np.int32(code))
        return End(status, self.why(status, view.state))

    def why(self, status: Status, state: State) -> str:
        """A sentence on how the run ended, with what to do."""
        control = state.control
        fallen = f"‖∇Φ‖ fell from {float(control.norm0):.3g} to {float(control.norm):.3g}"
        if math.isnan(float(control.norm0)):
            fallen = "not even ∇Φ at the start is known"
        match status.name:
            case "ok":
                return f"{fallen}, to no more than {self.tolerance:g} of its start"
            case "stagnated":
                return (
                    f"{fallen} and falls no further: rounding, or a kink of f or g, hides the descent. Use float64, "
                    "or check that f and g are smooth"
                )
            case "budget":
                which = "calls" if self.budget.left <= 0 else "seconds"
                return f"the {which} are spent ({fallen}): allow more, or ask for less by tolerance="
            case "unbounded":
                return f"Φ fell without bound, to {float(control.phi):.3g}: check its sign, or add a penalty on x to f"
            case "no_minimiser":
                return "g seems to have no minimiser in y at this x, y grew without end: add a penalty on y to g"
            case "ill_conditioned":
                return "g does not depend on some entry of y on which f depends: add a penalty on y to g"
            case _:
                return status.message


class _Keeper(Keeper):
    """Checkpoints of a run whose steps are no compiled program: the probe is every oracle once, at the state."""

    def probe(self, view: View) -> Facts:
        point = view.state.point
        args = view.problem, point.x, point.y, point.v, view.solver.project
        made, _, compiling = compiled(evaluated_at, *args, layouts=view.state.layouts)
        view.record.spent_compiling(compiling)
        program = compiled.digest(evaluated_at, *args, layouts=view.state.layouts)
        return probe(program, jax.tree.leaves((made, view.state.point)), point.x.dtype)


def _going_on(state: State) -> State:
    """A state from a checkpoint; one whose budget was spent goes on with the budget of this call."""
    spent = int(state.code) == int(Status.budget.code)
    return dataclasses.replace(state, code=jnp.int32(RUNNING)) if spent else state


def _minimum(state: State, end: End, record: Record) -> Minimum:
    found = record.result(state, state.y, *end)
    control = state.control
    if end.status.name in _NO_PHI:
        control = Control(*(math.nan for _ in control))
    return Minimum(
        state.x,
        state.y,
        state.v,
        float(control.phi),
        float(control.phi_error),
        float(control.norm),
        float(control.error),
        end.status,
        end.why,
        record.step,
        found.calls,
        record.seconds,
        record.compile_seconds,
        found.metrics,
    )
