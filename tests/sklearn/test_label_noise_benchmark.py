"""The comparison on noisy labels can be stopped and continued, and its tables follow from its files."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "label_noise.py"


@pytest.mark.slow
def test_a_run_continues_where_it_was(tmp_path):
    command = [sys.executable, str(SCRIPT), "ablation", "--out", str(tmp_path), "--sets", "wine", "--noise", "0.4"]
    command += ["--trusted", "1", "--seeds", "0-0"]
    first = subprocess.run([*command, "--part", "1/2"], capture_output=True, text=True, check=True).stdout
    assert first.startswith("1 of 3 cells")
    before = {path: path.read_bytes() for path in tmp_path.glob("*.json")}
    assert len(before) == 1
    second = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert second.startswith("3 of 3 cells")
    assert all(path.read_bytes() == content for path, content in before.items())
    assert "3 cells: 3 settings with 1 to 1 seeds." in second
    assert second.count("| one pass |") == 4  # all, and each kind of noise
