"""Searches for false statuses of `ub.minimise`, and measures how good its error estimates are.

It is for whoever changes `unibio.solvers.quasi_newton`. It draws random problems from several families, calls
`ub.minimise` as a user would, and compares with ∇Φ computed in NumPy, without unibio: from a closed form of y*(x), or
by Newton's method and dense solves in float64.

    python scripts/honesty_minimise.py                              # 45 instances of each family, both dtypes, seed 0
    python scripts/honesty_minimise.py --families ridge --dtype float32 --per-family 10 --show 5 --seed 3

A status is *false* if it is `ok` where the true ‖∇Φ‖ is above 2·tolerance times that at the start, or if it names a
defect that the problem does not have: `stationary` is one unless ‖∇Φ‖ at the start is below 1e-3 of what its two parts
are long, and so is `stagnated` on a smooth problem in float64 where ‖∇Φ‖ is above 1e-3 of its start. Where there is a
minimiser everything but `ok` (and `stationary` at one) counts as *unsolved*, which is no lie. The exit code is 1 after
a false status in float64, or more than .5 % in float32.

f, g and x are measured in random units, 1e-3 to 1e3; a quarter of the runs starts next to a solution.
"""

import argparse
import json
import sys
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import unibio as ub

Array = Any
TOLERANCE = {"float64": 1e-6, "float32": 1e-3}


class Formula(eqx.Module):
    """A function of x (in its unit), y and numbers, times a scale."""

    formula: Callable[..., Array] = eqx.field(static=True)
    numbers: tuple[Array, ...]
    unit: Array
    scale: Array

    def __call__(self, x: Array, y: Array, batch: None) -> Array:
        return self.scale * self.formula(x / self.unit, y, *self.numbers)


class Family(NamedTuple):
    """How to draw numbers, f and g as formulas, the start, and the truth: (∇_x f, −A v) in x, for the given numbers.
    The truth is None for families with a defect, whose status must be among `defects`."""

    draw: Callable[[np.random.Generator], tuple[Array, ...]]
    f: Callable[..., Array]
    g: Callable[..., Array]
    start: Callable[[np.random.Generator], tuple[Array, Array]]
    truth: Callable[..., tuple[Array, Array]] | None
    defects: tuple[str, ...] = ()


def _start(n: int, d: int, spread: float = 1.0) -> Callable[[np.random.Generator], tuple[Array, Array]]:
    return lambda rng: (spread * rng.normal(size=n), spread * rng.normal(size=d))


def _newton(
    g1: Callable[[Array], Array], g2: Callable[[Array], Array], g0: Callable[[Array], Array], y: Array
) -> Array:
    """argmin of a convex function by damped Newton steps, in float64."""
    for _ in range(200):
        r, h = g1(y), g2(y)
        step = np.linalg.solve(h + 1e-300 * np.eye(y.size), r)
        t = 1.0
        while t > 1e-10 and g0(y - t * step) > g0(y) - 1e-4 * t * (r @ step):
            if np.linalg.norm(g1(y - t * step)) < np.linalg.norm(r):  # rounding drowns g before it drowns its gradient
                break
            t /= 2
        y = y - t * step
        if np.linalg.norm(t * step) <= 1e-15 * max(1.0, float(np.linalg.norm(y))):
            break
    return y


# ---------------------------------------------------------------- solvable families


def _tilted_draw(condition: float) -> Callable[[np.random.Generator], tuple[Array, ...]]:
    def draw(rng: np.random.Generator) -> tuple[Array, ...]:
        q: Array = np.linalg.qr(rng.normal(size=(8, 8)))[0]
        scaled: Array = q * np.geomspace(1, condition, 8)
        return scaled @ q.T, rng.normal(size=(8, 4)), rng.normal(size=8)

    return draw


def _tilted_f(x: Array, y: Array, a: Array, b: Array, t: Array) -> Array:
    return jnp.sum(jnp.log(jnp.cosh(y - t))) + 0.05 * jnp.sum(x**2)


def _tilted_g(x: Array, y: Array, a: Array, b: Array, t: Array) -> Array:
    z = y - b @ jnp.sin(x)
    return 0.5 * z @ a @ z


def _tilted_truth(x: Array, y: Array, a: Array, b: Array, t: Array) -> tuple[Array, Array]:
    return 0.1 * x, np.cos(x) * (b.T @ np.tanh(b @ np.sin(x) - t))


