"""`unibio theory`: the main theorem's schedule as a table, and its growth as a plot."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from unibio.theory import Constants

_WARNING = "Worst-case bounds, and astronomically conservative: what the theorem guarantees, not what to run."


def theory(
    example: Annotated[str, typer.Argument(help="example1, example3 or example4.")] = "example3",
    p: Annotated[float, typer.Option(help="Order of uniform convexity.")] = 4.0,
    dim: Annotated[int, typer.Option(help="Dimension.")] = 1,
    epsilon: Annotated[float, typer.Option(help="Accuracy.")] = 0.1,
    delta: Annotated[float, typer.Option(help="Failure probability.")] = 0.1,
    noise: Annotated[float, typer.Option(help="Standard deviation of ∇_y g, ∇_x f and df/dz.")] = 1.0,
    constants: Annotated[
        Path | None, typer.Option(help='Instead of an example: a JSON file {"p": 4, "mu": 0.3, …} of theory.Constants.')
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw total calls against ε into this file.")] = None,
) -> None:
    """The main theorem's schedule, by the paper's and by the sharp analysis."""
    from unibio import theory as th

    def made(order: float) -> "Constants":
        if example == "example1":
            return th.example4_constants(4.0, 1, sigma_f=noise, sigma_g1=noise)
        maker = th.example3_constants if example == "example3" else th.example4_constants
        return maker(order, dim, sigma_f=noise, sigma_g1=noise)

    if example not in ("example1", "example3", "example4"):
        raise ValueError(f"no example {example!r}; there are example1, example3, example4.")
    chosen = made(p) if constants is None else read_constants(constants)
    plans = [th.schedule(chosen, epsilon, delta, analysis) for analysis in ("paper", "sharp")]
    table = Table("symbol", "meaning", "paper's analysis", "sharp analysis")
    for (symbol, meaning, left), (_, _, right) in zip(*(plan.rows() for plan in plans), strict=True):
        table.add_row(symbol, meaning, left, right)
    Console().print(table)
    Console().print(_WARNING, highlight=False)
    if plot is not None:
        from unibio.experiments import plot as drawing
        from unibio.experiments import schedules

        alone = constants is not None or example == "example1"
        sets = [chosen] if alone else [made(order) for order in (2.0, 3.0, 4.0, 6.0, 8.0)]
        drawing.save(schedules.draw({"totals": schedules.totals(sets)}), plot)
        Console().print(f"drawn: {plot}", highlight=False, markup=False)


def read_constants(path: Path) -> "Constants":
    """theory.Constants from a JSON object with its fields."""
    from unibio.theory import Constants

    try:
        values: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}).") from None
    fields = {field.name: field for field in dataclasses.fields(Constants)}
    needed = [name for name, field in fields.items() if field.default is dataclasses.MISSING]
    if not isinstance(values, dict) or set(values) - set(fields) or set(needed) - set(values):
        raise ValueError(
            f"{path} must hold one JSON object with the numbers {', '.join(needed)}, and if wanted "
            f"{', '.join(set(fields) - set(needed))}; got {values if not isinstance(values, dict) else sorted(values)}."
        )
    wrong = [name for name, value in values.items() if isinstance(value, bool) or not isinstance(value, int | float)]
    if wrong:
        raise ValueError(f"{path}: {wrong[0]} must be a number; got {values[wrong[0]]!r}.")
    return Constants(**{name: float(value) for name, value in values.items()})
