"""`unibio theory`: prints what the main theorem prescribes, and with --plot draws its total calls against ε."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from unibio.core.checks import nearest
from unibio.files import figures

if TYPE_CHECKING:
    from unibio.paper.theory import Constants

_WARNING = "These are worst-case bounds and astronomically conservative: what the theorem guarantees, not what to run."


def theory(
    example: Annotated[str | None, typer.Argument(help="example1, example3 (default) or example4.")] = None,
    p: Annotated[float | None, typer.Option(help="Order of uniform convexity (default 4).")] = None,
    dim: Annotated[int | None, typer.Option(help="Dimension (default 1).")] = None,
    epsilon: Annotated[float, typer.Option(help="Accuracy.")] = 0.1,
    delta: Annotated[float, typer.Option(help="Failure probability.")] = 0.1,
    noise: Annotated[
        float | None,
        typer.Option(help="σ_f and σ_g1 (default 1). For Gaussian noise σ_g1 is 1.52 standard deviations."),
    ] = None,
    constants: Annotated[
        Path | None, typer.Option(help='Instead of an example: a JSON file {"p": 4, "mu": 0.3, …} of theory.Constants.')
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw total calls against ε into this file.")] = None,
) -> None:
    """Print what the main theorem prescribes, by the paper's and by a sharper analysis, and what takes no p."""
    from unibio.paper import theory as th
    from unibio.paper.studies import schedules

    given = [name for name, value in (("--p", p), ("--dim", dim), ("--noise", noise)) if value is not None]
    given += [example] if example else []
    if constants is not None and given:
        raise ValueError(f"--constants stands in place of an example and its options: leave out {', '.join(given)}.")
    if plot is not None:
        figures.check_path(plot)
    sets = [read_constants(constants)] if constants else _example(example or "example3", p, dim, noise)
    chosen = sets[0]
    plans = [th.schedule(chosen, epsilon, delta, analysis) for analysis in schedules.ANALYSES]
    table = Table("symbol", "meaning", "paper's analysis", "sharp analysis")
    for (symbol, meaning, left), (_, _, right) in zip(*(plan.rows() for plan in plans), strict=True):
        table.add_row(symbol, meaning, left, right)
    Console().print(table)
    Console().print(_without_p(chosen, epsilon, delta))
    Console().print(_WARNING, highlight=False)
    if plot is not None:
        totals = schedules.totals(sorted(sets, key=lambda c: c.p))
        figures.save(figures.with_style(schedules.draw, {"totals": totals}), plot)
        Console().print(f"drawn: {plot}", highlight=False, markup=False)


def _without_p(constants: "Constants", epsilon: float, delta: float) -> Table:
    """What the schedule that knows no p takes, by Theorem 3 of docs/without_p.md with κ = 1 and R_0 = 2."""
    from unibio.paper.theory import complexity_without_p
    from unibio.paper.theory.schedule import power_of_ten

    table = Table("without p (κ = 1, R_0 = 2)", "order", "upper steps T", "oracle calls")
    for name, order, grid in (("N = √T", "ε^−4(p−1)", False), ("grid of N, validated", "ε^−(3p−2)", True)):
        numbers = complexity_without_p(constants, epsilon, delta, grid=grid)
        table.add_row(name, order, *(power_of_ten(number) for number in numbers))
    return table


def _example(name: str, p: float | None, dim: int | None, noise: float | None) -> "list[Constants]":
    """The constants of an example for the order p asked for, and then those for other orders, which the plot shows."""
    from unibio.paper import theory as th
    from unibio.paper.studies.schedules import ORDERS

    deviation = 1.0 if noise is None else noise
    sigma = {"sigma_f": deviation, "sigma_g1": deviation}
    makers = {"example1": th.example4_constants, "example3": th.example3_constants, "example4": th.example4_constants}
    nearest(name, makers, "example")
    if name == "example1" and (p is not None or dim is not None):
        raise ValueError("example1 has p = 4 and one dimension; for others use example4 --p … --dim ….")
    first = 4.0 if p is None else p
    others = () if name == "example1" else ORDERS
    orders = [first, *(order for order in others if order != first)]
    return [makers[name](order, 1 if dim is None else dim, **sigma) for order in orders]


def read_constants(path: Path) -> "Constants":
    """The `theory.Constants` whose fields are stored in the file as one JSON object."""
    from unibio.paper.theory import Constants

    try:
        values: Any = json.loads(path.read_text(encoding="utf-8"), parse_int=float)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is not JSON ({error}). It must hold one JSON object of numbers, for example "
            '{"p": 4, "mu": 0.33, …}; `theory.Constants` lists their names.'
        ) from None
    fields = {field.name: field for field in dataclasses.fields(Constants)}
    needed = [name for name, field in fields.items() if field.default is dataclasses.MISSING]
    if not isinstance(values, dict) or set(values) - set(fields) or set(needed) - set(values):
        raise ValueError(
            f"{path} must hold one JSON object with the numbers {', '.join(needed)}, and if wanted "
            f"{', '.join(set(fields) - set(needed))}; got {values if not isinstance(values, dict) else sorted(values)}."
        )
    wrong = [name for name, value in values.items() if not isinstance(value, float)]
    if wrong:
        raise ValueError(f"{path}: {wrong[0]} must be a number; got {values[wrong[0]]!r}.")
    return Constants(**values)
