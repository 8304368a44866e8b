"""How figures look and are written. The only module that loads matplotlib, and only when a figure is asked for.

A figure of several panels has two layouts: wide, with the panels side by side as its `draw` asks for them, and narrow,
for a phone, with the panels below each other. `with_style(draw, …, narrow=True)` gives the second one.
"""

import io
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np

from unibio.files.atomic import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure

# Okabe and Ito's palette: told apart by colour-blind readers, and in grey by their lightness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#8C510A", "#5E3C99")


_STYLE: Any = {
    "font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
    "grid.linewidth": 0.5, "lines.linewidth": 1.4, "legend.frameon": False, "legend.fontsize": 9,
    "axes.titlesize": 10, "xtick.labelsize": 9, "ytick.labelsize": 9, "path.simplify_threshold": 0.5,
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


_NARROW = ContextVar("narrow", default=False)
_PHONE = 3.65  # inches: 350 of the 390 pixels of a phone, so that text is shown at its own size


def with_style(draw: Callable[..., "Figure"], *arguments: Any, narrow: bool = False) -> "Figure":
    """draw(*arguments) in the house style; with `narrow` the panels stand below each other, each with its labels."""
    before = _NARROW.set(narrow)
    try:
        with style():
            made = draw(*arguments)
            _plain_numbers(made)
            return made
    finally:
        _NARROW.reset(before)


def panels(
    columns: int = 1, rows: int = 1, width: float = 3.4, height: float = 2.7, sharex: bool = False,
    sharey: bool | Literal["row"] = False,
) -> Any:  # fmt: skip
    """A figure with so many panels, and their axes as a flat list, row by row.

    Arguments:
        width, height: of one panel, in inches.
        sharey: `True` if all panels have one vertical axis, "row" if those of a row do.
    """
    from matplotlib.figure import Figure

    if not _NARROW.get():
        made = Figure(figsize=(width * columns, height * rows), layout="constrained")
        return made, list(made.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey).flat)
    made = Figure(figsize=(_PHONE, height * rows * columns), layout="constrained")
    axes = list(made.subplots(rows * columns, 1, squeeze=False).flat)
    for i, axis in enumerate(axes):
        first = axes[i // columns * columns] if sharey == "row" else axes[0]
        if sharey and axis is not first:
            axis.sharey(first)
        if sharex and i:
            axis.sharex(axes[0])
    return made, axes


def label(axes: list[Any], columns: int, x: str = "", y: list[str] | None = None) -> None:
    """Names the axes of a figure of panels: x below the last row, and y[i] to the left of row i; in the narrow layout
    at every panel."""
    everywhere = _NARROW.get()
    for i, axis in enumerate(axes):
        if everywhere or i >= len(axes) - columns:
            axis.set_xlabel(x)
        if y and (everywhere or i % columns == 0):
            axis.set_ylabel(y[i // columns])


def key(made: "Figure", axes: list[Any]) -> None:
    """One legend for the whole figure, outside the panels: to their right, in the narrow layout above them."""
    found = {name: line for axis in axes for line, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    narrow = _NARROW.get()
    place: Any = {"loc": "outside upper left", "ncols": 2} if narrow else {"loc": "outside right upper"}
    made.legend([*found.values()], [*found], **place)


def _plain_numbers(made: "Figure") -> None:
    """Writes the numbers of logarithmic axes as 0.01 and 1e−5, because exponents are too small to read on a phone."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    def shown(value: float, _: int) -> str:
        text = f"{value:g}" if 1e-4 <= value < 1e6 else f"{value:.0e}"
        return text.replace("e-0", "e−").replace("e-", "e−").replace("e+0", "e").replace("e+", "e")

    for axis in made.axes:
        for line, scale in ((axis.xaxis, axis.get_xscale()), (axis.yaxis, axis.get_yscale())):
            if scale == "log":
                line.set_major_formatter(FuncFormatter(shown))
                line.set_minor_formatter(NullFormatter())


def check_path(path: Path) -> str:
    """Returns the format that the ending of the path asks for: "svg", "pdf" or "png". Raises a ValueError if it is
    another ending, or if the folder of the path does not exist."""
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
    write_file(path, lambda file: write(drawn, file, kind))


def write(drawn: "Figure", file: IO[bytes], kind: str = "svg") -> None:
    """Writes a figure into an open file; the same figure gives the same bytes."""
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with style():
        if drawn.get_layout_engine() is not None:  # once is enough for all formats
            drawn.draw_without_rendering()
            drawn.set_layout_engine("none")
        drawn.savefig(file, format=kind, dpi=200, metadata=metadata)


NAMES = {"gradient_norm": "‖∇Φ‖", "phi": "Φ", "lower_error": "‖y − y*(x)‖", "lower_residual": "‖∇_y g‖",
         "direction_norm": "length of the direction"}  # fmt: skip


def curves(values: Mapping[str, tuple[np.ndarray, np.ndarray]], along: str) -> "Figure":
    """A figure with a panel for each name in `values`, which maps it to (places, numbers): the numbers are drawn
    against the places, on a logarithmic axis if all of them are positive. `along` says what the places are."""
    made, axes = panels(columns=len(values))
    for axis, (name, (where, numbers)) in zip(axes, values.items(), strict=True):
        finite = numbers[np.isfinite(numbers)]
        positive = finite.size > 0 and bool(np.all(finite > 0))
        axis.plot(where, numbers, color=COLOURS[0], marker="." if len(numbers) < 30 else None)
        axis.set(title=NAMES.get(name, name), xlabel=along, yscale="log" if positive else "linear")
    return made


def drawn(draw: Callable[..., "Figure"], *arguments: object, path: str | os.PathLike[str] | None = None) -> "Figure":
    """draw(*arguments) in the house style, also written to a file if there is a path."""
    figure = with_style(draw, *arguments)
    if path is not None:
        save(figure, Path(path))
    return figure
