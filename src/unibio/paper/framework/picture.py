"""The picture at the top of the report: Example 3 of the paper, drawn from its formulas."""

import numpy as np

from unibio.files import figures

DESCRIPTION = (
    "Example 3: g(x, y) = |y|^{p}/p − y·sin x and f(x, y) = sin(z) with z = sign(y)|y|^{p−1}. First: g(0, ·) for "
    "p = 2, 4 and 8; the larger p, the flatter it is at its minimum. Second: the minimiser y*(x), vertical at x = 0 "
    "for p > 2, where the Hessian of g is 0. Third: Φ(x) = sin(sin x), smooth and the same for every p. The circles "
    "are the two starts, (x, y) = (1, 1) and (0.001, 0.001), the second next to the singular point; the star is a "
    "minimum."
)


def draw() -> "figures.Figure":
    """Example 3: g(x, y) = |y|^p/p − y·sin x and f(x, y) = sin(z) with z = sign(y)|y|^(p−1). At y*(x), z is sin x."""
    made, (lower, solution, upper) = figures.panels(3, width=3.3, height=2.6)
    y, x = np.linspace(-1.2, 1.2, 201), np.linspace(-np.pi / 2 - 0.3, np.pi / 2, 801)
    for p, colour in zip((2, 4, 8), figures.COLOURS, strict=False):
        lower.plot(y, np.abs(y) ** p / p, color=colour, label=f"p = {p}")
        solution.plot(x, np.sign(x) * np.abs(np.sin(x)) ** (1 / (p - 1)), color=colour, label=f"p = {p}")
    lower.set(title="lower level: minimise g over y", xlabel="y", ylabel="g(0, y)")
    lower.legend(loc="upper center")
    solution.axvline(0, color="grey", linestyle=":", linewidth=1)
    solution.set(title="its solution", xlabel="x", ylabel="y*(x)")
    solution.legend(loc="upper left")
    upper.plot(x, np.sin(np.sin(x)), color="black")
    upper.axvline(0, color="grey", linestyle=":", linewidth=1)
    upper.annotate("the Hessian\nis 0 here", (0.06, -0.75), fontsize=9)
    upper.plot([1, 0.001], np.sin(np.sin([1, 0.001])), "o", color=figures.COLOURS[0], label="starts")
    upper.plot([-np.pi / 2], [-np.sin(1.0)], "*", markersize=11, color=figures.COLOURS[1], label="a minimum")
    upper.set(title="upper level: minimise Φ over x", xlabel="x", ylabel="Φ(x) = f(x, y*(x))")
    upper.legend(loc="upper left")
    return made
