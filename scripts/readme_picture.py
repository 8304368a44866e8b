"""Runs the README's program that finds bad samples, and draws docs/images/suspects.svg from it.

    python scripts/readme_picture.py [--seeds 10]

It prints the AUROCs of the program for each seed of the data, because the README shows one of them.
"""

import argparse
import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from unibio.files import figures

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "images" / "suspects.svg"


def program(number: int) -> str:
    """The README's Python program with this number, from 0."""
    return (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[1 + number].split("```")[0]


def found(seed: int) -> dict[str, Any]:
    """The variables of the second program, run with this seed for the data."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(program(1).replace("default_rng(0)", f"default_rng({seed})"), "README.md", "exec"), names)
    return names


def draw(names: dict[str, Any]) -> "figures.Figure":
    """Histograms of the suspicion of good and of bad samples, by two of the three models."""
    made, axes = figures.panels(2, width=3.4, height=2.3, sharey=True)
    bins = np.linspace(0, 10, 41).tolist()
    for axis, model in zip(axes, ("all", "weighted"), strict=True):
        shown = np.minimum(names["suspicion"][model], 10)
        for kind, which, colour in (("good", ~names["bad"], 0), ("bad", names["bad"], 1)):
            axis.hist(shown[which], bins, color=figures.COLOURS[colour], alpha=0.65, label=f"{kind} samples")
        axis.set(title=f"trained on {model} samples", xlabel="suspicion (10 and more)")
    axes[0].set(ylabel="samples")
    axes[1].legend()
    return made


def aurocs(names: dict[str, Any]) -> list[float]:
    """What the program prints, in its order."""
    bad = names["bad"]
    return [float(np.mean(s[bad][:, None] > s[~bad])) for s in names["suspicion"].values()]


def main() -> None:
    """Draws the picture and prints the numbers of all seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    runs = [found(seed) for seed in range(seeds)]
    figures.save(figures.with_style(draw, runs[0]), PICTURE)
    table = np.array([aurocs(names) for names in runs])
    for name, column in zip(runs[0]["models"], table.T, strict=True):
        print(f"{name}: {column.min():.2f} to {column.max():.2f}, median {np.median(column):.2f}")
    print(f"drawn: {PICTURE}")


if __name__ == "__main__":
    main()
