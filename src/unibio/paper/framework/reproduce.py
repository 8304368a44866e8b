"""Runs experiments and writes their tables, figures and one report into a folder. After an interruption the same call
continues with the experiments that are not finished.

A part is the folder of one experiment. In the folder OUT that the user chooses there are:

- OUT/unibio.json, which marks the folder as one of `unibio reproduce`, and OUT/index.html, the report;
- OUT/NAME/*.csv, the tables of the experiment NAME, the same bytes for the same seeds;
- OUT/NAME/result.json, the options, the versions of the packages, and the SHA-256 of every table;
- OUT/NAME/seconds.json (and seconds.csv), how long it took;
- OUT/NAME/figure.svg, .pdf and .png, and figure-narrow.svg for a phone, drawn from the files above.
"""

import asyncio
import contextlib
import functools
import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax

from unibio.core import checks
from unibio.files import figures
from unibio.files.atomic import discard, set_aside
from unibio.files.folders import is_ours, mark_ours
from unibio.files.store import OURS
from unibio.files.tables import Row, Tables
from unibio.paper.framework.parts import FIGURES, NARROW, read_part, write_part, written
from unibio.paper.framework.report import read_study, using, write_report
from unibio.paper.framework.study import BY_NAME, EXPERIMENTS, SECONDS, Options, Progress, child, load, summary
from unibio.run.progress import quiet

MADE_BY = "unibio reproduce"
_PART = re.compile(  # the names of files in a part, also of those whose writing was killed
    r"[A-Za-z0-9_-]+\.csv|(result|seconds)\.json|figure(-narrow)?\.(svg|pdf|png)|\.[^.]+\.[a-z]+\.[a-z0-9_]{8}"
)
_LONGEST_LINE = 2**24  # in bytes, of a child process's events: an error message of XLA may hold a whole program
_DIED = "its process died, perhaps for lack of memory; run it again with --jobs 1."
# Rough seconds of each part on two cores. The longest start first, so that none of them runs alone at the end.
COSTS = {
    "hypercleaning": 280, "lp-cleaning": 130, "comparison-tuned": 50, "noise-placement": 30, "epoch-sgd": 23,
    "complexity": 12, "rates": 10, "unknown-p": 8, "noise": 8, "one-step-size": 8, "comparison": 7, "schedules": 1,
}  # fmt: skip


class Event(NamedTuple):
    """What has happened to a part. Kinds, each with what `text` holds:

    unchanged (the verdict: it was finished before and is not run again), redone (why the old result cannot be used),
    started, progress (what it does now), kept (the name that an earlier result has now), finished (the verdict), failed
    (the error), drawn (the verdict).
    """

    kind: str
    name: str  # of the experiment
    text: str = ""


Listener = Callable[[Event], None]


def reproduce(
    names: Sequence[str],
    out: str | os.PathLike[str],
    options: Options = Options(),
    jobs: int = 1,
    on_event: Listener = lambda event: None,
) -> dict[str, str]:
    """Runs experiments in float64 and writes the folder of each (its part) and the report. Returns their verdicts, the
    sentences that answer their questions, by name.

    An experiment is not run again if its part is complete, was made with the same options and the same version of
    unibio, and none of its files was changed. After an interruption the finished parts are there, with a report of
    them. If one fails the others still run; then its error is raised.

    Arguments:
        names: the experiments; without any, all of them (the long ones only with `options.full`).
        out: a new or empty folder, or one of an earlier call.
        jobs: how many experiments run at once. With 1 they run in this process; with more, each in a process of its
            own, which does not work where an event loop is running, as in a notebook.
        on_event: is called with every `Event`.
    """
    chosen = checked_names(names, options.full)
    if options.settings and chosen != ["hypercleaning"]:
        raise ValueError("--set is for hypercleaning alone: unibio reproduce hypercleaning --set hidden=64")
    checks.whole_number("jobs", jobs, low=1)
    checks.whole_number("seeds", options.seeds, low=1)
    checks.whole_number("seed", options.seed, low=0)
    # Some experiments use the seeds after this one, too, and a seed must fit into 32 bits.
    checks.number("seed", options.seed, high=2**31)
    checks.number("seeds", options.seeds, high=2**20, remedy="No memory holds more.")
    figures.style()  # raises if matplotlib is missing, before hours of work
    out = Path(out)
    mark_ours(out, MADE_BY)
    due = [name for name in chosen if _is_due(out, name, options, on_event)]
    due.sort(key=lambda name: -COSTS.get(name, 0))
    options = options._replace(jobs=jobs)
    errors: list[Exception] = []
    try:
        if min(jobs, len(due)) > 1:
            errors += asyncio.run(_in_processes(out, due, options, on_event))
        else:
            for name in due:
                on_event(Event("started", name))
                errors += make_and_notify(out, name, options, on_event)
    finally:
        for name in due:
            discard(out / f".{name}.tmp", _PART)
        write_report(out)
    if errors:
        raise errors[0]
    return {name: read_study(out / name)[2] for name in chosen}


