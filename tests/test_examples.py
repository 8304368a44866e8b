"""The scripts in examples/ run, and show what they promise."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_clean_regression():
    out = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "clean_regression.py")], capture_output=True, text=True, timeout=300
    )
    assert out.returncode == 0, out.stderr
    rows = [line.split() for line in out.stdout.splitlines() if re.match(r"\s+\d+ ", line)]
    first, last = [float(v) for v in rows[0]], [float(v) for v in rows[-1]]
    assert last[1] < first[1] / 2
    assert last[2] > 0.9


def test_the_readme_example():
    text = (ROOT / "README.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr
    assert "Status<ok>" in out.stdout
