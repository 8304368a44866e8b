"""Small versions of the long checks in scripts/: fuzz, kills, determinism. Each prints what it found."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"
CHECKS = [
    pytest.param(["fuzz.py", "70", "0", "0"], id="fuzz of the API", marks=pytest.mark.slow),
    pytest.param(["fuzz.py", "0", "30", "0"], id="fuzz of the command line", marks=pytest.mark.slow),
    pytest.param(["fuzz.py", "0", "0", "800"], id="wrong arguments", marks=pytest.mark.slow),
    pytest.param(["kill_test.py", "1", "600"], id="a kill"),
    pytest.param(["kill_test.py", "5", "600"], id="kills", marks=pytest.mark.slow),
    pytest.param(["disk_test.py"], id="disks", marks=pytest.mark.slow),
    pytest.param(["kill_test.py", "3", "400", "--megabytes", "16"], id="kills amid a write", marks=pytest.mark.slow),
    pytest.param(["determinism.py", "--small"], id="determinism", marks=pytest.mark.slow),  # kills compare bits too
]


@pytest.mark.parametrize("command", CHECKS)
def test_scripts(command):
    done = subprocess.run([sys.executable, SCRIPTS / command[0], *command[1:]], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
