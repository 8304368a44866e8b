"""The checks of `audit`: one function for each assumption of the paper, which gives a `Finding`.

Every check evaluates its quantity at the points of a `SampledRegion` and takes the worst value. The lower level has
g(i) to g(vi), the upper level f(i) to f(iv). In what follows a0 is the shift, z the coordinate
sign(y − a0)|y − a0|^(p−1), H = ∇²_yy g, and d∇_y g/dz the generalised Hessian.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import oracle
from unibio.lower.newton import Newton
from unibio.paper.theory.sampling import SampledRegion, norm, spans_a_decade, trend, worst

POWER = 0.2  # a slope on log–log axes that is larger than this is taken for a power law, a smaller one for rounding


@dataclasses.dataclass(frozen=True)
class Finding:
    """What was found about one assumption: the constant observed, where it was worst, and the verdict.

    `value` is the observed value of `constant`, which is a field of `Constants`; `x` and `y` are the point where it was
    worst. `verdict` is "holds", "violated" or "cannot tell", and `note` the reason in words.
    """

    assumption: str
    constant: str
    value: float
    verdict: str
    note: str
    x: Any = None
    y: Any = None


def judged(sampled: SampledRegion, finding: Finding) -> Finding:
    """The same finding, or "cannot tell" in place of "holds" where the samples cannot support it.

    They cannot if the value is NaN or infinite, nor, for an assumption about the behaviour at the shift, if the region
    or the precision leaves too few distances to the shift.
    """
    if finding.verdict != "holds":
        return finding
    if not math.isfinite(finding.value):
        return dataclasses.replace(finding, verdict="cannot tell", note="NaN or infinite at a point of the region")
    blind = len(sampled.within) > 0 and not spans_a_decade(sampled.distances)
    if blind and finding.assumption in ("g(v)", "g(vi)", "f(ii)", "f(iii)"):
        note = f"{finding.note}; the neighbourhood of the shift is too small for this precision or region"
        return dataclasses.replace(finding, verdict="cannot tell", note=note)
    return finding


def convexity(sampled: SampledRegion) -> Finding:
    """g(i), uniform convexity: μ is the least p·gap/‖Δ‖^p over pairs of points y and y + Δ.

    The gap is g(y + Δ) − g(y) − ⟨∇g(y), Δ⟩. The points y are those of the region and others around the shift; Δ has
    random lengths, and both a random direction and that of least curvature.
    """
    centres = [*sampled.ys, *(b for d in (*sampled.distances, 0.0) for _, b in sampled.near_shift(d))]
    size = float(np.abs(sampled.ys - sampled.ys.mean(axis=0)).max())
    ratios, pairs = [], []
    for i, b in enumerate(centres):
        a = sampled.xs[i % len(sampled.xs)]
        hessian = np.asarray(sampled.hessian(a, b), float)
        if not np.isfinite(hessian).all():
            return Finding("g(i)", "mu", math.nan, "cannot tell", "the Hessian is NaN or infinite at a point", a, b)
        eigenvalues, vectors = np.linalg.eigh(hessian)
        if eigenvalues[0] < -1e3 * sampled.eps * max(abs(eigenvalues[-1]), abs(eigenvalues[0])):
            note = f"g is not convex in y: it has curvature {eigenvalues[0]:.3g} at this point"
            return Finding("g(i)", "mu", float(eigenvalues[0]), "violated", note, a, b)
        random = sampled.rng.normal(size=b.size)
        for direction in (random / np.linalg.norm(random), vectors[:, 0]):
            length = size * 10 ** sampled.rng.uniform(-3, 0)
            gap, rounding = _gap_of(sampled, a, b, (b + length * direction).astype(b.dtype))
            if abs(gap) > rounding:
                ratios.append(sampled.p * gap / length**sampled.p)
                pairs.append((a, b))
    if not ratios:
        note = "all differences of g drown in rounding or are NaN"
        return Finding("g(i)", "mu", math.nan, "cannot tell", note)
    k = worst(ratios, largest=False)
    slope, limit = trend(sampled, lambda a, b: _ratio_at_shift(sampled, a, b), largest=False)
    if not ratios[k] > 0:
        return Finding("g(i)", "mu", ratios[k], "violated", "g is not convex in y between two points", *pairs[k])
    if slope > POWER:
        note = f"p·gap/distance^p vanishes like distance^{slope:.1f} towards the shift: the stated p is too small"
        return Finding("g(i)", "mu", limit, "violated", note, *pairs[k])
    if len(sampled.within) and math.isnan(slope):
        note = "near the shift, where a stated p that is too small would show, differences of g drown in rounding"
        return Finding("g(i)", "mu", ratios[k], "cannot tell", note, *pairs[k])
    return Finding("g(i)", "mu", ratios[k], "holds", "g is uniformly convex on all sampled pairs", *pairs[k])


def _gap_of(sampled: SampledRegion, a: np.ndarray, b1: np.ndarray, b2: np.ndarray) -> tuple[float, float]:
    """The gap g(b2) − g(b1) − ⟨∇g(b1), b2 − b1⟩, and how much of it may be rounding."""
    first, second, slope = float(sampled.g(a, b1)), float(sampled.g(a, b2)), np.asarray(sampled.grad_g(a, b1), float)
    linear = float(slope @ (b2.astype(float) - b1))
    return second - first - linear, 100 * sampled.eps * (abs(first) + abs(second) + abs(linear))


def _ratio_at_shift(sampled: SampledRegion, a: np.ndarray, b: np.ndarray) -> float:
    """p·gap/‖Δ‖^p between b and the point in which the coordinates of b that are nearest to the shift are put on it;
    infinite if rounding hides the gap."""
    offset = np.abs(b - sampled.shift)
    nearest = sampled.within[offset[sampled.within] <= offset[sampled.within].min() * 1.5]
    centre = b.copy()
    centre[nearest] = sampled.shift[nearest]
    gap, rounding = _gap_of(sampled, a, centre, b)
    return sampled.p * gap / float(np.linalg.norm(b - centre)) ** sampled.p if gap > rounding else math.inf


def smoothness(sampled: SampledRegion) -> Finding:
    """g(ii), relaxed smoothness ‖H‖ ≤ L0 + L1‖∇_y g‖: the least L0 that suffices with L1 = p − 2."""
    value, at = sampled.extreme(
        lambda a, b: norm(sampled.hessian(a, b)) - (sampled.p - 2) * norm(sampled.grad_g(a, b)), True
    )
    return Finding("g(ii)", "L0", max(value, 0.0), "holds", f"together with L1 = p − 2 = {sampled.p - 2:g}", *at)


def lipschitz_in_x(sampled: SampledRegion) -> Finding:
    """g(iii), ∇_y g is Lipschitz in x: l_g1 is the largest ‖∇²_xy g‖."""
    value, at = sampled.extreme(lambda a, b: norm(sampled.cross(a, b)), True)
    return Finding("g(iii)", "l_g1", value, "holds", "the largest ‖∇²_xy g‖", *at)


def _lipschitz(sampled: SampledRegion, fn: Callable[[Any, Any], Any]) -> tuple[float, tuple[Any, Any]]:
    """The largest ‖fn(u) − fn(u')‖/‖u − u'‖, and its u. Each u is a sample, and u' lies at a random distance from it
    on the way to the next sample."""
    values = []
    for i in range(len(sampled.xs) - 1):
        a, b = sampled.xs[i], sampled.ys[i]
        share = 10 ** sampled.rng.uniform(-3, 0)
        a2, b2 = a + share * (sampled.xs[i + 1] - a), b + share * (sampled.ys[i + 1] - b)
        change = np.asarray(fn(a, b)) - np.asarray(fn(a2, b2))
        values.append(norm(change) / math.hypot(np.linalg.norm(a2 - a), np.linalg.norm(b2 - b)))
    k = worst(values, largest=True)
    return values[k], (sampled.xs[k], sampled.ys[k])


def cross(sampled: SampledRegion) -> Finding:
    """g(iv), ∇²_xy g and d∇_y g/dz are Lipschitz: l_g2 is the larger of the two constants."""
    (cross, at), (generalised, there) = _lipschitz(sampled, sampled.cross), _lipschitz(sampled, sampled.generalised)
    at = at if generalised <= cross else there
    note = f"the larger of the slopes of ∇²_xy g ({cross:.3g}) and of d∇_y g/dz ({generalised:.3g})"
    return Finding("g(iv)", "l_g2", float(np.maximum(cross, generalised)), "holds", note, *at)


def generalised_hessian(sampled: SampledRegion) -> Finding:
    """g(v), the generalised Hessian d∇_y g/dz exists, and its smallest singular value μ_J stays away from 0."""

    def least(a: np.ndarray, b: np.ndarray) -> float:
        return norm(sampled.generalised(a, b), -2)

    value, at = sampled.extreme(least, False)
    slope, limit = trend(sampled, least, largest=False)
    if slope > POWER:
        note = f"it vanishes like distance^{slope:.1f} towards the shift: the stated p is too small, or g is not convex"
        return Finding("g(v)", "mu_J", limit, "violated", note, *at)
    value = float(np.fmin(value, limit))
    if value <= 0:
        return Finding("g(v)", "mu_J", value, "violated", "the generalised Hessian is singular", *at)
    if not sampled.grad_g_has_limit:
        return Finding("g(v)", "mu_J", value, "cannot tell", "no limit of d∇_y g/dz at the shift was found", *at)
    return Finding("g(v)", "mu_J", value, "holds", "the smallest singular value of d∇_y g/dz", *at)


def _bounded(
    sampled: SampledRegion, quantity: Callable[[Any, Any], float], names: tuple[str, str], seen: str, why: str
) -> Finding:
    """Judges whether a quantity is bounded. This is violated if it grows towards the shift like a power of the
    distance, and else holds with the largest sampled value. `seen` is the note in that case, `why` the likely cause of
    growth."""
    value, at = sampled.extreme(quantity, True)
    slope, limit = trend(sampled, quantity, largest=True)
    most = float(np.fmax(value, limit))
    if slope < -POWER:
        return Finding(*names, most, "violated", f"it grows like distance^{slope:.1f} towards the shift{why}", *at)
    return Finding(*names, most, "holds", seen, *at)


def bounded_hessian(sampled: SampledRegion) -> Finding:
    """g(vi), the generalised Hessian is bounded, ‖d∇_y g/dz‖ ≤ C."""
    seen, why = "the largest norm of d∇_y g/dz", ": the stated p is too large, or the Hessian does not vanish there"
    return _bounded(sampled, lambda a, b: norm(sampled.generalised(a, b)), ("g(vi)", "C"), seen, why)


def grad_x_f(sampled: SampledRegion) -> Finding:
    """f(i), ∇_x f is Lipschitz: its part of l_f1."""
    value, at = _lipschitz(sampled, sampled.grad_x_f)
    return Finding("f(i)", "l_f1", value, "holds", "the largest slope of ∇_x f", *at)


def df_dz(sampled: SampledRegion) -> Finding:
    """f(ii), df/dz exists at the shift and is Lipschitz: its part of l_f1."""

    def quotient(a: np.ndarray, b: np.ndarray) -> float:
        offset = b - sampled.shift
        nearer = (sampled.shift + 0.5 * offset).astype(b.dtype)
        moved = np.where(np.abs(offset) <= 1.5 * np.abs(offset).min(), nearer, b)
        return norm(np.asarray(sampled.df_dz(a, b)) - np.asarray(sampled.df_dz(a, moved))) / norm(b - moved)

    value, at = _lipschitz(sampled, sampled.df_dz)
    slope, steepest = trend(sampled, quotient, largest=True)
    if not sampled.f_has_limit:
        return Finding("f(ii)", "l_f1", value, "violated", "df/dz has no limit at the shift", *at)
    if slope < -POWER and steepest > value:
        note = f"the slope of df/dz grows like distance^{slope:.1f} towards the shift"
        return Finding("f(ii)", "l_f1", value, "violated", note, *at)
    return Finding("f(ii)", "l_f1", value, "holds", "the largest slope of df/dz", *at)


def df_dz_bounded(sampled: SampledRegion) -> Finding:
    """f(iii), df/dz is bounded, ‖df/dz‖ ≤ l_f0."""
    return _bounded(sampled, lambda a, b: norm(sampled.df_dz(a, b)), ("f(iii)", "l_f0"), "the largest ‖df/dz‖", "")


def gap(sampled: SampledRegion) -> Finding:
    """f(iv), Φ is bounded below: Δ_φ = Φ(x_0) − inf Φ is at least Φ(x_0) minus the least Φ at a sampled x."""
    problem = sampled.problem
    phi = jax.jit(lambda x: oracle.value_f(problem, x, Newton()(problem, x, sampled.y)[0], problem.f_batches.whole()))
    values = [float(phi(sampled.to_x(jnp.asarray(a)))) for a in sampled.xs[:20]]
    k = worst(values, largest=False)
    least = max(0.0, float(phi(sampled.x)) - values[k])
    return Finding("f(iv)", "Delta_phi", least, "cannot tell", "a lower bound: Φ may fall outside", sampled.xs[k])


LOWER = (convexity, smoothness, lipschitz_in_x, cross, generalised_hessian, bounded_hessian)
UPPER = (grad_x_f, df_dz, df_dz_bounded, gap)
