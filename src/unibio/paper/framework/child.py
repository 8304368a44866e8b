"""Runs one experiment in a process of its own. `study.child` gives the command that starts it.

The process writes a line of JSON to its stdout for each event: the kind and the text of an `Event`. It ends when its
stdin is closed. The operating system closes it when the parent ends, also if the parent is killed.
"""

import json
import os
import sys
import threading
from pathlib import Path

from unibio.files.cache import set_up_jax
from unibio.paper.framework.reproduce import Event, make_and_notify
from unibio.paper.framework.study import Options, load


def main() -> None:
    """Runs the experiment and writes its folder. With `turn` above 0 only computes pieces for the parent."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # everything else that is printed goes to stderr

    def send(event: Event) -> None:
        print(json.dumps([event.kind, event.text]), file=events, flush=True)

    out, name, given = json.loads(sys.argv[1])
    options = Options(**given)
    set_up_jax()
    if options.turn:
        load(name).run(options, lambda text: None)
    else:
        make_and_notify(Path(out), name, options, send)


def _end_with_parent() -> None:
    os.read(0, 1)  # the parent never writes: this returns when stdin is closed
    os._exit(1)
