"""On a finite sum SABA converges linearly where SOBA stalls; its memory stays what it says it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.core import oracle

N, D = 20, 3


def f(x, y, batch):
    return jnp.mean((batch.value @ y - 1.0) ** 2) / 2 + jnp.sum(x**2) / 20


def g(x, y, batch):
    rows, offsets = batch.value
    return jnp.mean((rows @ y) ** 2 - 2 * offsets * (rows @ y)) / 2 + jnp.sum(y**2) / 2 - jnp.sum(y * x)


def setting():
    rng = np.random.default_rng(0)
    rows, offsets = rng.normal(size=(N, D)), rng.normal(size=N)
    problem = ub.Problem(
        f,
        g,
        2.0,
        f_batches=ub.Dataset(rng.normal(size=(N, D)), batch_size=2),
        g_batches=ub.Dataset((rows, offsets), batch_size=2),
    )
    return problem, jnp.ones(D), jnp.zeros(D)


def final(solver, steps):
    problem, x, y = setting()
    contest = ub.compare(problem, {"run": solver}, x, y, seeds=range(4), steps=steps, measurements=4)
    return contest.table["gradient_norm"].reshape(4, -1)


@pytest.mark.slow
def test_saba_converges_linearly_where_soba_stalls():
    saba = final(ub.SABA(0.1, 0.1), 4000)
    soba = final(ub.SOBA(0.1, 0.1, upper_decay=0.0, lower_decay=0.0), 4000)
    per_thousand = np.log10(saba[:, 1:-1] / saba[:, 2:])
    assert np.all(saba[:, -1] < 1e-10 * saba[:, 0])
    assert np.all(per_thousand[:, :1] > 1)  # at least tenfold each thousand steps, until rounding
    assert np.all(soba[:, 2:] > 1e-3 * soba[:, :1])
    assert np.median(soba[:, -1] / soba[:, 2]) > 0.1  # and no longer falls


@pytest.mark.slow
def test_the_memory_holds_what_it_says_after_1000_steps():
    problem, x, y = setting()
    solver = ub.SABA(0.05, 0.05)
    result = ub.solve(problem, solver, x, y, steps=1000, key=jax.random.key(1))
    for memory in (result.state.f, result.state.g):
        for stored, mean in zip(jax.tree.leaves(memory.stored), jax.tree.leaves(memory.mean), strict=True):
            np.testing.assert_allclose(np.mean(stored, axis=0), mean, rtol=1e-9, atol=1e-12)
    # one more step stores the values of this very point in the slots it drew
    after, _ = solver.step(problem, result.state, jax.random.key(2))
    changed = np.flatnonzero(np.any(np.asarray(after.g.stored[0]) != np.asarray(result.state.g.stored[0]), axis=1))
    assert len(changed) == 1
    batch = problem.g_batches.slot(int(changed[0]))
    fresh = oracle.grad_g(problem, result.x, result.y, batch)
    np.testing.assert_allclose(after.g.stored[0][changed[0]], fresh, rtol=1e-12)


@pytest.mark.slow
def test_vrbo_pays_for_a_checkpoint_under_noise():
    noise, example3 = ub.Noise(grad_y_g=0.1, grad_x_f=0.1), ub.problems.example3(4.0)
    problem = ub.Problem(example3.f, example3.g, 4.0, f_batches=noise, g_batches=noise)
    few, many = (
        ub.solve(
            problem,
            ub.VRBO(0.01, 0.01, period=2, terms=2, checkpoint_batches=batches),
            1.0,
            1.0,
            steps=2,
            key=jax.random.key(0),
        ).calls
        for batches in (1, 10)
    )
    assert (many.grad_f - few.grad_f, many.grad_g - few.grad_g, many.hvp - few.hvp) == (9, 9, 18)
