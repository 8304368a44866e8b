"""Tables on disk, each under the digest of all that its numbers depend on.

Tables of different work lie side by side in one folder, and one that is there is not computed again, whoever put it
there: work continues after a stop, and can be shared out.
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
        agreed: where several processes share the work they must all find a table or none; from what this process has
            read (b"" if nothing) it makes what all go by.
        writes: whether this process writes.
    """

    folder: str | os.PathLike[str] | None
    agreed: Callable[[bytes], bytes] = lambda content: content
    writes: bool = True

    def table(self, depends_on: Callable[[], Facts], make: Callable[[], Table]) -> Table:
        """The table kept for these facts, or `make()`, which is then kept. One that is damaged is made anew."""
        if self.folder is None:
            return make()
        facts = json.dumps(depends_on(), sort_keys=True, default=int).encode()
        path = Path(self.folder) / f"{hashlib.sha256(facts).hexdigest()[:32]}.table"
        content = self.agreed(path.read_bytes() if path.exists() else b"")
        try:
            if content:
                return _checked(decode(content)[1].get("table"))
        except ValueError as error:
            warnings.warn(f"{path} is made anew: {error}", RuntimeWarning, stacklevel=4)
        made = make()
        try:
            if self.writes:
                write_bytes(path, encode({}, {"table": made}))
        except OSError as error:  # what was computed is not thrown away for it
            warnings.warn(f"{path} is not kept: {error.strerror or error}.", RuntimeWarning, stacklevel=4)
        return made


def _checked(table: Table | list[np.ndarray] | None) -> Table:
    """The table of a file, if it is one."""
    if not isinstance(table, dict):
        raise ValueError("it holds no table")
    return table
