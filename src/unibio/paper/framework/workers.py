"""Processes that work for this one: Ctrl-C here ends them all, and they end with their parent, however it dies."""

import concurrent.futures as futures
import contextlib
import multiprocessing as mp
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from unibio.files.cache import set_up_jax
from unibio.run.signals import noted

_DIED = "a worker process died, perhaps for lack of memory; run it again with --jobs 1."
Submit = Callable[..., "futures.Future[Any]"]


@contextlib.contextmanager
def workers(count: int, setup: Callable[..., None] | None = None, *arguments: Any) -> Iterator[Submit]:
    """Yields `submit(fn, *args)`; each process calls setup(*arguments) first. An error inside ends them at once."""
    context = mp.get_context("spawn")  # a fork of a process with XLA's threads may hang
    stop = context.Event()
    pool = futures.ProcessPoolExecutor(count, context, _start, (stop, setup, arguments))

    def submit(fn: Callable[..., Any], *args: Any) -> "futures.Future[Any]":
        try:
            with _holding_interrupts():
                return pool.submit(fn, *args)
        except futures.process.BrokenProcessPool:
            raise ChildProcessError(_DIED) from None

    try:
        yield submit
    except BaseException:
        stop.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def as_completed(running: "set[futures.Future[Any]]", look: Callable[[], None]) -> "Iterator[futures.Future[Any]]":
    """Each when it is done; `look()` five times a second. Ctrl-C raises KeyboardInterrupt here and nowhere else."""
    with noted(signal.SIGINT) as interrupted:
        while running:
            done, running = futures.wait(running, 0.2, futures.FIRST_COMPLETED)
            look()
            yield from done
            if interrupted:
                raise KeyboardInterrupt


def error_of(future: "futures.Future[Any]") -> BaseException | None:
    """What went wrong, in words if the process died."""
    error = future.exception()
    if isinstance(error, futures.process.BrokenProcessPool):
        return ChildProcessError(_DIED)
    return error


@contextlib.contextmanager
def _holding_interrupts() -> Iterator[None]:
    """Processes started inside never see Ctrl-C (a blocked signal is inherited): this one ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(stop: Any, setup: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_in_time, args=(stop,), daemon=True).start()
    set_up_jax()
    if setup is not None:
        setup(*arguments)


def _end_in_time(stop: Any) -> None:
    """Ends a worker, in the middle of a program if need be, when it is told to or its parent is no more."""
    parent = mp.parent_process()
    while not stop.wait(1.0) and parent is not None and parent.is_alive():
        pass
    os._exit(1)
