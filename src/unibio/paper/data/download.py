"""Downloads archives: resumes what was interrupted, checks what arrives and how large it is, and writes only into the
given folder."""

import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from unibio.files.atomic import write_file

_BLOCK = 1 << 20
_TIMEOUT = 60.0  # seconds without an answer
_ATTEMPTS = 100  # so often a connection may break off in one download


class Archive(NamedTuple):
    """A zip file on the web: its address, its SHA-256, the members that are wanted, and the most bytes that it may
    have."""

    url: str
    sha256: str
    members: tuple[str, ...]
    most: int = 2**28


SNLI = Archive(
    "https://nlp.stanford.edu/projects/snli/snli_1.0.zip",
    "afb3d70a5af5d8de0d9d81e2637e0fb8c22d1235c2749d83125ca43dab0dbd3e",
    tuple(f"snli_1.0/snli_1.0_{split}.jsonl" for split in ("train", "dev", "test")),
)


def fetch(
    archive: Archive, folder: str | os.PathLike[str], progress: Callable[[int, int], None] = lambda *_: None
) -> Path:
    """Puts the wanted members of an archive into `folder` and returns the folder.

    Nothing is downloaded if all members are there. An interrupted download continues where it stopped. An archive with
    another checksum is deleted.

    Arguments:
        progress: is called as progress(bytes so far, bytes in all) after every block.
    """
    folder = Path(folder)
    wanted = {member: folder / PurePosixPath(member).name for member in archive.members}
    if all(path.is_file() for path in wanted.values()):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / (PurePosixPath(archive.url).name + ".part")
    if part.is_symlink():
        raise ValueError(f"{part} is a link, and nothing is written through it: delete it and run the command again.")
    _download(archive, part, progress)
    with part.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != archive.sha256:
        part.unlink()
        raise ValueError(
            f"what {archive.url} sent has SHA-256 {digest}, not {archive.sha256}; it was thrown away. "
            f"{_otherwise(archive, folder)}"
        )
    with zipfile.ZipFile(part) as opened:  # the checksum was right, so that what it holds is known
        for member, path in wanted.items():
            with opened.open(member) as source:
                write_file(path, lambda file, source=source: shutil.copyfileobj(source, file))  # type: ignore[misc]
    part.unlink()
    return folder


def _otherwise(archive: Archive, folder: Path) -> str:
    """What to do if a download fails. `fetch` and the readers look for the files in the folder itself, while unpacking
    the archive there would make a folder in it."""
    names = ", ".join(PurePosixPath(member).name for member in archive.members)
    return (
        f"Try again later, or get the file elsewhere and put {names} directly into {folder}, not into a folder below "
        "it."
    )


def _download(archive: Archive, part: Path, progress: Callable[[int, int], None]) -> None:
    """Fetches what is missing of `part`. A connection that ends too early is taken up again as long as each attempt
    brings something."""
    advice = _otherwise(archive, part.parent)
    try:
        for attempt in range(_ATTEMPTS):
            before = part.stat().st_size if part.exists() else 0
            have, total = _attempt(archive, part, before, progress)
            if have >= total:
                return
            if have <= before or attempt == _ATTEMPTS - 1:
                raise ValueError(
                    f"{archive.url} has ended the connection after {have} of {total} bytes. Run the same command "
                    f"again, and it goes on from there. {advice}"
                )
    except urllib.error.HTTPError as error:
        why = f"{archive.url} answers {error.code} {error.reason}: the server was reached but did not send the file"
        raise ValueError(f"{why}. {advice}") from None
    except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException) as error:
        reason = str(getattr(error, "reason", error)) or type(error).__name__
        raise ValueError(f"cannot reach {archive.url} ({reason}). {advice}") from None


def _attempt(archive: Archive, part: Path, have: int, progress: Callable[[int, int], None]) -> tuple[int, int]:
    """One connection: appends to the `have` bytes in `part` what the server sends. Returns how many bytes are there
    then, and how many there will be in all as far as the server has said."""
    request = urllib.request.Request(archive.url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # there are no bytes after those that we have
            return have, have
        raise
    with answer:
        where = answer.headers.get("Content-Range") or f"bytes {have}-"
        if answer.status != 206 or not where.startswith(f"bytes {have}-"):  # it sends the whole file
            have = 0
        announced = answer.headers.get("Content-Length") or ""
        total = have + int(announced) if announced.isdecimal() else 0
        _check_size(archive, max(have, total))
        with os.fdopen(os.open(part, _WRITE | (os.O_APPEND if have else os.O_TRUNC), 0o666), "wb") as file:
            while block := _read(answer):
                have += len(block)
                _check_size(archive, have)
                file.write(block)
                progress(have, total)
    return have, total


# Never through a link: the file that it points to would be overwritten.
_WRITE = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def _read(answer: http.client.HTTPResponse) -> bytes:
    """The next block; b"" at the end, and also if the connection breaks, because what has come is worth keeping."""
    try:
        return answer.read(_BLOCK)
    except (http.client.HTTPException, ConnectionError, TimeoutError):
        return b""


def _check_size(archive: Archive, size: int) -> None:
    if size > archive.most:
        raise ValueError(
            f"{archive.url} sends more than {archive.most // 2**20} MB, which this file never had; the download was "
            "stopped. Get it elsewhere."
        )
