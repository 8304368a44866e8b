"""The version is stated once, in pyproject.toml, and told by the package and by the command."""

import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import unibio
from unibio import cli

ROOT = Path(__file__).parents[2]


def test_the_package_tells_the_version_of_its_distribution():
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert unibio.__version__ == version("unibio") == stated


def test_no_other_file_states_the_version():
    files = [*(ROOT / "src").glob("**/*.py"), *(ROOT / "scripts").glob("*.py")]
    assert files
    assert [path for path in files if unibio.__version__ in path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("words", [["--version"], ["--version", "compare", "NoSolver"]], ids=["alone", "and more"])
def test_the_command_prints_it_and_does_nothing_else(monkeypatch, capsys, words):
    monkeypatch.setattr(sys, "argv", ["unibio", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert capsys.readouterr() == (f"unibio {unibio.__version__}\n", "")


def test_the_help_still_says_what_the_program_is_for():
    done = subprocess.run([sys.executable, "-m", "unibio.cli", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "Bilevel optimization beyond strong convexity" in done.stdout
    assert "--version" in done.stdout
    assert "reproduce" in done.stdout
