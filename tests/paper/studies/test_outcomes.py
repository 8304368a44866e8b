"""What the studies say of the paper's claims follows from their tables: other numbers give another outcome."""

import pytest

from unibio.files.tables import Rows
from unibio.paper.framework import front
from unibio.paper.framework.study import EXPERIMENTS, Outcome, answer, load, outcome
from unibio.paper.studies import (
    comparison,
    comparison_tuned,
    complexity,
    epoch_sgd,
    lp_cleaning,
    noise_placement,
    noise_study,
    one_step_size,
    rates,
    schedules,
)


def noise(constant, decaying):
    ends = {"constant": constant, "decaying": decaying}
    return {
        "statistics": [
            {"step": step, "p": 2.0, "variance": 1.0, "eta": 0.1, "last_50": end} for step, end in ends.items()
        ]
    }


def ends(module, special, p_4=1.0):
    """All solvers end at 1, but for those of `special` at every p, and StocBiO at p = 4."""
    rows: Rows = []
    for name in module.CONTESTANTS:
        for p in comparison.ORDERS:
            final = special.get(name, p_4 if (name, p) == ("StocBiO", 4.0) else 1.0)
            rows.append({"solver": name, "p": p, "final": final, "last_50": final, "calls": 100, "seeds": 1})
    return {"statistics": rows}


def slopes(*by_budget):
    names = rates.BUDGETS
    rows = [
        {"budget": budget, "p": p, "slope": slope, "lower_steps": 1, "first_hit": 10.0}
        for budget, values in zip(names, by_budget, strict=True)
        for p, slope in zip((2.0, 4.0), values, strict=True)
    ]
    curves = [
        {"budget": row["budget"], "p": row["p"], "t": t, "mean": t**-0.9 if t > 10 else t}
        for row in rows
        for t in range(1, 31)
    ]
    return {"statistics": rows, "curves": curves}


def means(*values):
    cases = ("from (1, 1)", "from (0.001, 0.001), noise")
    return {
        "statistics": [{"case": case, "mean": value, "lower_error_first_20": 0.1} for case in cases for value in values]
    }


def totals(paper, sharp):
    rows = [{"p": 4.0, "epsilon": 0.1, "analysis": "paper", "log10_total": paper}]
    return {"totals": [*rows, {"p": 4.0, "epsilon": 0.1, "analysis": "sharp", "log10_total": sharp}]}


def exponents(measured, reached):
    return {"exponents": [{"p": 4.0, "exponent": measured, "paper": -14.0, "sharp": -10.0, "reached": reached}]}


OURS_ALONE = {"UniBiO": 0.01, "UniBiO (decaying step)": 1e-4}
CASES = [
    (noise_study, noise(0.1, 0.01), Outcome.confirmed, "approaches a stationary"),
    (noise_study, noise(0.3, 0.01), Outcome.refuted, "does not always approach"),
    (noise_study, noise(0.1, 0.1), Outcome.refuted, "does not always approach"),
    (one_step_size, means(0.121, 0.121), Outcome.corrected, "does not slow the upper level"),
    (one_step_size, means(0.121, 0.131), Outcome.confirmed, "larger p slows the upper level"),
    (rates, slopes((-0.7, -0.5), (-0.7, -0.5), (-0.6, -0.6)), Outcome.corrected, "not because p is larger"),
    (rates, slopes((-0.7, -0.5), (-0.7, -0.5), (-0.7, -0.5)), Outcome.confirmed, "also with one step size"),
    (rates, slopes((-0.5, -0.7), (-0.7, -0.5), (-0.6, -0.6)), Outcome.refuted, "does not fall"),
    (comparison, ends(comparison, OURS_ALONE), Outcome.confirmed, "none of the others does"),
    (
        comparison, ends(comparison, OURS_ALONE, 1e-9), Outcome.corrected,
        "at p = 4 StocBiO does too, and StocBiO comes closer",
    ),
    (comparison, ends(comparison, {"UniBiO (decaying step)": 1e-4}), Outcome.refuted, "p = none"),
    (comparison_tuned, ends(comparison_tuned, OURS_ALONE), Outcome.confirmed, "of the 7 other solvers none arrive"),
    (comparison_tuned, ends(comparison_tuned, OURS_ALONE, 1e-9), Outcome.confirmed, "where StocBiO does too"),
    (comparison_tuned, ends(comparison_tuned, OURS_ALONE | {"BO-REP": 0.02}), Outcome.corrected, "only BO-REP arrives"),
    (comparison_tuned, ends(comparison_tuned, {"BO-REP": 0.001}), Outcome.refuted, "true at no p"),
    (epoch_sgd, {"slopes": [{"slope": -0.5, "low": -0.6, "theory": -0.5}]}, Outcome.confirmed, "at the rate"),
    (epoch_sgd, {"slopes": [{"slope": -0.3, "low": -0.4, "theory": -0.5}]}, Outcome.refuted, "more slowly"),
    (complexity, exponents(-2.0, 6), Outcome.confirmed, "not violated"),
    (complexity, exponents(-15.0, 5), Outcome.refuted, "faster"),
    (schedules, totals(52.0, 40.0), Outcome.ours, "far more calls"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "tables", "expected", "words"), CASES)
