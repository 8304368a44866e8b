"""The command-line part of `fuzz.py`. Most cases run inside a few worker processes, some in processes of their own.

Each case has a folder with a home, a working folder and a folder of somebody else's files. Nothing may change in it but
the paths that the command line names as its output.
"""

import contextlib
import hashlib
import io
import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import fuzz_lines
import numpy as np
from fuzz_judge import RAW, WAITING, WORKERS, Outcome, watched

OWN_PROCESS = 0.06  # the share of cases in a process of its own
MORE_RAW = ("NoneType", "KeyError", "IndexError", "MemoryError", "argument must be", "RecursionError")


def try_cases(cases: int, seed: int) -> Iterator[list[Outcome]]:
    """The outcomes of the cases, one by one."""
    if not cases:
        return
    with tempfile.TemporaryDirectory() as name:
        base = pathlib.Path(name)
        environment(base)
        template = base / "template"
        command = [sys.executable, "-m", "unibio.cli", "reproduce", "schedules", "--out", str(template)]
        subprocess.run(command, check=True, capture_output=True)  # copies of this folder are damaged
        found: queue.Queue[Outcome | None] = queue.Queue()
        for first in range(WORKERS):
            numbers = list(range(first, cases, WORKERS))
            threading.Thread(target=watch, args=(base, numbers, seed, found), daemon=True).start()
        ended = 0
        while ended < WORKERS:
            outcome = found.get()
            ended += outcome is None
            if outcome is not None:
                yield [outcome]


def environment(base: pathlib.Path) -> None:
    """Gives this process and those it starts a cache folder of their own, and no way to the internet."""
    os.environ |= {
        "XDG_CACHE_HOME": str(base / "cache"), "MPLCONFIGDIR": str(base / "cache"), "HOME": str(base / "nobody"),
        "https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "COLUMNS": "100",
    }  # fmt: skip
    os.environ.pop("UNIBIO_DATA_DIR", None)
    (base / "cache").mkdir(exist_ok=True)


def watch(base: pathlib.Path, numbers: list[int], seed: int, found: Any) -> None:
    """Starts a worker for these cases. A case at which it hangs or dies is a finding; a new worker does those after
    it."""
    while numbers:
        command = [sys.executable, __file__, str(base), str(seed), ",".join(map(str, numbers))]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert worker.stdout is not None
        assert worker.stderr is not None
        while numbers:
            timer = threading.Timer(WAITING + 60, worker.kill)
            timer.start()
            line = worker.stdout.readline()
            timer.cancel()
            number = numbers.pop(0)
            if not line:
                argv = (base / f"case{number}" / "argv").read_text()
                found.put(("finding", f"case {number}: hangs or dies: {argv}\n{worker.stderr.read()[-3000:]}"))
                break
            found.put(tuple(json.loads(line)))
        worker.kill()
        worker.communicate()
    found.put(None)


def work(base: pathlib.Path, seed: int, numbers: list[int]) -> None:
    """What a worker does: tries each case and prints a line of JSON with its outcome and finding."""
    for number in numbers:
        folder = base / f"case{number}"
        rng = np.random.default_rng((seed, number))
        for name in ("home", "cwd", "tmp", "foreign"):
            (folder / name).mkdir(parents=True)
        (folder / "foreign" / "precious.txt").write_text("somebody's work")
        (folder / "cwd" / "notes.txt").write_text("more of it")
        shutil.copytree(base / "template", folder / "out")
        case = fuzz_lines.case(rng, folder)
        (folder / "argv").write_text(str(case.argv))  # is read if this process dies
        before, kept = contents(folder, case.outputs), {path: path.read_bytes() for path in case.keep}
        call = in_own_process if rng.random() < OWN_PROCESS else in_this_process
        code, output, crash = call(case.argv, folder)
        wrong = verdict(code, output, crash)
        wrong += "; nonsense is accepted" if case.refuse and code == 0 else ""
        lost = [str(path) for path, content in kept.items() if not path.is_file() or path.read_bytes() != content]
        wrong += f"; the user's files are lost: {lost}" if lost else ""
        changed = sorted(str(path) for path in changes(before, contents(folder, case.outputs)))
        wrong += f"; touched {', '.join(changed)}" if changed else ""
        finding = f"case {number}: {case.argv} {case.damage}\n{wrong}\n{output[-1500:]}\n{crash}" if wrong else ""
        print(json.dumps([(finding and "finding") or f"exit {code}", finding]), file=sys.__stdout__, flush=True)
        shutil.rmtree(folder)


def verdict(code: Any, output: str, crash: str) -> str:
    """What is wrong with how a command ended, or ""."""
    if crash or "Traceback" in output:
        return "a traceback"
    if code not in (0, 2):
        return f"exit code {code}"
    last = output.strip().splitlines()[-1:] if code else []
    raw = [text for text in RAW + MORE_RAW for line in last if text in line and line.startswith("unibio:")]
    return f"a message of Python's own: {raw}" if raw else ""


def in_this_process(argv: list[str], folder: pathlib.Path) -> tuple[Any, str, str]:
    """Runs the command line in this process. Returns its exit code, what it printed, and the traceback of an error
    that it did not catch."""
    from unibio.cli import main

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
    os.environ["HOME"], tempfile.tempdir = str(folder / "home"), str(folder / "tmp")
    os.chdir(folder / "cwd")
    before, sys.argv = sys.argv, ["unibio", *argv]
    code: int | str = 0
    crash = ""
    try:
        with watched(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = end.code if end.code is not None else 0
    except BaseException:
        import traceback

        crash = traceback.format_exc(limit=-6)
    finally:
        sys.argv = before
        os.chdir("/")
    printed = b"".join(stream.buffer.getvalue() for stream in (out, err))
    return code, printed.decode(errors="replace"), crash


def in_own_process(argv: list[str], folder: pathlib.Path) -> tuple[Any, str, str]:
    """The same in a process of its own, as a user runs it."""
    paths = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")}
    command = [sys.executable, "-m", "unibio.cli", *argv]
    done = subprocess.run(command, cwd=folder / "cwd", env=os.environ | paths, capture_output=True, timeout=WAITING)
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace"), ""


def contents(folder: pathlib.Path, outputs: list[pathlib.Path]) -> dict[pathlib.Path, str]:
    """Every file and folder outside of the outputs, with the digest of its content."""
    found = {}
    for path in folder.rglob("*"):
        if any(path == output or output in path.parents for output in outputs):
            continue
        plain = path.is_file() and not path.is_symlink()
        found[path] = hashlib.sha256(path.read_bytes()).hexdigest() if plain else "folder"
    return found


def changes(before: dict[pathlib.Path, str], after: dict[pathlib.Path, str]) -> set[pathlib.Path]:
    """The paths that were made, deleted or changed."""
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


if __name__ == "__main__":
    work(pathlib.Path(sys.argv[1]), int(sys.argv[2]), [int(number) for number in sys.argv[3].split(",")])
