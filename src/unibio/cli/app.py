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
    help="Bilevel optimization beyond strong convexity. Without a command: what one can do.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    """Prints the version and ends the command."""
    if asked:
        print(f"unibio {__version__}")
        raise typer.Exit


_FIRST_STEPS = """\
UniBiO solves optimization problems whose objective contains the solution of another one.
What you can do from here, with an example of each:

  unibio reproduce noise                     repeat an experiment of the paper, with a report to look at
  unibio reproduce                           repeat all of them (some three minutes)
  unibio compare SOBA StocBiO --tune         compare algorithms on a problem, each with tuned step sizes
  unibio verify --claim example_3            check a numbered claim of the paper
  unibio theory example3 --p 4               see what the main theorem prescribes
  unibio list                                see the names of experiments, problems, solvers and claims
  unibio COMMAND --help                      see the options of a command

In Python: import unibio as ub; help(ub)"""


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The options of `unibio` itself, which stand before a subcommand."""
    if context.invoked_subcommand is None:
        print(_FIRST_STEPS)


app.command()(reproduce)
app.command()(compare)
app.command()(verify)
app.command()(theory)
app.command("list")(listing)
app.command()(data)
