"""`unibio verify`: checks the numbered claims of the paper and prints a verdict for each."""

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from unibio.paper.claims.registry import Row

_COLOURS = {"answered": "green", "confirmed": "green", "corrected": "yellow", "refuted": "red"}


def verify(
    claim: Annotated[list[str] | None, typer.Option(help="Check and explain only this claim; may be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    markdown: Annotated[bool, typer.Option(help="Print the page docs/paper_vs_us.md.")] = False,
) -> None:
    """Check every numbered claim of the paper: confirmed, corrected or refuted."""
    if claim and markdown:
        raise ValueError("--markdown prints the page of all claims: leave out --claim or --markdown.")
    import jax

    from unibio.paper.claims.registry import as_markdown
    from unibio.paper.claims.registry import verify as check

    jax.config.update("jax_enable_x64", True)
    with Console(stderr=True).status("checking the paper's claims …") as status:

        def report(row: "Row") -> None:
            status.update(f"{row.claim.where}: {row.outcome.verdict} ({row.seconds:.1f} s)")

        rows = check(claim, report)
    if as_json:
        facts = [
            {"name": row.claim.name, "where": row.claim.where, "paper": row.claim.statement}
            | {"verdict": str(row.outcome.verdict), "value": row.outcome.value, "finding": row.outcome.finding}
            | {"seconds": round(row.seconds, 2)}
            for row in rows
        ]
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    elif markdown:
        print(as_markdown(rows), end="")
    elif claim:
        for row in rows:
            _print_detail(row)
    else:
        _print_table(rows)


def _verdict(row: "Row") -> str:
    return f"[{_COLOURS[row.outcome.verdict]}]{row.outcome.verdict}[/]"


def _print_detail(row: "Row") -> None:
    console = Console()
    console.print(f"[bold]{escape(row.claim.where)}[/] ({row.claim.name}): {_verdict(row)}", highlight=False)
    for title, text in (
        ("the paper claims", row.claim.statement),
        ("we find", row.outcome.finding),
        ("how it is checked", row.claim.details),
    ):
        console.print(f"  {title}: {text}", highlight=False, markup=False)


def _print_table(rows: "list[Row]") -> None:
    console = Console()
    table = Table("where", "the paper claims", "we find", "verdict", "seconds")
    for row in rows:
        texts = (escape(text) for text in (row.claim.where, row.claim.statement, row.outcome.finding))
        table.add_row(*texts, _verdict(row), f"{row.seconds:.1f}")
    console.print(table)
    counts = {v: sum(row.outcome.verdict == v for row in rows) for v in _COLOURS}
    total = sum(row.seconds for row in rows)
    console.print(
        ", ".join(f"{count} {v}" for v, count in counts.items()) + f" in {total:.0f} seconds.", highlight=False
    )
