"""Looking for violations of the paper's assumptions on a region, by sampling. It can refute; what it does not
refute it measures."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import checks, coordinates, linear, oracle, tree
from unibio.core.batches import Full
from unibio.core.problem import Problem, check_functions, prepare
from unibio.core.tree import PyTree
from unibio.hypergradients.singular import differentiable_in_z
from unibio.lower.newton import Newton

_DISTANCES = (1e-1, 1e-2, 1e-3)  # from the shift, where powers of |y − a0| show
_POWER = 0.2  # a slope in log–log beyond this is a power law, not rounding


@dataclasses.dataclass(frozen=True)
class Finding:
    """One assumption: the constant observed, where it was worst, and the verdict."""

    assumption: str
    constant: str
    value: float
    verdict: str  # holds | violated | cannot tell
    note: str
    x: Any = None
    y: Any = None


@dataclasses.dataclass(frozen=True)
class Audit:
    """All findings; `print` it, or ask `audit["vi"]`. "holds" means: not refuted on the region, with this constant."""

    findings: tuple[Finding, ...]

    def __getitem__(self, name: str) -> Finding:
        for finding in self.findings:
            if finding.assumption == name:
                return finding
        raise KeyError(f"no assumption {name!r}; there are {', '.join(f.assumption for f in self.findings)}")

    @property
    def violated(self) -> list[str]:
        """Names of the assumptions that were refuted."""
        return [finding.assumption for finding in self.findings if finding.verdict == "violated"]

    def __str__(self) -> str:
        rows = [f"{f.assumption:12s} {f.verdict:12s} {f.constant:10s} {f.value:12.4g}  {f.note}" for f in self.findings]
        return "\n".join(rows)


def audit(
    problem: Problem, x: PyTree, y: PyTree, region: float = 1.0, *, samples: int = 200, key: jax.Array | None = None
) -> Audit:
    """Samples points within `region` of x and of y and checks every assumption there.

    Lower level g(i)–g(vi), upper level f(i)–f(iv), noise n(1)–n(5), in the paper's order. Besides random points it
    looks where coordinates of y approach the shift, because that is where a wrong p shows: d∇_y g/dz then vanishes (p
    too small) or grows without bound (p too large, or a Hessian that does not vanish: hyper-cleaning). Matrices are
    built densely: for at most a few hundred unknowns.
    """
    checks.number("region", region, low=0.0, strict=True)
    checks.whole_number("samples", samples, low=10)
    if problem.p is None:
        raise ValueError("audit checks the assumptions for a stated p: write Problem(…, p=…).")
    problem, x, y = prepare(problem, x, y)
    check_functions(problem, x, y)
    key = jax.random.key(0) if key is None else key
    look = _Look(problem, x, y, float(region), samples, key)
    lower = (_convexity, _smoothness, _lipschitz_in_x, _cross, _generalised_hessian, _bounded_hessian)
    upper = (_grad_x_f, _df_dz, _df_dz_bounded, _gap)
    return Audit((*(check(look) for check in (*lower, *upper)), *_noise(look)))


class _Look:
    """Points, and the problem's derivatives there as dense matrices over all data."""

    def __init__(self, problem: Problem, x: PyTree, y: PyTree, region: float, samples: int, key: jax.Array) -> None:
        self.problem, self.x, self.y, self.key = problem, x, y, key
        self.p = float(problem.p)
        self.flat_x, self.to_x = tree.ravel(x)
        self.flat_y, self.to_y = tree.ravel(y)
        shift = tree.sub(y, coordinates.offset(y, problem.shift))
        self.shift = np.asarray(tree.ravel(shift)[0])
        rng = np.random.default_rng(int(jax.random.randint(key, (), 0, 2**31 - 1)))
        self.rng = rng
        self.xs, self.ys = (
            np.asarray(centre) + region * rng.uniform(-1, 1, size=(samples, centre.size))
            for centre in (self.flat_x, self.flat_y)
        )
        f, g = problem.f_batches.whole(), problem.g_batches.whole()

        def at(fn: Callable[[PyTree, PyTree], PyTree]) -> Callable[[Any, Any], jax.Array]:
            return jax.jit(lambda a, b: fn(self.to_x(a), self.to_y(b)))

        def ravel(value: PyTree) -> jax.Array:
            return tree.ravel(value)[0]

        def scale(y: PyTree) -> PyTree:
            return coordinates.scaling(y, problem.p, problem.shift)

        self.g = at(lambda x, y: oracle.value_g(problem, x, y, g))
        self.grad_g = at(lambda x, y: ravel(oracle.grad_g(problem, x, y, g)))
        self.grad_x_f = at(lambda x, y: ravel(oracle.grads_f(problem, x, y, f)[0]))
        self.df_dz = at(lambda x, y: ravel(tree.mul(scale(y), oracle.grads_f(problem, x, y, f)[1])))
        self.hessian = at(lambda x, y: linear.dense(oracle.hessian_g(problem, x, y, g), y))
        self.scaling = at(lambda x, y: ravel(scale(y)))
        self.cross = at(
            lambda x, y: jax.vmap(lambda v: ravel(oracle.cross_g(problem, x, y, self.to_y(v), g)))(
                jnp.eye(self.flat_y.size, dtype=self.flat_y.dtype)
            )
        )

    def generalised(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """D H."""
        return np.asarray(self.scaling(a, b))[:, None] * np.asarray(self.hessian(a, b))

    def near_shift(self, distance: float) -> list[tuple[np.ndarray, np.ndarray]]:
        """Points whose coordinates of y are, one at a time and all together, at this distance from the shift."""
        size = self.flat_y.size
        chosen = list(self.rng.permutation(size)[: min(size, 8)])
        points = []
        for which in [[i] for i in chosen] + ([list(range(size))] if size > 1 else []):
            a, b = self.xs[self.rng.integers(len(self.xs))], self.ys[self.rng.integers(len(self.ys))].copy()
            b[which] = self.shift[which] + distance * self.rng.choice([-1, 1], size=len(which))
            points.append((a, b))
        return points


def _worst(values: list[float], largest: bool) -> int:
    return int(np.nanargmax(values) if largest else np.nanargmin(values))


def _trend(look: _Look, quantity: Callable[[np.ndarray, np.ndarray], float], largest: bool) -> tuple[float, float]:
    """Slope of log(worst value) against log(distance to the shift), and the worst value at the smallest distance."""
    state = look.rng.bit_generator.state
    worst = []
    for distance in _DISTANCES:
        look.rng.bit_generator.state = state  # the same points, only nearer
        values = [quantity(a, b) for a, b in look.near_shift(distance)]
        worst.append(max(values) if largest else min(values))
    positive = np.maximum(worst, 1e-300)
    return float(np.polyfit(np.log(_DISTANCES), np.log(positive), 1)[0]), worst[-1]


def _convexity(look: _Look) -> Finding:
    """μ: the least p·gap/‖Δ‖^p over pairs far and near, also around the shift."""
    ratios, pairs = [], []
    centres = [*look.ys, *(b for d in (*_DISTANCES, 0.0) for _, b in look.near_shift(d))]
    for i, b1 in enumerate(centres):
        a = look.xs[i % len(look.xs)]
        direction = look.rng.normal(size=b1.size)
        length = np.abs(look.ys - look.ys.mean(axis=0)).max() * 10 ** look.rng.uniform(-3, 0)
        b2 = b1 + length * direction / np.linalg.norm(direction)
        value, slope = float(look.g(a, b1)), np.asarray(look.grad_g(a, b1))
        gap = float(look.g(a, b2)) - value - slope @ (b2 - b1)
        rounding = 1e3 * np.finfo(slope.dtype).eps * (abs(value) + abs(float(look.g(a, b2))) + abs(slope @ (b2 - b1)))
        if abs(gap) > rounding or gap < -rounding:
            ratios.append(look.p * gap / length**look.p)
            pairs.append((a, b1))
    if not ratios:
        return Finding("g(i)", "mu", math.nan, "cannot tell", "differences of g drown in rounding")
    k = _worst(ratios, largest=False)
    verdict = "holds" if ratios[k] > 0 else "violated"
    note = "uniformly convex on the pairs seen" if verdict == "holds" else "g is not convex in y between two points"
    return Finding("g(i)", "mu", ratios[k], verdict, note, *pairs[k])


def _smoothness(look: _Look) -> Finding:
    """L0 for L1 = p − 2."""
    values = []
    for a, b in zip(look.xs, look.ys, strict=True):
        norm = np.linalg.norm(np.asarray(look.hessian(a, b)), 2)
        values.append(float(norm - (look.p - 2) * np.linalg.norm(np.asarray(look.grad_g(a, b)))))
    k = _worst(values, largest=True)
    return Finding(
        "g(ii)", "L0", max(values[k], 0.0), "holds", f"with L1 = p − 2 = {look.p - 2:g}", look.xs[k], look.ys[k]
    )


def _lipschitz_in_x(look: _Look) -> Finding:
    values = [float(np.linalg.norm(np.asarray(look.cross(a, b)), 2)) for a, b in zip(look.xs, look.ys, strict=True)]
    k = _worst(values, largest=True)
    return Finding("g(iii)", "l_g1", values[k], "holds", "largest ‖∇²_xy g‖ seen", look.xs[k], look.ys[k])


def _lipschitz(look: _Look, fn: Callable[[Any, Any], Any]) -> tuple[float, int]:
    """The largest ‖fn(u) − fn(u')‖/‖u − u'‖ over neighbouring samples, far and near."""
    values = []
    for i in range(len(look.xs) - 1):
        a, b = look.xs[i], look.ys[i]
        share = 10 ** look.rng.uniform(-3, 0)
        a2, b2 = a + share * (look.xs[i + 1] - a), b + share * (look.ys[i + 1] - b)
        change = np.asarray(fn(a, b)) - np.asarray(fn(a2, b2))
        size = np.linalg.norm(change, 2 if change.ndim == 2 else None)
        values.append(float(size / math.hypot(np.linalg.norm(a2 - a), np.linalg.norm(b2 - b))))
    k = _worst(values, largest=True)
    return values[k], k


def _cross(look: _Look) -> Finding:
    value, k = _lipschitz(look, look.cross)
    return Finding("g(iv)", "l_g2", value, "holds", "of ∇²_xy g", look.xs[k], look.ys[k])


def _generalised_hessian(look: _Look) -> Finding:
    """d∇_y g/dz exists, and its smallest singular value μ_J stays away from 0."""

    def least(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.linalg.svd(look.generalised(a, b), compute_uv=False)[-1])

    values = [least(a, b) for a, b in zip(look.xs, look.ys, strict=True)]
    k = _worst(values, largest=False)
    slope, limit = _trend(look, least, largest=False)
    if slope > _POWER:
        note = f"it vanishes like distance^{slope:.1f} from the shift: p is too small here, or g not convex"
        return Finding("g(v)", "mu_J", limit, "violated", note, look.xs[k], look.ys[k])
    at_shift = look.to_y(jnp.asarray(look.shift, look.flat_y.dtype))
    exists = jax.tree.all(
        jax.tree.map(lambda leaf: bool(leaf.all()), differentiable_in_z(look.problem, look.x, at_shift).grad_g)
    )
    values[k] = min(values[k], limit)
    if values[k] <= 0:
        return Finding(
            "g(v)", "mu_J", values[k], "violated", "the generalised Hessian is singular", look.xs[k], look.ys[k]
        )
    verdict, note = (
        ("holds", "smallest singular value") if exists else ("cannot tell", "its limit at the shift was not seen")
    )
    return Finding("g(v)", "mu_J", values[k], verdict, note, look.xs[k], look.ys[k])


def _bounded_hessian(look: _Look) -> Finding:
    """‖d∇_y g/dz‖ ≤ C."""

    def norm(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.linalg.norm(look.generalised(a, b), 2))

    values = [norm(a, b) for a, b in zip(look.xs, look.ys, strict=True)]
    k = _worst(values, largest=True)
    slope, limit = _trend(look, norm, largest=True)
    if slope < -_POWER:
        note = f"it grows like distance^{slope:.1f} to the shift: p is too large, or the Hessian does not vanish there"
        return Finding("g(vi)", "C", max(values[k], limit), "violated", note, look.xs[k], look.ys[k])
    return Finding("g(vi)", "C", max(values[k], limit), "holds", "largest norm seen", look.xs[k], look.ys[k])


def _grad_x_f(look: _Look) -> Finding:
    value, k = _lipschitz(look, look.grad_x_f)
    return Finding("f(i)", "l_f1", value, "holds", "of ∇_x f", look.xs[k], look.ys[k])


def _df_dz(look: _Look) -> Finding:
    value, k = _lipschitz(look, look.df_dz)
    at_shift = look.to_y(jnp.asarray(look.shift, look.flat_y.dtype))
    found = differentiable_in_z(look.problem, look.x, at_shift).f
    exists = jax.tree.all(jax.tree.map(lambda leaf: bool(leaf.all()), found))
    note = "of df/dz" if exists else "df/dz has no limit at the shift"
    return Finding("f(ii)", "l_f1", value, "holds" if exists else "violated", note, look.xs[k], look.ys[k])


def _df_dz_bounded(look: _Look) -> Finding:

    def norm(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.linalg.norm(np.asarray(look.df_dz(a, b))))

    values = [norm(a, b) for a, b in zip(look.xs, look.ys, strict=True)]
    k = _worst(values, largest=True)
    slope, limit = _trend(look, norm, largest=True)
    grows = slope < -_POWER
    note = f"grows like distance^{slope:.1f} to the shift" if grows else "largest ‖df/dz‖ seen"
    worst = max(values[k], limit)
    return Finding("f(iii)", "l_f0", worst, "violated" if grows else "holds", note, look.xs[k], look.ys[k])


def _gap(look: _Look) -> Finding:
    """Φ(x_0) − the least Φ seen: Δ_φ is at least this."""
    problem = look.problem
    phi = jax.jit(lambda a: oracle.value_f(problem, a, Newton()(problem, a, look.y)[0], problem.f_batches.whole()))
    values = [float(phi(look.to_x(jnp.asarray(a, look.flat_x.dtype)))) for a in look.xs[: min(20, len(look.xs))]]
    start = float(phi(look.x))
    k = _worst(values, largest=False)
    return Finding(
        "f(iv)", "Delta_phi", max(0.0, start - values[k]), "cannot tell", "at least; Φ may fall outside", look.xs[k]
    )


def _noise(look: _Look) -> tuple[Finding, ...]:
    """Deviations of the five oracles at the centre, from 256 draws; a light tail has σ with E exp(‖e‖²/σ²) = e."""
    problem, x, y = look.problem, look.x, look.y
    exact = isinstance(problem.f_batches, Full) and isinstance(problem.g_batches, Full)
    scale = coordinates.scaling(y, problem.p, problem.shift)
    eye = jnp.eye(look.flat_y.size, dtype=look.flat_y.dtype)

    def generalised(batch: Any) -> jax.Array:
        return tree.ravel(scale)[0][:, None] * linear.dense(oracle.hessian_g(problem, x, y, batch), y)

    def cross(batch: Any) -> jax.Array:
        return jax.vmap(lambda v: tree.ravel(oracle.cross_g(problem, x, y, look.to_y(v), batch))[0])(eye)

    oracles: list[tuple[str, str, Any, bool]] = [
        ("n(1)", "sigma_f", lambda batch: oracle.grads_f(problem, x, y, batch)[0], True),
        ("n(2)", "sigma_g1", lambda batch: oracle.grad_g(problem, x, y, batch), False),
        ("n(3)", "sigma_g2", cross, False),
        ("n(4)", "sigma_f", lambda batch: tree.mul(scale, oracle.grads_f(problem, x, y, batch)[1]), True),
        ("n(5)", "sigma_g2", generalised, False),
    ]
    findings = []
    for number, (name, constant, fn, of_f) in enumerate(oracles):
        sampler = problem.f_batches if of_f else problem.g_batches
        if exact or isinstance(sampler, Full):
            findings.append(Finding(name, constant, 0.0, "holds", "exact oracle"))
            continue
        mean = tree.ravel(fn(sampler.whole()))[0]
        draws = sampler.draw(jax.random.fold_in(look.key, number), 256, x, y)
        errors = jax.lax.map(
            lambda draw, fn=fn, s=sampler, m=mean: jnp.sum((tree.ravel(fn(s.batch(draw)))[0] - m) ** 2), draws
        )
        squares = np.asarray(errors)
        value = _light_tail(squares) if name == "n(2)" else math.sqrt(squares.mean())
        note = "from 256 draws at the centre" + ("; E exp(‖e‖²/σ²) = e" if name == "n(2)" else "")
        findings.append(Finding(name, constant, value, "holds" if np.isfinite(value) else "violated", note))
    return tuple(findings)


def _light_tail(squares: np.ndarray) -> float:
    """σ with mean exp(‖e‖²/σ²) = e."""
    if squares.max() == 0:
        return 0.0
    low, high = squares.max() * 1e-3, squares.max() * 1e3
    for _ in range(200):
        middle = math.sqrt(low * high)
        excess = np.logaddexp.reduce(squares / middle) - math.log(len(squares))
        low, high = (middle, high) if excess > 1 else (low, middle)
    return math.sqrt(high)
