"""The random lower levels of `honesty_lower.py`, by family, each with the truth about its minimiser.

The truth is a closed form or the result of Newton's method in long double, for the data after they were rounded to the
dtype under test.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from honesty_formulas import (
    Array,
    Formula,
    Long,
    log_uniform,
    logistic_g,
    logistic_parts,
    newton,
    norm,
    order,
    orthogonal,
    powers_g,
    quadratic_g,
    regression_g,
    regression_parts,
    rounded,
    signed,
    solve,
    spow,
)

import unibio as ub

UNITS = 300  # the distance from the minimiser that is allowed, in units of rounding


class OnData(eqx.Module):
    """g as a formula of y and the rows of a batch."""

    formula: Callable[..., jax.Array] = eqx.field(static=True)

    def __call__(self, x: jax.Array, y: jax.Array, batch: Any) -> jax.Array:
        return self.formula(y, *batch.value)


def zero_f(x: jax.Array, y: jax.Array, batch: Any) -> jax.Array:
    """An f for problems of which only the lower level is solved."""
    return jnp.sum(x) * 0


@dataclasses.dataclass
class Case:
    """A function g, a start, and the truth. `minimiser(y)` is the minimiser nearest to y, or None if there is none;
    `allowed` is how far from it a right result may be."""

    g: Any
    x: Array
    y0: Array
    minimiser: Callable[[Array], Array | None]
    allowed: float
    note: str
    data: Any = None


# ---------------------------------------------------------------- g without a minimiser

TAILS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "exp": lambda t: jnp.exp(-t),
    "softplus": lambda t: jax.nn.softplus(-t),
    "1/(1+|t|)": lambda t: 1 / (1 + jnp.abs(t)),
    "1/(1+t²)": lambda t: 1 / (1 + t**2),
    "1/(1+t⁴)": lambda t: 1 / (1 + t**4),
    "-log": lambda t: -jnp.log(t),
    "linear": lambda t: -t,
    "cubic": lambda t: t**3,
    "-t²": lambda t: -(t**2) / 2,
    "cos": jnp.cos,
    "wells": lambda t: (t**2 - 1) ** 2 / 4,
    "nothing": lambda t: 0 * t,
}


def _with_tail(tail: Callable[[jax.Array], jax.Array]) -> Callable[..., jax.Array]:
    def g(n: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        u = n.q @ y
        others = jnp.sum(n.s * (u - n.b) ** 2) / 2
        return others + jnp.sum(jnp.where(n.which, n.c * tail(jnp.where(n.which, n.k * u, 1.0)), 0.0))

    return g


TAIL_G = {name: _with_tail(tail) for name, tail in TAILS.items()}


def tails(rng: Any, dtype: str, name: str, t0: Callable[[int], Array]) -> Case:
    """g = ½Σ s(u − b)² in some coordinates of u = Qy and Σ c·tail(k·u) in the others, where k·u starts from `t0`."""
    d = int(rng.choice([1, 3, 150], p=[0.4, 0.45, 0.15]))
    which = rng.permutation(d) < rng.integers(1, min(d, 3) + 1)
    scale = log_uniform(rng, 1e-3, 1e3, d)
    rotated = bool(rng.integers(2)) and d > 1
    if rotated:
        scale[:] = scale[0]
    t = np.zeros(d)
    t[which] = t0(int(np.sum(which)))
    numbers = {"q": orthogonal(rng, d) if rotated else np.eye(d), "b": rng.normal(size=d) * ~which / scale,
               "s": log_uniform(rng, 1e-2, 1e2, d) * scale**2 * ~which, "k": scale,
               "c": log_uniform(rng, 1e-3, 1e3, d)}  # fmt: skip
    own, n = rounded(numbers, dtype)
    u0 = np.where(which, t / scale, numbers["b"] + rng.normal(size=d) / scale * rng.integers(2))

    def minimiser(y: Array) -> Array | None:
        if name not in ("cos", "wells"):
            return None
        u = n.q @ y
        there = np.pi * (2 * np.floor(n.k * u / (2 * np.pi)) + 1) if name == "cos" else np.sign(u)
        return solve(n.q, np.where(which, there / n.k, n.b)) if np.all(u[which]) else None

    g = Formula(TAIL_G[name], own | {"which": which})
    least = 1e-3 * float(norm(1 / n.k))
    y0 = (numbers["q"].T @ u0).astype(dtype)
    return Case(g, np.zeros(1, dtype), y0, minimiser, least, f"{name} d={d}{' rotated' if rotated else ''}")


def logistic_on_data(y: jax.Array, features: jax.Array) -> jax.Array:
    """mean log(1 + exp(−labelled features·y))."""
    return jnp.mean(jax.nn.softplus(-features @ y))


def powers_on_data(y: jax.Array, features: jax.Array, targets: jax.Array, p: jax.Array) -> jax.Array:
    """mean|Xy − t|^p/p."""
    return jnp.mean(ub.abs_pow(features @ y - targets, p[0])) / p[0]


def no_minimiser(rng: Any, dtype: str) -> Case:
    """A g that falls for ever but more and more slowly, so that it has no minimiser."""
    name = rng.choice(["exp", "softplus", "1/(1+|t|)", "1/(1+t²)", "1/(1+t⁴)", "-log", "separable", "separable"])
    if name == "separable":
        d, scale = int(rng.choice([2, 5, 150], p=[0.5, 0.4, 0.1])), log_uniform(rng, 1e-2, 1e2)
        features = rng.normal(size=(30, d))
        w = rng.normal(size=d)
        features = (np.sign(features @ w)[:, None] * features + 0.1 * w / np.linalg.norm(w)) * scale
        data = ub.Dataset((features.astype(dtype),), 10, chunk_size=int(rng.choice([7, 30])))
        y0 = (rng.normal(size=d) / scale * rng.integers(2)).astype(dtype)
        none = np.zeros(1, dtype)
        return Case(OnData(logistic_on_data), none, y0, lambda y: None, 0.0, f"separable d={d}", data)
    if name.startswith("1"):
        return tails(rng, dtype, name, lambda m: rng.choice([-1, 1], m) * log_uniform(rng, 1.5, 1e3, m))
    return tails(rng, dtype, name, lambda m: log_uniform(rng, 0.1, 10, m) if name == "-log" else rng.normal(size=m) * 3)


def unbounded(rng: Any, dtype: str) -> Case:
    """A g that falls without bound."""
    name = rng.choice(["linear", "cubic", "-t²"])
    return tails(rng, dtype, name, lambda m: rng.choice([-1, 1], m) * log_uniform(rng, 1e-3, 10, m))


def not_convex(rng: Any, dtype: str) -> Case:
    """A g that is not convex, with a start at a maximiser or saddle or near one."""
    if rng.integers(3) == 0:
        return indefinite(rng, dtype)
    at = rng.integers(2)
    return tails(
        rng, dtype, rng.choice(["cos", "wells"]), lambda m: at * signed(rng, 1, 1, m) * log_uniform(rng, 1e-16, 0.1, m)
    )


def indefinite(rng: Any, dtype: str) -> Case:
    """g = ½yᵀHy − yᵀb where H has negative eigenvalues, from its stationary point or from near it."""
    d = int(rng.choice([2, 6, 150], p=[0.4, 0.4, 0.2]))
    values, q = log_uniform(rng, 1e-2, 1, d), orthogonal(rng, d)
    values[: rng.integers(1, d)] *= -log_uniform(rng, 0.1, 10)
    h = q * values @ q.T
    own, n = rounded({"h": (h + h.T) / 2, "b": rng.normal(size=(d, 1))}, dtype)
    y0 = solve(n.h, n.b[:, 0]) + rng.normal(size=d) * log_uniform(rng, 1e-8, 1) * rng.integers(2)
    note = f"indefinite d={d}"
    return Case(Formula(quadratic_g, own), np.ones(1, dtype), y0.astype(dtype), lambda y: None, 0.0, note)


def flat(rng: Any, dtype: str) -> Case:
    """A g with more than one minimiser."""
    name = rng.choice(["nothing", "samples", "columns", "powers"])
    if name == "nothing":
        return tails(rng, dtype, name, lambda m: rng.normal(size=m))
    d = int(rng.choice([3, 8, 150], p=[0.4, 0.4, 0.2]))
    count = d - rng.integers(1, d) if name != "columns" else 2 * d
    features, p = rng.normal(size=(count, d)) * log_uniform(rng, 1e-3, 1e3), order(rng, 2, 6) if name == "powers" else 2
    if name == "columns":
        features[:, 1] = features[:, 0] * rng.choice([1.0, -2.0, 0.5])
    targets = rng.normal(size=count) * np.std(features)
    arrays = tuple(np.asarray(a, dtype) for a in (features, targets, np.full(count, p)))
    data = ub.Dataset(arrays, 1, chunk_size=int(rng.choice([max(1, count // 3), count])))
    y0 = (rng.normal(size=d) * rng.integers(2)).astype(dtype)
    return Case(OnData(powers_on_data), np.zeros(1, dtype), y0, lambda y: None, 0.0, f"{name} d={d} p={p:.3g}", data)


# ---------------------------------------------------------------- g with a minimiser


def _units(rng: Any, dtype: str, far: float) -> tuple[float, float]:
    """Random units of g and y between 1e-20 and 1e20. In float32 the derivatives at the start stay within 1e±26."""
    while True:
        g, y = rng.uniform(-20, 20, 2)
        if dtype == "float64" or max(abs(g - y), abs(g - 2 * y), abs(g + far)) < 26:
            return 10**g, 10**y


def _condition(hessian: Array) -> float:
    s = 1 / np.sqrt(np.diag(hessian))
    values = np.linalg.eigvalsh((hessian * s * s[:, None]).astype(float))
    return float(values[-1] / max(values[0], 1e-18))


def powers(rng: Any, dtype: str, degenerate: bool, units: bool = False, far: float = 0.0) -> Case:
    """g = Σ c|t|^p/p − tᵀb, t = (y − a0)/unit. If `degenerate`, b is 0 in some coordinates, and H is singular at y*."""
    d = int(rng.choice([1, 4, 150], p=[0.4, 0.45, 0.15]))
    p, a0 = order(rng, 2, 20), rng.normal(size=d) * rng.integers(2)
    b = signed(rng, 0.05, 3, d)
    if degenerate:
        b[rng.permutation(d)[: rng.integers(1, d + 1)]] = 0.0
    sg, uy = _units(rng, dtype, far * p) if units else (1.0, 1.0)
    numbers = {"p": p, "a0": a0 * uy, "sg": sg, "uy": np.full(d, uy), "ux": np.ones(1), "c": rng.uniform(0.5, 2, d),
               "b": b[:, None]}  # fmt: skip
    own, n = rounded(numbers, dtype)
    x = np.full(1, 1.3, dtype)
    z = n.b[:, 0] * np.sin(x.astype(Long)) / n.c
    t, eps = spow(z, 1 / (n.p - 1)), Long(UNITS * np.finfo(dtype).eps)
    # Where b is 0, t is 0 up to underflow.
    most = np.abs(spow(z + eps * np.abs(z), 1 / (n.p - 1)) - t) + eps * (np.abs(t) + np.abs(n.a0 / n.uy))
    underflow = Long(np.finfo(dtype).tiny / min(sg, sg / uy, sg / uy**2, 1.0)) ** (1 / max(n.p - 1, 1))
    allowed = float(norm((most + (z == 0) * underflow) * n.uy))
    start = rng.normal(size=d) * rng.integers(3) + (rng.normal(size=d) * 10**far if far else 0)
    y, y0 = n.a0 + n.uy * t, ((a0 + start) * uy).astype(dtype)
    note = f"powers d={d} p={p:.3g}{' degenerate' if degenerate else ''}"
    return Case(Formula(powers_g, own), x, y0, lambda _: y, allowed, note)


def _lp_derivatives(features: Array, targets: Array, p: float, c: float) -> Callable[[Array], tuple[Any, Array, Array]]:
    """The function of u that gives mean|Xu − t|^p/p + c‖u‖²/2, its gradient and its Hessian."""

    def derivatives(u: Array) -> tuple[Any, Array, Array]:
        r = features @ u - targets
        weight = (p - 1) * np.abs(r) ** (p - 2) / len(r)
        gradient = features.T @ spow(r, p - 1) / len(r) + c * u
        value = np.mean(np.abs(r) ** p) / p + c * u @ u / 2
        return value, gradient, features.T @ (weight[:, None] * features) + c * np.eye(len(u))

    return derivatives


def penalised_on_data(y: jax.Array, features: jax.Array, targets: jax.Array, p: jax.Array, c: jax.Array) -> jax.Array:
    """mean|Xy − t|^p/p + c‖y‖²/2."""
    return powers_on_data(y, features, targets, p) + c[0] * jnp.sum(y**2) / 2


def on_data(rng: Any, dtype: str) -> Case:
    """Penalised ℓ_p regression on a Dataset in several chunks, the last one short."""
    d, p = int(rng.choice([1, 5, 30, 200], p=[0.2, 0.4, 0.3, 0.1])), order(rng, 2, 6)
    count = int(d * rng.choice([0.7, 2])) + 10
    features = rng.normal(size=(count, d)) / np.sqrt(d)
    targets = features @ rng.normal(size=d) + 0.5 * rng.normal(size=count)
    numbers = (features, targets, np.full(count, p), np.full(count, log_uniform(rng, 1e-3, 1)))
    arrays = tuple(np.asarray(a, dtype) for a in numbers)
    exact = [a.astype(Long) for a in arrays]
    u, hessian = newton(_lp_derivatives(exact[0], exact[1], exact[2][0], exact[3][0]), np.zeros(d, Long) + Long(1e-3))
    allowed = UNITS * float(np.finfo(dtype).eps) * _condition(hessian) * float(norm(u))
    data, none = ub.Dataset(arrays, 1, chunk_size=max(1, count // 3)), np.zeros(1, dtype)
    y0 = (rng.normal(size=d) * rng.integers(2)).astype(dtype)
    return Case(OnData(penalised_on_data), none, y0, lambda _: u, allowed, f"on data d={d} p={p:.3g}", data)


def regression(rng: Any, dtype: str, units: bool = False, far: float = 0.0) -> Case:
    """g = mean σ(x)|Xu − t|^p + c‖u‖_p^p, or logistic regression with penalties exp(x), where u = y/unit."""
    lp, d, count = bool(rng.integers(2)), int(rng.choice([1, 6])), 24
    w, features, m = rng.normal(size=d), rng.normal(size=(count, d)), count if lp else d
    p = order(rng, 2, 8)
    sg, uy = _units(rng, dtype, far * p) if units else (1.0, 1.0)
    labelled = features if lp else np.sign(features @ w + rng.normal(size=count))[:, None] * features
    numbers = {"sg": sg, "uy": np.full(d, uy), "ux": np.ones(m), "features": labelled, "p": p,
               "targets": features @ w + 0.5 * rng.normal(size=count), "c": log_uniform(rng, 1e-3, 1e-1)}  # fmt: skip
    own, n = rounded(numbers, dtype)
    n.features2, n.targets2 = n.features, n.targets
    x = (rng.normal(size=m) - (0 if lp else log_uniform(rng, 0.1, 9))).astype(dtype)
    derivatives, _, _ = (regression_parts if lp else logistic_parts)(n, x.astype(Long))
    u, hessian = newton(derivatives, w.astype(Long) if lp else np.zeros(d, Long))
    allowed = UNITS * float(np.finfo(dtype).eps) * _condition(hessian) * float(norm(u * n.uy))
    y0 = (rng.normal(size=d) * (10**far if far else rng.integers(2)) * uy).astype(dtype)
    note = f"regression d={d} p={p:.3g}" if lp else f"logistic d={d}"
    return Case(Formula(regression_g if lp else logistic_g, own), x, y0, lambda _: u * n.uy, allowed, note)


def quadratic(rng: Any, dtype: str, condition: float, scales: float, far: float = 0.0) -> Case:
    """g = ½yᵀSCSy − yᵀb with the condition number of C at most `condition`, and S diagonal with S² within
    1e±`scales`."""
    d = int(rng.choice([2, 10, 60, 200], p=[0.3, 0.4, 0.2, 0.1]))
    q, s = orthogonal(rng, d), 10 ** (rng.uniform(-scales, scales, d) / 2)
    condition = min(condition, 1e6) if d > 128 else condition
    values = log_uniform(rng, 1, condition) ** -np.r_[0, rng.random(d - 2), 1]
    coupled = q * values @ q.T if condition > 1 else np.eye(d)
    numbers = {
        "h": (coupled + coupled.T) / 2 * s * s[:, None],
        "b": (s * (coupled @ (s * rng.normal(size=d))))[:, None],
    }
    own, n = rounded(numbers, dtype)
    long_s = s.astype(Long)
    c = n.h / long_s / long_s[:, None]
    y = solve(c, n.b[:, 0] / long_s) / long_s
    # Rounding moves the solution by |H⁻¹|(|H||y| + |b|) units (Skeel); the scaling S changes only the result.
    inverse = np.abs(np.linalg.inv(c.astype(float))) / s[:, None]
    units = inverse @ ((np.abs(c) @ np.abs(s * y)) + np.abs(n.b[:, 0] / long_s)).astype(float)
    allowed = UNITS * float(np.finfo(dtype).eps) * float(norm(units))
    y0 = (rng.normal(size=d) * (10**far if far else rng.integers(2))).astype(dtype)
    note = f"quadratic d={d} condition={values[0] / values[-1]:.2g}"
    return Case(Formula(quadratic_g, own), np.ones(1, dtype), y0, lambda _: y, allowed, note)


def scaled(rng: Any, dtype: str) -> Case:
    """A quadratic with curvatures within 1e±9, but within 1e±2 if coordinates are coupled in float32, where small ones
    would be lost in rounding."""
    if rng.integers(2):
        return quadratic(rng, dtype, 1.0, 9.0)
    return quadratic(rng, dtype, 10.0, 2.0 if dtype == "float32" else 9.0)


def far_start(rng: Any, dtype: str) -> Case:
    """A function with a minimiser and a start that is 1e1 to 1e6 times as far away as y* is large."""
    far = rng.uniform(1, 6)
    kind = rng.integers(3)
    if kind == 0:
        return quadratic(rng, dtype, 100.0, 1.0, far)
    return regression(rng, dtype, far=min(far, 3.0)) if kind == 1 else powers(rng, dtype, False, far=min(far, 1.5))


def in_units(rng: Any, dtype: str) -> Case:
    """A function with a minimiser where g and y are measured in units between 1e-20 and 1e20."""
    kind = rng.integers(3)
    return regression(rng, dtype, units=True) if kind == 0 else powers(rng, dtype, kind == 1, units=True)


@dataclasses.dataclass(frozen=True)
class Family:
    """A row of the table. `exists` says whether its functions have a minimiser, which must then be accepted."""

    name: str
    exists: bool
    ranges: str
    draw: Callable[[Any, str], Case]


FAMILIES = {
    "no-minimiser": Family("no minimiser: exp, softplus, 1/(1+|t|^a), −log, separable logistic", False,
                           "scale and weight 1e-3 to 1e3, start to 1e3", no_minimiser),
    "unbounded": Family("unbounded: linear coordinate, cubic, −t²", False, "start 1e-3 to 10", unbounded),
    "not-convex": Family("start at or near a maximiser or saddle: cos, double wells, indefinite quadratics", False,
                         "off by 0 or 1e-16 to 1e-1", not_convex),
    "flat": Family("flat: least squares and ℓ_p regression of low rank, unused coordinate", False, "p in [2, 6]", flat),
    "regular": Family("ℓ_p regression, logistic regression with penalty", True, "p in [2, 8], penalty 1e-4 to 1",
                      regression),
    "data": Family("penalised ℓ_p regression in several chunks", True, "p in [2, 6], d 1 to 200", on_data),
    "powers": Family("powers", True, "p in [2, 20], d 1 to 150", lambda r, t: powers(r, t, False)),
    "degenerate": Family("powers, H singular at y*", True, "p in [2, 20], d 1 to 150", lambda r, t: powers(r, t, True)),
    "scaled": Family("badly scaled", True, "curvature 1e-9 to 1e9 per coordinate",
                     scaled),
    "conditioned": Family("ill-conditioned", True, "condition 1 to 1e4, in float64 to 1e12 (d = 200: 1e6)",
                          lambda r, t: quadratic(r, t, 1e4 if t == "float32" else 1e12, 0.0)),
    "units": Family("units of g and y", True, "1e-20 to 1e20", in_units),
    "far": Family("far starts", True, "1e1 to 1e6 (1e3 for regressions, 30 for powers)", far_start),
}  # fmt: skip
