"""`audit` looks for violations of the paper's assumptions in a region around a point, by sampling.

Samples can refute an assumption and cannot prove it. Where they do not refute it, they measure its constant.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core import checks, coordinates, linear, oracle, tree
from unibio.core.noise import AnyBatch
from unibio.core.problem import Problem, check_functions, prepare
from unibio.core.tree import PyTree
from unibio.paper.theory.assumptions import LOWER, UPPER, Finding, judged
from unibio.paper.theory.sampling import SampledRegion


@dataclasses.dataclass(frozen=True)
class Audit:
    """The findings about all assumptions: `print` shows them as a table, `audit["g(vi)"]` is the one of that name.

    The verdict "holds" means that no sample of the region refuted the assumption with this constant. Sampled maxima lie
    below the true ones and sampled minima (μ, μ_J) above, so the constants are a first guess for `Constants` and not a
    proof. A stated p that is off by less than about 0.2 is not noticed.
    """

    findings: tuple[Finding, ...]

    def __getitem__(self, name: str) -> Finding:
        named = {finding.assumption: finding for finding in self.findings}
        if name not in named:
            raise KeyError(f"there is no assumption {name!r}; choose one of {', '.join(named)}")
        return named[name]

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
    """Checks every assumption of the paper at sampled points around (x, y), and measures its constant.

    The points lie within `region` of x and of y in every coordinate. The findings are g(i) to g(vi) for the lower
    level, f(i) to f(iv) for the upper level and n(1) to n(5) for the noise, in the paper's order.

    A wrong p shows where coordinates of y approach the shift. So, if the shift lies in the region, points close to it
    are sampled too. There the generalised Hessian d∇_y g/dz vanishes if the stated p is too small, and grows without
    bound if p is too large or if the Hessian does not vanish at the shift, as in hyper-cleaning.

    Matrices are built densely, so the problem may have at most a few hundred unknowns.
    """
    checks.number("region", region, low=0.0, strict=True)
    checks.whole_number("samples", samples, low=10)
    problem, x, y = prepare(problem, x, y)
    if problem.p is None:
        raise ValueError(
            "audit checks the assumptions for a stated p, but the problem has none: write Problem(…, p=…)."
        )
    check_functions(problem, x, y)
    key = jax.random.key(0) if key is None else key
    sampled = SampledRegion(problem, x, y, float(region), samples, key)
    return Audit((*(judged(sampled, check(sampled)) for check in (*LOWER, *UPPER)), *_noise(sampled)))


def _noise(sampled: SampledRegion) -> tuple[Finding, ...]:
    """n(1) to n(5): the standard deviations of the five oracles at (x, y), from 256 draws each.

    For ∇_y g the paper assumes a light tail: there σ is the number with E exp(‖e‖²/σ²) = e, where e on the left is the
    error of the oracle.
    """
    problem, x, y = sampled.problem, sampled.x, sampled.y
    scale = coordinates.scaling(y, problem.p, problem.shift)

    def cross(batch: AnyBatch) -> jax.Array:
        return linear.dense(lambda v: oracle.cross_g(problem, x, y, v, batch), y).T

    def generalised(batch: AnyBatch) -> jax.Array:
        return tree.ravel(scale)[0][:, None] * linear.dense(oracle.hessian_g(problem, x, y, batch), y)

    f_batches, g_batches = problem.f_batches, problem.g_batches
    oracles: list[tuple[str, str, Any, Any]] = [
        ("n(1)", "sigma_f", f_batches, lambda batch: oracle.grads_f(problem, x, y, batch)[0]),
        ("n(2)", "sigma_g1", g_batches, lambda batch: oracle.grad_g(problem, x, y, batch)),
        ("n(3)", "sigma_g2", g_batches, cross),
        ("n(4)", "sigma_f", f_batches, lambda batch: tree.mul(scale, oracle.grads_f(problem, x, y, batch)[1])),
        ("n(5)", "sigma_g2", g_batches, generalised),
    ]
    findings = []
    for number, (name, constant, sampler, fn) in enumerate(oracles):
        draws = sampler.draw(jax.random.fold_in(sampled.key, number), 256, x, y)
        if not jax.tree.leaves(draws):  # this oracle has no randomness
            findings.append(Finding(name, constant, 0.0, "holds", "the oracle is exact"))
            continue
        mean = tree.ravel(fn(sampler.whole()))[0]
        errors = jax.lax.map(
            lambda draw, fn=fn, s=sampler, m=mean: jnp.sum((tree.ravel(fn(s.batch(draw)))[0] - m) ** 2), draws
        )
        squares = np.asarray(errors)
        value = _light_tail(squares) if name == "n(2)" else math.sqrt(squares.mean())
        note = "from 256 draws at the centre" + ("; light tail, E exp(‖e‖²/σ²) = e" if name == "n(2)" else "")
        findings.append(Finding(name, constant, value, "holds" if np.isfinite(value) else "violated", note))
    return tuple(findings)


def _light_tail(squares: np.ndarray) -> float:
    """The σ at which the mean of exp(‖e‖²/σ²) over these squares ‖e‖² is Euler's number, by bisection."""
    if squares.max() == 0:
        return 0.0
    low, high = squares.max() * 1e-3, squares.max() * 1e3
    for _ in range(200):
        middle = math.sqrt(low * high)
        excess = np.logaddexp.reduce(squares / middle) - math.log(len(squares))
        low, high = (middle, high) if excess > 1 else (low, middle)
    return math.sqrt(high)
