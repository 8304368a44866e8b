"""The table of the paper's numbered claims: how a claim is stated and checked, and what `unibio verify` makes of it.

A claim is a function decorated by `@claim(where, statement)`. It computes what the paper claims and returns a `Found`:
the verdict, the number it rests on, and the finding in a sentence.
"""

import dataclasses
import enum
import importlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path

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
    order = [Verdict.refuted, Verdict.corrected, Verdict.confirmed, Verdict.answered]
    lines = []
    for row in sorted(rows, key=lambda row: order.index(row.outcome.verdict)):
        claim, found = row.claim, row.outcome
        cells = (claim.where, claim.statement, found.finding, str(found.verdict), f"`{claim.name}`")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    counts = ", ".join(f"{sum(row.outcome.verdict == v for row in rows)} {v}" for v in Verdict)
    page = Path(__file__).with_name("page.md").read_text(encoding="utf-8")
    return page.replace("<!-- counts -->", counts).replace("<!-- table -->", "\n".join(lines))