def _cosh_g(x: Array, y: Array, a: Array, b: Array, t: Array) -> Array:
    z = y - b @ jnp.sin(x)
    return jnp.sum(jnp.cosh(z)) + 0.5 * z @ a @ z


def _singular_draw(p: float) -> Callable[[np.random.Generator], tuple[Array, ...]]:
    return lambda rng: (rng.normal(size=(6, 6)) / 2, rng.normal(size=6) / 2, np.asarray(p))


def _spow(y: Array, a: Array) -> Array:
    return jnp.sign(y) * ub.abs_pow(y, a)


def _singular_f(x: Array, y: Array, b: Array, t: Array, p: Array) -> Array:
    return jnp.sum(jnp.sqrt(1 + (_spow(y, p - 1) - t) ** 2)) + 0.05 * jnp.sum(x**2)


def _singular_g(x: Array, y: Array, b: Array, t: Array, p: Array) -> Array:
    return jnp.sum(ub.abs_pow(y, p)) / p - y @ (b @ jnp.sin(x))


def _singular_truth(x: Array, y: Array, b: Array, t: Array, p: Array) -> tuple[Array, Array]:
    z = b @ np.sin(x) - t
    return 0.1 * x, np.cos(x) * (b.T @ (z / np.sqrt(1 + z**2)))


def _ridge_draw(rng: np.random.Generator) -> tuple[Array, ...]:
    w = rng.normal(size=7) * (rng.random(7) < 0.5)
    x, z = rng.normal(size=(30, 7)) * rng.lognormal(size=7), rng.normal(size=(20, 7))
    return x, x @ w + 0.5 * rng.normal(size=30), z, z @ w + 0.5 * rng.normal(size=20)


def _ridge_f(x: Array, y: Array, a: Array, t: Array, b: Array, u: Array) -> Array:
    return 0.5 * jnp.mean((b @ y - u) ** 2) + 0.005 * jnp.sum(x**2)


def _ridge_g(x: Array, y: Array, a: Array, t: Array, b: Array, u: Array) -> Array:
    return 0.5 * jnp.mean((a @ y - t) ** 2) + 0.5 * jnp.sum(jnp.exp(x) * y**2)


def _ridge_truth(x: Array, y: Array, a: Array, t: Array, b: Array, u: Array) -> tuple[Array, Array]:
    h = a.T @ a / t.size + np.diag(np.exp(x))
    y = np.linalg.solve(h, a.T @ t / t.size)
    v = np.linalg.solve(h, b.T @ (b @ y - u) / u.size)
    return 0.01 * x, -np.exp(x) * y * v


def _logistic_draw(rng: np.random.Generator) -> tuple[Array, ...]:
    w = rng.normal(size=5)
    a, b = rng.normal(size=(40, 5)), rng.normal(size=(30, 5))
    return a, np.sign(a @ w + rng.normal(size=40)), b, np.sign(b @ w + rng.normal(size=30))


def _logistic_f(x: Array, y: Array, a: Array, t: Array, b: Array, u: Array) -> Array:
    return jnp.mean(jax.nn.softplus(-u * (b @ y))) + 0.001 * jnp.sum(x**2)


def _logistic_g(x: Array, y: Array, a: Array, t: Array, b: Array, u: Array) -> Array:
    return jnp.mean(jax.nn.softplus(-t * (a @ y))) + 0.5 * jnp.sum(jnp.exp(x) * y**2)


def _logistic_truth(x: Array, y: Array, a: Array, t: Array, b: Array, u: Array) -> tuple[Array, Array]:
    def sigma(s: Array) -> Array:
        return 0.5 * (1 + np.tanh(s / 2))

    def g1(y: Array) -> Array:
        return -a.T @ (t * sigma(-t * (a @ y))) / t.size + np.exp(x) * y

    def g2(y: Array) -> Array:
        s = sigma(a @ y)
        return (a.T * (s * (1 - s))) @ a / t.size + np.diag(np.exp(x))

    def g0(y: Array) -> Array:
        return np.mean(np.logaddexp(0, -t * (a @ y))) + 0.5 * np.sum(np.exp(x) * y**2)

    y = _newton(g1, g2, g0, np.zeros(5))
    v = np.linalg.solve(g2(y), -b.T @ (u * sigma(-u * (b @ y))) / u.size)
    return 0.002 * x, -np.exp(x) * y * v


