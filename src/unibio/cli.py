"""The command line: `unibio verify`, `unibio theory`."""

import json
import sys
from typing import Annotated


def main() -> None:
    """Runs a command; what goes wrong is said in one line."""
    try:
        app = _app()
    except ImportError as error:
        sys.exit(f"unibio: the command line needs more packages ({error.name}): pip install 'unibio[cli]'")
    try:
        app()
    except (ValueError, TypeError, OSError) as error:
        sys.exit(f"unibio: {error}")


def _app():  # type: ignore[no-untyped-def]
    import typer
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    app = typer.Typer(help="Bilevel optimization beyond strong convexity.", no_args_is_help=True, add_completion=False)
    console = Console()
    colours = {"confirmed": "green", "corrected": "yellow", "refuted": "red"}

    @app.command()
    def verify(
        claim: Annotated[list[str] | None, typer.Option(help="Only this claim, in detail; may be repeated.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
        markdown: Annotated[bool, typer.Option(help="Print docs/paper_vs_us.md.")] = False,
    ) -> None:
        """Check every numbered claim of the paper: confirmed, corrected or refuted."""
        import jax

        from unibio.experiments.registry import Row, as_markdown
        from unibio.experiments.registry import verify as check

        jax.config.update("jax_enable_x64", True)
        spoken = Console(stderr=True)

        with spoken.status("checking the paper's claims …") as status:

            def tell(row: Row) -> None:
                status.update(f"{row.claim.where}: {row.outcome.verdict} ({row.seconds:.1f} s)")

            rows = check(claim, tell)
        if as_json:
            facts = [
                {"name": r.claim.name, "where": r.claim.where, "paper": r.claim.says, "verdict": str(r.outcome.verdict),
                 "value": r.outcome.value, "finding": r.outcome.finding, "seconds": round(r.seconds, 2)} for r in rows
            ]  # fmt: skip
            print(json.dumps(facts, indent=2, ensure_ascii=False))
            return
        if markdown:
            print(as_markdown(rows), end="")
            return
        if claim:
            for row in rows:
                verdict = f"[{colours[row.outcome.verdict]}]{row.outcome.verdict}[/]"
                console.print(f"[bold]{row.claim.where}[/] ({row.claim.name}): {verdict}", highlight=False)
                for title, text in (
                    ("paper", row.claim.says),
                    ("here", row.outcome.finding),
                    ("how", row.claim.details),
                ):
                    console.print(f"  {title}: {text}", highlight=False, markup=False)
            return
        table = Table("claim", "the paper says", "we find", "verdict", "s")
        for row in rows:
            verdict = f"[{colours[row.outcome.verdict]}]{row.outcome.verdict}[/]"
            texts = (escape(text) for text in (row.claim.where, row.claim.says, row.outcome.finding))
            table.add_row(*texts, verdict, f"{row.seconds:.1f}")
        console.print(table)
        counts = {v: sum(row.outcome.verdict == v for row in rows) for v in colours}
        total = sum(row.seconds for row in rows)
        console.print(", ".join(f"{count} {v}" for v, count in counts.items()) + f"; {total:.0f} s", highlight=False)

    @app.command()
    def theory(
        example: Annotated[str, typer.Argument(help="example1, example3 or example4.")] = "example3",
        p: Annotated[float, typer.Option(help="Order of uniform convexity.")] = 4.0,
        dim: Annotated[int, typer.Option(help="Dimension.")] = 1,
        epsilon: Annotated[float, typer.Option(help="Accuracy.")] = 0.1,
        delta: Annotated[float, typer.Option(help="Failure probability.")] = 0.1,
        noise: Annotated[float, typer.Option(help="Standard deviation of ∇_y g, ∇_x f and df/dz.")] = 1.0,
    ) -> None:
        """The main theorem's schedule for an example, by the paper's and by the sharp analysis."""
        from unibio import theory as th

        made = {"example1": lambda: th.example4_constants(4.0, 1, sigma_f=noise, sigma_g1=noise),
                "example3": lambda: th.example3_constants(p, dim, sigma_f=noise, sigma_g1=noise),
                "example4": lambda: th.example4_constants(p, dim, sigma_f=noise, sigma_g1=noise)}  # fmt: skip
        if example not in made:
            raise ValueError(f"no example {example!r}; there are {', '.join(made)}.")
        constants = made[example]()
        plans = [th.schedule(constants, epsilon, delta, analysis) for analysis in ("paper", "sharp")]
        table = Table("symbol", "meaning", "paper's analysis", "sharp analysis")
        for (symbol, meaning, left), (_, _, right) in zip(*(plan.rows() for plan in plans), strict=True):
            table.add_row(symbol, meaning, left, right)
        console.print(table)
        console.print(
            "Worst-case bounds, and astronomically conservative: what the theorem guarantees, not what to run.",
            highlight=False,
        )

    return app


if __name__ == "__main__":
    main()
