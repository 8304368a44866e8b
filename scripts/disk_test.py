"""Runs that write checkpoints where something is wrong with the disk, and a table of what came out.

    python scripts/disk_test.py [--markdown] [--only TEXT]

Each line is a run of 60 steps with a checkpoint every 5 steps and a log, in a process of its own, on: a full disk (a
tmpfs of 64 KB that somebody else has filled), a disk that fills up and is emptied again, a limit on the size of a file
(RLIMIT_FSIZE), a folder that cannot be written, one that becomes unwritable during the run, a folder with files of
somebody else's, one with damaged or forged checkpoints, and one with a link in the place of a file. In each case the
result must have the bits of an undisturbed run, or the run must end at once with an error that names the folder; files
of somebody else's must be as they were; and the same call, once the disk is in order, must end with these bits, too.
Those that need a disk of their own or another user are left out, by name, where the system does not allow it. The exit
code is 1 if a case went wrong.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

RUN = """
import json, os, resource, signal, sys, warnings
import jax
jax.config.update("jax_enable_x64", True)
import unibio as ub

folder, log, before, during = sys.argv[1:5]
exec(before)


def meanwhile(row):
    if row["step"] == 20 and during:
        exec(during)


noise = ub.Noise(grad_y_g=0.1, grad_z_f=0.1)
problem = ub.problems.example3(4.0, noise, noise)
solver = ub.UniBiO(0.03, hypergradient=ub.Neumann(terms=2, scale=1.0))
told = {}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        done = ub.solve(problem, solver, 1.0, 1.0, steps=60, key=jax.random.key(3), chunk=5,
                        checkpoint=ub.Checkpoints(folder, every=5, keep=2),
                        callbacks=[ub.logs.JSONLines(log), meanwhile])
        told = {"x": float(done.x).hex(), "status": str(done.status), "message": done.message, "steps": done.steps}
    except (OSError, ValueError) as error:
        told = {"error": f"{type(error).__name__}: {error}"}
print(json.dumps(told | {"warnings": [str(each.message) for each in caught]}))
"""


class Case(NamedTuple):
    """What is wrong: Python code that runs in the process before the run and at its 20th step, shell code around it,
    and what must come out: "same bits", "an error" or either."""

    name: str
    expected: str
    prepare: Callable[[Path], None] = lambda folder: None
    before: str = ""
    during: str = ""
    mount: str = ""
    user: bool = False
    again: bool = True  # whether the same call is made once more without what was wrong


def with_run(folder: Path) -> None:
    """An earlier run of 30 steps in the folder."""
    start(RUN.replace("steps=60", "steps=30"), folder, "", "")


def with_others(folder: Path) -> None:
    """Somebody else's files, with names like ours and without."""
    with_run(folder)
    for name in ("step-000000000030-backup.checkpoint", "history-notes.log", "notes.txt", ".step-mine", "step-1.state"):
        (folder / name).write_text(f"mine: {name}")


def with_damage(folder: Path) -> None:
    """The newest checkpoint is cut off."""
    with_run(folder)
    newest = max(folder.glob("step-*.checkpoint"))
    newest.write_bytes(newest.read_bytes()[:-20])


def with_forgery(folder: Path) -> None:
    """The newest checkpoint says something else of its run, with the right checksum."""
    from unibio.files.archive import decode, encode

    with_run(folder)
    newest = max(folder.glob("step-*.checkpoint"))
    facts, arrays = decode(newest.read_bytes())
    facts["steps"], facts["calls"] = "thirty", None
    newest.write_bytes(encode(facts, arrays))


def with_folder_as_checkpoint(folder: Path) -> None:
    """A folder has the name of a newer checkpoint."""
    with_run(folder)
    (folder / "step-000000000035.checkpoint").mkdir()


def with_a_file_instead(folder: Path) -> None:
    """There is a file of the folder's name."""
    shutil.rmtree(folder)
    folder.touch()


def with_link(folder: Path) -> None:
    """The name of the history is a link to a file of somebody else's."""
    folder.mkdir(exist_ok=True)
    (folder.parent / "precious").write_text("mine: precious")
    (folder / "history-0.log").symlink_to(folder.parent / "precious")


def with_a_log_of_others(folder: Path) -> None:
    """The log is a file of somebody else's."""
    with_run(folder)
    with (folder.parent / "log.jsonl").open("a") as file:
        file.write('5\nnull\n"a"\nmine\n')


