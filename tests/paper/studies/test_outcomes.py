"""What the studies say of the paper's claims follows from their tables: other numbers give another outcome."""

import pytest

from unibio.files.tables import Rows
from unibio.paper.framework.study import CONFIRMED, CORRECTED, EXPERIMENTS, OURS, REFUTED, answer, load, outcome
from unibio.paper.studies import (
    comparison,
    comparison_tuned,
    complexity,
    epoch_sgd,
    lp_cleaning,
    noise_study,
    one_step_size,
    rates,
    schedules,
)


def noise(constant, decaying):
    ends = {"constant": constant, "decaying": decaying}
    return {"statistics": [{"step": step, "p": 2.0, "variance": 1.0, "last_50": end} for step, end in ends.items()]}


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
        {"budget": budget, "p": p, "slope": slope, "lower_steps": 1}
        for budget, values in zip(names, by_budget, strict=True)
        for p, slope in zip((2.0, 4.0), values, strict=True)
    ]
    return {"statistics": rows}


def means(*values):
    cases = ("from (1, 1)", "from (0.001, 0.001), noise")
    return {
        "statistics": [{"case": case, "mean": value, "lower_error_first_20": 0.1} for case in cases for value in values]
    }


def totals(paper, sharp):
    rows = [{"p": 4.0, "epsilon": 0.1, "analysis": "paper", "log10_total": paper}]
    return {"totals": [*rows, {"p": 4.0, "epsilon": 0.1, "analysis": "sharp", "log10_total": sharp}]}


OURS_ALONE = {"UniBiO": 0.01, "UniBiO (decaying step)": 1e-4}
CASES = [
    (noise_study, noise(0.1, 0.01), CONFIRMED, "approaches a stationary"),
    (noise_study, noise(0.3, 0.01), REFUTED, "does not always approach"),
    (noise_study, noise(0.1, 0.1), REFUTED, "does not always approach"),
    (one_step_size, means(0.121, 0.121), REFUTED, "does not slow"),
    (one_step_size, means(0.121, 0.131), CONFIRMED, "Larger p slows"),
    (rates, slopes((-0.7, -0.5), (-0.7, -0.5), (-0.6, -0.6)), CORRECTED, "not because p is larger"),
    (rates, slopes((-0.7, -0.5), (-0.7, -0.5), (-0.7, -0.5)), CONFIRMED, "also with one step size"),
    (rates, slopes((-0.5, -0.7), (-0.7, -0.5), (-0.6, -0.6)), REFUTED, "does not fall"),
    (comparison, ends(comparison, OURS_ALONE), CONFIRMED, "none of the others does"),
    (comparison, ends(comparison, OURS_ALONE, 1e-9), CORRECTED, "at p = 4 StocBiO does too, and StocBiO comes closer"),
    (comparison, ends(comparison, {"UniBiO (decaying step)": 1e-4}), REFUTED, "p = none"),
    (comparison_tuned, ends(comparison_tuned, OURS_ALONE), CONFIRMED, "UniBiO and none arrive"),
    (comparison_tuned, ends(comparison_tuned, OURS_ALONE | {"BO-REP": 0.001}), CORRECTED, "BO-REP comes closer"),
    (comparison_tuned, ends(comparison_tuned, OURS_ALONE | {"BO-REP": 0.02}), CORRECTED, "BO-REP stays farther away"),
    (comparison_tuned, ends(comparison_tuned, {"BO-REP": 0.001}), REFUTED, "Not UniBiO and BO-REP"),
    (epoch_sgd, {"slopes": [{"slope": -0.5, "low": -0.6, "theory": -0.5}]}, CONFIRMED, "at the rate"),
    (epoch_sgd, {"slopes": [{"slope": -0.3, "low": -0.4, "theory": -0.5}]}, REFUTED, "more slowly"),
    (complexity, {"exponents": [{"exponent": -2.0, "paper": -14.0, "sharp": -10.0}]}, CONFIRMED, "more slowly"),
    (complexity, {"exponents": [{"exponent": -15.0, "paper": -14.0, "sharp": -10.0}]}, REFUTED, "faster"),
    (schedules, totals(52.0, 40.0), CONFIRMED, "far more calls"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "tables", "expected", "words"), CASES)
def test_the_outcome_follows_the_numbers(module, tables, expected, words):
    assert outcome(module, tables) == expected
    assert words in answer(module.verdict(tables))[0]


def test_a_schedule_that_asks_for_more_is_refuted():
    assert outcome(schedules, totals(40.0, 52.0)) == REFUTED


def test_a_study_without_a_claim_is_our_own_question():
    assert outcome(lp_cleaning, {}) == OURS


def test_the_first_sentence_is_the_answer():
    assert answer("It holds. At 0.5 it is 1.5. More.") == ("It holds.", "At 0.5 it is 1.5. More.")
    assert answer("It holds at 0.5.") == ("It holds at 0.5.", "")


def test_titles_are_questions():
    assert all("?" in load(name).TITLE for name in EXPERIMENTS)
