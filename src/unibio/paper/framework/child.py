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
from unibio.paper.framework.reproduce import described, float64, make_part
from unibio.paper.framework.study import Options, load
from unibio.run.progress import quiet


def main() -> None:
    """Makes a part; or, with `turn`, helps another process with the pieces of one."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is printed goes to stderr

    def tell(kind: str, text: str) -> None:
        print(json.dumps([kind, text]), file=events, flush=True)

    out, name, given = json.loads(sys.argv[1])
    options = Options(**given)._replace(settings=tuple((key, text) for key, text in given["settings"]))
    set_up_jax()
    if options.turn:
        with quiet(), float64():
            load(name).run(options, lambda text: None)
        return
    try:
        verdict = make_part(Path(out), name, options, lambda text: tell("says", text))
    except Exception as error:
        tell("failed", described(error))
    else:
        tell("finished", verdict)


def _end_with_parent() -> None:
    os.read(0, 1)  # nothing is ever sent
    os._exit(1)
