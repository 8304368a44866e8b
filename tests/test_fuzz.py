"""Small versions of the long checks in scripts/: fuzz, kills, determinism. Each prints what it found."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"
CHECKS = {
    "fuzz of the API": ["fuzz.py", "70", "0"],
    "fuzz of the command line": ["fuzz.py", "0", "30"],
    "kills": ["kill_test.py", "5", "600"],
}


@pytest.mark.long  # without it: the kills compare processes bit by bit too
def test_determinism():
    test_scripts(["determinism.py", "--small"])


@pytest.mark.parametrize("command", CHECKS.values(), ids=CHECKS)
def test_scripts(command):
    done = subprocess.run([sys.executable, SCRIPTS / command[0], *command[1:]], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
