"""One vocabulary for how computations end."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio import Status
from unibio.core.status import MEANINGS

DOCS = Path(__file__).parents[2] / "docs" / "statuses.md"


def test_words_compare_print_and_explain_themselves():
    assert Status.ok == "ok"
    assert Status.budget != "ok"
    assert Status.budget != Status.ok
    assert (Status.ok == 0) is False
    assert str(Status.no_limit) == repr(Status.no_limit) == Status.no_limit.name == "no_limit"
    assert Status.no_limit.message == ": ".join(MEANINGS["no_limit"])
    assert {Status.named(word).name for word in MEANINGS} == set(MEANINGS)
    assert len({Status.named(word) for word in MEANINGS}) == len(MEANINGS)
    with pytest.raises(ValueError, match=r"no status 'fine'; there are ok, budget"):
        bool(Status.ok == "fine")


def test_under_jit_and_vmap():
    def judge(residual):
        return Status.where(residual < 1, Status.ok, Status.truncated)

    assert jax.jit(judge)(0.5) == "ok"
    assert jax.jit(lambda r: judge(r) == "truncated")(2.0)
    several = jax.vmap(judge)(jnp.array([0.5, 2.0]))
    np.testing.assert_array_equal(several == "ok", [True, False])
    assert str(several) == "['ok' 'truncated']"
    seen = []
    jax.jit(lambda r: seen.append(str(judge(r))))(0.5)
    assert seen == ["Status(traced)"]


def test_runs_and_estimates_use_the_same_words():
    problem = ub.problems.example3(4.0)
    result = ub.solve(problem, ub.SOBA(0.1, 0.1), 1.0, 1.0, steps=2, key=jax.random.key(0))
    assert result.status == Status.finished
    y = ub.lower_solution(problem, 1.0, 1.0)
    assert type(ub.hypergradient(problem, 1.0, y)[1].status) is type(result.status)


def test_the_documented_table_is_the_vocabulary():
    rows = [line.split("|")[1:-1] for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    table = {word.strip(" `"): (happened.strip(), remedy.strip()) for word, happened, remedy in rows}
    assert table == {word: tuple(meaning) for word, meaning in MEANINGS.items()}
