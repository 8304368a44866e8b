"""Upper steps for UniBiO that need no step size, against UniBiO with 25 settings tried: the table of docs/without_p.md.

    python benchmarks/without_p_untuned.py

The tuned one knows p: Epoch-SGD below, both step sizes from .01, .03, .1, .3, 1 by the smallest score on other seeds.
The candidates have StagedSGD with a search below, no number is fitted to a problem, and no p is stated. All have CG
with the Hessian's diagonal, 100 lower steps in a refresh and a refresh every second step. A score is the mean true
‖∇Φ‖ in the last fifth of the oracle calls that the tuned one makes in 300 steps. Problems whose name ends with a star
are for choosing a candidate, the others for confirming the choice. Files as in benchmarks/without_p.py.
"""

import argparse
import functools
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import unibio as ub
from unibio.core import oracle, tree
from unibio.core.protocols import Calls, Info
from unibio.core.streams import Site
from unibio.files.tables import Rows
from unibio.solvers.lower_level import refresh
from without_p import piece, stacked

STEPS, SEEDS = 300, 16
GRID = (0.01, 0.03, 0.1, 0.3, 1.0)
CG = ub.CG(preconditioner=ub.Jacobi())


class Case(NamedTuple):
    """A problem, its start, and what ∇Φ needs beside the problem. The cases of a family differ in numbers only, so that
    they run in one program."""

    problem: ub.Problem
    x: Any
    y: Any
    more: Any


def _noise(variance: float) -> ub.Noise:
    return ub.Noise(grad_y_g=variance, grad_x_f=variance)


def coupled(p: float, seed: int | None, variance: float, first: float) -> Case:
    """Example 3 in four dimensions; without a seed the coordinates are not coupled."""
    coupling = np.eye(4) if seed is None else np.eye(4) + 0.15 * np.random.default_rng(seed).normal(size=(4, 4))
    B = jnp.asarray(coupling / np.max(np.sum(np.abs(coupling), axis=1)))  # |(B sin x)_i| ≤ 1
    problem = ub.problems.coupled_example3(p, B, _noise(variance), _noise(variance))
    return Case(problem, first * jnp.linspace(0.5, 1.0, 4), jnp.ones(4), B)


def coupled_gradient(case: Case, x: jax.Array) -> jax.Array:
    return jax.grad(lambda x: jnp.sum(jnp.sin(case.more @ jnp.sin(x))))(x)


def quadratic(condition: float, seed: int, variance: float, scale: float) -> Case:
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    H = (Q * np.geomspace(1, 1 / condition, 5)) @ Q.T
    H, B, t = (H + H.T) / 2, rng.normal(size=(5, 5)) / np.sqrt(5), rng.normal(size=5)
    exact = ub.problems.quadratic(H, B, t)
    problem = ub.Problem(exact.f, exact.g, 2.0, f_batches=_noise(variance), g_batches=_noise(variance))
    more = jnp.asarray(np.linalg.inv(H) @ B), jnp.asarray(t)
    return Case(problem, jnp.asarray(scale * rng.normal(size=5)), jnp.zeros(5), more)


def quadratic_gradient(case: Case, x: jax.Array) -> jax.Array:
    inverse, t = case.more
    return x / 10 + inverse.T @ (inverse @ x - t)


def regression(p: float, seed: int) -> Case:
    data = ub.problems.corrupted_regression(60, 4, seed=seed)
    problem = ub.problems.lp_regression(data.train, data.validation, p, batch_size=15)
    return Case(problem, jnp.zeros(60), jnp.zeros(4), None)


def regression_gradient(case: Case, x: jax.Array) -> jax.Array:
    y, _ = ub.Newton(max_steps=40)(case.problem, x, jnp.zeros(4))
    return CG(case.problem, x, y, None)[0]


def families() -> dict[str, tuple[Any, dict[str, Case]]]:
    """∇Φ and the cases by name; a candidate is chosen on those whose name ends with a star."""
    return {
        "coupled": (
            coupled_gradient,
            {
                "p = 4 *": coupled(4.0, 0, 1.0, 0.5),
                "p = 2 *": coupled(2.0, 1, 0.1, 1.0),
                "p = 6 *": coupled(6.0, None, 1.0, 0.3),
                "p = 3": coupled(3.0, 10, 1.0, 0.8),
                "p = 6": coupled(6.0, 11, 0.3, -0.4),
                "p = 8": coupled(8.0, 12, 1.0, 1.2),
                "p = 2, not coupled": coupled(2.0, None, 1.0, 0.7),
                "p = 4, not coupled": coupled(4.0, None, 3.0, -0.5),
            },
        ),
        "quadratic": (
            quadratic_gradient,
            {
                "condition 10 *": quadratic(10.0, 2, 0.1, 1.0),
                "condition 3, near": quadratic(3.0, 13, 1.0, 0.1),
                "condition 5, far": quadratic(5.0, 14, 1.0, 20.0),
            },
        ),
        "regression": (
            regression_gradient,
            {"p = 4 *": regression(4.0, 3), "p = 3": regression(3.0, 15), "p = 2": regression(2.0, 16)},
        ),
    }


