"""The command `unibio` with all its subcommands, each from a file of its own."""

from typing import Annotated

import typer

from unibio import __version__
from unibio.cli.compare import compare
from unibio.cli.data import data
from unibio.cli.listing import listing
from unibio.cli.reproduce import reproduce
from unibio.cli.theory import theory
from unibio.cli.verify import verify

app = typer.Typer(
    help="Bilevel optimization beyond strong convexity.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    """Prints the version and ends the command."""
    if asked:
        print(f"unibio {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The options of `unibio` itself, which stand before a subcommand."""


app.command()(reproduce)
app.command()(compare)
app.command()(verify)
app.command()(theory)
app.command("list")(listing)
app.command()(data)
