"""The loop that runs share: compiled stretches of steps, and between them the objects that act on the host."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import tree
from unibio.core.problem import Problem
from unibio.core.programs import computed
from unibio.core.protocols import BilevelSolver, Calls, State
from unibio.core.status import Status
from unibio.core.tree import PyTree
from unibio.distributed.placement import placed
from unibio.distributed.processes import gathered
from unibio.run.between import Between, End, Restart, View, ask
from unibio.run.programs import CAPACITY, Log, advance, check_solver, initialise, timed
from unibio.run.record import Record, first_true
from unibio.run.result import Table
from unibio.run.start import fault_at_start

_MOST_RESTARTS = 1000  # one after the other, without a step between them
_STRETCH_SECONDS = 0.5  # how long a stretch should take, so that bars move and rules are asked


class Stretch(NamedTuple):
    """Steps that ran compiled between two looks of the host: the state after them, what they reported as numpy arrays,
    and the seconds that they and their compilation took."""

    state: Any
    log: Log
    seconds: float
    compiling: float


def stretches(
    solver: BilevelSolver,
    problem: Problem,
    state: State,
    key: jax.Array,
    step: int,
    limit: Callable[[int], int],
    keep: Callable[[Log], int] | None = None,
    chunk: int | None = None,
    program: Callable[..., Any] = advance,
) -> Iterator[Stretch]:
    """Stretches from this state, which is that after `step` steps, until `limit` allows no further step.

    Arguments:
        limit: at which step a stretch that begins at the given one ends at the latest.
        keep: how many steps of a stretch count; the stretch is run again up to there.
        chunk: steps in a stretch; by default as many as take half a second.
        program: `advance`, or the same for many lanes at once.
    """

    def taken(number: int, state: State, step: int) -> Stretch:
        args = solver, problem, state, key, jnp.int32(step), jnp.int32(number)
        (after, log), seconds, compiling = timed(program, *args, capacity=CAPACITY)
        log = jax.tree.map(lambda leaf: np.array(leaf[..., :number]), gathered(log))  # not a view of 1,024 entries
        return Stretch(after, log, seconds, compiling)

    length = 1 if chunk is None else chunk
    while (number := min(length, limit(step) - step, CAPACITY)) > 0:
        stretch = taken(number, state, step)
        kept = number if keep is None else keep(stretch.log)
        if kept < number:
            after, log, _, _ = taken(kept, state, step)
            stretch = Stretch(after, log, stretch.seconds * kept / number, stretch.compiling)
        state, step = stretch.state, step + kept
        yield stretch
        if chunk is None:
            length = max(1, min(2 * number, int(_STRETCH_SECONDS * number / max(stretch.seconds, 1e-9))))


@dataclasses.dataclass(eq=False)
class Driver:
    """A run: the problem, where it begins and ends, and the objects that are asked between its stretches."""

    problem: Problem
    x0: PyTree
    y0: PyTree
    key: jax.Array
    steps: int
    record: Record
    between: Sequence[Between]
    chunk: int | None

    def run(self, solver: BilevelSolver, state: State | None) -> tuple[Any, End]:
        """Goes on with this solver from this state (None: the start) to the end, through restarts; the last state, None
        if the solver's warm start was never finite."""
        begins, restarted, idle = True, False, 0
        while idle < _MOST_RESTARTS:
            failed = None
            if state is None:
                state, failed = self._started(solver)
            view = View(self.problem, solver, state, self.record, self.steps, begins, restarted, failed)
            answer = ask(self.between, view)
            idle += 1
            if answer is None:
                begins, idle = False, 0
                state, answer = self._advanced(solver, state)
            if isinstance(answer, End):
                return state, answer
            restarted = True
            solver, state = self._restarted(answer)
        raise RuntimeError(f"the run was restarted {_MOST_RESTARTS} times without making a step in between.")

    def _restarted(self, answer: Restart) -> tuple[Any, Any]:
        """The solver and the state to go on with, once the record is back at that step."""
        solver, state, step, why = answer
        if not 0 <= step <= self.record.step or (state is None and step != 0):
            raise ValueError(
                f"Restart(…, step={step}) after {self.record.step} steps: step must lie between 0 and these, and be 0 "
                "if the state is None, because that is the start."
            )
        self.record.rewind(step, state, why)
        return placed(check_solver(solver, tree.dtype(self.x0)), self.x0, self.y0), state

    def _started(self, solver: BilevelSolver) -> tuple[Any, End | None]:
        """The solver's first state; None and why, if its warm start is not finite."""
        (state, calls), seconds, compiling = self._initialised(solver)
        self.record.spent(calls, seconds)
        self.record.spent_compiling(compiling)
        if bool(computed(tree.all_finite, (state.x, state.y))):
            return state, None
        why = "the warm start became NaN or infinite, x and y are where it began"
        return None, _ended(why, "lower the lower step size", fault_at_start(self.problem, self.x0, self.y0))

    def _initialised(self, solver: PyTree) -> tuple[tuple[Any, Calls], float, float]:
        """The solver's first state and its calls, and the seconds of computing and of compilation."""
        return timed(initialise, solver, self.problem, self.x0, self.y0, self.key)

    def _stretches(
        self, solver: PyTree, state: State, limit: Callable[[int], int], keep: Callable[[Log], int]
    ) -> Iterator[Stretch]:
        """Stretches from this state, until `limit` allows no further step."""
        return stretches(solver, self.problem, state, self.key, self.record.step, limit, keep, self.chunk)

    def _advanced(self, solver: BilevelSolver, state: State) -> tuple[Any, End | Restart]:
        """Stretch after stretch, until an object ends the run or restarts it, or all steps are done."""

        def limit(step: int) -> int:
            return step if step >= self.steps else min(self.steps, *(_limit(each, step) for each in self.between))

        strictest = ""  # the class of the object that lets the fewest steps count

        def keep(log: Log) -> int:
            nonlocal strictest
            table = self.record.table(log)
            kept, strictest = min((_kept(each, table), type(each).__name__) for each in self.between)
            return kept

        for stretch in self._stretches(solver, state, limit, keep):
            state = stretch.state
            self.record.advanced(stretch.log, stretch.seconds, stretch.compiling)
            view = View(self.problem, solver, state, self.record, self.steps, begins=False, restarted=False)
            answer = ask(self.between, view)
            if answer is not None:
                return state, answer
            if len(stretch.log.bad) == 0:
                raise ValueError(
                    f"the run makes no progress: {strictest}.keep(log) returned 0, which undoes every step after step "
                    f"{self.record.step}, but nothing ended or restarted the run. Let {strictest}.after(view) return "
                    "an End or a Restart in that case."
                )
        return state, End(Status.finished, f"{self.steps} steps")