def replot(out: str | os.PathLike[str], on_event: Listener = lambda event: None) -> dict[str, str]:
    """Draws every figure and writes the report again from the tables in the folder, without running anything. Returns
    the verdicts of the parts whose files are complete and unchanged."""
    out = Path(out)
    figures.style()
    if not is_ours(out, MADE_BY):
        raise ValueError(f"{out} was not made by `{MADE_BY}`; there is nothing to draw.")
    verdicts = {}
    for name in (name for name in EXPERIMENTS if (out / name).is_dir()):
        try:
            _, tables, verdict = read_study(out / name)
            _draw(out / name, name, tables)
        except ValueError as error:
            on_event(Event("failed", name, str(error)))
            continue
        verdicts[name] = verdict
        on_event(Event("drawn", name, verdict))
    write_report(out)
    return verdicts


def checked_names(names: Sequence[str], full: bool = False) -> list[str]:
    """The names, each once; if there are none, all experiments, the long ones only with `full`. Raises for an unknown
    name and proposes the nearest."""
    for name in names:
        checks.nearest(name, EXPERIMENTS, "experiment")
    return list(dict.fromkeys(names)) or [name for name in EXPERIMENTS if full or name not in BY_NAME]


def _is_due(out: Path, name: str, options: Options, on_event: Listener) -> bool:
    """Whether the experiment must run. If it need not, a figure that is missing is drawn."""
    if not (out / name).exists():
        return True
    now = _facts(name, options)
    try:
        facts, tables, verdict = read_study(out / name)
        fault = _difference(facts, now)
        if not fault and not all((out / name / figure).is_file() for figure in (*FIGURES, NARROW)):
            _draw(out / name, name, tables)
    except ValueError as error:
        verdict, fault = "", str(error)
    if fault:
        on_event(Event("redone", name, fault))
        return True
    on_event(Event("unchanged", name, verdict))
    return False


def _facts(name: str, options: Options) -> Row:
    versions = {each: version(each) for each in ("unibio", "jax", "numpy")} | {"python": platform.python_version()}
    more: Row = getattr(load(name), "facts", lambda options: {})(options)
    return {"experiment": name, "options": options.facts() | more, "versions": versions}


def _difference(old: Row, new: Row) -> str:
    """In which options, or in which version of unibio, two results differ; "" if they agree."""
    was, now = ({**facts["options"], "version": facts["versions"]["unibio"]} for facts in (old, new))
    return ", ".join(
        f"made with {key} {was.get(key)}, not {now.get(key)}"
        for key in sorted({*was, *now})
        if was.get(key) != now.get(key)
    )


