"""The command line: `unibio verify`, `unibio theory`."""

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
    except (ValueError, TypeError, OSError) as error:
        _fail(str(error))


def _fail(message: str) -> None:
    print(f"unibio: {message}", file=sys.stderr)
    sys.exit(2)
