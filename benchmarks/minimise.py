"""`ub.minimise` on fresh problems (`minimise_problems.py`), against rivals that are given the same oracles.

    python benchmarks/minimise.py run [PROBLEM …] [--calls 4000] [--methods minimise scipy HOAG KKT] --out FILE
    python benchmarks/minimise.py table --out FILE

Calls are passes over the data, whichever oracle makes them, until the true ‖∇Φ‖ is 1e-2 and 1e-4 of its start (a dash:
not within `--calls` passes). The truth is a closed form where there is one (the singular problems), and
elsewhere it comes from lower solutions by Newton's method in NumPy, to a relative ‖∇_y g‖ of 1e-10. FILE gets a line of
JSON for each problem and method; what is there is not run again.

- scipy: L-BFGS-B of SciPy on Φ, each value and gradient from a lower solution by warm-started Newton-CG to 1e-8, and
  CG to 1e-8;
- HOAG: Pedregosa 2016, written from the paper: gradient steps whose length adapts, lower solutions and linear systems
  to a tolerance that falls by .9 in every step from .1;
- KKT: SciPy's Newton–Krylov (LGMRES, Armijo) on ∇_x f − A v = 0, ∇_y g = 0, ∇_y f − H v = 0 for (x, y, v) together,
  from y*(x0) and its v. It may also end at a maximum or a saddle of Φ.
"""

import argparse
import contextlib
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import scipy.optimize

import unibio as ub
from minimise_problems import DEVELOPMENT, FRESH
from unibio.core import oracle
from unibio.core.flat import Layout
from unibio.core.problem import prepare

jax.config.update("jax_enable_x64", True)


# ---------------------------------------------------------------- the rivals, in NumPy on counted oracles


class Spent(Exception):
    """The budget of passes."""


class Oracles:
    """f, g and their derivatives on NumPy vectors; `passes` counts, `most` bounds."""

    def __init__(self, setting, most):
        problem, x, y = prepare(*setting[:3])
        self.x, self.y = Layout.of(x), Layout.of(y)
        self.start = np.asarray(self.x.vector(x)), np.asarray(self.y.vector(y))
        self.passes, self.most = 0, most
        wf, wg = problem.f_batches.whole(), problem.g_batches.whole()

        def tx(x):
            return self.x.tree(x)

        def ty(y):
            return self.y.tree(y)

        def f(x, y):
            value, (fx, fy) = oracle.value_and_grads_f(problem, tx(x), ty(y), wf)
            return value, self.x.vector(fx), self.y.vector(fy)

        def g(x, y):
            value, r = oracle.value_and_grad_g(problem, tx(x), ty(y), wg)
            return value, self.y.vector(r)

        self.f, self.g = self.counted(f), self.counted(g)
        self.h = self.counted(lambda x, y, u: self.y.vector(oracle.hvp_g(problem, tx(x), ty(y), ty(u), wg)))
        self.a = self.counted(lambda x, y, v: self.x.vector(oracle.cross_g(problem, tx(x), ty(y), ty(v), wg)))

    def counted(self, fn):
        compiled = jax.jit(fn)

        def call(*args):
            if self.passes >= self.most:
                raise Spent
            self.passes += 1
            return jax.tree.map(np.asarray, compiled(*args))

        return call

    def cg(self, x, y, b, u, tolerance):
        """H u = b to a relative residual, from u."""
        r = b - self.h(x, y, u) if u.any() else b
        p, rr, goal = r, r @ r, tolerance * np.linalg.norm(b)
        for _ in range(20 * b.size):
            if not np.sqrt(rr) > goal:
                break
            hp = self.h(x, y, p)
            if not p @ hp > 0:
                break
            step = rr / (p @ hp)
            u, r = u + step * p, r - step * hp
            p, rr = r + (r @ r) / rr * p, r @ r
        return u

    def lower(self, x, y, goal):
        """Newton-CG until ‖∇_y g‖ ≤ goal."""
        g, r = self.g(x, y)
        for _ in range(200):
            size = np.linalg.norm(r)
            if size <= goal:
                break
            s, t = self.cg(x, y, -r, 0 * y, min(0.1, np.sqrt(size))), 1.0
            if not s.any():  # the Hessian is 0 here
                s = -r
            while t > 1e-10:
                new, r_new = self.g(x, y + t * s)
                if new <= g + 1e-4 * t * (r @ s) or np.linalg.norm(r_new) < 0.9 * size:
                    break
                t /= 2
            else:
                break
            y, g, r = y + t * s, new, r_new
        return y

    def phi(self, x, y, v, goal, tolerance):
        """Φ, ∇Φ, y and v."""
        y = self.lower(x, y, goal)
        f, fx, fy = self.f(x, y)
        v = self.cg(x, y, fy, v, tolerance)
        return f, fx - self.a(x, y, v), y, v