def make_and_notify(out: Path, name: str, options: Options, on_event: Listener) -> list[Exception]:
    """Calls `make_part` and reports its progress and its end as events. Returns a list with the error, if it failed;
    else an empty list."""
    try:
        verdict = make_part(
            out, name, options, lambda text: on_event(Event("progress", name, text)),
            lambda earlier: on_event(Event("kept", name, earlier)),
        )  # fmt: skip
    except Exception as error:
        on_event(Event("failed", name, f"{type(error).__name__}: {error}"))
        return [error]
    on_event(Event("finished", name, verdict))
    return []


def make_part(out: Path, name: str, options: Options, progress: Progress, kept: Progress = lambda earlier: None) -> str:
    """Runs one experiment, writes its part under a temporary name, renames that when it is complete; returns the
    verdict. `kept` is told the name that an earlier result has now."""
    folder, pieces = out / f".{name}.tmp", out / f".{name}.pieces"  # the part as it grows; finished pieces of its work
    discard(folder, _PART)
    if os.path.lexists(folder):  # somebody else has files under this name
        set_aside(folder)
    folder.mkdir()
    began = time.perf_counter()
    facts = _facts(name, options)
    figures.warm_up()
    with quiet(), float64():
        tables = load(name).run(options._replace(folder=str(pieces)), progress)
    seconds = time.perf_counter() - began
    clock = {SECONDS: tables.pop(SECONDS)} if SECONDS in tables else {}
    if _facts(name, options) != facts:
        raise ValueError(f"the files that {name} reads have changed while it ran; run it again.")
    write_part(folder, facts, tables, clock, seconds)
    progress("drawing")
    _, tables = read_part(folder)
    _draw(folder, name, tables)
    summary(load(name), tables)  # an error in it is raised now, before the part counts as finished
    verdict = load(name).verdict(tables)
    earlier = set_aside(out / name) if os.path.lexists(out / name) else None
    folder.rename(out / name)
    if earlier is not None:
        bring_others_back(earlier, out / name)
        kept(earlier.name)
    discard(pieces, OURS)
    return verdict


def bring_others_back(earlier: Path, place: Path) -> None:
    """Moves files that are none of ours from the folder of an earlier result, which has a new name now, back to where
    they were."""
    if earlier.is_symlink() or not earlier.is_dir():
        return
    taken = {path.name for path in place.iterdir()} | written(earlier)
    for path in earlier.iterdir():
        if path.name not in taken:
            path.rename(place / path.name)
    with contextlib.suppress(OSError):  # it is kept unless nothing was in it
        earlier.rmdir()


@contextlib.contextmanager
def float64() -> Iterator[None]:
    """A context in which JAX computes in float64."""
    config: Any = jax.config
    before = config.jax_enable_x64
    config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        config.update("jax_enable_x64", before)


def _draw(folder: Path, name: str, tables: Tables) -> None:
    drawn = using(name, functools.partial(figures.with_style, load(name).draw), tables)
    for figure in FIGURES:
        figures.save(drawn, folder / figure)
    figures.save(figures.with_style(load(name).draw, tables, narrow=True), folder / NARROW)


async def _in_processes(out: Path, names: list[str], options: Options, on_event: Listener) -> list[Exception]:
    """Makes each part in a process of its own, `options.jobs` of them at once, and returns the errors of those that
    failed. If this function is interrupted, by Ctrl-C for example, it kills the processes."""
    errors: list[Exception] = []
    free = asyncio.Semaphore(options.jobs)
    pipe = asyncio.subprocess.PIPE

    async def make(name: str) -> None:
        async with free:
            on_event(Event("started", name))
            command = child(str(out), name, options._replace(jobs=1))
            process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, start_new_session=True, limit=_LONGEST_LINE
            )
            end = Event("failed", name, _DIED)
            try:
                async for line in process.stdout:  # type: ignore[union-attr]
                    kind, text = json.loads(line)
                    if kind in ("progress", "kept"):
                        on_event(Event(kind, name, text))
                    else:
                        end = Event(kind, name, text)
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
            on_event(end)
            if end.kind == "failed":
                errors.append(ChildProcessError(f"{name}: {end.text}"))

    await asyncio.gather(*(make(name) for name in names))
    return errors
