"""All commands."""

import typer

from unibio.cli.theory import theory
from unibio.cli.verify import verify

app = typer.Typer(help="Bilevel optimization beyond strong convexity.", no_args_is_help=True, add_completion=False)
for command in (verify, theory):
    app.command()(command)
