"""Stochastic solvers beside `ub.minimise`, each with the best of 25 pairs of step sizes, on races and fresh problems.

    python benchmarks/minimise_rivals.py run --out FOLDER [--calls 160000] [PROBLEM …]    # resumable, piece by piece
    python benchmarks/minimise_rivals.py table --out FOLDER                               # a summary as JSON lines

The rivals are SABA, BO-REP and AmIGO, the best three of `lp_race.py`, with batches of 50 samples. The grid is fixed in
units of the start: the lower step is .01, .03, .1, .3 or 1 over the largest eigenvalue of H there, the upper step moves
x by .02 to 2 (BO-REP, whose steps have a fixed length: .002 to .2) times max(√dim x, ‖x‖) at the first hypergradient.
For each goal the best pair *in hindsight* counts, by the median over the same two seeds, which favours the rivals.
Calls are samples shown to an oracle, and everybody is measured on the same grid: the first of `--points` equal parts of
the budget at which a goal holds.

Goals: A  ‖∇Φ‖ at 1e-2 of its start with Φ below its start;  B, C, and the gaps .3, .1, .03  Φ − min Φ at 1e-1, 1e-3, …
of its start. min Φ is the least Φ that anybody reached (`minimise` runs to its end).
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import unibio as ub
from minimise_problems import FRESH, Setting, lp
from unibio.core import oracle
from unibio.core.flat import Layout

jax.config.update("jax_enable_x64", True)
SEEDS = range(2)
LOWER = np.asarray([0.01, 0.03, 0.1, 0.3, 1.0])
UPPER, NORMALISED = np.asarray([0.02, 0.07, 0.2, 0.7, 2.0]), np.asarray([0.002, 0.007, 0.02, 0.07, 0.2])
RIVALS: dict[str, Any] = {
    "SABA": (ub.SABA(1, 1), UPPER),
    "BO-REP": (ub.BOREP(1, 1), NORMALISED),
    "AmIGO": (ub.AmIGO(1, 1, lower_steps=3, linear_steps=3), UPPER),
}
COLUMNS = ("calls", "phi", "gradient_norm")
GOALS = {"A": 1e-2, "gap .3": 0.3, "B": 0.1, "gap .03": 0.03, "C": 1e-3}


def race(p, batch=None):
    """The race of `lp_race.py` with this p: it starts at (0, y*(0))."""
    problem, x, y = lp(p, 2000, 50, -7, batch)[:3]
    return Setting(problem, x, ub.lower_solution(problem, x, y))


def digits(batch=None):
    """Hyper-cleaning of digits: 1,000 images, 40 % of them with another label; a linear model."""
    data, rng = load_digits(), np.random.default_rng(0)
    order = rng.permutation(1200)
    images, labels = data.data[order] / 16, data.target[order]
    images = np.concatenate([images, np.ones((1200, 1))], 1)
    noisy = np.where(rng.random(1200) < 0.4, (labels + rng.integers(1, 10, 1200)) % 10, labels)
    train, clean = (images[:1000], noisy[:1000]), (images[1000:], labels[1000:])
    size = 1000 if batch is None else batch
    setting = ub.problems.hyper_cleaning(lambda w, z: z @ w, jnp.zeros((65, 10)), train, clean, 2.0, 1e-3,
                                         batch_size=size)  # fmt: skip
    whole = ub.problems.hyper_cleaning(lambda w, z: z @ w, jnp.zeros((65, 10)), train, clean, 2.0, 1e-3,
                                       batch_size=1000)  # fmt: skip
    return Setting(setting.problem, setting.x, ub.lower_solution(whole.problem, setting.x, setting.y))


RACES = {f"race, p = {p}": lambda batch=None, p=p: race(float(p), batch) for p in (3, 6, 2, 4)} | {"digits": digits}


def units(setting):
    """The largest eigenvalue of H at the start, next to it where H is 0 there, and ‖∇Φ‖ and max(√dim x, ‖x‖)."""
    problem, x, y = setting[:3]
    layout, whole = Layout.of(y), problem.g_batches.whole()
    flat, most = layout.vector(y), 0.0
    product = jax.jit(lambda y, u: layout.vector(oracle.hvp_g(problem, x, layout.tree(y), layout.tree(u), whole)))
    for shift in (0.0, 0.1):
        u = jnp.asarray(np.random.default_rng(0).normal(size=flat.size))
        for _ in range(30):
            u = product(flat + shift * (most == 0), u)
            size = float(jnp.linalg.norm(u))
            u = u / (size or 1.0)
        most = most or size
    near = ub.lower_solution(problem, x, jax.tree.map(lambda leaf: leaf + (most == 0) * 0.1, y))
    gradient, _ = ub.hypergradient(problem, x, near)
    flat_x = Layout.of(x).vector(x)
    unit = max(flat_x.size**0.5, float(jnp.linalg.norm(flat_x)))
    return most, float(jnp.linalg.norm(Layout.of(x).vector(gradient))), unit


def run(name, make, rival, calls, points, folder):
    """All settings of a rival, measured, into a file."""
    began = time.process_time()
    solver, upper = RIVALS[rival]
    most, norm, unit = units(make())
    field = ub.solvers.step_sizes.step_size_fields(solver)
    lengths = upper * unit / (1.0 if rival == "BO-REP" else norm)
    problem, x, y = make(50)[:3]
    tuned = ub.tune(problem, solver, x, y, seeds=SEEDS, max_calls=calls, measurements=points,
                    grid=dict(zip(field, (lengths.tolist(), (LOWER / most).tolist()), strict=True)))  # fmt: skip
    columns: dict[str, Any] = {
        key: np.stack([table[key] for table in tuned.tables]) for key in ("calls", "phi", "gradient_norm")
    }
    seconds = time.process_time() - began
    np.savez_compressed(folder / f"{name}; {rival}.npz", seconds=seconds, settings=json.dumps(tuned.settings),
                        **columns)  # fmt: skip


def ours(name, make, folder):
    """`minimise`, measured after each of its steps."""
    problem, x, y = make()[:3]
    found = ub.compare(problem, {"minimise": ub.minimise}, x, y, seeds=[0], max_calls=10**9)
    columns: dict[str, Any] = {
        key: found.lane("minimise", 0)[key][None, None] for key in ("calls", "phi", "gradient_norm")
    }
    np.savez_compressed(folder / f"{name}; minimise.npz", settings="[{}]", **columns)


def reached(path, goal, least):
    """The best setting for a goal, and the median calls of it."""
    phi, norm, calls = (np.asarray(path[key]) for key in ("phi", "gradient_norm", "calls"))
    start = phi[0, 0, 0]
    if goal == "A":
        hit = (norm <= GOALS[goal] * norm[0, 0, 0]) & (phi < start)
    else:
        hit = phi - least <= GOALS[goal] * (start - least)
    spent = np.median(np.where(hit, calls, np.inf).min(axis=2), axis=1)
    return int(np.argmin(spent)), float(np.min(spent))


def table(folder):
    """A line for each problem and contestant."""
    for name in [*RACES, *FRESH]:
        paths = {rival: folder / f"{name}; {rival}.npz" for rival in ("minimise", *RIVALS)}
        paths = {rival: np.load(path) for rival, path in paths.items() if path.exists()}
        if not paths:
            continue
        least = min(float(np.nanmin(path["phi"])) for path in paths.values())
        for rival, path in paths.items():
            settings = json.loads(str(path["settings"]))
            best = {goal: reached(path, goal, least) for goal in GOALS}
            row = {goal: spent if np.isfinite(spent) else None for goal, (_, spent) in best.items()}
            chosen = {goal: list(settings[best[goal][0]].values()) for goal in GOALS}
            line = {"problem": name, "contestant": rival, "calls": row, "least": least}
            line |= {"budget": float(np.max(path["calls"])), "settings": chosen}
            print(json.dumps(line, ensure_ascii=False))


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "ours", "table"])
    parser.add_argument("problems", nargs="*", metavar="PROBLEM")
    parser.add_argument("--calls", type=int, default=160_000)
    parser.add_argument("--points", type=int, default=40)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.what == "table":
        table(options.out)
        return
    for name, make in (RACES | FRESH).items():
        if options.problems and name not in options.problems:
            continue
        for rival in RIVALS if options.what == "run" else ["minimise"]:
            if (options.out / f"{name}; {rival}.npz").exists():
                continue
            if rival == "minimise":
                ours(name, make, options.out)
            else:
                run(name, make, rival, options.calls, options.points, options.out)
            print(f"{name}; {rival}: {time.process_time():.0f} s of CPU so far", flush=True)


if __name__ == "__main__":
    main()
