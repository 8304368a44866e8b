"""Every claim is checked, with the verdict and the number that the docs state."""

import dataclasses
import importlib
import json
import math
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.cli import theory as theory_command
from unibio.paper import theory
from unibio.paper.claims import algorithm as claims_algorithm
from unibio.paper.claims import assumptions as claims_assumptions
from unibio.paper.claims import foundations as claims
from unibio.paper.claims import theorem as claims_theorem
from unibio.paper.claims import unknown_p as claims_unknown_p
from unibio.paper.claims.registry import CLAIMS, verify
from unibio.paper.studies import schedules
from unibio.problems import coupled_example3, example3, example4
from unibio.solvers.lower_level import refresh

REFUTED = {
    "example_3",
    "modulus_of_a_power",
    "bounded_generalised_hessian",
    "differentiability",
    "variance_bound",
    "lower_gradient_bound",
    "comparison_p_4",
    "hyper_cleaning_p_3",
    "hyper_cleaning_p_4",
}
CONFIRMED = {
    "example_1",
    "example_4",
    "relaxed_smoothness",
    "descent_inequality",
    "hypergradient_bias",
    "function_gap",
    "convex_guarantee",
    "epoch_sgd_rate",
    "inner_product",
    "martingale",
    "descent_lemma",
    "comparison_p_12",
    "lower_lipschitz",
    "upper_lipschitz",
    "initial_gap",
    "generalised_hessian_of_examples",
    "drift",
    "momentum_lag",
    "complexity",
}
ANSWERED = {"unknown_p_rate", "unknown_p_bound", "unknown_p_search"}


@pytest.mark.slow
def test_every_claim():
    """One test, because checking them takes half a minute."""
    rows = {row.claim.name: row for row in verify()}
    check_the_verdicts(rows)
    check_the_numbers(rows)
    check_tight_bounds(rows)
    check_the_page_of_differences(rows)


def check_the_verdicts(rows):
    assert rows.keys() == CLAIMS.keys()
    assert {name for name, row in rows.items() if row.outcome.verdict == "refuted"} == REFUTED
    assert {name for name, row in rows.items() if row.outcome.verdict == "confirmed"} == CONFIRMED
    assert {name for name, row in rows.items() if row.outcome.verdict == "answered"} == ANSWERED
    assert len(rows) > 40


def check_the_numbers(rows):
    value = lambda name: rows[name].outcome.value
    assert value("example_1") < 1e-9
    assert value("example_2") == pytest.approx(1 / 15, rel=1e-6)  # c_4·5^{−1}
    assert value("example_3") > 0.9
    assert value("hypergradient_formula") > 0.4
    assert value("holder_solution") == pytest.approx(1.81145 / 8 ** (1 / 7), rel=1e-4)
    assert value("variance_bound") == 1111111110.0
    assert value("induction_constant") == pytest.approx(1 / 12 + 1 / 300 + math.sqrt(2) / 3, abs=1e-3)
    assert value("epoch_count") == pytest.approx(2, abs=1e-2)
    assert value("inner_iterations") == 77
    assert value("complexity") == pytest.approx(34, abs=1e-2)
    assert "4.00, 10.00, 22.00" in rows["complexity"].outcome.finding
    assert 1.1 < value("number_of_terms") < 1.2
    assert value("differentiability") == pytest.approx(2 * math.sqrt(2 * math.pi * 1e8))
    assert value("neumann_bias") > 1
    assert 0.3 < value("smallest_singular_value") < 0.9
    assert value("noise_assumption") == pytest.approx(math.e)
    assert value("initial_gap") == pytest.approx(2 * math.sin(1))
    assert value("tracking_error") <= 1


def check_tight_bounds(rows):
    value = lambda name: rows[name].outcome.value
    for name in ("relaxed_smoothness", "lower_lipschitz", "upper_lipschitz", "descent_lemma", "drift", "momentum_lag"):
        assert value(name) == pytest.approx(1, abs=1e-3), name
    assert value("inner_product") == pytest.approx(0, abs=1e-12)
    assert value("momentum_sum") > 0.85
    assert value("convex_guarantee") > 0.7
    assert 0.68 < value("martingale") < math.sqrt(2 / 3)


class HalfTheStages(ub.StagedSGD):
    """Too few stages for small distances: the rate is lost."""

    @property
    def stages(self):
        return 1


class WithoutSearch(ub.StagedSGD):
    """The guess is the radius of the first stage, however small."""

    def __call__(self, gradient, draw, y, p):
        radius = self.radius if self.guess is None else self.guess
        return ub.StagedSGD(self.steps, float(radius))(gradient, draw, y, p)


def _small_constants(p, **noise):
    return dataclasses.replace(ORIGINAL_CONSTANTS(p), l_f0=1e-6, l_f1=1e-6, m=1e6)


