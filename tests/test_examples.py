"""The scripts in examples/ run, and show what they promise."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from unibio.files import figures

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import readme_picture  # noqa: E402


def found(pattern, text):
    """The groups of a pattern that the text must contain."""
    match = re.search(pattern, text)
    assert match, text
    return match.groups()


def run(name, tmp_path, draws=True):
    figure = tmp_path / "figure.png"
    script = str(ROOT / "examples" / f"{name}.py")
    out = subprocess.run([sys.executable, script, str(figure)], capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr
    assert not draws or figure.stat().st_size > 10_000
    return out.stdout


def test_every_example_has_a_test():
    tested = Path(__file__).read_text()
    assert all(f'run("{path.stem}"' in tested for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.slow
def test_suspects(tmp_path):
    out = run("plot_suspects", tmp_path)
    rows = [line.split() for line in out.splitlines() if re.match(r"\s+\d+ ", line)]
    first, last = [float(v) for v in rows[0]], [float(v) for v in rows[-1]]
    assert last[1] < first[1] / 2
    assert float(found(r"AUROC ([\d.]+)", out)[0]) > 0.85


@pytest.mark.slow
def test_twenty_lines(tmp_path):
    out = run("plot_twenty_lines", tmp_path)
    assert abs(float(found(r"x = (-?[\d.]+)", out)[0]) + 1.571) < 0.1


@pytest.mark.slow
def test_compare_algorithms(tmp_path):
    out = run("plot_compare_algorithms", tmp_path)
    at_4, at_12 = out.split("p = 12")
    assert at_4.count("never") == 0
    assert at_12.count("never") == 3
    assert not re.search(r"UniBiO\s+never", at_12)


@pytest.mark.slow
def test_many_processes(tmp_path):
    """On one process; it is given a folder for its checkpoints."""
    out = run("many_processes", tmp_path, draws=False)
    wrong, right = (float(number) for number in found(r"labels ([\d.]+), of right ones ([\d.]+)", out))
    assert wrong < right - 0.2
    assert (tmp_path / "figure.png" / "step-000000000200.state").is_dir()


def test_many_processes_without_a_folder_says_what_is_missing():
    script = str(ROOT / "examples" / "many_processes.py")
    out = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    assert out.returncode == 1
    assert out.stderr.startswith("Name one folder for checkpoints")


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_programs_of_the_readme_print_what_it_says(number):
    part = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[1 + number]
    code, _, printed = part.split("```\n")[:3]
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr
    assert out.stdout == printed


def test_the_picture_of_the_readme():
    """Its two panels count every sample once, and its numbers are those that the program prints."""
    bad = np.array([True, False, False, True])
    suspicion = {"all": np.array([0.1, 0.2, 3.0, 50.0]), "weighted": np.array([4.0, 0.1, 0.2, 5.0])}
    names = {"bad": bad, "suspicion": suspicion, "models": suspicion}
    assert readme_picture.aurocs(names) == [0.5, 1.0]
    for axis in figures.with_style(readme_picture.draw, names).axes:
        assert sum(bar.get_height() for bar in axis.patches) == len(bad)  # type: ignore[attr-defined]
    assert "AUROC" in readme_picture.program(1)


def test_noisy_labels(tmp_path):
    out = run("plot_noisy_labels", tmp_path)
    accuracy, plain = (float(found(rf"{words} ([\d.]+)", out)[0]) for words in ("test accuracy", "for right"))
    assert accuracy > plain + 0.01
    assert float(found(r"AUROC of the suspicion ([\d.]+)", out)[0]) > 0.98
