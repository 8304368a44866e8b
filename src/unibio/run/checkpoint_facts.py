"""What a checkpoint file must say of its run. A file that says something else was made by somebody else, though its
checksum may be right; it is passed over like a damaged one."""

import math
import re
from typing import Any

from unibio.files.archive import Facts

_HISTORY = re.compile(r"history-\d{1,9}\.log")
# What the entries are: a class, a list of one kind, or a dictionary with these entries.
_KINDS: dict[str, Any] = {
    "run": {},
    "circumstances": {},
    "next_step": {"program": str, "bits": str, "numbers": [float]},  # see `identity.next_step`
    "steps": int,
    "calls": [int],
    "seconds": float,
    "compile_seconds": float,
    "restarts": [str],
}


def is_history(name: str) -> bool:
    """Whether a file of this name is one that a run keeps its history in."""
    return _HISTORY.fullmatch(name) is not None


def check(facts: Facts, arrays: dict[str, Any]) -> None:
    """Raises a ValueError that names the first entry that is missing or makes no sense."""
    odd = [name for name, kind in _KINDS.items() if not _fits(facts.get(name), kind)]
    if not odd:
        place: Any = facts.get("history")
        anchor = facts.get("anchor", -1)
        right = {
            "calls": len(facts["calls"]) == 4,
            "seconds": 0 <= facts["seconds"] < math.inf,
            "compile_seconds": 0 <= facts["compile_seconds"] < math.inf,
            # the name of a history file, and how many of its bytes count
            "history": _fits(place, list) and len(place) == 2 and is_history(str(place[0])) and _fits(place[1], int),
            "anchor": anchor is None or (_fits(anchor, int) and anchor <= facts["steps"]),
        }
        odd = [name for name, holds in right.items() if not holds]
    if odd:
        raise ValueError(f"its entry {odd[0]!r} makes no sense.")
    if any(not isinstance(group, list) for group in arrays.values()):
        raise ValueError("its arrays are no state.")


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value that was read from JSON is of this kind (see `_KINDS`)."""
    if isinstance(kind, dict):
        return isinstance(value, dict) and all(_fits(value.get(name), each) for name, each in kind.items())
    if isinstance(kind, list):
        return isinstance(value, list) and all(_fits(one, kind[0]) for one in value)
    if kind is int:
        return type(value) is int and 0 <= value < 2**63
    return type(value) in ((int, float) if kind is float else (kind,))
