"""The figure of the comparison on noisy labels."""

from pathlib import Path
from typing import Any

from noisy_labels.cells import Measured
from noisy_labels.methods import CEILING, METHODS, OURS
from noisy_labels.statistics import means, values


def draw(cells: list[Measured], path: Path) -> None:
    """Accuracy and AUROC of every method on the held-out sets, best at the top."""
    if not cells:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    axes: Any
    drawn, axes = plt.subplots(1, 2, figsize=(9.5, 3.8))
    titles = {"accuracy": "Test accuracy after cleaning (%)", "AUROC": "Wrong labels found: AUROC (%)"}
    for axis, (column, title) in zip(axes, titles.items(), strict=True):
        heights = {method: means(values(cells, method, column)).mean() for method in METHODS}
        order = sorted(heights, key=heights.__getitem__)
        colours = ["#c0392b" if name == OURS else "#bbbbbb" if name == CEILING else "#4c72b0" for name in order]
        axis.barh(order, [heights[name] for name in order], color=colours)
        for place, name in enumerate(order):
            axis.text(heights[name] + 0.15, place, f"{heights[name]:.1f}", va="center", fontsize=8)
        low, high = min(heights.values()), max(heights.values())
        axis.set_xlim(low - 0.25 * (high - low), high + 0.15 * (high - low))
        axis.set_title(title, fontsize=10)
        axis.tick_params(labelsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    drawn.tight_layout()
    drawn.savefig(path, dpi=150)
