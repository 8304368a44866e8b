"""What a checkpoint file must say of its run. A file that says something else was made by somebody else, though its
checksum may be right; it is passed over like a damaged one."""

import math
import re
from collections.abc import Callable
from typing import Any

from unibio.files.archive import Facts

_HISTORY = re.compile(r"history-\d{1,9}\.log")


def is_history(name: str) -> bool:
    """Whether a file of this name is one that a run keeps its history in."""
    return _HISTORY.fullmatch(name) is not None


def check(facts: Facts, arrays: dict[str, Any]) -> None:
    """Raises a ValueError that names the first entry that is missing or makes no sense."""
    for name, holds in _RULES.items():
        if name not in facts or not holds(facts[name]):
            raise ValueError(f"its entry {name!r} makes no sense.")
    if facts["anchor"] is not None and not 0 <= facts["anchor"] <= facts["steps"]:
        raise ValueError("its entry 'anchor' lies beyond its steps.")
    if any(not isinstance(group, list) for group in arrays.values()):
        raise ValueError("its arrays are no state.")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def _is_list(value: object, each: Callable[[object], bool], length: int | None = None) -> bool:
    return isinstance(value, list) and length in (None, len(value)) and all(map(each, value))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_probe(value: object) -> bool:
    """Whether it has the entries of `identity.next_step`."""
    return (
        isinstance(value, dict)
        and all(_is_text(value.get(name)) for name in ("program", "bits"))
        and _is_list(value.get("numbers"), _is_number)
    )


def _is_place(value: object) -> bool:
    """Whether it is the name of a history file and how many of its bytes count."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and _is_text(value[0])
        and is_history(value[0])
        and _is_whole(value[1])
    )


_RULES: dict[str, Callable[[object], bool]] = {
    "run": lambda value: isinstance(value, dict),
    "circumstances": lambda value: isinstance(value, dict),
    "next_step": _is_probe,
    "steps": _is_whole,
    "calls": lambda value: _is_list(value, _is_whole, 4),
    "seconds": _is_seconds,
    "compile_seconds": _is_seconds,
    "history": _is_place,
    "anchor": lambda value: value is None or _is_whole(value),
    "restarts": lambda value: _is_list(value, _is_text),
}
