"""`unibio reproduce`: the experiments into a folder, with progress."""

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

_INTERRUPTED = 130  # 128 + SIGINT, as shells count


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments (see `unibio list`); by default all.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and the report.")] = Path("unibio-results"),
    full: Annotated[bool, typer.Option("--full", help="At full size, where an experiment has one.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per curve.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Experiments at once, at most one for each CPU.")] = 2,
    settings: Annotated[list[str] | None, typer.Option("--set", help="hypercleaning: NAME=VALUE, e.g. p=3,4.")] = None,
    replot: Annotated[bool, typer.Option("--replot", help="Only draw all figures and the report anew.")] = False,
) -> None:
    """Run the paper's experiments and write tables, figures and a report; run again, it continues."""
    from unibio.paper.framework import reproduce as work
    from unibio.paper.framework.study import EXPERIMENTS, Options

    chosen = work.checked_names(names or [], full)
    progress = _Progress({name: work.COSTS.get(name, 1) for name in chosen})
    try:
        with progress.live:
            if replot:
                work.replot(out, progress.tell)
            else:
                set_up_jax()
                options = Options(seeds, seed, full, tuple(_pair(text) for text in settings or []))
                work.reproduce(chosen, out, options, min(jobs, os.cpu_count() or 1), progress.tell)
    except KeyboardInterrupt:
        done = f"{len(progress.verdicts)} of {len(chosen)} parts are finished"
        progress.console.print(f"stopped; {done}, run the same command to continue")
        raise typer.Exit(_INTERRUPTED) from None
    finally:  # the report has what is finished, whatever became of the rest
        for name in (name for name in EXPERIMENTS if name in progress.verdicts):
            print(f"{name}: {progress.verdicts[name]}")
        if progress.verdicts:
            print(f"report: {out / 'index.html'}")


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"--set takes NAME=VALUE; got {text!r}.")
    return name, value


class _Progress:
    """On a terminal a bar and what each worker does; else a line for each event. Both on stderr."""

    def __init__(self, costs: dict[str, int]) -> None:
        self.costs = costs
        self.total = len(costs)
        self.verdicts: dict[str, str] = {}  # of what is finished
        self.done = 0.0  # its cost
        self.running: dict[str, str] = {}
        self.began = time.monotonic()
        terminal = sys.stderr.isatty()
        self.console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True, force_terminal=terminal)
        self.live = Live(self, console=self.console, refresh_per_second=4, transient=True)  # silent elsewhere

    def tell(self, event: "Event") -> None:
        """Shows an event."""
        name = event.name
        if event.kind in ("unchanged", "drawn", "finished"):
            self.verdicts[name] = event.text
        if event.kind in ("unchanged", "finished", "failed"):
            self.running.pop(name, None)
            cost = self.costs.pop(name, 0)
            self.done += cost if event.kind == "finished" else 0.0  # the others say nothing about the speed
        elif event.kind in ("started", "progress"):
            self.running[name] = event.text or "started"
        texts = {
            "unchanged": "done before",
            "redone": f"{event.text}: done again",
            "failed": f"failed: {event.text}",
            "finished": f"finished ({len(self.verdicts)} of {self.total})",
            "drawn": "drawn",
        }
        if event.kind in texts or not self.console.is_terminal:
            self.console.print(f"{name}: {texts.get(event.kind, event.text or event.kind)}")

    def __rich__(self) -> Group:
        """What is shown, asked for four times a second."""
        to_do = sum(self.costs.values())
        bar = Table.grid(padding=(0, 2))
        bar.add_row(
            ProgressBar(total=max(1.0, self.done + to_do), completed=self.done, width=30),
            f"{len(self.verdicts)} of {self.total} parts",
            self._left(to_do),
        )
        return Group(bar, *(Text(f"  {name}: {text}") for name, text in self.running.items()))

    def _left(self, to_do: float) -> str:
        """The time left, at the speed of what is finished."""
        if not self.done:
            return "time left: not known yet"
        seconds = round((time.monotonic() - self.began) / self.done * to_do)
        return f"about {seconds // 60}:{seconds % 60:02d} left"
