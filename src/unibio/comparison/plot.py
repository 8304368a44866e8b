"""Every figure, drawn from tables (lists of rows) and from nothing else. The only module that needs matplotlib."""

import io
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unibio.files.atomic import write_file
from unibio.files.tables import Row, Rows, column, distinct, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure

# Okabe and Ito's palette: told apart by colour-blind readers, and in grey by their lightness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#8C510A", "#5E3C99")


_STYLE: Any = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
    "grid.linewidth": 0.5, "lines.linewidth": 1.4, "legend.frameon": False, "legend.fontsize": 8,
    "svg.fonttype": "path", "pdf.fonttype": 42, "svg.hashsalt": "unibio",
}  # fmt: skip


def style() -> AbstractContextManager[None]:
    """The house style inside this context. A user's own settings of matplotlib do not enter, and are as before after
    it."""
    try:
        from matplotlib.style import context
    except ImportError:
        raise ValueError("plots need matplotlib: pip install 'unibio[plot]'") from None
    return context(_STYLE, after_reset=True)


def warm_up() -> None:
    """Loads fonts and the writers of all formats, about a second's work, in a thread beside the computation."""

    def draw_nothing() -> None:
        made, (axis,) = panels()
        axis.set(title="‖∇Φ‖")
        for kind in ("svg", "pdf", "png"):
            made.savefig(io.BytesIO(), format=kind)

    threading.Thread(target=draw_nothing).start()  # no daemon: an exit amid matplotlib's C++ aborts the process


def with_style(draw: Callable[..., "Figure"], *arguments: Any) -> "Figure":
    """draw(*arguments) in the house style."""
    with style():
        return draw(*arguments)


def panels(columns: int = 1, rows: int = 1, width: float = 3.4, height: float = 2.7, **others: Any) -> Any:
    """A figure with so many panels, and their axes as a flat list."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return made, list(made.subplots(rows, columns, squeeze=False, **others).flat)


def check_path(path: Path) -> str:
    """The format that the ending of a path asks for; a ValueError if figures cannot be saved so."""
    kind = path.suffix.lstrip(".").lower()
    if kind not in ("svg", "pdf", "png"):
        raise ValueError(f"cannot draw into {path.name!r}: the name must end in .svg, .pdf or .png.")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent}; make it first.")
    return kind


def save(drawn: "Figure", path: Path) -> None:
    """Writes a figure in the format that the ending of the path names, whole or not at all."""
    path = Path(path)
    kind = check_path(path)
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with style():
        if drawn.get_layout_engine() is not None:  # once is enough for all formats
            drawn.draw_without_rendering()
            drawn.set_layout_engine("none")
        write_file(path, lambda file: drawn.savefig(file, format=kind, dpi=200, metadata=metadata))


SOLVER_COLOURS = dict(
    zip(("UniBiO", "StocBiO", "TTSA", "SOBA", "SABA", "MA-SOBA", "SUSTAIN", "VRBO", "BO-REP", "AmIGO", "F2SA"),
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
    """What `band` draws, of curves (seeds, T): a row for each t, with median and outer quantiles over the seeds."""
    low, median, high = np.quantile(values, [between[0], 0.5, between[1]], axis=0).tolist()
    places = range(len(median)) if t is None else t.tolist()
    return [
        names | {"t": at, "median": m, "low": a, "high": b}
        for at, m, a, b in zip(places, median, low, high, strict=True)
    ]


def band(axis: Any, curve: Rows, colour: str, label: str) -> None:
    """Median against t, with the band between the outer quantiles; dashed for a variant with its solver's colour."""
    t = column(curve, "t")
    axis.plot(t, column(curve, "median"), "--" if " (" in label else "-", color=colour, label=label)
    axis.fill_between(t, column(curve, "low"), column(curve, "high"), color=colour, alpha=0.2, linewidth=0)


def solver_curves(rows: Rows) -> "Figure":
    """‖∇Φ‖ against oracle calls, a curve with its band for each solver."""
    made, (axis,) = panels(width=5.0, height=3.2)
    for solver in distinct(rows, "solver"):
        band(axis, select(rows, solver=solver), solver_colour(solver), solver)
    axis.set(xlabel="oracle calls", ylabel="‖∇Φ‖", yscale="log")
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return made
