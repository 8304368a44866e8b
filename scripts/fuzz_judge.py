"""What the parts of `fuzz.py` share: when an error is one of ours, which call hangs, and processes that may die."""

import ast
import contextlib
import faulthandler
import functools
import multiprocessing
import pathlib
import signal
import traceback
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import unibio as ub

Outcome = tuple[str, str]  # the status, exit code or class of error; and the finding, "" if there is none
WORKERS = 2
COMPUTING, WAITING = 180.0, 3600.0  # seconds after which a case hangs: of the processor, and of the clock
# Words of Python's, NumPy's and JAX's own messages: an error with one of them has no message of ours.
RAW = ("math domain", "math range", "division by zero", "cannot convert float", "nan to integer", "broadcast",
       "unexpected keyword", "not subscriptable", "has no attribute", "too large to convert", "invalid literal",
       "could not convert string", "list index", "to unpack")  # fmt: skip


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Ends this process, with a traceback of where it was, if what is done within hangs: if it computes for longer than
    COMPUTING, or does not end within WAITING. On a busy machine only the first of both is short."""
    faulthandler.register(signal.SIGPROF, chain=True)
    faulthandler.dump_traceback_later(WAITING, exit=True)
    signal.setitimer(signal.ITIMER_PROF, COMPUTING)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()


def judged(call: Callable[[], str], name: str, notes: object = "") -> Outcome:
    """The outcome of a call: what it returns, or the class of an error of ours. Any other error is a finding, and so is
    an AssertionError, by which a call says what is wrong with a result. `notes` are added to a finding."""
    try:
        with watched():
            return call(), ""
    except Exception as error:
        if documented(error):
            return type(error).__name__, ""
        text = "".join(traceback.format_exception(error, limit=-6))
        return "finding", f"{name}: {notes}\n{text}"


def documented(error: Exception) -> bool:
    """Whether the library raised the error on purpose: its class is right, a `raise` of the library raised it, and the
    message is not one of Python's own. An OSError is right where a folder cannot be written. `lower_solution` raises
    a RuntimeError if its tolerance was not met."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    ours = f"{pathlib.Path(ub.__file__).parent}/" in place.filename and place.lineno in _raising(place.filename)
    message = str(error)
    kind = type(error) in (ValueError, TypeError, OSError) or "lower_solution ended with" in message
    if isinstance(error, OSError) and error.filename is not None:  # Python's own words, with the path
        return True
    return ours and kind and len(message) > 15 and not any(raw in message.split(" failed on ")[0] for raw in RAW)


@functools.cache
def _raising(filename: str) -> set[int]:
    """The lines of a file that belong to a `raise`. An error from any other line is one of Python's or a library's."""
    nodes = ast.walk(ast.parse(pathlib.Path(filename).read_text(encoding="utf-8")))
    spans = [(node.lineno, node.end_lineno or node.lineno) for node in nodes if isinstance(node, ast.Raise)]
    return {line for first, last in spans for line in range(first, last + 1)}


def in_processes(work: Callable[..., list[Outcome]], pieces: list[tuple[Any, ...]]) -> Iterator[list[Outcome]]:
    """What `work` makes of each piece of the cases, in a process of its own, so that one that dies costs its piece."""
    with futures.ThreadPoolExecutor(WORKERS) as pool:
        for future in futures.as_completed([pool.submit(_in_process, work, piece) for piece in pieces]):
            yield future.result()


def _in_process(work: Callable[..., list[Outcome]], piece: tuple[Any, ...]) -> list[Outcome]:
    with futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(work, *piece).result()
        except futures.process.BrokenProcessPool:
            why = "a case hangs or kills its process; faulthandler has printed its traceback above"
            return [("finding", f"{why} ({str(piece)[:300]})")]
