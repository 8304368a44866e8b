"""The comparison on noisy labels: it can be stopped and continued, and its tables follow from its files."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPT = BENCHMARKS / "label_noise.py"


@pytest.fixture
def parts(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from noisy_labels import cells, data, pages, statistics

    return cells, data, pages, statistics


def drawn(seeds, random, levels=(50, 200), spread=3.0):
    """Cells whose seeds have an effect in common at both levels of trusted rows; ours is ahead by 2 points."""
    out = []
    for data in ("pima", "vowel", "dna"):
        for kind in ("symmetric", "pair"):
            for seed in range(seeds):
                common = random.normal()
                for trusted in levels:
                    gap = 2 + spread * (common + random.normal())
                    row = {"seconds": 1.0, "AUROC": 0.9, "AP": 0.5}
                    methods = {
                        "HyperCleaner": row | {"accuracy": 0.8 + gap / 100, "AUROC": 0.9 + gap / 100},
                        "cleanlab": row | {"accuracy": 0.8},
                        "true labels": row | {"accuracy": 0.9},
                    }
                    cell = {"data": data, "kind": kind, "rate": 0.2, "trusted": trusted, "seed": seed}
                    out.append(cell | {"methods": methods})
    return out


def test_the_standard_error_over_seeds_is_the_deviation_of_the_mean(parts):
    *_, statistics = parts
    random = np.random.default_rng(0)
    leads = [statistics.ahead(drawn(4, random), "cleanlab", "accuracy") for _ in range(400)]
    assert abs(np.mean([one.mean for one in leads]) - 2) < 0.2
    spread = np.std([one.mean for one in leads])  # of the same means with new seeds
    claimed = np.sqrt(np.mean([one.over_seeds**2 for one in leads]))
    assert 0.9 < claimed / spread < 1.1


def test_standard_errors_by_hand(parts):
    *_, statistics = parts
    one, two = ("pima", "pair", 0.2, 50), ("vowel", "pair", 0.2, 50)
    found = statistics.lead({one: {0: 1.0, 1: 3.0}, two: {0: 6.0, 1: 6.0}})
    np.testing.assert_allclose(found, (4.0, 2.0, 0.5))  # (2 ± 1 and 6 ± 0); √(1² + 0²)/2
    assert statistics.lead({}) is None
    single = statistics.lead({one: {0: 1.0}, two: {0: 2.0, 1: 2.0}})
    assert np.isnan(single.over_seeds)
    assert str(single) == "+1.50 ± 0.50 (?)"
    assert not single.behind


def test_tables_say_what_the_cells_say(parts):
    _, _, pages, statistics = parts
    found = drawn(10, np.random.default_rng(1), spread=0.1)
    for cell in found:
        if cell["data"] == "dna":  # where a rival is ahead
            cell["methods"]["cleanlab"]["accuracy"] = 0.85
    assert pages.counted(found) == "120 cells: 12 settings with 10 seeds each."
    text = pages.everything(found)
    assert "| settings with ten seeds | 12 of 12; the fewest seeds are 10 |" in text
    tied = statistics.best_or_tied(found, "accuracy", ["cleanlab"])
    assert {setting[0] for setting, best in tied.items() if not best} == {"dna"}
    assert "accuracy 67 %, AUROC 100 %, both 67 %" in text
    assert pages.behind_on(found, "cleanlab", "accuracy").startswith("dna (-3.")
    lost = [line for line in pages.losses(found).splitlines() if line.startswith("| dna")]
    assert len(lost) == 4
    plain = [cell | {"rate": 0.0} for cell in found]
    assert pages.behind_on(plain, "true labels", "accuracy").startswith("pima (-")
    once = [cell for cell in found if cell["seed"] == 0 or cell["data"] == "pima"]
    assert pages.behind_on(once, "cleanlab", "accuracy") == "none, of 1"
    for place, cell in enumerate(found):
        cell["methods"]["noisy labels"] = {"accuracy": 0.5, "AUROC": 1.05 if place < 30 else 0.95, "seconds": 0.0}
    assert pages.astray(found, trusted=True) == "30 of 120"


def test_packed_cells_come_back(parts, tmp_path):
    cells, data, _, _ = parts
    found = drawn(2, np.random.default_rng(2))
    del found[0]["methods"]["cleanlab"]["AUROC"]
    for cell in found:
        name = data.Cell(**{key: cell[key] for key in cells.KEYS}).name
        (tmp_path / name).write_text(json.dumps(cell))
    (tmp_path / "elsewhere").mkdir()
    assert cells.pack(tmp_path, tmp_path / "elsewhere" / "cells.csv") == 24
    for before, after in zip(cells.read(tmp_path), cells.read(tmp_path / "elsewhere"), strict=True):
        assert {key: before[key] for key in cells.KEYS} == {key: after[key] for key in cells.KEYS}
        for name, values in before["methods"].items():
            assert after["methods"][name] == pytest.approx(values, abs=1e-6)


def call(*options, folder):
    command = [sys.executable, str(SCRIPT), *options[:1], "--out", str(folder), *options[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_run_continues_where_it_was(tmp_path):
    options = ["ablation", "--sets", "wine", "--noise", "0.4", "--trusted", "1", "--seeds", "0-0"]
    assert call(*options, "--part", "1/2", folder=tmp_path).startswith("1 of 3 cells")
    before = {path: path.read_bytes() for path in tmp_path.glob("*.json")}
    assert len(before) == 1
    packed = tmp_path / "packed"
    call("pack", "--file", str(packed / "cells.csv"), folder=tmp_path)
    for folder, new in ((tmp_path, 2), (packed, 2)):
        second = call(*options, folder=folder)
        assert second.startswith("3 of 3 cells")
        assert "3 cells: 3 settings with 1 seed each." in second
        assert second.count("| one pass |") == 4  # all, and each kind of noise
        assert len([path for path in folder.glob("*.json") if path not in before]) == new
    assert all(path.read_bytes() == content for path, content in before.items())


@pytest.mark.slow
def test_the_tables_are_written_between_the_marks_of_a_page(tmp_path):
    pytest.importorskip("cleanlab", reason="the extra `compare` is not installed")
    call("run", "--sets", "wine", "--noise", "0", "0.4", "--seeds", "0-1", folder=tmp_path)
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- tables: begin -->\nyesterday\n<!-- tables: end -->\nbelow\n")
    printed = call("tables", "--page", str(page), folder=tmp_path)
    text = page.read_text()
    assert text.startswith("above\n<!-- tables: begin -->\n### In short")
    assert text.endswith("|\n<!-- tables: end -->\nbelow\n")
    assert "yesterday" not in text
    assert text.split("begin -->\n")[1].split("\n<!--")[0] in printed
    assert (tmp_path / "label_noise.png").stat().st_size > 10_000