class _Agreement(NamedTuple):
    size: jax.Array
    direction: Any
    momentum: Any


def agreement(rate: float = 0.2, beta: float = 0.9) -> optax.GradientTransformation:
    """Steps of length η along the momentum, and η ← η·exp(rate·cos) with the cosine of the angle between the step just
    made and minus the new gradient: η grows while steps go on downhill, and falls when they have gone too far."""

    def init(x: Any) -> _Agreement:
        first = 1e-3 * jnp.maximum(1.0, tree.norm(x))
        return _Agreement(first, tree.zeros_like(x), tree.zeros_like(x))

    def update(gradient: Any, state: _Agreement, x: Any = None) -> tuple[Any, _Agreement]:
        unit, _ = tree.direction(gradient)
        size = state.size * jnp.exp(-rate * tree.dot(unit, state.direction))
        momentum = tree.axpy(beta, state.momentum, tree.scale(1 - beta, gradient))
        direction = tree.scale(-1.0, tree.direction(momentum)[0])
        return tree.scale(size, direction), _Agreement(size, direction, momentum)

    return optax.GradientTransformation(init, update)


class _Trust(NamedTuple):
    """UniBiO's state; the point to which a block that made Φ̂ larger goes back; the step length; the blocks made."""

    inner: Any
    back: Any
    size: jax.Array
    blocks: jax.Array

    @property
    def x(self) -> Any:
        return self.inner.x

    @property
    def y(self) -> Any:
        return self.inner.y


class Trust(eqx.Module):
    """UniBiO in blocks of ten steps of one length. After each, Φ̂ = f − ⟨v, ∇_y g⟩ at the block's start and end is
    compared on the same batches, two more of them in every block: smaller, and the length is multiplied by 1.5;
    larger, and the block is undone and the length halved."""

    inner: ub.UniBiO

    def init(self, problem: ub.Problem, x: Any, y: Any, key: jax.Array) -> tuple[_Trust, Info]:
        inner, info = self.inner.init(problem, x, y, key)
        return _Trust(inner, inner, 1e-2 * jnp.maximum(1.0, tree.norm(x)), jnp.int32(0)), info

    def step(self, problem: ub.Problem, state: _Trust, key: jax.Array) -> tuple[_Trust, Info]:
        key_step, key_judge = jax.random.split(key)
        solver = eqx.tree_at(lambda inner: inner.step_size, self.inner, state.size)
        inner, info = solver.step(problem, state.inner, key_step)
        state = state._replace(inner=inner)

        def judge(state: _Trust) -> tuple[_Trust, Any]:
            y, lower = refresh(self.inner.lower.guided(inner.moved), problem, inner.x, inner.y, key_judge)  # type: ignore[attr-defined]
            count = 10 + 2 * state.blocks
            ends = ((state.back.x, state.back.y), (inner.x, y))

            def add(i: jax.Array, carry: Any) -> Any:
                each = jax.random.fold_in(key_judge, i)
                difference, calls = carry
                for sign, (x, y) in zip((-1, 1), ends, strict=True):
                    _, found = self.inner.hypergradient(problem, x, y, each)
                    r = oracle.grad_g(problem, x, y, problem.g_batch(each, x, y, Site.lower))
                    value = oracle.value_f(problem, x, y, problem.f_batch(each, x, y)) - tree.dot(found.at.v, r)
                    difference, calls = difference + sign * value, calls.plus(found.calls)
                return difference, calls

            difference, calls = jax.lax.fori_loop(0, count, add, (jnp.zeros(()), lower.plus(Calls())))
            better = difference < 0
            kept = tree.where(better, inner._replace(y=y), state.back)
            size = state.size * jnp.where(better, 1.5, 0.5)
            return _Trust(kept, kept, size, state.blocks + 1), calls

        last = inner.t % 10 == 0
        zero = jax.tree.map(jnp.int32, Calls())
        state, more = jax.lax.cond(last, judge, lambda state: (state, zero), state)
        # t goes on even where a block is undone, so that the next block is as long.
        state = state._replace(inner=state.inner._replace(t=inner.t))
        return state, Info(info.direction_norm, info.calls.plus(more), info.status)


def candidates() -> dict[str, Any]:
    without = functools.partial(ub.UniBiO.without_p, period=2)
    contrib = {
        "distance over gradients (dog)": optax.contrib.dog(),
        "prodigy": optax.contrib.prodigy(),
        "schedule-free AdamW": optax.contrib.schedule_free_adamw(),
    }
    return {
        "anytime, eta = t^(-3/4)": without(1.0, schedule=lambda t: (t + 1.0) ** -0.75),
        **{name: without(1.0, momentum=0.0, optimiser=rule) for name, rule in contrib.items()},
        "agreement": without(1.0, momentum=0.0, optimiser=agreement()),
        "trust": Trust(without(1.0)),
    }


