"""The command line: `unibio reproduce`, `compare`, `verify`, `theory`, `list`, `data`."""

import sys


def main() -> None:
    """Runs a command; what goes wrong is said in one line, with exit code 2."""
    try:
        from unibio.cli.app import app
    except ImportError as error:
        if error.name is None or error.name.startswith("unibio"):
            raise
        _fail(f"the command line needs more packages ({error.name}): pip install 'unibio[cli]'")
    try:
        app()
    except MemoryError:
        _fail("there is not enough memory: ask for less, e.g. for fewer seeds or a smaller size.")
    except (ValueError, TypeError, OSError, ArithmeticError, RuntimeError) as error:
        _fail(str(error) or type(error).__name__)


def _fail(message: str) -> None:
    print(f"unibio: {' '.join(message.splitlines())}", file=sys.stderr)
    sys.exit(2)
