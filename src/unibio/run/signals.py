"""Ctrl-C and SIGTERM: a run notes them, and ends between two stretches, where it can write a last checkpoint."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from unibio.core.status import Status
from unibio.distributed.processes import largest
from unibio.run.between import Between, End, View


@contextlib.contextmanager
def noted(*signals: signal.Signals) -> Iterator[list[str]]:
    """Inside this context a signal only appends its name to the list that the context yields; the second one acts as
    usual. An exception that a handler raised could interrupt anything, and would be lost within a callback of the
    garbage collector. Python allows handlers in the main thread only, so that elsewhere the list stays empty."""
    names: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield names
        return
    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in signals}

    def note(number: int, frame: FrameType | None) -> None:
        if names:  # whoever sends a second signal does not want to wait
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)
        names.append(signal.Signals(number).name)

    for number in signals:
        signal.signal(number, note)
    try:
        yield names
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Interruption(Between):
    """Ends the run where a signal was noted, on whichever process, so that the same call can continue it.

    Arguments:
        caught: the list that `noted` fills.
        together: whether the run is shared by several processes, which must all end at the same step.
    """

    def __init__(self, caught: list[str], together: bool) -> None:
        self.caught, self.together = caught, together

    def after(self, view: View) -> End | None:
        if view.begins or view.end is not None or view.record.step >= view.steps:
            return None
        # With several processes only what all know counts: a signal that came just now waits for the next look.
        number = largest(len(self.caught)) if self.together else len(self.caught)
        if not number:
            return None
        name = self.caught[0] if self.caught else "a signal to another process"
        return End(Status.interrupted, f"{name} after {view.record.step} steps")