def test_the_outcome_follows_the_numbers(module, tables, expected, words):
    assert outcome(module, tables) == expected
    assert words in answer(module.verdict(tables))[0]


def test_the_rate_after_the_hump():
    assert rates.after_the_hump(slopes((-0.7, -0.5), (-0.7, -0.5), (-0.6, -0.6))) == pytest.approx([0.9, 0.9])


def test_where_noise_does_harm():
    """Places where all runs end closer than they started are told from those where one ends farther away."""
    ends = {"df/dz": 0.1, "df/dz and Hessian": 0.47, "∇_y f": 0.66}
    rows = [{"place": place, "p": 8.0, "variance": 10.0, "last_50": end} for place, end in ends.items()]
    curves = [row | {"low": 0.08, "high": 0.96} for row in rows]
    first = answer(noise_placement.verdict({"statistics": rows, "curves": curves}))[0]
    assert first.startswith("With noise on df/dz UniBiO gets close; with strong noise on df/dz and Hessian or on ∇_y f")


def parts(**special):
    """Tables of the two comparisons from which the advice is made."""
    tuned = ends(comparison_tuned, {"UniBiO (decaying step)": 2e-4, "UniBiO": 0.006, "BO-REP": 0.001})
    for row in tuned["statistics"]:
        row["calls"] = {"BO-REP": 2000, "UniBiO (decaying step)": 9000}.get(row["solver"], 100)
    phi = {"SABA": 0.001, "BO-REP": 0.005, "UniBiO (practical)": 0.02, "SOBA": 0.004} | special
    regression = [{"solver": name, "p": p, "phi": value} for p in (2.0, 6.0) for name, value in phi.items()]
    return {"comparison-tuned": tuned, "lp-cleaning": {"statistics": regression}}


def test_the_advice_follows_the_numbers():
    singular, ordinary, labels = front.advice(parts())
    assert "(ends at 0.0002 or less), or BO-REP (2,000 calls instead of 9,000; ends 5 to 5 times farther" in singular
    assert "at p = 6 the lowest Φ is that of SABA (0.0010;" in singular
    assert "SABA reaches the lowest Φ (0.0010" in ordinary
    assert "SOBA reaches the lowest Φ (0.0001" in front.advice(parts(SOBA=1e-4))[1]
    assert "not run here" in labels
    assert not any(digit in "".join(front.advice({})) for digit in "0123456789")  # no result, no number


def test_the_claims_are_answered_from_what_is_there():
    assert "".join(front.claims({})).count("not run for this page") == 5
    _, second, third = front.claims({
        "noise": noise(0.1, 0.01), "one-step-size": means(0.121, 0.121),
        "complexity": {"calls": [{"p": p, "epsilon": 0.1, "calls": calls} for p, calls in ((2.0, 9e3), (4.0, 3e3))]},
        "schedules": totals(52.0, 40.0), "comparison-tuned": ends(comparison_tuned, OURS_ALONE, 1e-9),
    })  # fmt: skip
    assert "[yes, with noise on df/dz](#noise)" in second
    assert "[not on Example 3 with one step size for every p](#one-step-size)" in second
    assert "[3,000 to 9,000](#complexity)" in second
    assert "at p = 12 and 20, false at p = 4, where StocBiO does too. Data cleaning: not run" in third


def test_a_study_without_a_claim_is_our_own_question():
    assert outcome(lp_cleaning, {}) == Outcome.ours


def test_the_first_sentence_is_the_answer():
    assert answer("It holds. At 0.5 it is 1.5. More.") == ("It holds.", "At 0.5 it is 1.5. More.")
    assert answer("It holds at 0.5.") == ("It holds at 0.5.", "")


def test_titles_are_questions():
    assert all("?" in load(name).TITLE for name in EXPERIMENTS)
