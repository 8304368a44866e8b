"""Reads text files that must be UTF-8, and names the file that is not."""

from collections.abc import Iterator
from pathlib import Path


def lines(path: Path) -> Iterator[str]:
    """The lines of the file, each with its end. Raises a ValueError with path and place where it is not UTF-8."""
    number = 0
    with path.open(encoding="utf-8") as file:
        try:
            for number, line in enumerate(file, 1):  # noqa: B007 (the error needs the number)
                yield line
        except UnicodeDecodeError as error:
            what = f"byte {error.object[error.start]:#04x}, {error.reason}"
            raise ValueError(
                f"{path}, after line {number}: this is not UTF-8 text ({what}). Is it compressed?"
            ) from None
