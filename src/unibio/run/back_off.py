"""Automatic back-off: after a divergence a run goes back to its last good anchor and on with every step size halved.

Anchors lie at fixed steps and are kept in checkpoints, so that the trajectory depends neither on `chunk` nor on having
been stopped and continued. (A Result keeps none: a run that is resumed from one goes back to where it was resumed, or,
if that was too late, to its start.) Long before numbers overflow they are useless: an anchor is good while x and y are
of a reasonable size.
"""

from typing import Any

from unibio.core import checks, tree
from unibio.core.tree import PyTree
from unibio.run.record import Anchor, Record
from unibio.solvers.step_sizes import has_step_sizes, scaled

EVERY = 64  # steps between two anchors
GROWTH = 1000.0  # x and y at an anchor are at most so many times as large as at the start, or as 1


class BackOff:
    """The solver in force, and where to go back to; `most` = 0 switches it off."""

    def __init__(self, most: int, solver: Any, record: Record, anchor: Anchor, start: PyTree) -> None:
        checks.whole_number("back_off", most, low=0)
        if most and not has_step_sizes(solver):
            raise ValueError(f"back_off halves step sizes, but {type(solver).__name__} has no field named …step_size.")
        self.most = most
        self.first = solver
        self.record = record
        self.solver = scaled(solver, 0.5**record.halvings)
        self.anchor = anchor
        self.limit = GROWTH * max(1.0, float(tree.norm(start))) if most else 0.0

    def mark(self, state: Any) -> None:
        """Called wherever a stretch begins."""
        due = self.most and (self.anchor is None or self.record.step % EVERY == 0)
        if due and (self.anchor is None or self._is_good(state)):
            self.anchor = self.record.step, state

    def has_no_way_back(self, state: Any) -> bool:
        """Whether a run that goes on from here has no anchor, and this state is no good one."""
        return bool(self.most) and self.anchor is None and not self._is_good(state)

    def _is_good(self, state: Any) -> bool:
        return float(tree.norm((state.x, state.y))) <= self.limit

    def target(self, steps: int) -> int:
        """A stretch from here may go to this step at most, and to `steps`."""
        return min(steps, (self.record.step // EVERY + 1) * EVERY) if self.most else steps

    def may_halve(self) -> bool:
        """Whether a divergence is not the end."""
        return self.record.halvings < self.most

    def halve(self) -> None:
        """From here on with half the step sizes."""
        self.record.halvings += 1
        self.solver = scaled(self.first, 0.5**self.record.halvings)

    def restart(self) -> Any:
        """Half the step sizes from the last anchor on; its state. What was computed since is forgotten, its calls and
        seconds are not."""
        assert self.anchor is not None  # marked before every stretch
        step, state = self.anchor
        self.record.rewind(step)
        self.halve()
        return state