def _cleaning_draw(rng: np.random.Generator) -> tuple[Array, ...]:
    w = rng.normal(size=4)
    a, b = rng.normal(size=(25, 4)), rng.normal(size=(20, 4))
    shift = 3 * (rng.random(25) < 0.3)
    p = np.asarray(rng.choice([2.0, 3.0, 4.0, 6.0]))
    return a, a @ w + 0.3 * rng.normal(size=25) + shift, b, b @ w + 0.3 * rng.normal(size=20), p


def _cleaning_f(x: Array, y: Array, a: Array, t: Array, b: Array, u: Array, p: Array) -> Array:
    return jnp.mean((b @ y - u) ** 2) + 0.001 * jnp.sum(x**2)


def _cleaning_g(x: Array, y: Array, a: Array, t: Array, b: Array, u: Array, p: Array) -> Array:
    return jnp.mean(jax.nn.sigmoid(x) * ub.abs_pow(a @ y - t, p)) + 0.01 * jnp.sum(ub.abs_pow(y, p))


def _cleaning_truth(x: Array, y: Array, a: Array, t: Array, b: Array, u: Array, p: Array) -> tuple[Array, Array]:
    w = 0.5 * (1 + np.tanh(x / 2))

    def power(s: Array, q: Array) -> Array:
        return np.sign(s) * np.abs(s) ** q

    def g1(y: Array) -> Array:
        return a.T @ (w * p * power(a @ y - t, p - 1)) / t.size + 0.01 * p * power(y, p - 1)

    def g2(y: Array) -> Array:
        c = p * (p - 1)
        return (a.T * (w * c * np.abs(a @ y - t) ** (p - 2))) @ a / t.size + 0.01 * c * np.diag(np.abs(y) ** (p - 2))

    def g0(y: Array) -> Array:
        return np.mean(w * np.abs(a @ y - t) ** p) + 0.01 * np.sum(np.abs(y) ** p)

    y = _newton(g1, g2, g0, np.linalg.lstsq(a, t, rcond=None)[0])
    v = np.linalg.solve(g2(y), 2 * b.T @ (b @ y - u) / u.size)
    return 0.002 * x, -w * (1 - w) / t.size * (p * power(a @ y - t, p - 1)) * (a @ v)


# ---------------------------------------------------------------- families with a defect


def _linear_f(x: Array, y: Array, c: Array) -> Array:
    return c @ y


def _follow_g(x: Array, y: Array, c: Array) -> Array:
    return 0.5 * jnp.sum((y - x) ** 2) + 0.1 * jnp.sum(jnp.sqrt(1 + (y - x) ** 2))


def _kink_f(x: Array, y: Array, c: Array) -> Array:
    return jnp.sum(jnp.abs(y - c)) + 0.1 * jnp.sum((y - c) ** 2)


def _kink_truth(x: Array, y: Array, c: Array) -> tuple[Array, Array]:
    return np.zeros_like(x), np.sign(x - c) + 0.2 * (x - c)


def _linear_truth(x: Array, y: Array, c: Array) -> tuple[Array, Array]:
    return np.zeros_like(x), c


def _cubic_truth(x: Array, y: Array, c: Array) -> tuple[Array, Array]:
    return np.zeros_like(x), 3 * (1 + c**2) * x**2  # 0 is a stationary point


def _separable_g(x: Array, y: Array, c: Array) -> Array:
    return jnp.sum(jax.nn.softplus(-(1 + x**2) * c**2 * y)) + 1e-3 * jnp.sum(jnp.exp(-y))


def _square_f(x: Array, y: Array, c: Array) -> Array:
    return 0.5 * jnp.sum((y - c) ** 2) + 0.1 * jnp.sum(x**2)


def _saddle_g(x: Array, y: Array, c: Array) -> Array:
    z = y - x
    return 0.5 * jnp.sum(z[:2] ** 2) - 0.5 * jnp.sum((0.1 + c[2:] ** 2) * z[2:] ** 2)


def _cubic_f(x: Array, y: Array, c: Array) -> Array:
    return jnp.sum((1 + c**2) * y**3)


def _one(n: int) -> Callable[[np.random.Generator], tuple[Array, ...]]:
    return lambda rng: (rng.normal(size=n),)


