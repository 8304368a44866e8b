"""The command itself: its version, what it says without a command, and wrong names."""

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


def test_without_a_command_it_says_what_one_can_do(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["unibio"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    said = capsys.readouterr().out
    assert len(said.splitlines()) <= 12
    named = {line.split()[1] for line in said.splitlines() if line.startswith("  unibio ")}
    assert named == {"reproduce", "compare", "verify", "theory", "list", "COMMAND"}


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["compare", "SOBAA"], "SOBA"),
        (["compare", "SOBA", "--problem", "quadratik"], "quadratic"),
        (["reproduce", "nois"], "noise"),
        (["verify", "--claim", "example_33"], "example_3"),
        (["theory", "exmple3"], "example3"),
        (["lst"], "list"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(monkeypatch, capsys, tmp_path, words, meant):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["unibio", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert f"Did you mean '{meant}'?" in capsys.readouterr().err
