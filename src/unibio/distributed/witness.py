"""A word on stderr when this process of a run with several ends before the run does.

Where a process of a run is gone, the JAX runtime ends the others: at once if it was the one that coordinates, else when
its heartbeats have been missing for a while. It does so from a thread of its own by abort, after which no Python code
of that process runs. Hence a second, tiny process that does nothing but wait for the end of this one.
"""

import atexit
import os
import subprocess
import sys
import time
from types import TracebackType

import jax

_WAIT = "import sys\nsys.stdin.buffer.read() or print(sys.argv[1], file=sys.stderr)"
_BYE = b"bye"
_LEADER_STAYS = 2.0  # seconds


def watch() -> None:
    """From here on, an end of this process that is not the end of the run is told, and an error in one process ends all
    of them."""
    process, processes = jax.process_index(), jax.process_count()
    message = (
        f"unibio: process {process} of {processes} ended before the run did: it failed or was killed, or another one "
        "was. Start all of them again; with checkpoint=… the run goes on from the last checkpoint, also with another "
        "number of processes."
    )
    witness = subprocess.Popen(
        [sys.executable, "-S", "-c", _WAIT, message],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is not meant for it
    )
    atexit.register(_leave, witness)
    sys.excepthook = _fail


def _leave(witness: "subprocess.Popen[bytes]") -> None:
    """The regular end: all processes wait for each other, and only then the witness may go."""
    jax.distributed.shutdown()
    witness.communicate(_BYE)


def _fail(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """An uncaught error: the regular end would wait for processes that wait for this one."""
    sys.__excepthook__(kind, error, trace)
    sys.stdout.flush()
    sys.stderr.flush()
    if jax.process_index() == 0:
        time.sleep(_LEADER_STAYS)  # without the coordinator the others could not finish telling the same error
    os._exit(1)
