"""The table of the paper's numbered claims: how a claim is stated and checked, and what `unibio verify` makes of it.

A claim is a function decorated by `@claim(where, statement)`. It computes what the paper claims and returns a `Found`:
the verdict, the number it rests on, and the finding in a sentence.
"""

import dataclasses
import enum
import importlib
import time
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import ArrayLike

from unibio.core import checks


class Verdict(enum.StrEnum):
    """The verdict on a claim.

    Confirmed means that it is true as printed, though a bound may be loose; corrected, that it is true with another
    constant or under another condition; refuted, that it is false. Answered is no verdict on the paper: it leaves a
    question open, and our answer passes its check; refuted then means that our answer fails it.
    """

    answered = "answered"
    confirmed = "confirmed"
    corrected = "corrected"
    refuted = "refuted"


def judge(printed: object, corrected: object = False) -> Verdict:
    """The verdict: confirmed if the claim holds as printed, corrected if only our form of it holds, refuted if neither
    does."""
    return Verdict.confirmed if printed else Verdict.corrected if corrected else Verdict.refuted


@dataclasses.dataclass(frozen=True)
class Found:
    """What a check found: the verdict, the number on which it rests, and the finding in a sentence."""

    verdict: Verdict
    value: float
    finding: str


@dataclasses.dataclass(frozen=True)
class Claim:
    """One numbered claim of the paper.

    `where` is its place in the paper and `statement` the claim itself in a few words; `details` explain how `check`
    checks it.
    """

    name: str
    where: str
    statement: str
    details: str
    check: Callable[[], Found]


@dataclasses.dataclass(frozen=True)
class Row:
    """A claim that has been checked, and the seconds that this took."""

    claim: Claim
    outcome: Found
    seconds: float


def bound(ratios: ArrayLike, what: str, corrected: bool = False) -> Found:
    """The finding about a bound, from ratios of the bounded quantity (`what`) to the bound. A ratio above 1 refutes it.

    `corrected` says that the bound is not the printed one but our correction of it.
    """
    ratio, name = float(np.max(ratios)), "corrected bound" if corrected else "bound"
    held = ratio <= 1 + 1e-9
    if held:
        text = f"The {name} holds: {what} reaches {ratio:.3g} of it."
    else:
        text = f"The {name} is violated: {what} is {ratio:.3g} times as large."
    return Found(judge(held and not corrected, held), ratio, text)


def listed(values: Iterable[float], form: str) -> str:
    """The numbers separated by commas, each in a format such as ".3f"."""
    return ", ".join(format(value, form) for value in values)


CLAIMS: dict[str, Claim] = {}


def claim(where: str, statement: str) -> Callable[[Callable[[], Found]], Callable[[], Found]]:
    """Registers the decorated check as a claim under its function's name. Its docstring becomes the details."""

    def register(check: Callable[[], Found]) -> Callable[[], Found]:
        name = check.__name__
        CLAIMS[name] = Claim(name, where, statement, " ".join((check.__doc__ or "").split()), check)
        return check

    return register


def every_claim() -> dict[str, Claim]:
    """All claims by name. Importing the modules that state them fills the table."""
    for part in ("foundations", "assumptions", "algorithm", "theorem", "unknown_p", "cleaning"):
        importlib.import_module(f"unibio.paper.claims.{part}")
    return CLAIMS


def verify(names: list[str] | None = None, progress: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """Checks all claims, or those named, and calls `progress` with each row when it is done. JAX must be set to float64
    (`jax_enable_x64`)."""
    claims = every_claim()
    for name in names or ():
        checks.nearest(name, claims, "claim")
    rows = []
    for entry in claims.values():
        if names and entry.name not in names:
            continue
        began = time.perf_counter()
        outcome = entry.check()
        rows.append(Row(entry, outcome, time.perf_counter() - began))
        progress(rows[-1])
    return rows


def as_markdown(rows: list[Row]) -> str:
    """The page docs/paper_vs_us.md: a table of all rows, refuted claims first, then corrected, confirmed, answered."""
    order = {Verdict.refuted: 0, Verdict.corrected: 1, Verdict.confirmed: 2, Verdict.answered: 3}
    counts = ", ".join(f"{sum(row.outcome.verdict == v for row in rows)} {v}" for v in Verdict)
    lines = [
        "# Where we differ from the paper, and why",
        "",
        "This table has every numbered claim of *Bilevel Optimization with Lower-Level Uniform Convexity* (ICLR 2026),",
        "and what we find when we check it. Each claim is checked by the function of `unibio.paper.claims` that the",
        f"last column names. The verdicts are {counts}.",
        "",
        "- *refuted*: the claim is false.",
        "- *corrected*: it is true with another constant or under another condition.",
        "- *confirmed*: it is true as printed, though a bound may be loose.",
        "- *answered*: the paper leaves the question open; our answer, proved in [without_p.md](without_p.md), passes.",
        "",
        "`unibio verify --claim NAME` explains how a claim is checked. This page is the output of",
        "`unibio verify --markdown`. The symbols are those of the paper; [theory.md](theory.md) introduces most of",
        "them.",
        "",
        "| where | the paper claims | we find | verdict | claim |",
        "|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: order[row.outcome.verdict]):
        cells = [
            row.claim.where,
            row.claim.statement,
            row.outcome.finding,
            str(row.outcome.verdict),
            f"`{row.claim.name}`",
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, "", _MORE])


_MORE = """## Choices that are not claims

- **Neumann series.** The paper draws a fresh sample for each factor of each of the Q terms, which costs Q(Q−1)/2
  Hessian-vector products. By default we sum the series in Horner's order, which costs Q − 1 products and has the same
  expectation. `Neumann(form=Independent())` is the paper's way.
- **Noise level.** "N(0, 10)" has the variance 10 in the paper's text and the standard deviation 10 in its released
  code. We follow the text.
- **Synthetic study.** The released script uses the true gradient ∇Φ(x_t). We use the estimate at (x_t, y_t), as the
  algorithm does. The mean of ‖∇Φ(x_t)‖ over 500 steps is then .0884, .1210, .1683 at p = 2, 4, 6. At p = 8 it is .321,
  and further digits depend on rounding: with γ_1 = 1 the lower iteration multiplies errors near y* by −6
  (`tests/solvers/test_rounding_of_the_study.py`).
- **Unknown p.** The paper's algorithm needs p, and `UniBiO.without_p` needs neither p nor a lower step size
  ([without_p.md](without_p.md)). On Example 3 and ℓ_p regression it arrives at the same place with p stated too small,
  too large or not at all (`tests/solvers/test_without_p.py`).
"""
