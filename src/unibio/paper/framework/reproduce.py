"""All experiments into one folder: tables, figures and a report, in steps that survive an interruption.

OUT/unibio.json marks the folder as ours; OUT/index.html is the report. Each part OUT/NAME has its tables (*.csv, the
same bytes for the same seeds), result.json (options, versions, SHA-256 of every table), seconds.* (what the clock said)
and figure.* (drawn from those files).
"""

import asyncio
import contextlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax

from unibio.comparison import plot
from unibio.core import checks
from unibio.files.folders import is_ours, mark_as_ours
from unibio.files.tables import Row, Tables
from unibio.paper.framework.parts import read_part, write_part
from unibio.paper.framework.report import FIGURES, write_report
from unibio.paper.framework.study import BY_NAME, EXPERIMENTS, SECONDS, Options, Say, child, load, summary
from unibio.run.progress import quiet

MADE_BY = "unibio reproduce"
_LONGEST_LINE = 2**24  # of what a child tells: an error message of XLA may hold a whole program
_DIED = "its process died, perhaps for lack of memory; run it again with --jobs 1."
# Rough seconds of each part. The longest start first, so that no worker is left with a long one at the end.
COSTS = {
    "hypercleaning": 280, "lp-cleaning": 130, "comparison-tuned": 50, "noise-placement": 30, "epoch-sgd": 23,
    "complexity": 12, "rates": 10, "noise": 8, "one-step-size": 8, "comparison": 7, "schedules": 1,
}  # fmt: skip


class Event(NamedTuple):
    """Something to tell: a part is kept (verdict), to be redone (why), started, says, finished (verdict), failed,
    drawn."""

    kind: str
    name: str
    text: str = ""


Tell = Callable[[Event], None]


def reproduce(
    names: Sequence[str],
    out: str | os.PathLike[str],
    options: Options = Options(),
    jobs: int = 1,
    tell: Tell = lambda event: None,
) -> dict[str, str]:
    """Runs the experiments (all if none is named) that are not in the folder yet, in float64; their verdicts by name.

    Parts that are there with the same options and intact are kept. An interruption leaves the finished ones and a
    report of them. A part that fails does not stop the others; its error is raised at the end.

    Arguments:
        jobs: how many at once, each in its own process (not where an event loop is running, as in a notebook); with 1,
            in this one.
        tell: is called with every `Event`.
    """
    chosen = checked_names(names, options.full)
    if options.settings and chosen != ["hypercleaning"]:
        raise ValueError("--set is for hypercleaning alone: unibio reproduce hypercleaning --set hidden=64")
    checks.whole_number("jobs", jobs, low=1)
    checks.whole_number("seeds", options.seeds, low=1)
    checks.whole_number("seed", options.seed, low=0)
    checks.number("seed", options.seed, high=2**31)  # some parts count on from it, and a key has 32 bits
    plot.style()  # without matplotlib, say so before hours of work
    out = Path(out)
    mark_as_ours(out, MADE_BY)
    due = sorted((name for name in chosen if _is_due(out, name, options, tell)), key=lambda name: -COSTS.get(name, 0))
    options = options._replace(jobs=jobs)
    errors: list[Exception] = []
    try:
        if min(jobs, len(due)) > 1:
            errors += asyncio.run(_in_processes(out, due, options, tell))
        else:
            for name in due:
                tell(Event("started", name))
                errors += make_and_tell(out, name, options, tell)
    finally:
        for name in due:
            shutil.rmtree(_unfinished(out, name), ignore_errors=True)
        write_report(out)
    if errors:
        raise errors[0]
    return {name: load(name).verdict(read_part(out / name)[1]) for name in chosen}


def replot(out: str | os.PathLike[str], tell: Tell = lambda event: None) -> dict[str, str]:
    """Every figure and the report once more, from the files alone; the verdicts of the parts that are intact."""
    out = Path(out)
    plot.style()
    if not is_ours(out, MADE_BY):
        raise ValueError(f"{out} was not made by `{MADE_BY}`; there is nothing to draw.")
    verdicts = {}
    for name in (name for name in EXPERIMENTS if (out / name).is_dir()):
        try:
            _, tables = read_part(out / name)
        except ValueError as error:
            tell(Event("failed", name, str(error)))
            continue
        _draw(out / name, name, tables)
        verdicts[name] = load(name).verdict(tables)
        tell(Event("drawn", name, verdicts[name]))
    write_report(out)
    return verdicts


def checked_names(names: Sequence[str], full: bool = False) -> list[str]:
    """Each once; if there are none all, the long ones only in full. An unknown one is refused with the nearest."""
    for name in names:
        checks.nearest(name, EXPERIMENTS, "experiment")
    return list(dict.fromkeys(names)) or [name for name in EXPERIMENTS if full or name not in BY_NAME]


