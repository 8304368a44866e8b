"""Traced programs kept in the user's cache folder, beside JAX's compiled ones: a second start traces nothing.

A file is the SHA-256 of what follows, then the program as `jax.export` writes it (StableHLO in a flatbuffer: data,
not code that Python runs). Its name is the digest of all that the program depends on, this package's source included.
"""

import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from unibio.run.fingerprints import jax_settings

_DIGEST = 32  # bytes of SHA-256


def folder() -> Path | None:
    """The user's cache folder for this package, made if need be; None where it cannot be written."""
    try:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unibio"
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        return None
    return path if os.access(path, os.W_OK | os.X_OK) else None


def kept(name: str, fn: Callable[..., Any], *args: Any) -> Any:
    """jit(fn) for arguments like these, traced only if no file has it; `name` tells fn from others in this package."""
    where = folder()
    if where is None:
        return jax.jit(fn)
    from jax import export

    path = where / "traced" / f"{name}-{_digest(name, args)}"
    content = _read(path)
    if content is None:
        content = bytes(export.export(jax.jit(fn))(*args).serialize())
        _write(path, content)
    # Also after tracing: both starts must compile the same program, or the second would not find it compiled.
    return jax.jit(export.deserialize(bytearray(content)).call)


def _digest(name: str, args: Any) -> str:
    shapes = jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), args)
    facts = (name, shapes, _source(), jax.__version__, version("jaxlib"), *jax_settings())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


@functools.cache
def _source() -> str:
    """The digest of every module of this package."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> bytes | None:
    """What was written, or None if it is not there or not whole; then it is made anew."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, content = content[:_DIGEST], content[_DIGEST:]
    return content if hashlib.sha256(content).digest() == digest else None


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all; a full disk only costs the next start its time."""
    try:
        path.parent.mkdir(exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
