"""The random bilevel problems of `honesty.py`, by family, each with the truth about its hypergradient.

The truth is a closed form, or implicit differentiation in long double (with 60 digits where a matrix is
ill-conditioned), for the data after they were rounded to the dtype under test.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import mpmath
import numpy as np
from honesty_formulas import (
    Array,
    Long,
    is_positive,
    log_uniform,
    logistic_f,
    logistic_g,
    logistic_parts,
    mp,
    newton,
    no_limit_f,
    norm,
    order,
    orthogonal,
    powers_f,
    powers_g,
    quadratic_f,
    quadratic_g,
    quartic_g,
    regression_f,
    regression_g,
    regression_parts,
    rotated_f,
    rotated_g,
    rounded,
    signed,
    solve,
    spow,
    squares_g,
)


@dataclasses.dataclass
class Case:
    """A random problem, a point (x, y) of it, and the truth, which is None if ∇Φ does not exist.

    `p` and `shift` are what the user states, which is wrong in some families. `terms` is the larger of ‖∇_x f‖ and
    ‖A v‖, whose difference is ∇Φ. `curvature` is the inverse of a good step size for `Unrolled`, in the coordinate z if
    `in_z`.
    """

    f: Callable[..., jax.Array]
    g: Callable[..., jax.Array]
    numbers: dict[str, Array]
    x: Array
    y: Array
    p: float | None
    truth: Array | None
    note: str
    curvature: float = 1.0
    shift: Any = 0.0
    terms: float = 0.0
    in_z: bool = False

    def decent(self) -> bool:
        """Whether ∇Φ is not just a small difference of large terms, which no method could compute well."""
        return self.truth is None or float(norm(self.truth)) > 1e-2 * self.terms


def _units(rng: Any, dtype: str, d: int, m: int) -> dict[str, Any]:
    """Random units of f, g, y and x between 1e-20 and 1e20. In float32 all derivatives and H⁻¹∇_y f stay within
    1e±30."""
    while True:
        f, g, y, x = rng.uniform(-20, 20, 4)
        sizes = [f - y, f - x, g - y, g - 2 * y, g - y - x, f + y - g]
        if dtype == "float64" or max(map(abs, sizes)) < 26:
            return {"sf": 10**f, "sg": 10**g, "uy": np.full(d, 10**y), "ux": np.full(m, 10**x)}


def _powers_numbers(rng: Any, d: int, m: int, p: float, a0: Any) -> dict[str, Any]:
    return {
        "p": p, "a0": a0, "sf": 1.0, "sg": 1.0, "uy": np.ones(d), "ux": np.ones(m),
        "c": rng.uniform(0.5, 2, d), "b": rng.normal(size=(d, m)) * 1.5 / np.sqrt(m),
        "w": signed(rng, 0.5, 2, d), "k": rng.uniform(-1, 1, d), "m": rng.uniform(-1, 1, d) * rng.integers(2),
        "q": rng.normal(size=m) * rng.integers(2),
    }  # fmt: skip


def powers(
    rng: Any, dtype: str, where: str, units: dict[str, Any] | None = None, p: float | None = None, large: bool = False
) -> Case:
    """g = Σ c|t|^p/p − tᵀB sin x. `where` is "regular", "singular" (some t are 0) or "near" (some t are tiny)."""
    d, m = (12, 10) if large else (4, 5)
    p = order(rng, 2, 8 if where == "regular" else 20) if p is None else p
    a0 = rng.normal(size=d) * rng.integers(2)
    numbers = _powers_numbers(rng, d, m, p, a0) | (units or {})
    numbers["a0"] = a0 * numbers["uy"]
    angles = rng.uniform(-1.3, 1.3, m)
    chosen = rng.permutation(min(d, m))[: rng.integers(1, min(d, m) + 1)]  # the coordinates where t is small
    tiny_t = np.zeros(len(chosen))
    if where == "singular" and rng.random() < 0.25:
        chosen, angles[:] = np.arange(d), 0.0
    elif where != "regular":
        numbers["b"][chosen] = 0.0
        numbers["b"][chosen, chosen] = signed(rng, 0.5, 1.5, len(chosen))
        if where == "near":
            tiny_t = log_uniform(rng, 1e-14, 1e-1, len(chosen)) * rng.choice([-1.0, 1.0], len(chosen))
        sine = numbers["c"][chosen] * spow(tiny_t.astype(Long), p - 1) / numbers["b"][chosen, chosen]
        angles = angles.astype(Long)
        angles[chosen] = np.arcsin(sine)
    if where == "regular" and rng.random() < 0.3:  # Example 3 with coupling
        numbers |= {"w": np.zeros(d), "m": np.ones(d)}
    own, n = rounded(numbers, dtype)
    x = (angles * numbers["ux"]).astype(dtype)
    x[np.abs(x) < np.finfo(dtype).tiny] = 0
    phase = x.astype(Long) / n.ux
    z = n.b @ np.sin(phase) / n.c
    t = spow(z, 1 / (n.p - 1))
    if where == "near":
        lost = x[chosen] == 0  # x has underflowed to 0; y stays tiny, and the truth is that at x = 0
        t[chosen[lost]] = tiny_t[lost]
    if where == "regular" and (np.min(np.abs(z)) < 1e-2 or np.max(np.abs(z)) > 4):
        return powers(rng, dtype, where, units, p, large)
    moved = n.b.T @ ((n.w * (1 + 2 * n.k * z) + n.m * np.cos(z)) / n.c) * np.cos(phase)
    terms = max(norm(n.sf * n.q / n.ux), norm(n.sf * moved / n.ux))
    y = (n.a0 + n.uy * t).astype(dtype)
    curvature = float(np.max(n.sg * n.c / n.uy**n.p))
    truth = n.sf * (n.q + moved) / n.ux
    return Case(powers_f, powers_g, own, x, y, float(own["p"]), truth, f"powers {where} d={d} p={own['p']:.4g}",
                curvature, own["a0"], terms, True)  # fmt: skip


def _data(rng: Any, dtype: str, kind: str, units: Any = None, d: int = 6, samples: int = 24) -> Case:
    """ℓ_p regression with a weight σ(x) per sample, or logistic regression with a penalty exp(x) per feature."""
    regression = kind == "regression"
    m = samples if regression else d
    w = rng.normal(size=d)
    features, features2 = rng.normal(size=(2, samples, d))
    numbers: dict[str, Any] = {"sf": 1.0, "sg": 1.0, "uy": np.ones(d), "ux": np.ones(m)}
    numbers |= units(d, m) if units else {}
    if regression:
        targets, targets2 = [e @ w + 0.5 * rng.normal(size=samples) for e in (features, features2)]
        numbers |= {"p": order(rng, 2, 8), "c": log_uniform(rng, 1e-3, 1e-1), "features": features,
                    "features2": features2, "targets": targets, "targets2": targets2}  # fmt: skip
    else:
        labelled = [np.sign(e @ w + rng.normal(size=samples))[:, None] * e for e in (features, features2)]
        numbers |= {"features": labelled[0], "features2": labelled[1]}
    own, n = rounded(numbers, dtype)
    x = ((rng.normal(size=m) - (0 if regression else 2)) * numbers["ux"]).astype(dtype)
    derivatives, grad_f, cross = (regression_parts if regression else logistic_parts)(n, x.astype(Long))
    u, hessian = newton(derivatives, w.astype(Long) if regression else np.zeros(d, Long))
    truth = -n.sf * cross(u, solve(hessian, grad_f(u))) / n.ux
    ratio = np.min(n.uy) / n.uy
    curvature = np.linalg.eigvalsh((hessian * ratio * ratio[:, None]).astype(float))[-1] * n.sg / np.min(n.uy) ** 2
    f, g, p = (regression_f, regression_g, float(own["p"])) if regression else (logistic_f, logistic_g, None)
    note = f"{kind} d={d}" + (f" p={p:.4g}" if regression else "")
    return Case(f, g, own, x, (u * n.uy).astype(dtype), p, truth, note, float(curvature), terms=norm(truth))


def _quadratic(rng: Any, dtype: str, low: float, high: float) -> Case:
    """g = ½yᵀHy − yᵀBx with a condition number of H between low and high; H is a rotated diagonal or Hilbert's
    matrix."""
    d, m, condition = 10, 6, log_uniform(rng, low, high)
    if rng.random() < 0.3:
        h = 1 / (np.arange(d) + np.arange(d)[:, None] + 1.0)
        top = np.linalg.eigvalsh(h)[-1]
        h += np.eye(d) * (top / condition if condition > 1.1 else 10 * top)
        kind = "Hilbert"
    else:
        q = orthogonal(rng, d)
        h = q * condition ** -np.r_[0, rng.random(d - 2), 1] @ q.T
        h, kind = (h + h.T) / 2, "rotated"
    numbers = {"h": h, "b": rng.normal(size=(d, m)), "a": rng.normal(size=d), "q": rng.normal(size=m),
               "k": rng.uniform(0, 1, d) * rng.integers(2)}  # fmt: skip
    own, _ = rounded(numbers, dtype)
    x = rng.normal(size=m).astype(dtype)
    with mpmath.workdps(60):
        exact = {name: mp(value) for name, value in own.items()}
        best = solve(exact["h"], exact["b"] @ mp(x))
        moved = (exact["b"].T @ solve(exact["h"], exact["a"] + exact["k"] * best)).astype(Long)
        y, positive = best.astype(Long).astype(dtype), is_positive(exact["h"])
    truth = own["q"] + moved if positive else None
    return Case(quadratic_f, quadratic_g, own, x, y, 2.0, truth, f"quadratic {kind} condition={condition:.2g}",
                float(np.linalg.eigvalsh(h)[-1]), terms=max(norm(own["q"]), norm(moved)))  # fmt: skip


def regular(rng: Any, dtype: str, with_p: bool) -> Case:
    """Family 1: problems without difficulties."""
    kind = rng.integers(4)
    if kind < 2:
        return powers(rng, dtype, "regular", large=bool(kind))
    return _data(rng, dtype, "regression" if with_p or kind == 2 else "logistic")


def scaled(rng: Any, dtype: str, with_p: bool) -> Case:
    """Family 4: each coordinate of y and x in a unit of its own."""

    def units(d: int, m: int) -> dict[str, Any]:
        return {"uy": log_uniform(rng, 1e-3, 1e3, d), "ux": log_uniform(rng, 1e-3, 1e3, m)}

    kind = rng.integers(4)
    if kind < 2:
        return powers(rng, dtype, "regular" if kind else "singular", units(4, 5))
    return _data(rng, dtype, "regression" if with_p or kind == 2 else "logistic", units)


def units(rng: Any, dtype: str, with_p: bool) -> Case:
    """Family 6: f, g, y and x in random units."""
    kind = rng.integers(3)
    if kind == 2:
        return _data(rng, dtype, "regression", lambda d, m: _units(rng, dtype, d, m))
    return powers(rng, dtype, "regular" if kind else "singular", _units(rng, dtype, 4, 5))


def y_off(rng: Any, dtype: str, with_p: bool) -> Case:
    """Family 7: y is not the lower solution."""
    case = regular(rng, dtype, with_p) if rng.random() < 0.7 else powers(rng, dtype, rng.choice(["singular", "near"]))
    size, u, y = log_uniform(rng, 1e-8, 1), rng.normal(size=case.y.shape), case.y.astype(float)
    relative = bool(rng.integers(2))
    case.y = (y * (1 + size * u) if relative else y + size * u).astype(dtype)
    case.note += f" off by {size:.2g}{' relative' if relative else ''}"
    return case


def misstated(rng: Any, dtype: str, with_p: bool) -> Case:
    """Family 8: the user states a wrong p, or forgets the shift."""
    kind, where = rng.choice(["quartic as 2", "p", "shift"]), rng.choice(["singular", "singular", "near", "regular"])
    case = powers(rng, dtype, where, p=4.0 if kind == "quartic as 2" else order(rng, 2, 12))
    if kind == "shift":
        case.shift = case.shift * 0
        if not np.any(case.numbers["a0"]):
            return misstated(rng, dtype, with_p)
    else:
        case.p = 2.0 if kind == "quartic as 2" else max(2.0, float(np.float32(case.p + rng.uniform(-4, 4))))
    case.note += f", stated p={case.p:.4g}" if kind != "shift" else ", shift forgotten"
    return case


def saddle(rng: Any, dtype: str, with_p: bool) -> Case:
    """Family 9: g is not convex."""
    d, m = 6, 5
    smallest = 1e-3 if dtype == "float32" else 1e-4
    values, q = log_uniform(rng, 1e-2, 1, d), orthogonal(rng, d)
    count = rng.integers(1, d)
    values[:count] = -log_uniform(rng, smallest, 1, count)
    y, c = rng.normal(size=d), rng.uniform(0.5, 2, d) * rng.integers(2)
    a = rng.normal(size=d)
    a += q[:, 0] * (np.sign(q[:, 0] @ a) + (q[:, 0] @ a == 0))  # f sees the first negative direction
    b, x = rng.normal(size=(d, m)), rng.normal(size=m).astype(dtype)
    h = q * values @ q.T - np.diag(3 * c * y**2)
    h = (h + h.T) / 2
    y = y.astype(dtype)
    own, n = rounded({"h": h, "b": b, "a": a, "k": np.zeros(d), "q": rng.normal(size=m), "c": c}, dtype)
    own["e"] = (n.h @ y.astype(Long) + n.c * y.astype(Long) ** 3 - n.b @ x.astype(Long)).astype(dtype)
    note = f"saddle, eigenvalues {values.min():.2g} to {values.max():.2g}"
    return Case(quadratic_f, quartic_g, own, x, y, 4.0 if c.any() else 2.0, None, note, np.abs(values).max())


def flat(rng: Any, dtype: str, with_p: bool) -> Case:
    """Family 10: g has no curvature in some direction."""
    kind = rng.choice(["least squares", "linear coordinate", "no power"])
    if kind == "least squares":
        d, m, count = 8, 5, 12
        features = rng.normal(size=(count, d))
        if rng.integers(2):
            features[rng.integers(3, d) :] = 0.0
        else:
            features[:, 1] = features[:, 0] * rng.choice([1.0, -2.0, 0.5])
        numbers = {"features": features, "b": rng.normal(size=(count, m)), "a": rng.normal(size=d),
                   "k": rng.uniform(0, 1, d) * rng.integers(2), "q": rng.normal(size=m)}  # fmt: skip
        own, n = rounded(numbers, dtype)
        x = rng.normal(size=m).astype(dtype)
        y = np.linalg.lstsq(n.features.astype(float), (n.b @ x.astype(Long)).astype(float), rcond=1e-6)[0]
        return Case(
            quadratic_f, squares_g, own, x, y.astype(dtype), 2.0, None, kind, float(np.linalg.norm(features, 2)) ** 2
        )
    if kind == "linear coordinate":
        case, i = _quadratic(rng, dtype, 1, 100), rng.integers(10)
        if rng.integers(2):  # at this x the linear term is 0
            case.numbers["b"][i] *= np.arange(6) == 0
            case.x[0] = 0.0
        case.numbers["h"][i] = case.numbers["h"][:, i] = 0.0
        h, target = (v.astype(Long) for v in (case.numbers["h"], case.numbers["b"] @ case.x))
        h[i, i], target[i] = 1.0, rng.normal() * rng.integers(2)
        case.y = solve(h, target).astype(dtype)
    else:
        case, i = powers(rng, dtype, rng.choice(["regular", "singular"])), rng.integers(4)
        case.numbers["c"][i] = 0.0
    case.truth, case.note = None, f"{kind}, {case.note}"
    return case


def no_limit(rng: Any, dtype: str, with_p: bool) -> Case:
    """Family 11: ∇Φ has no limit at the point."""
    kind = rng.choice(["kink", "blow-up", "direction"])
    case = powers(rng, dtype, "singular", p=order(rng, 3, 8))
    n, p, d = case.numbers, case.p or 0.0, 4
    zero = np.flatnonzero(case.y == n["a0"])
    if kind == "direction" and zero.size < 2:
        return no_limit(rng, dtype, with_p)
    some, pair = rng.permutation(zero)[: rng.integers(1, zero.size + 1)], rng.permutation(zero)[:2]
    extra: dict[str, Any] = {"k": np.zeros(d), "m": np.zeros(d), "r": np.full(d, p - 1), "mixed": 0.0, "r1": 1.0,
                             "r2": p - 2, "e1": np.eye(d)[pair[0]], "e2": np.eye(d)[pair[-1]]}  # fmt: skip
    if kind == "direction":
        extra["mixed"], extra["r1"] = signed(rng, 0.5, 2), rng.uniform(1, p - 2) if p > 3 else 1.0
        extra["r2"] = p - 1 - extra["r1"]
    else:
        extra["k" if kind == "kink" else "m"][some] = log_uniform(rng, 0.1, 3, some.size)
    if kind == "blow-up":
        extra["r"] = p - 1 - rng.uniform(0.03, 1, d)
    return dataclasses.replace(case, f=no_limit_f, numbers=n | rounded(extra, dtype)[0], truth=None,
                               note=f"{kind} in {some if kind != 'direction' else pair}, {case.note}")  # fmt: skip


def rotated(rng: Any, dtype: str, with_p: bool) -> Case:
    """Family 12: H is singular in directions that are no coordinates."""
    d, p = int(rng.choice([2, 4])), float(rng.choice([3, 4, 6]))
    angles = rng.uniform(-1.3, 1.3, d)
    angles[rng.permutation(d)[: rng.choice([1, d])]] = 0.0
    own, n = rounded({"p": p, "r": orthogonal(rng, d), "w": signed(rng, 0.5, 2, d), "q": rng.normal(size=d)}, dtype)
    x = angles.astype(dtype)
    y = solve(n.r, spow(np.sin(x.astype(Long)), 1 / (n.p - 1)))
    moved = n.w * np.cos(x.astype(Long))
    return Case(rotated_f, rotated_g, own, x, y.astype(dtype), p, n.q + moved, f"rotated d={d} p={p:.0f}, "
                f"{np.sum(x == 0)} zero", p - 1, terms=max(norm(n.q), norm(moved)))  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Family:
    """A row of the table. `kind` is "promised", "broken", "beyond" (more than is promised: only lies are counted), or
    "rotated" (lies and false alarms are counted, nothing is required)."""

    name: str
    kind: str
    ranges: str
    draw: Callable[[Any, str, bool], Case]


FAMILIES = {
    "1": Family("regular", "promised", "p in [2, 8], penalty 1e-3 to 1e-1", regular),
    "2": Family("singular coordinates", "promised", "p in [2, 20], t = 0", lambda r, t, _: powers(r, t, "singular")),
    "3": Family("nearly singular", "promised", "p in [2, 20], t 1e-14 to 1e-1",
                lambda r, t, _: powers(r, t, "near", large=r.random() < 0.3)),
    "4": Family("scaled", "promised", "units of each y_i, x_i 1e-3 to 1e3", scaled),
    "5": Family("ill-conditioned", "promised", "condition 1 to 1e3, in float64 to 1e9",
                lambda r, t, _: _quadratic(r, t, 1, 1e3 if t == "float32" else 1e9)),
    "5b": Family("ill-conditioned beyond", "beyond", "condition 1e3 to 1e8, in float64 1e9 to 1e16",
                 lambda r, t, _: _quadratic(r, t, *((1e3, 1e8) if t == "float32" else (1e9, 1e16)))),
    "6": Family("units", "promised", "units of f, g, y, x 1e-20 to 1e20", units),
    "7": Family("y off", "broken", "off by 1e-8 to 1", y_off),
    "8": Family("p or shift misstated", "broken", "p in [2, 12], stated ±4; shift forgotten", misstated),
    "9": Family("not convex", "broken", "negative eigenvalue 1e-3 (float64 1e-4) to 1", saddle),
    "10": Family("flat", "broken", "rank-deficient, linear coordinate", flat),
    "11": Family("no limit", "broken", "p in [3, 8], kink 0.1 to 3, power short by 0.03 to 1", no_limit),
    "12": Family("singular, rotated", "rotated", "p in {3, 4, 6}, d in {2, 4}", rotated),
}  # fmt: skip
