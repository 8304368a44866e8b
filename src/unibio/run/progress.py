"""A progress bar for people who look at a terminal; nothing for anyone else."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from unibio.distributed.processes import is_leader

_silent = False


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Inside this context no bar is shown: for a program that shows its own."""
    global _silent
    before, _silent = _silent, True
    try:
        yield
    finally:
        _silent = before


@contextlib.contextmanager
def terminal_progress(steps: int | None, title: str = "") -> Iterator[Callable[[dict[str, Any]], None]]:
    """A callback that moves a bar on stderr, without an end if the number of steps is not known. It does nothing if
    stderr is no terminal, if rich is not installed, or if this is not the first of several processes."""
    if _silent or not is_leader() or not sys.stderr.isatty():
        yield lambda row: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda row: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{title} compiling".strip(), total=steps)

        def move(row: dict[str, Any]) -> None:
            known = {name: row[name] for name in ("gradient_norm", "direction_norm") if name in row}
            text = [title, *(f"{name} {value:.3g}" for name, value in list(known.items())[:1])]
            bar.update(task, completed=row["step"], description="  ".join(text).strip())

        yield move
