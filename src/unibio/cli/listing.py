"""`unibio list`: lists the experiments, problems, solvers and claims by name."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table


def listing() -> None:
    """List experiments, problems, solvers and claims of the paper."""
    from unibio.paper.claims.registry import every_claim
    from unibio.paper.framework.study import EXPERIMENTS, load
    from unibio.problems import PROBLEMS
    from unibio.run.minimise import minimise
    from unibio.solvers import SOLVERS

    _print("Experiments (unibio reproduce NAME)", {name: load(name).__doc__ for name in EXPERIMENTS})
    _print("Problems (unibio compare … --problem NAME)", {name: made.__doc__ for name, made in PROBLEMS.items()})
    solvers = {"minimise": minimise.__doc__} | {name: solver.__doc__ for name, solver in SOLVERS.items()}
    _print("Solvers (unibio compare NAME …)", solvers)
    claims = every_claim()
    stated = {name: f"{claim.where}: {claim.statement}" for name, claim in claims.items()}
    _print(f"{len(claims)} claims of the paper (unibio verify --claim NAME)", stated)


def _print(title: str, described: Mapping[str, str | None]) -> None:
    """Prints a table of names, each with the first line of what is said of it."""
    table = Table(box=None, show_header=False, title=title, title_justify="left", title_style="bold")
    table.add_column(no_wrap=True, min_width=18)
    table.add_column()
    for name, text in described.items():
        table.add_row(name, (text or "").strip().split("\n")[0])
    console = Console(markup=False)
    console.print(table)
    console.print()