@functools.lru_cache
def program(gradient: Any) -> Any:
    """For each case, solver and seed: ‖∇Φ‖ before each step, and the calls up to there."""

    def one(case: Case, solver: Any, key: jax.Array) -> Any:
        def watch(state: Any) -> jax.Array:
            return jnp.linalg.norm(gradient(case, state.x))

        _, log = ub.trajectory(case.problem, solver, case.x, case.y, STEPS, key, watch=watch)
        return log.watched, jnp.cumsum(sum(counts.astype(float) for counts in log.calls))

    return jax.jit(jax.vmap(jax.vmap(jax.vmap(one, (None, None, 0)), (None, 0, None)), (0, 0, None)))


def scores(found: Any, budget: np.ndarray) -> np.ndarray:
    """The mean ‖∇Φ‖ in the last fifth of the budget[case]: an array (cases, solvers, seeds)."""
    values, spent = (np.asarray(a) for a in found)
    limit = budget[:, None, None, None]
    late = (spent <= limit) & (spent > 0.8 * limit)
    return np.where(late, values, 0).sum(axis=-1) / late.sum(axis=-1)


def without_order(case: Case) -> Case:
    problem = case.problem
    stated = ub.Problem(problem.f, problem.g, None, f_batches=problem.f_batches, g_batches=problem.g_batches)
    return case._replace(problem=stated)


def tuned(family: str, seed: int) -> Rows:
    """UniBiO with the best of 25 settings for each case, chosen with 4 seeds, on SEEDS fresh ones."""
    gradient, named = families()[family]
    cases, run = stacked(list(named.values())), program(gradient)
    pairs = list(itertools.product(GRID, GRID))
    solvers = [ub.UniBiO(a, lower=ub.EpochSGD(100, b), period=2, hypergradient=CG) for a, b in pairs]
    grid = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(named)), stacked(solvers))
    found = run(cases, grid, jax.random.split(jax.random.key(seed + 1), 4))
    means = scores(found, np.asarray(found[1])[..., -1].mean(axis=(1, 2))).mean(axis=-1)
    best = np.nanargmin(means, axis=1)
    chosen = jax.tree.map(lambda leaf: leaf[:, None], stacked([solvers[i] for i in best]))
    found = run(cases, chosen, jax.random.split(jax.random.key(seed + 2), SEEDS))
    budget = np.asarray(found[1])[..., -1].mean(axis=(1, 2))
    ends = scores(found, budget)[:, 0]
    return [
        {"problem": f"{family}, {name}", "way": "UniBiO, best of 25", "calls": float(budget[i]), "seeds": SEEDS}
        | {"start": float(np.asarray(found[0])[i, 0, 0, 0]), "score": float(ends[i].mean())}
        | {"spread": float(ends[i].std()), "ratio": 1.0, "settings": "{:g}; {:g}".format(*pairs[best[i]])}
        for i, name in enumerate(named)
    ]


def candidate(family: str, way: str, theirs: Rows, seed: int) -> Rows:
    gradient, named = families()[family]
    cases = stacked([without_order(case) for case in named.values()])
    solver = jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)[None]] * len(named)), candidates()[way])
    found = program(gradient)(cases, solver, jax.random.split(jax.random.key(seed + 2), SEEDS))
    ends = scores(found, np.array([row["calls"] for row in theirs]))[:, 0]
    return [
        row | {"way": way, "score": float(ours.mean()), "spread": float(ours.std())}
        | {"ratio": float(ours.mean() / row["score"]), "settings": "none"}
        for row, ours in zip(theirs, ends, strict=True)
    ]  # fmt: skip


def summary(rows: Rows, star: bool) -> Rows:
    """By candidate, on the problems for choosing or on the others: the ratios to the tuned UniBiO, and on how many
    problems they are at most 2."""
    found: Rows = []
    for way in candidates():
        ratios = np.array([r["ratio"] for r in rows if r["way"] == way and r["problem"].endswith("*") == star])
        geometric = float(np.exp(np.mean(np.log(ratios))))
        row = {"way": way, "problems": len(ratios), "geometric_mean": geometric, "largest": float(ratios.max())}
        found.append(row | {"within_2": int(np.sum(ratios <= 2)), "within_1": int(np.sum(ratios <= 1))})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("without-p-results"))
    o = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rows: Rows = []
    for family in families():
        theirs = piece(o.out, f"untuned-{family}-0", functools.partial(tuned, family, o.seed))
        rows += theirs
        for i, way in enumerate(candidates(), 1):
            compute = functools.partial(candidate, family, way, theirs, o.seed)
            rows += piece(o.out, f"untuned-{family}-{i}", compute)
    for name, star in (("choice", True), ("confirmation", False)):
        piece(o.out, f"untuned-{name}", functools.partial(summary, rows, star))


if __name__ == "__main__":
    main()
