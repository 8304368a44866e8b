"""One experiment in a process of its own, started by the command that `study.child` gives.

It tells what it does by lines of JSON on its stdout, (kind, text) as in `Event`, and ends when its stdin is closed, as
it is when its parent ends, however that dies.
"""

import json
import os
import sys
import threading
from pathlib import Path

from unibio.files.cache import set_up_jax
from unibio.paper.framework.reproduce import Event, make_and_tell
from unibio.paper.framework.study import Options, load


def main() -> None:
    """Makes a part; or, with `turn`, helps another process with the pieces of one."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is printed goes to stderr

    def tell(event: Event) -> None:
        print(json.dumps([event.kind, event.text]), file=events, flush=True)

    out, name, given = json.loads(sys.argv[1])
    options = Options(**given)
    set_up_jax()
    if options.turn:
        load(name).run(options, lambda text: None)
    else:
        make_and_tell(Path(out), name, options, tell)


def _end_with_parent() -> None:
    os.read(0, 1)  # nothing is ever sent
    os._exit(1)
