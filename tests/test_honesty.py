"""A small version of scripts/honesty.py: no wrong answer may say `ok`. The float32 part runs in as_users."""

import importlib
import sys
from pathlib import Path

import pytest


def load():
    folder = str(Path(__file__).parent.parent / "scripts")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module("honesty")


@pytest.mark.parametrize(("families", "methods"), [("2567", ["CG"]), ("2", ["Neumann-10", "Unrolled-5"])])
@pytest.mark.slow
def test_no_lies_in_float64(families, methods):
    honesty = load()
    records = honesty.hunt(families, methods, "float64", [11], 8 * len(methods))
    verdicts = [honesty.judge(record) for record in records]
    assert len(records) == 8 * len(methods) * len(families)
    assert not [record for record, v in zip(records, verdicts, strict=True) if v["lie"] or v["crash"] or v["alarm"]]
    if "7" in families:
        assert any(v["wrong"] for v in verdicts)  # y off: something had to be noticed


def check_lower_solutions(families, dtype, count):
    """Nothing without a minimiser is accepted, and every minimiser is found; of `count` instances of each family."""
    lower = load().lower
    records = lower.hunt(families, dtype, [12], count)
    verdicts = [lower.judge(record) for record in records]
    assert len(records) == count * len(families)
    assert not [record for record, v in zip(records, verdicts, strict=True) if v["lie"] or v["refused"]]
    assert any(v["accepted"] for v in verdicts)
    assert not all(v["accepted"] for v in verdicts)


@pytest.mark.slow
def test_lower_solutions_in_float64():
    check_lower_solutions(["no-minimiser", "flat", "degenerate", "units"], "float64", 4)
