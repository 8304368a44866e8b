"""All commands."""

import typer

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
app.command()(reproduce)
app.command()(compare)
app.command()(verify)
app.command()(theory)
app.command("list")(listing)
app.command()(data)
