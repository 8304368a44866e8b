"""Compiled programs are kept, bounded in number, and quick or fast to make as their use asks."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.core import programs
from unibio.core.programs import Programs, computed

MANY_PROBLEMS = """
import resource
import jax.numpy as jnp
import unibio as ub

def megabytes():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 1e6

for i in range(300):
    problem = ub.Problem(lambda x, y, b: jnp.sum(y**2), lambda x, y, b: jnp.sum((y - x) ** 2) / 2)
    value, info = ub.hypergradient(problem, jnp.ones(2), jnp.ones(2))
    assert info.status == "ok" and abs(float(value[0]) - 2) < 1e-5, (value, info)
    if i == 49:
        before = megabytes()
print(megabytes() - before)
"""


def twice(x, add):
    return 2 * x + add


def test_one_program_serves_all_numbers_and_none_other_structures():
    kept = Programs()
    for number in (1.0, 2.0):
        out, seconds, compiling = kept(twice, jnp.full(3, number), add=1)
        assert np.all(np.asarray(out) == 2 * number + 1)
        assert min(seconds, compiling) >= 0
    assert len(kept.programs) == 1
    kept(twice, jnp.ones(4), add=1)
    kept(twice, jnp.ones(4), add=2)
    assert len(kept.programs) == 3


def test_the_least_recently_used_program_goes_first():
    kept = Programs(most=2)
    for size in (1, 2, 1, 3):
        kept(twice, jnp.ones(size), add=0)
    assert [jax.tree.leaves(name[3])[0] for name in kept.programs] == [1, 3]


def test_answers_are_those_of_the_function_and_compiled_quickly_where_data_are_few(monkeypatch):
    options = []
    compile_it = programs._compiled

    def spy(lowered, with_):
        options.append(with_)
        return compile_it(lowered, with_)

    monkeypatch.setattr(programs, "_compiled", spy)
    for size in (10, programs._SMALL + 1):
        x = jnp.linspace(0.0, 1.0, size)
        np.testing.assert_allclose(Programs().quick(twice, x, add=1)[0], 2 * np.asarray(x) + 1)
    assert options == [programs.QUICK, programs.LEAN]


def test_options_that_the_compiler_does_not_know_are_left_out(monkeypatch):
    monkeypatch.setattr(programs, "QUICK", {"xla_no_such_option_exists": "1"})
    assert float(Programs().quick(twice, jnp.float64(3.0), add=1)[0]) == 7.0


def test_inside_jit_and_vmap_it_is_part_of_their_program():
    before = set(programs.compiled.programs)
    np.testing.assert_array_equal(jax.jit(jax.vmap(lambda x: computed(twice, x, add=1)))(jnp.arange(3.0)), [1, 3, 5])
    assert set(programs.compiled.programs) == before


@pytest.mark.slow
def test_many_problems_from_fresh_functions_do_not_grow_a_process():
    done = subprocess.run([sys.executable, "-c", MANY_PROBLEMS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 150, f"{done.stdout} MB"


def test_ub_hypergradient_uses_the_kept_programs():
    problem = ub.problems.example3(4.0)
    ub.hypergradient(problem, 0.3, 0.4)
    before = set(programs.compiled.programs)
    ub.hypergradient(problem, 0.5, 0.6)
    assert set(programs.compiled.programs) == before
