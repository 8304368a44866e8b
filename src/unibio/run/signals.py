"""Signals that are noted, to be acted on where it is safe."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def noted(*signals: signal.Signals) -> Iterator[list[str]]:
    """Inside, these signals only append their name to the list. (An exception raised by a handler would be lost if it
    struck in a callback of the garbage collector, and could strike in the middle of anything.) In the main thread only:
    elsewhere the list stays empty."""
    names: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield names
        return
    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in signals}

    def note(number: int, frame: Any) -> None:
        if names:  # the second time somebody means it
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
