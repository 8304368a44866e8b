"""Automatic back-off: after a divergence a run goes back to its last good anchor and on with every step size halved.

An anchor is a step to which the run can go back, with the state after it. Anchors lie at fixed steps and are kept in
checkpoints, so that the trajectory depends neither on `chunk` nor on having been stopped and continued. (A Result keeps
no anchor: a run that is resumed from a Result goes back to the step where it was resumed, or, if x and y were too large
there already, to its start.) Long before numbers overflow they are useless: a state becomes the anchor only if x and y
are of a reasonable size.
"""

from typing import Any

from unibio.core import checks, tree
from unibio.core.protocols import BilevelSolver
from unibio.core.status import Status
from unibio.core.tree import PyTree
from unibio.run.between import NEVER, Between, End, Restart, View
from unibio.run.record import Anchor
from unibio.solvers.step_sizes import has_step_sizes, scaled

EVERY = 64  # steps between two anchors
GROWTH = 1000.0  # ‖(x, y)‖ at an anchor is at most this multiple of max(1, ‖(x0, y0)‖)
HALVED = "the step sizes were halved"  # what a restart says


def in_force(solver: BilevelSolver, restarts: list[str]) -> Any:
    """The solver with its step sizes halved once for every restart that back-off has caused; `restarts` holds the
    reason of each restart."""
    return scaled(solver, 0.5 ** restarts.count(HALVED))


class BackOff(Between):
    """Answers a divergence, up to `most` times, with a Restart from the last anchor with half the step sizes."""

    def __init__(self, most: int, solver: BilevelSolver, start: PyTree) -> None:
        checks.whole_number("back_off", most, low=0)
        if most and not has_step_sizes(solver):
            raise ValueError(f"back_off halves step sizes, but {type(solver).__name__} has no field named …step_size.")
        self.most = most
        self.largest = GROWTH * max(1.0, float(tree.norm(start))) if most else 0.0

    def limit(self, step: int) -> int:
        return (step // EVERY + 1) * EVERY if self.most else NEVER

    def after(self, view: View) -> Restart | End | None:
        restarts = view.record.restarts
        if view.end is None:
            self._mark(view)
        elif view.end.status == Status.diverged and restarts.count(HALVED) < self.most:
            step, state = view.record.anchor or Anchor(0, None)
            return Restart(scaled(view.solver, 0.5), state, step, HALVED)
        return None

    def _mark(self, view: View) -> None:
        """Makes this state the anchor if it is time for one and x and y are of a reasonable size."""
        nowhere = view.record.anchor is None and (view.begins or view.restarted)
        due = self.most and (nowhere or view.record.step % EVERY == 0)
        if due and float(tree.norm((view.state.x, view.state.y))) <= self.largest:
            view.record.mark(view.state)