def truths(setting):
    """x ↦ the true ‖∇Φ(x)‖; each call begins where the last one ended."""
    if setting.gradient is not None:
        return lambda x: np.linalg.norm(setting.gradient(x))
    o = Oracles(setting, np.inf)
    x, y = o.start
    unit = max(np.linalg.norm(o.g(x, y)[1]), np.linalg.norm(o.g(x, y + 0.1)[1]))
    last = {"y": y if y.any() else y + 1e-3, "v": 0 * y}

    def truth(x):
        _, h, last["y"], last["v"] = o.phi(x, last["y"], last["v"], 1e-10 * unit, 1e-10)
        return np.linalg.norm(h)

    return truth


class Steps(ub.Between):
    """x and the passes so far, after each step."""

    def __init__(self):
        self.rows = []

    def after(self, view):
        self.rows.append((view.record.calls, np.asarray(view.state.point.x)))


def ours(setting, most):
    """Passes and x, the status, and the seconds without compilation."""
    whole = [sampler.whole() for sampler in (setting.problem.f_batches, setting.problem.g_batches)]
    per_pass = np.asarray([oracle.samples(whole[0])] + [oracle.samples(whole[1])] * 3)
    path = Steps()
    result = ub.minimise(*setting[:3], max_calls=int(most * per_pass.max()), callbacks=path)
    return [(int((calls / per_pass).sum()), x) for calls, x in path.rows], result.status.name, result.seconds


def rival_scipy(setting, most):
    """SciPy's L-BFGS-B on accurate values and gradients."""
    o, path, warm = Oracles(setting, most), [], {}
    x, y = o.start
    unit = max(np.linalg.norm(o.g(x, y)[1]), np.linalg.norm(o.g(x, y + 0.1)[1]))
    warm["y"], warm["v"] = y + 1e-3 * (not y.any()), 0 * y

    def value(x):
        f, h, warm["y"], warm["v"] = o.phi(x, warm["y"], warm["v"], 1e-8 * unit, 1e-8)
        path.append((o.passes, x.copy()))
        return float(f), h.astype(float)

    with contextlib.suppress(Spent):
        scipy.optimize.minimize(value, x, jac=True, method="L-BFGS-B", options={"maxiter": 10**5, "gtol": 0, "ftol": 0})
    return path


def rival_hoag(setting, most):
    """Gradient steps with lower solutions to a falling tolerance; the step grows by 1.05, an increase halves it."""
    o = Oracles(setting, most)
    path: list[Any] = []
    x, y = o.start
    unit = max(np.linalg.norm(o.g(x, y)[1]), np.linalg.norm(o.g(x, y + 0.1)[1]))
    y, v, epsilon, step, old = y + 1e-3 * (not y.any()), 0 * y, 0.1, None, None
    try:
        while len(path) < 20_000:
            f, h, y, v = o.phi(x, y, v, epsilon * unit, epsilon)
            size = np.linalg.norm(h)
            step = 0.3 * np.sqrt(x.size) / size if step is None else step
            if old is not None and f > old[1] + epsilon * abs(old[1]) - 0.1 * step * old[3]:
                step /= 2
                if f > old[1] + epsilon * abs(old[1]):
                    x, h = old[0], old[2]
                    x = x - step * h
                    epsilon = max(0.9 * epsilon, 1e-10)
                    continue
            else:
                step *= 1.05
            path.append((o.passes, x.copy()))
            old, epsilon = (x, f, h, size**2), max(0.9 * epsilon, 1e-10)
            x = x - step * h
    except Spent:
        pass
    return path


