"""Files that are written whole or not at all, and earlier ones that are kept under another name."""

import datetime
import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """`write(file)` to a temporary name in the same folder, flushed to disk and then renamed: all of it or nothing."""
    if path.exists() and not path.is_file():  # a rename would replace a device such as /dev/null
        raise OSError(f"{path} is no regular file, so nothing is written there.")
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
    """All of these bytes, or nothing."""
    write_file(path, lambda file: file.write(content))


def set_aside(path: Path) -> Path:
    """Gives a file or folder a new name, its own with the date and time, and returns that. Nothing else is replaced:
    where the name is taken, a number is added."""
    now = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
    for number in itertools.count(1):
        other = path.with_name(f"{path.name}.{now}" + (f"-{number}" if number > 1 else ""))
        if not os.path.lexists(other):
            return path.rename(other)
    raise AssertionError("numbers do not end")
