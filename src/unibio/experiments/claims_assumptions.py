"""The definitions and the assumptions that the examples and the noise of the study are said to satisfy."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from unibio import theory
from unibio.core.noise import Noise
from unibio.experiments.registry import Found, Verdict, claim
from unibio.problems import example3, example4


@claim("Definitions 1, 2", "df/d[y]^{p−1} is the linear map J with (f(z + δh) − f(z) − Jδh)/‖δh‖ → 0, z = y^{p−1}")
def definition() -> Found:
    """For p that is not even, y^{p−1} of a negative y is not real: z must be sign(y)|y|^{p−1}. With it ∇_y g of
    Example 4 has derivative I at z = 0 (p = 2.5), while the power itself is not a number."""
    p = 2.5
    problem = example4(p)
    slope = jax.grad(lambda y: problem.g(jnp.zeros(3), y, None))
    z = np.random.default_rng(0).normal(size=(100, 3)) * 1e-6
    y = np.sign(z) * np.abs(z) ** (1 / (p - 1))
    quotient = np.asarray(jax.vmap(slope)(jnp.asarray(y))) - z
    worst = float(np.max(np.linalg.norm(quotient, axis=1) / np.linalg.norm(z, axis=1)))
    with np.errstate(invalid="ignore"):
        lost = float(np.mean(np.isnan(y ** (p - 1))))
    verdict = Verdict.corrected if worst < 1e-9 and lost > 0 else Verdict.refuted
    return Found(verdict, worst, f"quotient {worst:.0e} with the signed power; {100 * lost:.0f} % not a number without")


def _points(dim: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.uniform(-4, 4, size=(10_000, dim))
    return x, x + rng.normal(size=x.shape) * 10 ** rng.uniform(-5, 0.5, size=(10_000, 1))


@claim("Assumption 1 (iii), (iv)", "in Examples 1, 3, 4 ∇_y g and ∇²_xy g are 1-Lipschitz: l_g1 = l_g2 = 1")
def lower_lipschitz() -> Found:
    """10,000 pairs in three dimensions: the change of sin x, and of diag(cos x) in the spectral norm, over ‖x − x'‖."""
    x, other = _points(3)
    distance = np.linalg.norm(x - other, axis=1)
    first = np.max(np.linalg.norm(np.sin(x) - np.sin(other), axis=1) / distance)
    second = np.max(np.max(np.abs(np.cos(x) - np.cos(other)), axis=1) / distance)
    worst = float(max(first, second))
    verdict = Verdict.confirmed if worst <= 1 + 1e-9 else Verdict.refuted
    return Found(verdict, worst, f"largest ratios {first:.4f} and {second:.4f}")


@claim("Assumption 2 (i)–(iii)", "Example 3: l_f1 = (p−1)(π/2)^{(p−2)/(p−1)}, l_f0 = 1")
def upper_lipschitz() -> Found:
    """df/dz by automatic differentiation on 4,000 points of y for p = 2, 4, 8, beyond the clip too: its difference
    quotients against l_f1 (attained at the clip) and its size against l_f0."""
    slopes, sizes = [], []
    for p in (2.0, 4.0, 8.0):
        problem, c = example3(p), theory.example3_constants(p)
        y = np.linspace(-1.6, 1.6, 4000)
        grad = jax.vmap(jax.grad(lambda y, problem=problem: problem.f(jnp.asarray(0.0), y, None)))(jnp.asarray(y))
        value = np.asarray(grad) / ((p - 1) * np.abs(y) ** (p - 2))
        slopes.append(float(np.max(np.abs(np.diff(value)) / np.diff(y))) / c.l_f1)
        sizes.append(float(np.max(np.abs(value))) / c.l_f0)
    verdict = Verdict.confirmed if max(slopes + sizes) <= 1 + 1e-9 else Verdict.refuted
    return Found(
        verdict, max(slopes), f"largest slope {max(slopes):.4f} of l_f1, largest size {max(sizes):.4f} of l_f0"
    )


@claim("Assumption 2 (iv)", "Δ_φ = 2 for Example 3")
def initial_gap() -> Found:
    """Φ = sin(sin x) lies in [−sin 1, sin 1]: 2 is valid and 2 sin 1 sharp."""
    phi = np.sin(np.sin(np.linspace(-4, 4, 100_001)))
    gap = float(phi.max() - phi.min())
    return Found(Verdict.confirmed if gap <= 2 else Verdict.refuted, gap, f"2 sin 1 = {gap:.4f} is sharp")


@claim("Assumptions 3, 4", "the five oracles have bounded variance, and E exp(‖e‖²/σ_g1²) ≤ e for ∇_y g")
def noise_assumption() -> Found:
    """Gaussian noise of variance v has E exp(e²/σ²) = (1 − 2v/σ²)^{−1/2}, so the light tail needs
    σ_g1² = 2v/(1 − e^{−2}) = 2.31v, more than the variance that the experiments state (at σ² = v the mean is
    infinite). By quadrature; the variances of our five noises from 100,000 draws."""
    v = 0.25
    draws = Noise(v, v, v, v, v).draw(jax.random.key(0), 100_000, jnp.asarray(0.5), jnp.asarray(0.7))
    within = max(abs(float(np.mean(np.square(np.asarray(field)))) / v - 1) for field in draws)
    e = np.linspace(-60, 60, 400_001) * math.sqrt(v)
    right = 2 * v / (1 - math.exp(-2))
    density = np.exp(e**2 / right - e**2 / (2 * v)) / math.sqrt(2 * math.pi * v)
    mean = float(np.sum(density) * (e[1] - e[0]))
    verdict = Verdict.corrected if within < 0.02 and abs(mean - math.e) < 1e-6 else Verdict.refuted
    text = f"variances within {100 * within:.1f} % of v; σ_g1² = {right / v:.2f}v gives {mean:.4f} = e, v itself ∞"
    return Found(verdict, mean, text)
