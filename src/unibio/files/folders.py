"""Folders that a command may write to: its own, or empty ones."""

from pathlib import Path

from unibio.files.tables import read_json, write_json

_FORMAT = 1  # of the files in it; a folder of another format is not touched
_MARKER = "unibio.json"


def is_ours(folder: Path, made_by: str) -> bool:
    """Whether `mark_as_ours` has marked the folder as ours."""
    try:
        return read_json(folder / _MARKER) == {"made_by": made_by, "format": _FORMAT}
    except ValueError:
        return False


def mark_as_ours(folder: Path, made_by: str) -> None:
    """Makes the folder and marks it; one that holds anything else is refused before a byte is written."""
    try:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file; choose a folder.")
        if folder.is_dir() and any(folder.iterdir()) and not is_ours(folder, made_by):
            raise ValueError(
                f"{folder} holds files that `{made_by}` (format {_FORMAT}) did not write, so nothing was written "
                "there: choose a new or empty folder."
            )
        write_json(folder / _MARKER, {"made_by": made_by, "format": _FORMAT})
    except OSError as error:
        raise OSError(f"cannot write into {folder}: {error.strerror or error}.") from None
