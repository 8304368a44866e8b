"""Every figure, drawn from tables (lists of rows) and from nothing else. The only module that needs matplotlib."""

import functools
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[dict[str, Any]]

# Okabe and Ito's palette: told apart by colour-blind readers, and in grey by their lightness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#8C510A", "#5E3C99")


_STYLE: Any = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
    "grid.linewidth": 0.5, "lines.linewidth": 1.4, "legend.frameon": False, "legend.fontsize": 8,
    "svg.fonttype": "path", "pdf.fonttype": 42, "svg.hashsalt": "unibio",
}  # fmt: skip


def style() -> AbstractContextManager[None]:
    """The house style, for a while: a user's own settings stay as they are."""
    try:
        from matplotlib import rc_context
    except ImportError:
        raise ValueError("plots need matplotlib: pip install 'unibio[plot]'") from None
    return rc_context(_STYLE)


def styled(draw: Callable[..., "Figure"]) -> Callable[..., "Figure"]:
    """Draws in the house style."""

    @functools.wraps(draw)
    def inside(*arguments: Any, **others: Any) -> "Figure":
        with style():
            return draw(*arguments, **others)

    return inside


def panels(columns: int = 1, rows: int = 1, width: float = 3.4, height: float = 2.7, **others: Any) -> Any:
    """(figure, axes), axes as a flat list."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return made, list(made.subplots(rows, columns, squeeze=False, **others).flat)


def save(drawn: "Figure", path: Path) -> None:
    """Writes it whole or not at all; the ending of the name is the format."""
    path = Path(path)
    formats = drawn.canvas.get_supported_filetypes()
    kind = path.suffix.lstrip(".").lower()
    if kind not in formats:
        raise ValueError(f"cannot draw into {path.name!r}: the name must end in .svg, .pdf or .png.")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent}; make it first.")
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        with style():
            drawn.savefig(name, format=kind, dpi=200, metadata=metadata)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def select(rows: Rows, **wanted: Any) -> list[dict[str, Any]]:
    """The rows with these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def distinct(rows: Rows, key: str) -> list[Any]:
    """The values of a column, in the order of their first appearance."""
    return list(dict.fromkeys(row[key] for row in rows))


@styled
def schedules(rows: Rows) -> "Figure":
    """log10 of the total calls against ε, one line for each p; on the right against p at ε = 0.1."""
    orders = distinct(rows, "p")
    made, axes = panels(2 if len(orders) > 1 else 1, width=4.2)
    styles = {"paper": "--", "sharp": "-"}
    for p, colour in zip(orders, COLOURS, strict=False):
        for analysis, style in styles.items():
            line = select(rows, p=p, analysis=analysis)
            axes[0].plot(
                [row["epsilon"] for row in line], [row["log10_total"] for row in line], style, color=colour,
                label=f"p = {p:g}" if analysis == "sharp" else None,
            )  # fmt: skip
    axes[0].plot([], [], "--", color="grey", label="paper's analysis")
    axes[0].plot([], [], "-", color="grey", label="sharp analysis")
    axes[0].set(xscale="log", xlabel="ε", ylabel="log₁₀ of total oracle calls")
    axes[0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    if len(orders) > 1:
        epsilon = min(distinct(rows, "epsilon"), key=lambda value: abs(value - 0.1))
        for colour, (analysis, style) in zip(COLOURS, styles.items(), strict=False):
            line = select(rows, analysis=analysis, epsilon=epsilon)
            values = [row["log10_total"] for row in line]
            axes[1].plot(
                [row["p"] for row in line], values, "o" + style, color=colour, label=f"{analysis}, ε = {epsilon:.2g}"
            )
        axes[1].set(xlabel="p", ylabel="log₁₀ of total oracle calls")
        axes[1].legend()
    return made
