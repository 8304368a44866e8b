"""Files that are written whole or not at all, and earlier ones that are kept under another name."""

import contextlib
import datetime
import itertools
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def check_regular(path: Path) -> None:
    """Raises an OSError if there is something else than a file: a rename would replace a device such as /dev/null, and
    reading a pipe would wait for ever."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is no regular file, so nothing is written there.")


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Calls `write` with a new file and gives it the name `path` when it is complete and flushed to disk. If anything
    fails, what was at `path` before stays as it was."""
    check_regular(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file with this content, as `write_file` does: all of it or nothing."""
    write_file(path, lambda file: file.write(content))


def dated(path: Path) -> Path:
    """The path with the date and time behind its name; where that name is taken, with a number behind it."""
    now = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
    names = (f"{path.name}.{now}" + (f"-{number}" if number > 1 else "") for number in itertools.count(1))
    return next(other for other in map(path.with_name, names) if not os.path.lexists(other))


def set_aside(path: Path) -> Path:
    """Gives a file or folder its dated name, and returns that. Nothing else is replaced."""
    return path.rename(dated(path))


def discard(folder: Path, ours: re.Pattern[str]) -> None:
    """Deletes the files in a folder whose whole names are `ours`, and the folder if it is empty then. Everything else
    stays, and so does a link to a folder."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.iterdir():
        if ours.fullmatch(path.name) and not path.is_dir():
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # somebody else's files are in it
        folder.rmdir()