FAMILIES: dict[str, Family] = {
    "quadratic, condition 1": Family(_tilted_draw(1), _tilted_f, _tilted_g, _start(4, 8), _tilted_truth),
    "quadratic, condition 1e2": Family(_tilted_draw(1e2), _tilted_f, _tilted_g, _start(4, 8), _tilted_truth),
    "quadratic, condition 1e4": Family(_tilted_draw(1e4), _tilted_f, _tilted_g, _start(4, 8), _tilted_truth),
    "cosh": Family(_tilted_draw(1e1), _tilted_f, _cosh_g, _start(4, 8), _tilted_truth),
    "singular, p = 3": Family(_singular_draw(3.0), _singular_f, _singular_g, _start(6, 6), _singular_truth),
    "singular, p = 4": Family(_singular_draw(4.0), _singular_f, _singular_g, _start(6, 6), _singular_truth),
    "singular, p = 8": Family(_singular_draw(8.0), _singular_f, _singular_g, _start(6, 6), _singular_truth),
    "ridge": Family(_ridge_draw, _ridge_f, _ridge_g, _start(7, 7), _ridge_truth),
    "logistic": Family(_logistic_draw, _logistic_f, _logistic_g, _start(5, 5), _logistic_truth),
    "cleaning": Family(_cleaning_draw, _cleaning_f, _cleaning_g, _start(25, 4), _cleaning_truth),
    "kink": Family(_one(4), _kink_f, _follow_g, _start(4, 4), _kink_truth, ("stagnated",)),
    "unbounded, linear": Family(_one(4), _linear_f, _follow_g, _start(4, 4), _linear_truth, ("unbounded",)),
    "unbounded, cubic": Family(_one(4), _cubic_f, _follow_g, _start(4, 4), _cubic_truth, ("unbounded",)),
    "no minimiser": Family(_one(4), _square_f, _separable_g, _start(4, 4), None, ("no_minimiser",)),
    "saddle": Family(_one(4), _square_f, _saddle_g, _start(4, 4), None, ("not_convex", "no_minimiser")),
}


def examine(name: str, dtype: str, seed: int, number: int, max_calls: int = 20_000) -> dict[str, Any]:
    """Runs `minimise` on one random problem; the same arguments give the same problem."""
    family = FAMILIES[name]
    rng = np.random.default_rng([seed, zlib.crc32(f"minimise {name} {dtype}".encode()), number])
    numbers = tuple(np.asarray(array, dtype) for array in family.draw(rng))
    unit, scale_f, scale_g = (np.asarray(10.0 ** rng.uniform(-3, 3), dtype) for _ in range(3))
    x, y = family.start(rng)
    x, y = np.asarray(x * unit, dtype), np.asarray(y, dtype)
    problem = ub.Problem(Formula(family.f, numbers, unit, scale_f), Formula(family.g, numbers, unit, scale_g))
    near = family.truth is not None and not family.defects and rng.random() < 0.25
    if near:
        x = np.asarray(ub.minimise(problem, x, y, max_calls=max_calls).x)
        x = np.asarray(x * (1 + 10.0 ** rng.uniform(-8, -1) * rng.normal(size=x.shape)), dtype)

    def truth(x: Array) -> tuple[float, float]:
        """‖∇Φ‖, and how long its two parts are."""
        assert family.truth is not None
        exact = [np.asarray(array, float) for array in numbers]
        parts = family.truth(np.asarray(x, float) / float(unit), y, *exact)
        factor = float(scale_f) / float(unit)
        return factor * float(np.linalg.norm(parts[0] + parts[1])), factor * sum(
            float(np.linalg.norm(part)) for part in parts
        )

    record: dict[str, Any] = {"family": name, "dtype": dtype, "seed": seed, "number": number, "near": near, "crash": ""}
    try:
        result = ub.minimise(problem, jnp.asarray(x), jnp.asarray(y), max_calls=max_calls)
    except Exception as raised:
        return record | {"crash": f"{type(raised).__name__}: {raised}"}
    record |= {"status": result.status.name, "calls": int(sum(result.calls)), "message": result.message,
               "norm": result.gradient_norm, "error": result.gradient_error}  # fmt: skip
    if family.truth is not None:
        (start, parts), (end, _) = truth(x), truth(result.x)
        record |= {"start": start, "parts": parts, "end": end, "off": abs(end - result.gradient_norm)}
    return record


