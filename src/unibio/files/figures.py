"""How figures look and are written. The only module that loads matplotlib, and only when a figure is asked for."""

import io
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unibio.files.atomic import write_file

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
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with style():
        if drawn.get_layout_engine() is not None:  # once is enough for all formats
            drawn.draw_without_rendering()
            drawn.set_layout_engine("none")
        write_file(path, lambda file: drawn.savefig(file, format=kind, dpi=200, metadata=metadata))


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
