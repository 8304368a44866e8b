"""The command line: `unibio reproduce`, `compare`, `verify`, `theory`, `list`, `data`."""

import sys


def main() -> None:
    """Runs the command of the command line. An error is printed as one line on stderr, and the exit code is 2."""
    try:
        from unibio.cli.app import app
    except ImportError as error:
        if error.name is None or error.name.startswith("unibio"):
            raise
        _fail(f"the command line needs the package {error.name}, which is not installed: pip install 'unibio[cli]'")
    try:
        app()
    except MemoryError:
        _fail("there is not enough memory: use fewer seeds or a smaller problem.")
    except (ValueError, TypeError, OSError, ArithmeticError, RuntimeError) as error:
        _fail(str(error) or type(error).__name__)


def _fail(message: str) -> None:
    """Prints the message in one line on stderr and ends the process with exit code 2."""
    print(f"unibio: {' '.join(message.splitlines())}", file=sys.stderr)
    sys.exit(2)
