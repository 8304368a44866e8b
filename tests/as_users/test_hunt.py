"""The hunt of scripts/honesty.py in float32, small."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from test_honesty import check_lower_solutions, load


@pytest.mark.slow
def test_no_lies_in_float32():
    honesty = load()
    records = honesty.hunt(["2", "3", "6", "11"], ["CG"], "float32", [11], 8)
    verdicts = [honesty.judge(record) for record in records]
    assert len(records) == 32
    assert not [record for record, v in zip(records, verdicts, strict=True) if v["lie"] or v["crash"] or v["alarm"]]
    assert all(v["wrong"] for v in verdicts[-8:])  # family 11 has no limit


@pytest.mark.slow
def test_lower_solutions_in_float32():
    check_lower_solutions(["unbounded", "not-convex", "scaled", "degenerate"], "float32", 4)
