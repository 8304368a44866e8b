"""Figures of comparisons, drawn from tables (lists of rows) and from nothing else."""

from typing import TYPE_CHECKING

import numpy as np

from unibio.files.figures import COLOURS as COLOURS
from unibio.files.figures import key as key
from unibio.files.figures import label as label
from unibio.files.figures import panels as panels
from unibio.files.tables import Row, Rows, column, distinct, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Figure

NORM, LOWER_ERROR = "‖∇Φ‖", "‖y − y*‖"  # labels without indices, which would be too small on a phone
SOLVER_COLOURS = dict(
    zip(("UniBiO", "StocBiO", "TTSA", "SOBA", "SABA", "AmIGO", "SUSTAIN", "VRBO", "BO-REP", "MA-SOBA", "F2SA"),
        (*COLOURS, "#B2182B"), strict=True)
)  # fmt: skip


def solver_colour(name: str) -> str:
    """The same colour for a solver everywhere; a variant such as “UniBiO (practical)” has its solver's."""
    return SOLVER_COLOURS.get(name.split(" (")[0], "#444444")


def bands(
    values: np.ndarray | list[np.ndarray],
    names: Row,
    t: np.ndarray | None = None,
    between: tuple[float, float] = (0.1, 0.9),
) -> Rows:
    """Makes the rows that `band` draws from curves, an array (seeds, T).

    There is a row for each step: the columns of `names`, which say what curve it is, then `t`, `median`, and `low` and
    `high`, the quantiles `between` over the seeds. `t` are the steps, by default 0, …, T − 1.
    """
    low, median, high = np.quantile(values, [between[0], 0.5, between[1]], axis=0).tolist()
    places = range(len(median)) if t is None else t.tolist()
    return [
        names | {"t": at, "median": m, "low": a, "high": b}
        for at, m, a, b in zip(places, median, low, high, strict=True)
    ]


def band(axis: "Axes", curve: Rows, colour: str, label: str) -> None:
    """Median against t, with the band between the outer quantiles; dashed for a variant with its solver's colour."""
    t = column(curve, "t")
    axis.plot(t, column(curve, "median"), "--" if " (" in label else "-", color=colour, label=label)
    axis.fill_between(t, column(curve, "low"), column(curve, "high"), color=colour, alpha=0.2, linewidth=0)


def end_labels(axis: "Axes", ends: dict[str, tuple[float, float]], near: float = 0.08) -> None:
    """Writes each curve's name above the end of the curve, instead of a legend; one text for curves that end within
    `near` of each other, measured in heights of the panel."""
    from matplotlib.patheffects import withStroke

    names = sorted(ends, key=lambda name: ends[name][1])
    heights = {name: axis.transLimits.transform(axis.transScale.transform(ends[name]))[1] for name in names}
    groups: list[list[str]] = []
    for name in names:
        if groups and heights[name] - heights[groups[-1][-1]] < near:
            groups[-1].append(name)
        else:
            groups.append([name])
    for group in groups:
        colour = solver_colour(group[0]) if len(group) == 1 else "black"
        x, y = ends[group[-1]]
        text = axis.annotate(",\n".join(group), (x, y), xytext=(0, 7), textcoords="offset points", color=colour,
                             ha="right", va="bottom", fontsize=9, linespacing=1.05)  # fmt: skip
        text.set_path_effects([withStroke(linewidth=3, foreground="white")])


def dots(axis: "Axes", rows: Rows, value: str, by: str = "p") -> None:
    """A row for each solver, in the order of the rows, with a dot for each value of `by`."""
    names, cases = distinct(rows, "solver"), distinct(rows, by)
    for i, (case, colour, marker) in enumerate(zip(cases, COLOURS, "osD^v", strict=False)):
        shift = 0.5 * (i - (len(cases) - 1) / 2) / len(cases)  # so that equal numbers do not hide each other
        found = {row["solver"]: row[value] for row in rows if row[by] == case}
        places = [names.index(name) + shift for name in found]
        axis.plot([*found.values()], places, marker, color=colour, markersize=5, label=f"{by} = {case:g}")
    axis.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.5, -0.5))


def solver_curves(rows: Rows) -> "Figure":
    """A figure of ‖∇Φ‖ against oracle calls, with a curve and its band for each value of the column `solver`; the other
    columns are those of `bands`, with the calls as `t`."""
    made, (axis,) = panels(width=5.0, height=3.2)
    for solver in distinct(rows, "solver"):
        band(axis, select(rows, solver=solver), solver_colour(solver), solver)
    axis.set(xlabel="oracle calls", ylabel="‖∇Φ‖", yscale="log")
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return made