ORIGINAL_CONSTANTS, ORIGINAL_SCHEDULE = theory.example3_constants, theory.schedule
OTHERWISE = {  # claim: what it uses, that replaced, the verdict then
    "example_1": (claims, "example1", lambda: example3(4.0), "refuted"),
    "example_2": (theory, "modulus", lambda p, dim=1: 1.0, "refuted"),
    "example_4": (claims, "example4", example3, "refuted"),
    "modulus_of_a_power": (claims_assumptions, "moduli", lambda a, b, p: np.ones(1), "confirmed"),
    "relaxed_smoothness": (theory, "smoothness", lambda p: (0.1, 0.1), "refuted"),
    "bounded_generalised_hessian": (
        claims_assumptions,
        "regression",
        lambda: (None, None, jnp.ones(8), lambda y: jnp.diag(3 * y**2)),
        "confirmed",
    ),
    "lower_lipschitz": (claims_assumptions, "example4", lambda p: coupled_example3(p, 2 * jnp.eye(3)), "refuted"),
    "upper_lipschitz": (theory, "example3_constants", _small_constants, "refuted"),
    "initial_gap": (claims_assumptions, "example3", example4, "refuted"),
    "holder_solution": (theory, "holder_constant", lambda p, mu, l_g1: 0.1, "refuted"),
    "generalised_hessian_of_examples": (claims, "moduli", lambda a, b, p: np.full(1, 2.0), "refuted"),
    "neumann_bias": (claims, "_series_error", lambda j: (np.eye(3), 0.5), "refuted"),
    "descent_lemma": (theory, "example3_constants", _small_constants, "refuted"),
    "drift": (theory, "example3_constants", _small_constants, "refuted"),
    "momentum_lag": (theory, "example3_constants", _small_constants, "refuted"),
    "momentum_sum": (theory, "example3_constants", _small_constants, "refuted"),
    "number_of_terms": (
        importlib.import_module("unibio.paper.theory.schedule"),
        "neumann_terms",
        lambda c, e: 1,
        "refuted",
    ),
    "complexity": (
        theory,
        "schedule",
        lambda *a, **k: (plan := ORIGINAL_SCHEDULE(*a, **k), dataclasses.replace(plan, log_total=2 * plan.log_total))[
            1
        ],
        "refuted",
    ),
    "unknown_p_rate": (claims_unknown_p, "StagedSGD", HalfTheStages, "refuted"),
    "unknown_p_bound": (claims_unknown_p, "log_distance", lambda *numbers: math.log(0.1), "refuted"),
    "unknown_p_search": (claims_unknown_p, "StagedSGD", WithoutSearch, "refuted"),
    "comparison_p_12": (claims_algorithm, "_ends", lambda name: {12.0: 0.0, 20.0: 0.0}, "refuted"),
}


@pytest.mark.parametrize("name", OTHERWISE)
@pytest.mark.slow
def test_the_verdict_follows_the_numbers(monkeypatch, name):
    place, attribute, replacement, verdict = OTHERWISE[name]
    usual = {**dict.fromkeys(REFUTED, "refuted"), **dict.fromkeys(CONFIRMED, "confirmed")}
    assert verdict != (usual | dict.fromkeys(ANSWERED, "answered")).get(name, "corrected")
    monkeypatch.setattr(place, attribute, replacement)
    assert CLAIMS[name].check().verdict == verdict


@pytest.mark.slow
def test_the_upper_part_of_the_sharp_schedule_meets_its_epsilon():
    """p = 2, T = 2e5 steps from ‖∇Φ(x_0)‖ = 2.2ε, y at the radius R from y*."""
    epsilon = 0.7
    start = 2.2 * epsilon
    plan = claims_theorem.easy_schedule(start, epsilon)
    assert 0.1 <= plan.sigma_1 <= 1
    assert claims_theorem.easy_gradient(start) >= 2 * epsilon  # standing still fails
    mean, end, steps = claims_theorem.upper_part(plan, start)
    assert 1e5 <= steps <= 1e7
    assert mean <= epsilon
    assert end <= epsilon
    assert claims_theorem.upper_part(plan, start, share=1e-3)[0] > epsilon  # so does a far too small step


def test_y_is_put_at_the_radius():
    problem, x = claims_theorem.easy_problem(), jnp.asarray(1.3)
    y, _ = refresh(claims_theorem.AtTheEdge(0.25), problem, x, jnp.asarray(3.0), jax.random.key(0))
    assert float(y - ub.lower_solution(problem, x, jnp.asarray(0.0))) == pytest.approx(0.25, rel=1e-12)


@pytest.mark.slow
def test_without_refreshes_the_tracking_bound_fails():
    assert claims_theorem.tracking(refreshed=False) > 1


