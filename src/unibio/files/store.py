"""Computed tables on disk. The name of a file is a digest of all that the numbers in its table depend on.

Tables of different work lie side by side in one folder. A table that is there is not computed again, whichever process
put it there: so work continues after an interruption, and several processes can share it.
"""

import dataclasses
import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from unibio.files.archive import Facts, decode, encode
from unibio.files.atomic import write_bytes

Table = dict[str, np.ndarray]
OURS = re.compile(r"\.?[0-9a-f]{32}\.table(\..*)?")  # the names of files that a store writes


@dataclasses.dataclass(frozen=True)
class Store:
    """Keeps tables in a folder by what they depend on; without a folder it keeps nothing.

    Arguments:
        agreed: for several processes that compute a table together, and must all find it or all compute it. Gets the
            content of the file as this process has read it (b"" if there is none), and returns the content that all
            of them use.
        writes: whether this process stores what was computed.
    """

    folder: str | os.PathLike[str] | None
    agreed: Callable[[bytes], bytes] = lambda content: content
    writes: bool = True

    def table(self, depends_on: Callable[[], Facts], make: Callable[[], Table]) -> Table:
        """The table that was stored for what `depends_on()` returns. If there is none, or if the file is damaged, the
        result of `make()`, which is then stored."""
        if self.folder is None:
            return make()
        facts = json.dumps(depends_on(), sort_keys=True, default=int).encode()
        path = Path(self.folder) / f"{hashlib.sha256(facts).hexdigest()[:32]}.table"
        content = self.agreed(path.read_bytes() if path.exists() else b"")
        try:
            if content:
                table: Table | None = decode(content)[1].get("table")
                if isinstance(table, dict):
                    return table
                raise ValueError("it holds no table")
        except ValueError as error:
            warnings.warn(f"{path} is made anew: {error}", RuntimeWarning, stacklevel=4)
        made = make()
        try:
            if self.writes:
                write_bytes(path, encode({}, {"table": made}))
        except OSError as error:  # what was computed is not thrown away for it
            warnings.warn(f"{path} is not kept: {error.strerror or error}.", RuntimeWarning, stacklevel=4)
        return made