def _is_due(out: Path, name: str, options: Options, tell: Tell) -> bool:
    if not (out / name).exists():
        return True
    now = _facts(name, options)
    try:
        facts, tables = read_part(out / name)
        fault = _difference(facts, now)
    except ValueError as error:
        tables, fault = {}, str(error)
    if fault:
        tell(Event("redone", name, fault))
        return True
    if not all((out / name / figure).is_file() for figure in FIGURES):
        _draw(out / name, name, tables)
    tell(Event("kept", name, load(name).verdict(tables)))
    return False


def _facts(name: str, options: Options) -> Row:
    versions = {each: version(each) for each in ("unibio", "jax", "numpy")} | {"python": platform.python_version()}
    more: Row = getattr(load(name), "facts", lambda options: {})(options)
    return {"experiment": name, "options": options.facts() | more, "versions": versions}


def _difference(old: Row, new: Row) -> str:
    """What makes a part another one: its options, or the version of this package; "" if nothing does."""
    was, now = ({**facts["options"], "version": facts["versions"]["unibio"]} for facts in (old, new))
    return ", ".join(
        f"made with {key} {was.get(key)}, not {now.get(key)}"
        for key in sorted({*was, *now})
        if was.get(key) != now.get(key)
    )


def _unfinished(out: Path, name: str) -> Path:
    return out / f".{name}.tmp"


def make_and_tell(out: Path, name: str, options: Options, tell: Tell) -> list[Exception]:
    """Makes a part and tells what it says and how it ends; a list with its error, empty if it succeeded."""
    try:
        verdict = make_part(out, name, options, lambda text: tell(Event("says", name, text)))
    except Exception as error:
        tell(Event("failed", name, f"{type(error).__name__}: {error}"))
        return [error]
    tell(Event("finished", name, verdict))
    return []


def make_part(out: Path, name: str, options: Options, say: Say) -> str:
    """One experiment under a temporary name, renamed when all of it is there; its verdict."""
    folder = _unfinished(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    began = time.perf_counter()
    facts = _facts(name, options)
    plot.warm_up()
    pieces = out / f".{name}.pieces"
    with quiet(), float64():
        tables = load(name).run(options._replace(folder=str(pieces)), say)
    seconds = time.perf_counter() - began
    clock = {SECONDS: tables.pop(SECONDS)} if SECONDS in tables else {}
    if _facts(name, options) != facts:
        raise ValueError(f"the files that {name} reads have changed while it ran; run it again.")
    write_part(folder, facts, tables, clock, seconds)
    say("drawing")
    _, tables = read_part(folder)
    _draw(folder, name, tables)
    summary(load(name), tables)  # a part that cannot be reported is not finished
    verdict = load(name).verdict(tables)
    old = out / f".{name}.old"
    shutil.rmtree(old, ignore_errors=True)  # of a process that was killed below
    if (out / name).exists():
        (out / name).rename(old)
    folder.rename(out / name)
    for useless in (old, pieces):
        shutil.rmtree(useless, ignore_errors=True)
    return verdict


@contextlib.contextmanager
def float64() -> Iterator[None]:
    """Everything inside is computed in float64."""
    config: Any = jax.config
    before = config.jax_enable_x64
    config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        config.update("jax_enable_x64", before)


def _draw(folder: Path, name: str, tables: Tables) -> None:
    drawn = plot.with_style(load(name).draw, tables)
    for figure in FIGURES:
        plot.save(drawn, folder / figure)


async def _in_processes(out: Path, names: list[str], options: Options, tell: Tell) -> list[Exception]:
    """Each part in a process of its own, `options.jobs` at once; the errors of those that failed. An end of this
    function, by Ctrl-C too, is theirs."""
    errors: list[Exception] = []
    free = asyncio.Semaphore(options.jobs)
    pipe = asyncio.subprocess.PIPE

    async def make(name: str) -> None:
        async with free:
            tell(Event("started", name))
            command = child(str(out), name, options._replace(jobs=1))
            process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, start_new_session=True, limit=_LONGEST_LINE
            )
            end = Event("failed", name, _DIED)
            try:
                async for line in process.stdout:  # type: ignore[union-attr]
                    kind, text = json.loads(line)
                    if kind == "says":
                        tell(Event(kind, name, text))
                    else:
                        end = Event(kind, name, text)
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
            tell(end)
            if end.kind == "failed":
                errors.append(ChildProcessError(f"{name}: {end.text}"))

    await asyncio.gather(*(make(name) for name in names))
    return errors