def check_the_page_of_differences(rows):
    """docs/paper_vs_us.md is what the claims say now (its numbers may differ in rounding)."""
    page = (Path(__file__).parents[3] / "docs" / "paper_vs_us.md").read_text()
    for name, row in rows.items():
        lines = [line for line in page.splitlines() if line.endswith(f"| `{name}` |")]
        assert len(lines) == 1, f"run: unibio verify --markdown > docs/paper_vs_us.md ({name})"
        assert f"| {row.outcome.verdict} |" in lines[0]
        assert row.claim.statement.replace("|", "\\|") in lines[0]


def test_every_claim_explains_itself():
    for claim in CLAIMS.values():
        assert len(claim.details) > 20, claim.name
        assert claim.statement
        assert claim.where


def test_an_unknown_claim():
    with pytest.raises(ValueError, match=r"no claim 'nonsense'\..* There are .*example_1"):
        verify(["nonsense"])


def run(*words):
    return subprocess.run([sys.executable, "-m", "unibio.cli", *words], capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_the_command_line():
    one = run("verify", "--claim", "inner_product", "--claim", "example_2", "--json")
    assert one.returncode == 0, one.stderr
    assert [row["verdict"] for row in json.loads(one.stdout)] == ["corrected", "confirmed"]
    detail = run("verify", "--claim", "induction_constant")
    assert "8√3" in detail.stdout
    page = run("verify", "--claim", "example_2", "--markdown")
    assert page.returncode == 2
    assert page.stdout == ""
    assert page.stderr.strip() == "unibio: --markdown prints the page of all claims: leave out --claim or --markdown."
    bad = run("verify", "--claim", "nonsense")
    assert bad.returncode == 2
    assert bad.stderr.strip().splitlines()[-1].startswith("unibio: no claim 'nonsense'")
    assert "Traceback" not in bad.stderr


@pytest.mark.slow
def test_the_schedule_on_the_command_line():
    out = run("theory", "example3", "--p", "4")
    assert out.returncode == 0, out.stderr
    assert "1.62e+52" in out.stdout
    assert "not what to run" in out.stdout
    bad = run("theory", "example3", "--p", "1")
    assert bad.returncode == 2
    assert "p must be finite and ≥ 2" in bad.stderr
    assert "Traceback" not in bad.stderr


CONSTANTS = {"p": 4, "mu": 0.3, "mu_J": 1, "C": 1, "L0": 3, "L1": 2, "l_g1": 1, "l_g2": 1, "l_f0": 1, "l_f1": 1}
FILES = {
    "not json": ("{", r'is not JSON .* for example {"p": 4, "mu": 0\.33'),
    "missing": (json.dumps({"p": 4}), "must hold one JSON object with the numbers p, mu"),
    "unknown": (json.dumps(CONSTANTS | {"delta_phi": 1, "nu": 3}), "must hold one JSON object"),
    "text": (json.dumps(CONSTANTS | {"delta_phi": "1"}), "delta_phi must be a number"),
    "contradiction": (json.dumps(CONSTANTS | {"delta_phi": 1, "mu_J": 2}), r"mu_J ≤ C"),
}


@pytest.mark.parametrize(("content", "message"), FILES.values(), ids=FILES)
def test_bad_constants(tmp_path, content, message):
    path = tmp_path / "c.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        theory_command.read_constants(path)


def test_given_constants_and_the_plot(tmp_path):
    path, drawn = tmp_path / "c.json", tmp_path / "totals.svg"
    path.write_text(json.dumps(CONSTANTS | {"delta_phi": 1, "sigma_f": 1}))
    out = run("theory", "--constants", str(path), "--plot", str(drawn))
    assert out.returncode == 0, out.stderr
    total = theory.schedule(theory_command.read_constants(path), 0.1).rows()[-1][-1]
    assert total in out.stdout
    assert "</svg>" in drawn.read_text()
    assert [p.name for p in tmp_path.iterdir() if p.suffix not in (".json", ".svg")] == []


def test_schedules_against_epsilon():
    rows = schedules.totals([theory.example3_constants(p, sigma_f=1.0) for p in (2.0, 4.0)])
    assert len(rows) == 2 * 2 * 13
    at = {(row["p"], row["analysis"]): row for row in rows if row["epsilon"] == pytest.approx(0.1)}
    exact = theory.schedule(theory.example3_constants(4.0, sigma_f=1.0), 0.1, analysis="sharp")
    assert 10 ** at[4.0, "sharp"]["log10_T"] == pytest.approx(math.exp(exact.log_T))
    assert at[2.0, "paper"]["log10_total"] == pytest.approx(at[2.0, "sharp"]["log10_total"])
    lines = schedules.draw({"totals": rows}).axes[0].get_lines()
    drawn = next(line for line in lines if np.size(line.get_xdata()) and line.get_label() == "p = 4")
    assert np.asarray(drawn.get_ydata()).tolist() == [
        r["log10_total"] for r in rows if (r["p"], r["analysis"]) == (4.0, "sharp")
    ]
