"""Looking for violations of the paper's assumptions on a region, by sampling. It can refute; what it does not
refute it measures."""

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
from unibio.paper.theory.sampling import Look


@dataclasses.dataclass(frozen=True)
class Audit:
    """All findings; `print` it, or ask `audit["g(vi)"]`.

    "holds" means: not refuted on the region, with this constant. Sampled maxima lie below the true ones and sampled
    minima (μ, μ_J) above them, so these constants are a start for `Constants`, not a proof. A p that is off by less
    than about 0.2 does not show.
    """

    findings: tuple[Finding, ...]

    def __getitem__(self, name: str) -> Finding:
        named = {finding.assumption: finding for finding in self.findings}
        if name not in named:
            raise KeyError(f"no assumption {name!r}; there are {', '.join(named)}")
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
    """Samples points within `region` of x and of y and checks every assumption there.

    Lower level g(i)–g(vi), upper level f(i)–f(iv), noise n(1)–n(5), in the paper's order. Besides random points it
    looks where coordinates of y approach the shift, if that lies in the region, because that is where a wrong p shows:
    d∇_y g/dz then vanishes (p too small) or grows without bound (p too large, or a Hessian that does not vanish:
    hyper-cleaning). Matrices are built densely: for at most a few hundred unknowns.
    """
    checks.number("region", region, low=0.0, strict=True)
    checks.whole_number("samples", samples, low=10)
    problem, x, y = prepare(problem, x, y)
    if problem.p is None:
        raise ValueError("audit checks the assumptions for a stated p: write Problem(…, p=…).")
    check_functions(problem, x, y)
    key = jax.random.key(0) if key is None else key
    look = Look(problem, x, y, float(region), samples, key)
    return Audit((*(judged(look, check(look)) for check in (*LOWER, *UPPER)), *_noise(look)))


def _noise(look: Look) -> tuple[Finding, ...]:
    """Deviations of the five oracles at the centre, from 256 draws; a light tail has σ with E exp(‖e‖²/σ²) = e."""
    problem, x, y = look.problem, look.x, look.y
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
        draws = sampler.draw(jax.random.fold_in(look.key, number), 256, x, y)
        if not jax.tree.leaves(draws):  # nothing is random
            findings.append(Finding(name, constant, 0.0, "holds", "exact oracle"))
            continue
        mean = tree.ravel(fn(sampler.whole()))[0]
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
