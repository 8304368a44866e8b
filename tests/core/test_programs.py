"""Compiled programs are kept, bounded in number, and quick or fast to make as their use asks."""

import collections
import subprocess
import sys
import threading
from concurrent import futures
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.core import programs
from unibio.core.programs import Programs, computed

MANY_PROBLEMS = """
import resource, sys
import jax
import jax.numpy as jnp
import numpy as np
import unibio as ub
from unibio.core.problem import prepare
from unibio.run.ensemble import depends_on

ONE, KEYS, DATA = jnp.ones(2), jax.random.split(jax.random.key(0), 2), ub.Dataset(np.ones((13, 2)), 4)

def megabytes():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 1e6

def hypergradient(problem):
    value, info = ub.hypergradient(problem, ONE, ONE)
    assert info.status == "ok" and abs(float(value[0]) - 2) < 1e-5, (value, info)

def argmin(problem):
    assert float(jax.grad(lambda x: jnp.sum(ub.argmin(problem)(x, ONE) ** 2))(ONE)[0]) == 2

def means(problem):
    mean = lambda x, y, b: jnp.mean((b.value @ y) ** 2) + jnp.sum(x**2)
    prepare(ub.Problem(mean, mean, f_batches=DATA, g_batches=DATA), ONE, ONE)

def depended_on(problem):
    depends_on(problem, [ub.SOBA(0.1, 0.1)] * 2, ONE, ONE, KEYS, ())

call, before, number = globals()[sys.argv[1]], int(sys.argv[2]), int(sys.argv[3])
for i in range(number):
    call(ub.Problem(lambda x, y, b: jnp.sum(y**2), lambda x, y, b: jnp.sum((y - x) ** 2) / 2))
    if i == before - 1:
        start = megabytes()
print(megabytes() - start)
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
@pytest.mark.parametrize(
    ("call", "before", "number", "most"),
    [("hypergradient", 50, 300, 150), ("argmin", 40, 60, 40), ("means", 140, 240, 40), ("depended_on", 20, 50, 20)],
)
def test_many_problems_from_fresh_functions_do_not_grow_a_process(call, before, number, most):
    """Once as many are known as are kept, no more memory is taken: JAX alone keeps 1 to 5 MB of each."""
    command = [sys.executable, "-c", MANY_PROBLEMS, call, str(before), str(number)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < most, f"{done.stdout} MB"


def test_a_program_that_another_thread_has_just_thrown_away_is_found():
    kept = Programs(most=1)

    class Interrupted(collections.OrderedDict[Any, Any]):
        """In the middle of a search another thread needs the only place."""

        def get(self, name, default=None):
            found = super().get(name, default)
            if threading.current_thread() is threading.main_thread():
                other = threading.Thread(target=kept, args=(twice, jnp.ones(2)), kwargs={"add": 1})
                other.start()
                other.join()
            return found

    kept.programs = Interrupted()
    for _ in range(2):
        assert float(kept(twice, jnp.ones(1), add=1)[0][0]) == 3.0
    assert len(kept.programs) == 1


@pytest.mark.parametrize("fresh", [False, True], ids=["the same problem", "different problems"])
def test_threads_get_the_answers_of_one(monkeypatch, fresh):
    """Eight hypergradients at once, where only two programs are kept: dΦ/dx = 2kx of f = k y² and y* = x."""
    monkeypatch.setattr(programs.compiled, "most", 2)

    def problem(k):
        return ub.Problem(lambda x, y, batch: k * y**2, lambda x, y, batch: (y - x) ** 2 / 2)

    several = [problem(float(k)) if fresh or k == 1 else None for k in range(1, 5)]
    given = [(k, several[k - 1] or several[0]) for k in range(1, 5)] * 2
    start = threading.Barrier(4)

    def slope(k, problem):
        start.wait()
        value, info = ub.hypergradient(problem, 3.0, 3.0)
        return k if fresh else 1, float(value), str(info.status)

    with futures.ThreadPoolExecutor(4) as pool:
        for k, value, status in pool.map(lambda pair: slope(*pair), given):
            assert status == "ok"
            np.testing.assert_allclose(value, 6 * k, rtol=1e-5)
    assert len(programs.compiled.programs) <= 2


def test_ub_hypergradient_uses_the_kept_programs():
    problem = ub.problems.example3(4.0)
    ub.hypergradient(problem, 0.3, 0.4)
    before = set(programs.compiled.programs)
    ub.hypergradient(problem, 0.5, 0.6)
    assert set(programs.compiled.programs) == before
