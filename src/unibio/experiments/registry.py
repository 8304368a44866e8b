"""The table of claims: what the paper says, what we compute, and the verdict."""

import dataclasses
import enum
import time
from collections.abc import Callable


class Verdict(enum.StrEnum):
    """Confirmed: true as printed. Corrected: true with another constant or condition. Refuted: false."""

    confirmed = "confirmed"
    corrected = "corrected"
    refuted = "refuted"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a check found: the verdict, the number it rests on, and a sentence with it."""

    verdict: Verdict
    value: float
    finding: str


@dataclasses.dataclass(frozen=True)
class Claim:
    """One numbered claim of the paper."""

    name: str
    where: str
    says: str
    details: str
    check: Callable[[], Outcome]


@dataclasses.dataclass(frozen=True)
class Row:
    """A claim that has been checked."""

    claim: Claim
    outcome: Outcome
    seconds: float


CLAIMS: dict[str, Claim] = {}


def claim(where: str, says: str) -> Callable[[Callable[[], Outcome]], Callable[[], Outcome]]:
    """Registers a check under its own name; its docstring is the long explanation."""

    def register(check: Callable[[], Outcome]) -> Callable[[], Outcome]:
        name = check.__name__
        CLAIMS[name] = Claim(name, where, says, " ".join((check.__doc__ or "").split()), check)
        return check

    return register


def verify(names: list[str] | None = None, progress: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """Checks all claims, or those named, in float64; `progress` sees each row as it is done."""
    import unibio.experiments.claims  # fills the table

    assert unibio.experiments.claims
    unknown = sorted(set(names or ()) - set(CLAIMS))
    if unknown:
        raise ValueError(f"no claim {', '.join(unknown)}; there are {', '.join(CLAIMS)}.")
    rows = []
    for entry in CLAIMS.values():
        if names and entry.name not in names:
            continue
        began = time.perf_counter()
        outcome = entry.check()
        rows.append(Row(entry, outcome, time.perf_counter() - began))
        progress(rows[-1])
    return rows
