"""Downloads archives: resumes what was interrupted, checks what arrives, and writes only into the given folder."""

import functools
import hashlib
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


class Archive(NamedTuple):
    """A zip file on the web: its address, its SHA-256, and the members that are wanted."""

    url: str
    sha256: str
    members: tuple[str, ...]


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
    _download(archive, part, progress)
    with part.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != archive.sha256:
        part.unlink()
        raise ValueError(
            f"what {archive.url} sent has SHA-256 {digest}, not {archive.sha256}; it was thrown away. "
            f"{_otherwise(archive, folder)}"
        )
    extract(part, wanted)
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
    url, advice = archive.url, _otherwise(archive, part.parent)
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            if have and answer.status != 206:  # the server ignores the range and sends the whole file
                have = 0
            total = have + int(answer.headers.get("Content-Length") or 0)
            with part.open("ab" if have else "wb") as file:
                while block := answer.read(_BLOCK):
                    file.write(block)
                    have += len(block)
                    progress(have, total)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # there are no bytes after those that we have
            return
        why = f"{url} answers {error.code} {error.reason}: the server was reached but did not send the file"
        raise ValueError(f"{why}. {advice}") from None
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise ValueError(f"cannot reach {url} ({reason}). {advice}") from None


def extract(archive: Path, wanted: dict[str, Path]) -> None:
    """Writes the wanted members of an archive, each to its path, and nothing else, whatever names the archive holds."""
    try:
        with zipfile.ZipFile(archive) as opened:
            for member, path in wanted.items():
                with opened.open(member) as source:
                    write_file(path, functools.partial(shutil.copyfileobj, source, length=_BLOCK))
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(f"{archive} is not an archive with {', '.join(wanted)} ({error}).") from None