def rival_kkt(setting, most):
    """Newton–Krylov on the optimality conditions."""
    o, path = Oracles(setting, most), []
    x, y = o.start
    n, d = x.size, y.size
    unit = max(np.linalg.norm(o.g(x, y)[1]), np.linalg.norm(o.g(x, y + 0.1)[1]))

    def conditions(z):
        x, y, v = z[:n], z[n : n + d], z[n + d :]
        _, fx, fy = o.f(x, y)
        return np.concatenate([fx - o.a(x, y, v), o.g(x, y)[1], fy - o.h(x, y, v)])

    with contextlib.suppress(Spent, scipy.optimize.NoConvergence, ValueError, OverflowError):
        _, _, y, v = o.phi(x, y + 1e-3 * (not y.any()), 0 * y, 1e-4 * unit, 1e-4)
        scipy.optimize.newton_krylov(conditions, np.concatenate([x, y, v]), f_tol=1e-12, maxiter=10**4,
                                     callback=lambda z, _: path.append((o.passes, z[:n].copy())))  # fmt: skip
    return path


RIVALS = {"scipy": rival_scipy, "HOAG": rival_hoag, "KKT": rival_kkt}
GOALS = (1e-2, 1e-4)


def reached(setting, path):
    """Passes at which the true ‖∇Φ‖ first is below each goal, relative to the start (None if never), and where it
    ended. Of a long path 100 points are looked at."""
    truth = truths(setting)
    start = np.asarray(Layout.of(prepare(*setting[:3])[1]).vector(prepare(*setting[:3])[1]))
    unit, hits = truth(start), dict.fromkeys(GOALS)
    chosen = path if len(path) <= 100 else [path[i] for i in np.unique(np.geomspace(1, len(path), 100).astype(int) - 1)]
    for passes, x in chosen:
        norm = truth(x)
        for goal in GOALS:
            if hits[goal] is None and norm <= goal * unit:
                hits[goal] = passes
        if None not in hits.values():
            break
    return list(hits.values()), float(truth(path[-1][1]) / unit) if path else None


def run(name, make, method, calls):
    """A line of results."""
    setting, status, began = make(), "", time.process_time()
    if method == "minimise":
        path, status, seconds = ours(setting, calls)
    else:
        path = RIVALS[method](setting, calls)
        seconds = time.process_time() - began
    hits, end = reached(setting, path)
    return {"problem": name, "method": method, "passes": hits, "end": end, "status": status, "seconds": seconds,
            "in all": path[-1][0] if path else None, "budget": calls}  # fmt: skip


def table(lines):
    """The results for a page."""
    seen = {(line["problem"], line["method"]): line for line in lines}
    methods = list(dict.fromkeys(line["method"] for line in lines))

    def shown(line):
        return "not run" if line is None else " / ".join("–" if hit is None else f"{hit:,}" for hit in line["passes"])

    print(f"| problem | {' | '.join(methods)} | `minimise`: status, true end, s |\n|{'---|' * (len(methods) + 2)}")
    for name in dict.fromkeys(line["problem"] for line in lines):
        cells = [shown(seen.get((name, method))) for method in methods]
        mine = seen.get((name, "minimise"))
        end = f"{mine['status']}, {mine['end']:.0e}, {mine['seconds']:.2f}" if mine else ""
        print(f"| {name} | {' | '.join(cells)} | {end} |")


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help=f"of {', '.join(FRESH | DEVELOPMENT)}")
    parser.add_argument("--calls", type=int, default=4000, help="passes over the data of each contestant")
    parser.add_argument("--methods", nargs="+", choices=["minimise", *RIVALS], default=["minimise", *RIVALS])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    if options.what == "table":
        table(lines)
        return
    done = {(line["problem"], line["method"]) for line in lines}
    for name in options.problems or FRESH:
        for method in options.methods:
            if (name, method) not in done:
                line = run(name, (FRESH | DEVELOPMENT)[name], method, options.calls)
                with options.out.open("a") as file:
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
