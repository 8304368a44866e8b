"""The figure of the comparison on noisy labels."""

from pathlib import Path
from typing import Any

from noisy_labels.cells import Measured
from noisy_labels.methods import CEILING, METHODS, OURS
from noisy_labels.statistics import means, values


def draw(cells: list[Measured], path: Path) -> None:
    """Mean accuracy and AUROC of every method, the most accurate at the top."""
    if not cells:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    axes: Any
    drawn, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), sharey=True)
    titles = {"accuracy": "Accuracy on test rows after cleaning (%)", "AUROC": "Wrong labels ranked first: AUROC (%)"}
    means_of = {column: {name: means(values(cells, name, column)).mean() for name in METHODS} for column in titles}
    order = sorted(METHODS, key=means_of["accuracy"].__getitem__)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    colours = ["#c0392b" if name == OURS else "#999999" if name == CEILING else "#4c72b0" for name in order]
    for axis, (column, title) in zip(axes, titles.items(), strict=True):
        numbers = [means_of[column][name] for name in order]
        low, high = min(numbers), max(numbers)
        axis.set_xlim(low - 0.1 * (high - low), high + 0.2 * (high - low))
        axis.hlines(order, *axis.get_xlim(), color="#e4e4e4", linewidth=1, zorder=0)
        axis.scatter(numbers, order, color=colours, s=60)
        for place, number in enumerate(numbers):
            axis.text(number + 0.04 * (high - low), place, f"{number:.1f}", va="center", fontsize=9, bbox=box)
        axis.set_title(title, fontsize=10)
        axis.tick_params(labelsize=9, left=False)
        axis.spines[["top", "right", "left"]].set_visible(False)
    drawn.tight_layout()
    drawn.savefig(path, dpi=150)
