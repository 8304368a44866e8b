"""The paper's assumptions one by one: the constant seen in a region, the worst point, and a verdict."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import oracle
from unibio.lower.newton import Newton
from unibio.paper.theory.sampling import Look, norm, spans_a_decade, trend, worst

POWER = 0.2  # a slope in log–log beyond this is a power law, not rounding


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


def judged(look: Look, finding: Finding) -> Finding:
    """What cannot be judged is said to be so: values that are no numbers, a shift that cannot be approached."""
    if finding.verdict != "holds":
        return finding
    if not math.isfinite(finding.value):
        return dataclasses.replace(finding, verdict="cannot tell", note="NaN or infinite at a point of the region")
    blind = len(look.within) > 0 and not spans_a_decade(look.distances)
    if blind and finding.assumption in ("g(v)", "g(vi)", "f(ii)", "f(iii)"):
        note = f"{finding.note}; the neighbourhood of the shift is too small for this precision or region"
        return dataclasses.replace(finding, verdict="cannot tell", note=note)
    return finding


def convexity(look: Look) -> Finding:
    """μ: the least p·gap/‖Δ‖^p over pairs far and near, also around the shift, in random directions and in those of
    least curvature."""
    centres = [*look.ys, *(b for d in (*look.distances, 0.0) for _, b in look.near_shift(d))]
    size = float(np.abs(look.ys - look.ys.mean(axis=0)).max())
    ratios, pairs = [], []
    for i, b in enumerate(centres):
        a = look.xs[i % len(look.xs)]
        hessian = np.asarray(look.hessian(a, b), float)
        if not np.isfinite(hessian).all():
            return Finding("g(i)", "mu", math.nan, "cannot tell", "the Hessian is NaN or infinite at a point", a, b)
        eigenvalues, vectors = np.linalg.eigh(hessian)
        if eigenvalues[0] < -1e3 * look.eps * max(abs(eigenvalues[-1]), abs(eigenvalues[0])):
            note = f"g is not convex in y: curvature {eigenvalues[0]:.3g} at this point"
            return Finding("g(i)", "mu", float(eigenvalues[0]), "violated", note, a, b)
        random = look.rng.normal(size=b.size)
        for direction in (random / np.linalg.norm(random), vectors[:, 0]):
            length = size * 10 ** look.rng.uniform(-3, 0)
            gap, rounding = _gap_of(look, a, b, (b + length * direction).astype(b.dtype))
            if abs(gap) > rounding:
                ratios.append(look.p * gap / length**look.p)
                pairs.append((a, b))
    if not ratios:
        return Finding("g(i)", "mu", math.nan, "cannot tell", "differences of g drown in rounding, or are no numbers")
    k = worst(ratios, largest=False)
    slope, limit = trend(look, lambda a, b: _ratio_at_shift(look, a, b), largest=False)
    if not ratios[k] > 0:
        return Finding("g(i)", "mu", ratios[k], "violated", "g is not convex in y between two points", *pairs[k])
    if slope > POWER:
        note = f"p·gap/distance^p vanishes like distance^{slope:.1f} at the shift: p is too small"
        return Finding("g(i)", "mu", limit, "violated", note, *pairs[k])
    if len(look.within) and math.isnan(slope):
        note = "near the shift, where a p that is too small shows, differences of g drown in rounding"
        return Finding("g(i)", "mu", ratios[k], "cannot tell", note, *pairs[k])
    return Finding("g(i)", "mu", ratios[k], "holds", "uniformly convex on the pairs seen", *pairs[k])


def _gap_of(look: Look, a: np.ndarray, b1: np.ndarray, b2: np.ndarray) -> tuple[float, float]:
    """g(b2) − g(b1) − ⟨∇g(b1), b2 − b1⟩, and how much of it may be rounding."""
    first, second, slope = float(look.g(a, b1)), float(look.g(a, b2)), np.asarray(look.grad_g(a, b1), float)
    linear = float(slope @ (b2.astype(float) - b1))
    return second - first - linear, 100 * look.eps * (abs(first) + abs(second) + abs(linear))


def _ratio_at_shift(look: Look, a: np.ndarray, b: np.ndarray) -> float:
    """p·gap/‖Δ‖^p between b and the same point with its coordinates nearest to the shift put there; inf if rounding
    hides it."""
    offset = np.abs(b - look.shift)
    nearest = look.within[offset[look.within] <= offset[look.within].min() * 1.5]
    centre = b.copy()
    centre[nearest] = look.shift[nearest]
    gap, rounding = _gap_of(look, a, centre, b)
    return look.p * gap / float(np.linalg.norm(b - centre)) ** look.p if gap > rounding else math.inf


def smoothness(look: Look) -> Finding:
    """L0 for L1 = p − 2."""
    value, at = look.extreme(lambda a, b: norm(look.hessian(a, b)) - (look.p - 2) * norm(look.grad_g(a, b)), True)
    return Finding("g(ii)", "L0", max(value, 0.0), "holds", f"with L1 = p − 2 = {look.p - 2:g}", *at)


def lipschitz_in_x(look: Look) -> Finding:
    """l_g1: the largest ‖∇²_xy g‖."""
    value, at = look.extreme(lambda a, b: norm(look.cross(a, b)), True)
    return Finding("g(iii)", "l_g1", value, "holds", "largest ‖∇²_xy g‖ seen", *at)


def _lipschitz(look: Look, fn: Callable[[Any, Any], Any]) -> tuple[float, tuple[Any, Any]]:
    """The largest ‖fn(u) − fn(u')‖/‖u − u'‖ over neighbouring samples, far and near, and the point u."""
    values = []
    for i in range(len(look.xs) - 1):
        a, b = look.xs[i], look.ys[i]
        share = 10 ** look.rng.uniform(-3, 0)
        a2, b2 = a + share * (look.xs[i + 1] - a), b + share * (look.ys[i + 1] - b)
        change = np.asarray(fn(a, b)) - np.asarray(fn(a2, b2))
        values.append(norm(change) / math.hypot(np.linalg.norm(a2 - a), np.linalg.norm(b2 - b)))
    k = worst(values, largest=True)
    return values[k], (look.xs[k], look.ys[k])


def cross(look: Look) -> Finding:
    """l_g2, which bounds the slopes of ∇²_xy g and of d∇_y g/dz."""
    (cross, at), (generalised, there) = _lipschitz(look, look.cross), _lipschitz(look, look.generalised)
    at = at if generalised <= cross else there
    note = f"of ∇²_xy g ({cross:.3g}) and d∇_y g/dz ({generalised:.3g})"
    return Finding("g(iv)", "l_g2", float(np.maximum(cross, generalised)), "holds", note, *at)


def generalised_hessian(look: Look) -> Finding:
    """d∇_y g/dz exists, and its smallest singular value μ_J stays away from 0."""

    def least(a: np.ndarray, b: np.ndarray) -> float:
        return norm(look.generalised(a, b), -2)

    value, at = look.extreme(least, False)
    slope, limit = trend(look, least, largest=False)
    if slope > POWER:
        note = f"it vanishes like distance^{slope:.1f} from the shift: p is too small here, or g not convex"
        return Finding("g(v)", "mu_J", limit, "violated", note, *at)
    value = float(np.fmin(value, limit))
    if value <= 0:
        return Finding("g(v)", "mu_J", value, "violated", "the generalised Hessian is singular", *at)
    if not look.grad_g_has_limit:
        return Finding("g(v)", "mu_J", value, "cannot tell", "its limit at the shift was not seen", *at)
    return Finding("g(v)", "mu_J", value, "holds", "smallest singular value", *at)


def _bounded(look: Look, quantity: Callable[[Any, Any], float], names: tuple[str, str], seen: str, why: str) -> Finding:
    """A bound on the quantity: the largest value seen, and whether it grows towards the shift."""
    value, at = look.extreme(quantity, True)
    slope, limit = trend(look, quantity, largest=True)
    most = float(np.fmax(value, limit))
    if slope < -POWER:
        return Finding(*names, most, "violated", f"it grows like distance^{slope:.1f} to the shift{why}", *at)
    return Finding(*names, most, "holds", seen, *at)


def bounded_hessian(look: Look) -> Finding:
    """‖d∇_y g/dz‖ ≤ C."""
    why = ": p is too large, or the Hessian does not vanish there"
    return _bounded(look, lambda a, b: norm(look.generalised(a, b)), ("g(vi)", "C"), "largest norm seen", why)


def grad_x_f(look: Look) -> Finding:
    """l_f1 of ∇_x f."""
    value, at = _lipschitz(look, look.grad_x_f)
    return Finding("f(i)", "l_f1", value, "holds", "of ∇_x f", *at)


def df_dz(look: Look) -> Finding:
    """df/dz exists at the shift, and its slope l_f1 stays bounded there."""

    def quotient(a: np.ndarray, b: np.ndarray) -> float:
        offset = b - look.shift
        nearer = (look.shift + 0.5 * offset).astype(b.dtype)
        moved = np.where(np.abs(offset) <= 1.5 * np.abs(offset).min(), nearer, b)
        return norm(np.asarray(look.df_dz(a, b)) - np.asarray(look.df_dz(a, moved))) / norm(b - moved)

    value, at = _lipschitz(look, look.df_dz)
    slope, steepest = trend(look, quotient, largest=True)
    if not look.f_has_limit:
        return Finding("f(ii)", "l_f1", value, "violated", "df/dz has no limit at the shift", *at)
    if slope < -POWER and steepest > value:
        note = f"the slope of df/dz grows like distance^{slope:.1f} to the shift"
        return Finding("f(ii)", "l_f1", value, "violated", note, *at)
    return Finding("f(ii)", "l_f1", value, "holds", "of df/dz", *at)


def df_dz_bounded(look: Look) -> Finding:
    """‖df/dz‖ ≤ l_f0."""
    return _bounded(look, lambda a, b: norm(look.df_dz(a, b)), ("f(iii)", "l_f0"), "largest ‖df/dz‖ seen", "")


def gap(look: Look) -> Finding:
    """Φ(x_0) − the least Φ seen: Δ_φ is at least this."""
    problem = look.problem
    phi = jax.jit(lambda x: oracle.value_f(problem, x, Newton()(problem, x, look.y)[0], problem.f_batches.whole()))
    values = [float(phi(look.to_x(jnp.asarray(a)))) for a in look.xs[:20]]
    k = worst(values, largest=False)
    least = max(0.0, float(phi(look.x)) - values[k])
    return Finding("f(iv)", "Delta_phi", least, "cannot tell", "at least; Φ may fall outside", look.xs[k])


LOWER = (convexity, smoothness, lipschitz_in_x, cross, generalised_hessian, bounded_hessian)
UPPER = (grad_x_f, df_dz, df_dz_bounded, gap)