TMPFS = "mount -t tmpfs -o size=64k none {folder}"
FILL = "open(os.path.join(folder, 'other'), 'wb').write(bytes({size}))"
FULL = f"""
try:
    {FILL.format(size=10**6)}
except OSError:
    pass
"""
NO_SIGNAL = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
LIMIT = NO_SIGNAL + "resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))"
NOTHING_MORE = "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY)); "
CASES = [
    Case("nothing", "same bits"),
    Case("a full disk", "same bits", before=FULL, mount=TMPFS, again=False),
    Case("a disk with 16 KB left", "same bits", before=FILL.format(size=49152), mount=TMPFS, again=False),
    Case("a disk that fills up at step 20", "same bits", during=FULL, mount=TMPFS, again=False),
    Case("a disk that is emptied at step 20", "same bits", before=FULL, mount=TMPFS, again=False,
         during="os.unlink(os.path.join(folder, 'other'))"),
    Case("files of at most 1 KB (RLIMIT_FSIZE)", "same bits", before=LIMIT.format(1024)),
    Case("files of at most 4 KB (RLIMIT_FSIZE)", "same bits", before=LIMIT.format(4096)),
    Case("SIGTERM while no file can be written", "same bits", before=NO_SIGNAL,
         during=NOTHING_MORE + "os.kill(os.getpid(), signal.SIGTERM)"),
    Case("a folder that may only be read", "an error", prepare=with_run, user=True),
    Case("a folder that becomes read-only at step 20", "same bits", user=True, during="os.chmod(folder, 0o555)"),
    Case("a file in the place of the folder", "an error", again=False,
         prepare=with_a_file_instead),
    Case("files of somebody else's", "same bits", prepare=with_others),
    Case("a damaged checkpoint", "same bits", prepare=with_damage),
    Case("a forged checkpoint", "same bits", prepare=with_forgery),
    Case("a folder named like a checkpoint", "same bits", prepare=with_folder_as_checkpoint),
    Case("a link in the place of the history", "same bits", prepare=with_link),
    Case("a log with lines of somebody else's", "same bits", prepare=with_a_log_of_others),
]  # fmt: skip


def start(code: str, folder: Path, before: str, during: str, mount: str = "", user: bool = False) -> dict[str, object]:
    """Runs the code in a process of its own; what it printed, as an object, or {"skipped": why}."""
    log = folder.parent / "log.jsonl"
    command = [sys.executable, "-c", code, str(folder), str(log), before, during]
    if mount:
        if not allowed(["unshare", "--user", "--map-root-user", "--mount", "true"]):
            return {"skipped": "no disk may be mounted here"}
        shell = f'{mount.format(folder=folder)} && exec "$@"'
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", shell, "sh", *command]
    if user and os.geteuid() == 0:
        drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        if not allowed([*drop, "true"]):
            return {"skipped": "root may write everywhere, and cannot become another user here"}
        command = [*drop, *command]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {"crashed": done.stderr[-3000:]}
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def allowed(command: list[str]) -> bool:
    """Whether such a command works on this system."""
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def tried(case: Case, wanted: str) -> tuple[str, str]:
    """What came out of a case in words, and what was wrong with that, "" if nothing."""
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        base.chmod(0o777)
        folder = base / "run"
        folder.mkdir()
        case.prepare(folder)
        if case.user and os.geteuid() == 0:
            for path in (base, *base.rglob("*")):
                os.chown(path, 65534, 65534)
            folder.chmod(0o777 if case.during else 0o555)
        mine = {path: path.read_bytes() for path in base.rglob("*") if _is_mine(path)}
        found = start(RUN, folder, case.before, case.during, case.mount, case.user)
        if "skipped" in found:
            return f"not tried: {found['skipped']}", ""
        if "crashed" in found:
            return "a crash", str(found["crashed"])
        wrong = "" if _fits(case, found, wanted) else f"expected {case.expected}: {found}"
        if any(not path.is_file() or path.read_bytes() != content for path, content in mine.items()):
            wrong += "; files of somebody else's have changed"
        if case.again:
            folder.chmod(0o777)
            again = start(RUN, folder, "", "", user=case.user)
            if again.get("x") != wanted:
                wrong += f"; the same call afterwards gave {again}"
        return _words(found), wrong


def _is_mine(path: Path) -> bool:
    """Whether it is a file of somebody else's, and no link to one: a link is replaced, the file is not."""
    return path.is_file() and not path.is_symlink() and path.read_bytes()[:5] == b"mine:"


def _fits(case: Case, found: dict[str, object], wanted: str) -> bool:
    if case.expected == "an error":
        return "cannot be written into" in str(found.get("error"))
    interrupted = found.get("status") == "interrupted" and "no checkpoint could be written" in str(found.get("message"))
    return interrupted or found.get("x") == wanted


def _words(found: dict[str, object]) -> str:
    if "error" in found:
        return f"ended at once: {str(found['error']).split(' into ')[0]} …"
    number = len(found["warnings"])  # type: ignore[arg-type]
    told = "no warning" if not number else "one warning" if number == 1 else f"{number} warnings"
    if found["status"] == "interrupted":
        return f"interrupted, and says from where the same call goes on; {told}"
    return f"the same bits as undisturbed; {told}"


def main() -> int:
    """Tries every case and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--markdown", action="store_true", help="print the table for a page")
    parser.add_argument("--only", default="", metavar="TEXT", help="the cases with this text in their names")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "run").mkdir()
        wanted = str(start(RUN, Path(name) / "run", "", "")["x"])
    failed = 0
    for case in [case for case in CASES if chosen.only in case.name]:
        outcome, wrong = tried(case, wanted)
        failed += bool(wrong)
        print(f"| {case.name} | {outcome} |" if chosen.markdown else f"{case.name}: {outcome}", flush=True)
        if wrong:
            print(f"WRONG ({case.name}): {wrong}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