def _limit(each: Between, step: int) -> int:
    """Asks the object at which step the stretch that begins at `step` must end; it must be a later one."""
    limit: int | None = each.limit(step)
    if limit is None or not limit > step:
        raise ValueError(
            f"{type(each).__name__}.limit({step}) returned {limit!r}; it must return a step after {step}, at which the "
            "stretch ends at the latest. Leave the method out if any length will do."
        )
    return limit


def _kept(each: Between, table: Table) -> int:
    """Asks the object how many steps of a stretch count; `table` has the history's columns for these steps."""
    kept: int | None = each.keep(table)
    if kept is None or not kept >= 0:
        raise ValueError(
            f"{type(each).__name__}.keep(log) returned {kept!r}; it must return how many steps of the stretch count, a "
            'whole number from 0 to len(log["step"]).'
        )
    return kept


class KeepFinite(Between):
    """Undoes the first step after which x or y is not finite, and those after it, and ends the run there.

    Arguments:
        start: x0 and y0, where f and g are looked at if that happens.
    """

    def __init__(self, start: tuple[PyTree, PyTree]) -> None:
        self.start = start
        self._found: tuple[int, str, str] | None = None  # the last step that counts, what the next one does, a remedy

    def keep(self, log: Table) -> int:
        self._found = None
        kept = first_true(log["bad"] > 0)
        if kept < len(log["bad"]):
            step = int(log["step"][kept])
            self._found = step, *_diagnosis(step, int(log["bad"][kept]), int(log["status"][kept]))
        return kept

    def after(self, view: View) -> End | None:
        found = None if view.restarted else self._found
        if view.end is None and found is not None and found[0] == view.record.step:
            return _ended(*found[1:], fault_at_start(view.problem, *self.start))
        return None


def _ended(what: str, remedy: str, fault: str) -> End:
    """The end of a run in which numbers went bad: as diverged, unless there was a fault at the start already, which no
    step size mends."""
    return End(Status.not_finite, f"{what}: {fault}") if fault else End(Status.diverged, f"{what}: {remedy}")


def _diagnosis(step: int, bad: int, code: int) -> tuple[str, str]:
    """What became NaN or infinite in a step, and what to try; `code` is the status of its hypergradient."""
    names, remedy = {
        1: ("x", "lower step_size"),
        2: ("y", "the lower level diverges, lower its step size"),
        3: ("x and y", "lower the step sizes, the lower one first"),
    }[bad]
    why = "" if Status(code) == Status.ok else f"; hypergradient: {Status(code).message}"
    return f"{names} became NaN or infinite in step {step}", f"{remedy}{why}"
