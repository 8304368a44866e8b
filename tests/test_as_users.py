"""Runs the tests of `as_users` as users run the library: float32, XLA's optimisations on, nothing configured."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "as_users"


@pytest.mark.parametrize("tier", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_what_users_run(tier):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", tier, str(FOLDER)]
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | {"UNIBIO_TEST_AS_USERS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
