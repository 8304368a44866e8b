"""`unibio reproduce`: runs the paper's experiments into a folder and shows their progress."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from unibio.files.cache import set_up_jax

if TYPE_CHECKING:
    from unibio.paper.framework.reproduce import Event

_INTERRUPTED = 130  # the exit code of a process that Ctrl-C has ended: 128 + SIGINT


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments (see `unibio list`); by default all.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and the report.")] = Path("unibio-results"),
    full: Annotated[bool, typer.Option("--full", help="Run at full size, where an experiment has one.")] = False,
    seeds: Annotated[int, typer.Option(min=1, max=2**20, help="Seeds per curve.")] = 64,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="The first seed.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Experiments run at once, at most one per CPU.")] = 2,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of hypercleaning: NAME=VALUE, e.g. p=3,4.")
    ] = None,
    replot: Annotated[bool, typer.Option("--replot", help="Only redraw all figures and the report.")] = False,
) -> None:
    """Run the paper's experiments and write tables, figures and a report. A second call continues a stopped one."""
    from unibio.paper.framework import reproduce as work
    from unibio.paper.framework.study import EXPERIMENTS, Options

    chosen = work.checked_names(names or [], full)
    progress = _Progress({name: work.COSTS.get(name, 1) for name in chosen})
    try:
        with progress.live:
            if replot:
                work.replot(out, progress.show)
                if progress.failed:
                    raise ValueError(f"not drawn: {', '.join(progress.failed)}. Without --replot it is computed again.")
            else:
                set_up_jax()
                options = Options(seeds, seed, full, tuple(_pair(text) for text in settings or []))
                work.reproduce(chosen, out, options, min(jobs, os.cpu_count() or 1), progress.show)
    except KeyboardInterrupt:
        done = f"{len(progress.verdicts)} of {len(chosen)} parts are finished"
        progress.console.print(f"stopped; {done}, run the same command to continue")
        raise typer.Exit(_INTERRUPTED) from None
    finally:  # also after an error, because the report has the parts that are finished
        for name in (name for name in EXPERIMENTS if name in progress.verdicts):
            print(f"{name}: {progress.verdicts[name]}")
        if progress.verdicts:
            print(f"report: {out / 'index.html'}")


def _pair(text: str) -> tuple[str, str]:
    """NAME and VALUE of a text NAME=VALUE."""
    name, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"--set takes NAME=VALUE; got {text!r}.")
    return name, value


class _Progress:
    """Shows the progress of `unibio reproduce` on stderr.

    On a terminal it is a bar with the time left, and below it what each worker is doing; elsewhere a line per event.
    """

    def __init__(self, costs: dict[str, int]) -> None:
        self.costs = costs
        self.total = len(costs)
        self.verdicts: dict[str, str] = {}  # of the parts that are finished, by name
        self.failed: list[str] = []  # parts, each with what is wrong
        self.done = 0.0  # the cost of the parts that finished in this call
        self.running: dict[str, str] = {}  # what each part that has started is doing
        self.began = time.monotonic()
        terminal = sys.stderr.isatty()
        self.console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True, force_terminal=terminal)
        self.live = Live(self, console=self.console, refresh_per_second=4, transient=True)  # shows nothing elsewhere

    def show(self, event: "Event") -> None:
        """Takes note of an event and shows it."""
        name = event.name
        if event.kind in ("unchanged", "drawn", "finished"):
            self.verdicts[name] = event.text
        if event.kind == "failed":
            self.failed.append(f"{name} ({event.text})")
        if event.kind in ("unchanged", "finished", "failed"):
            self.running.pop(name, None)
            cost = self.costs.pop(name, 0)
            self.done += cost if event.kind == "finished" else 0.0  # only these show the speed
        elif event.kind in ("started", "progress"):
            self.running[name] = event.text or "started"
        texts = {
            "unchanged": "finished before",
            "redone": f"run again: {event.text}",
            "failed": f"failed: {event.text}",
            "finished": f"finished ({len(self.verdicts)} of {self.total})",
            "drawn": "drawn",
            "kept": f"the earlier result is kept in {event.text}",
        }
        if event.kind in texts or not self.console.is_terminal:
            self.console.print(f"{name}: {texts.get(event.kind, event.text or event.kind)}")

    def __rich__(self) -> Group:
        """The bar and the lines below it. `Live` asks for them four times a second."""
        to_do = sum(self.costs.values())
        bar = Table.grid(padding=(0, 2))
        bar.add_row(
            ProgressBar(total=max(1.0, self.done + to_do), completed=self.done, width=30),
            f"{len(self.verdicts)} of {self.total} parts",
            self._left(to_do),
        )
        return Group(bar, *(Text(f"  {name}: {text}") for name, text in self.running.items()))

    def _left(self, to_do: float) -> str:
        """The time left, if the rest goes as fast as what is finished."""
        if not self.done:
            return "time left: not known yet"
        seconds = round((time.monotonic() - self.began) / self.done * to_do)
        return f"about {seconds // 60}:{seconds % 60:02d} left"