def judge(record: dict[str, Any]) -> dict[str, bool]:
    """Whether the status is false, or the problem unsolved, as defined above."""
    family, status = FAMILIES[record["family"]], record["status"]
    tolerance, single = TOLERANCE[record["dtype"]], record["dtype"] == "float32"
    if family.truth is None:
        return {
            "false": status not in (*family.defects, "budget", "stagnated"),
            "unsolved": status not in family.defects,
        }
    small = record["end"] <= 2 * tolerance * record["start"]
    stationary = record["start"] <= 1e-3 * record["parts"]
    lie = status == "ok" and not small
    lie |= status == "stationary" and not stationary
    lie |= status not in ("ok", "stationary", "budget", "stagnated", *family.defects)
    if status == "stagnated" and not family.defects and not single:
        lie |= not (stationary or record["end"] <= 1e-3 * record["start"])
    solved = status == "ok" or (status == "stationary" and stationary) or status in family.defects
    return {"false": lie, "unsolved": not solved}


def report(records: list[dict[str, Any]], show: int) -> int:
    """Prints the tables and the false statuses; returns the exit code."""
    print(f"{'family':28s} {'dtype':8s} {'runs':>5s} {'false':>5s} {'unsolved':>8s} {'calls':>7s}  statuses")
    code = 0
    for name in FAMILIES:
        for dtype in TOLERANCE:
            mine = [r for r in records if (r["family"], r["dtype"]) == (name, dtype) and not r["crash"]]
            if mine:
                verdicts = [judge(r) for r in mine]
                words = [r["status"] for r in mine]
                counts = ", ".join(f"{word} {words.count(word)}" for word in sorted(set(words)))
                lies, unsolved = (sum(v[word] for v in verdicts) for word in ("false", "unsolved"))
                calls = np.median([r["calls"] for r in mine])
                print(f"{name:28s} {dtype:8s} {len(mine):5d} {lies:5d} {unsolved:8d} {calls:7.0f}  {counts}")
    for dtype in TOLERANCE:
        mine = [r for r in records if r["dtype"] == dtype and not r["crash"]]
        if not mine:
            continue
        false = [r for r in mine if judge(r)["false"]]
        print(f"{dtype}: {len(false)} false of {len(mine)}; {sum(judge(r)['unsolved'] for r in mine)} unsolved")
        known = [r for r in mine if "off" in r and r["status"] == "ok" and np.isfinite(r["error"]) and r["off"] > 0]
        if known:
            ratios = np.asarray([r["error"] / r["off"] for r in known])
            print(f"  gradient_error / true error of ‖∇Φ‖: median {np.median(ratios):.3g}, below 1 in "
                  f"{np.mean(ratios < 1):.1%} of {len(ratios)}")  # fmt: skip
        code |= int(len(false) > (0 if dtype == "float64" else 0.005 * len(mine)))
        for r in false[:show]:
            print(" ", json.dumps(r))
        for r in [r for r in mine if judge(r)["unsolved"] and not judge(r)["false"]][:show]:
            print("  unsolved:", json.dumps(r))
    for r in (r for r in records if r["crash"]):
        print("crash:", r)
        code = 1
    return code


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--per-family", type=int, default=45)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--dtype", choices=list(TOLERANCE))
    parser.add_argument("--show", type=int, default=5, metavar="K", help="print the first K false statuses")
    parser.add_argument("--json", type=Path, help="append the records to this file, and skip those in it")
    options = parser.parse_args()
    kept = options.json and options.json.exists()
    records = [json.loads(line) for line in options.json.read_text().splitlines()] if kept else []
    done = {(r["family"], r["dtype"], r["seed"], r["number"]) for r in records}
    for dtype in [options.dtype] if options.dtype else list(TOLERANCE):
        jax.config.update("jax_enable_x64", dtype == "float64")
        for name in options.families:
            for number in range(options.per_family):
                if (name, dtype, options.seed, number) in done:
                    continue
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    record = examine(name, dtype, options.seed, number)
                records.append(record)
                if options.json:
                    with options.json.open("a") as file:
                        file.write(json.dumps(record) + "\n")
            print(f"{dtype}: {name}, {len(records)} instances so far", file=sys.stderr, flush=True)
    return report(records, options.show)


if __name__ == "__main__":
    sys.exit(main())
