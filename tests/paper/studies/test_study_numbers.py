"""The deterministic figures of the synthetic study, as `unibio reproduce` writes them."""

import math

import pytest

from unibio.files.tables import from_csv, select
from unibio.paper.framework.reproduce import reproduce
from unibio.paper.framework.study import Options

NAMES = ("noise", "one-step-size", "rates", "comparison")


@pytest.mark.slow
def test_the_numbers_of_the_study(tmp_path):
    """One test, because the runs take half a minute to compile."""
    out = tmp_path / "results"
    reproduce(NAMES, out, Options(seeds=2))
    tables = {name: from_csv((out / name / "statistics.csv").read_text()) for name in NAMES}
    for figures in STUDY:
        check_the_study(tables, *figures)
    check_p_8(tables)
    check_a_decaying_step(tables)
    check_one_step_size(tables)
    check_lower_steps(tables)
    for p, last in ((4.0, 0.0084), (12.0, 0.0079), (20.0, 0.0079)):
        check_the_comparison(tables, p, last)


STUDY = [  # p, mean, last 50, slope, first hit
    (2.0, 0.0883, 0.0198, -0.760, 48),
    (4.0, 0.1210, 0.0122, -0.667, 83),
    (6.0, 0.1683, 0.0091, -0.522, 125),
]


def check_the_study(tables, p, mean, last, slope, hit):
    for row in (select(tables["noise"], p=p, variance=0.0, step="constant")[0], select(tables["rates"], p=p)[0]):
        assert row["mean"] == pytest.approx(mean, abs=6e-5)
        assert row["last_50"] == pytest.approx(last, abs=6e-5)
        assert row["slope"] == pytest.approx(slope, abs=6e-4)
        assert row["first_hit"] == hit


def check_p_8(tables):
    """Its last digits are chaotic (tests/solvers/test_rounding_of_the_study.py); these are not."""
    row = select(tables["noise"], p=8.0, variance=0.0, step="constant")[0]
    assert row["mean"] == pytest.approx(0.3213, abs=3e-4)
    assert row["slope"] == pytest.approx(-0.154, abs=2e-3)
    assert row["first_hit"] == 254


def check_a_decaying_step(tables):
    """Without noise a constant step jumps across the minimiser by η; the last of the falling ones is η/250."""
    for row in select(tables["noise"], variance=0.0, step="decaying"):
        constant = select(tables["noise"], p=row["p"], variance=0.0, step="constant")[0]
        assert row["last_50"] < 0.3 * constant["last_50"]


def check_one_step_size(tables):
    for row in select(tables["one-step-size"], case="from (1, 1)")[:3]:
        assert row["mean"] == pytest.approx(0.1210, abs=2e-4)
        assert row["slope"] == pytest.approx(-0.667, abs=2e-3)


def check_lower_steps(tables):
    by_budget = {budget: [row["lower_steps"] for row in select(tables["rates"], budget=budget)]
                 for budget in ("100 for every p", "4, 4, 5, 6 epochs")}  # fmt: skip
    assert list(by_budget.values()) == [[75, 59, 70, 77], [75, 172, 737, 3059]]
    assert select(tables["rates"], budget="4, 4, 5, 6 epochs", p=8.0)[0]["last_50"] == pytest.approx(0.0029, abs=3e-4)


def check_the_comparison(tables, p, last):
    rows = {row["solver"]: row for row in select(tables["comparison"], p=p)}
    assert rows["UniBiO"]["last_50"] == pytest.approx(last, abs=4e-4)  # p = 12 depends on rounding
    if p == 4.0:
        assert rows["StocBiO"]["final"] < 1e-5
        assert rows["TTSA"]["final_max"] < 0.05
        assert rows["MA-SOBA"]["final"] == pytest.approx(0.9998, abs=6e-5)
    else:
        for name in ("StocBiO", "TTSA", "MA-SOBA"):
            assert math.isclose(rows[name]["final"], 1.0, abs_tol=1e-3)
