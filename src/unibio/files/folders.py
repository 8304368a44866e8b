"""Protects the user's files: a command writes only into a folder that is new, empty, or marked as its own."""

from pathlib import Path

from unibio.files.tables import read_json, write_json

_FORMAT = 1  # of the files in such a folder; one with another format is refused
_MARKER = "unibio.json"


def is_ours(folder: Path, made_by: str) -> bool:
    """Whether the folder has the mark that `mark_ours` writes for this command."""
    try:
        return read_json(folder / _MARKER) == {"made_by": made_by, "format": _FORMAT}
    except ValueError:
        return False


def mark_ours(folder: Path, made_by: str) -> None:
    """Makes the folder, if it is not there, and marks it by a file unibio.json as made by the command `made_by`.

    Raises before anything is written if the folder holds files and no such mark.
    """
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
