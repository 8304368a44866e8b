"""Claims about the definitions and the assumptions: what the paper claims that its examples, hyper-cleaning and the
noise of its study satisfy. Symbols as in `foundations`."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from unibio.core.noise import Noise
from unibio.paper import theory
from unibio.paper.claims.foundations import moduli, regression, scalar_pairs, spow
from unibio.paper.claims.registry import Found, claim, judge, listed
from unibio.problems import example3, example4


@claim("Definitions 1, 2", "df/d[y]^{p−1} is the linear map J with (f(z + δh) − f(z) − Jδh)/‖δh‖ → 0, z = y^{p−1}")
def definition() -> Found:
    """If p is not an even number, y^{p−1} of a negative y is not real or loses its sign, so z must be the
    signed power sign(y)|y|^{p−1}. Checked on Example 4 in three dimensions with p = 2.5: with the signed power ∇_y g
    has the derivative J = I at z = 0, and the plain power is not a number for negative y."""
    p = 2.5
    problem = example4(p)
    slope = jax.grad(lambda y: problem.g(jnp.zeros(3), y, None))
    z = np.random.default_rng(0).normal(size=(100, 3)) * 1e-6
    y = spow(z, 1 / (p - 1))
    quotient = np.asarray(jax.vmap(slope)(jnp.asarray(y))) - z
    worst = float(np.max(np.linalg.norm(quotient, axis=1) / np.linalg.norm(z, axis=1)))
    with np.errstate(invalid="ignore"):
        lost = float(np.mean(np.isnan(y ** (p - 1))))
    text = (
        f"With the signed power sign(y)|y|^(p−1) the quotient near z = 0 is at most {worst:.0e} at p = 2.5. "
        f"The plain power is not a number for {100 * lost:.0f} % of random y, the negative ones."
    )
    return Found(judge(False, worst < 1e-9 and lost > 0), worst, text)


@claim("Assumption 1 (i)", "y^p/p is uniformly convex of order p with modulus 1")
def modulus_of_a_power() -> Found:
    """The claim is that the modulus is 1 for every p. For p > 2 the points −t and 1 allow only a smaller one. The check
    takes the smallest modulus that 1,001 such pairs allow, and its relative distance from the sharp modulus c_p of
    theory.scalar_modulus."""
    smallest = {p: float(np.min(moduli(*scalar_pairs(), p))) for p in (4.0, 6.0, 8.0)}
    off = max(abs(least / theory.modulus(p) - 1) for p, least in smallest.items())
    text = (
        f"Pairs of points allow a modulus of at most {listed(smallest.values(), '.4g')} at p = 4, 6, 8. "
        f"This is the sharp modulus c_p to a relative {off:.0e}."
    )
    return Found(judge(min(smallest.values()) >= 1), smallest[8.0], text)


@claim("Assumption 1 (ii)", "Examples 1, 3, 4 are (L_0, L_1)-smooth with L_0 = 4(p−1), L_1 = 2(p−1)")
def relaxed_smoothness() -> Found:
    """(L0, L1)-smooth means ‖H‖ ≤ L0 + L1‖∇g‖. The check takes the largest ‖H‖/(L0 + L1‖∇g‖) over 4,000 values of y, 41
    of sin x and p = 2, 4, 8, with the printed constants and with L0 = p−1, L1 = p−2, which already suffice and are
    attained."""
    y = np.concatenate([-np.logspace(-3, 3, 2000), np.logspace(-3, 3, 2000)])
    printed, sharp = 0.0, 0.0
    for p in (2.0, 4.0, 8.0):
        L0, L1 = theory.smoothness(p)
        slopes = np.abs(spow(y, p - 1)[:, None] - np.linspace(-1, 1, 41))
        hessian = (p - 1) * np.abs(y)[:, None] ** (p - 2)
        printed = max(printed, float(np.max(hessian / (4 * (p - 1) + 2 * (p - 1) * slopes))))
        sharp = max(sharp, float(np.max(hessian / (L0 + L1 * slopes))))
    text = f"‖H‖ is at most {printed:.3f} times the printed bound, and {sharp:.4f} times that with L0 = p−1, L1 = p−2."
    return Found(judge(printed <= sharp <= 1 + 1e-9), sharp, text)


@claim(
    "Assumption 1 (v)", "the smallest eigenvalue λ_min of the generalised Hessian J bounds its inverse, ‖J⁻¹‖ ≤ 1/λ_min"
)
def smallest_singular_value() -> Found:
    """J = D H is not symmetric, so its smallest singular value σ_min can lie below its smallest eigenvalue λ_min. The
    paper's bounds need ‖J⁻¹‖, which is 1/σ_min. Both are computed for 2,000 random positive definite H and D in three
    dimensions."""
    rng = np.random.default_rng(0)
    ratios, exact = [], []
    for _ in range(2000):
        root = rng.normal(size=(3, 3))
        matrix = np.diag(10 ** rng.uniform(-1, 1, 3)) @ (root @ root.T + 0.1 * np.eye(3))
        inverse = np.linalg.norm(np.linalg.inv(matrix), 2)
        ratios.append(1 / (inverse * np.min(np.linalg.eigvals(matrix).real)))
        exact.append(abs(inverse * np.linalg.svd(matrix, compute_uv=False)[-1] - 1))
    least = float(min(ratios))
    verdict = judge(least >= 1 - 1e-9, max(exact) < 1e-9)
    text = f"‖J⁻¹‖ is 1/σ_min, with the smallest singular value σ_min, which falls to {least:.2f} λ_min on random J."
    return Found(verdict, least, text)


@claim("Assumption 1 (vi)", "hyper-cleaning satisfies ‖d∇_y g/dz‖ ≤ C, the bound on the generalised Hessian")
def bounded_generalised_hessian() -> Found:
    """In hyper-cleaning the Hessian H does not vanish where a weight w_i of the model is 0, but D is infinite there. On
    an ℓ_4 regression λ_max(D H), the largest eigenvalue of the generalised Hessian, is computed for w_1 = 1e-2, 1e-3,
    1e-4, and with it the condition number κ(H)."""
    _, _, w, hessian = regression()
    sizes, norms, conditions = (1e-2, 1e-3, 1e-4), [], []
    for size in sizes:
        point = w.at[0].set(size)
        matrix = np.asarray(hessian(point))
        norms.append(float(np.max(np.linalg.eigvals(matrix / (3 * np.asarray(point)[:, None] ** 2)).real)))
        conditions.append(float(np.linalg.cond(matrix)))
    slope = float(np.polyfit(np.log(sizes), np.log(norms), 1)[0])
    text = (
        f"On an ℓ_4 regression λ_max(D H) is {norms[0]:.1e} where a weight w_1 of the model is 1e-2, and "
        f"{norms[-1]:.1e} where it is 1e-4. It grows like w_1^({slope:.2f}), although κ(H) ≤ {max(conditions):.1f}."
    )
    return Found(judge(slope > -1), norms[-1], text)


@claim("Assumption 1 (iii), (iv)", "in Examples 1, 3, 4 ∇_y g and ∇²_xy g are Lipschitz with l_g1 = l_g2 = 1")
def lower_lipschitz() -> Found:
    """Checked by automatic differentiation of Example 4 (p = 4, three dimensions) at 10,000 pairs of points: the change
    of ∇_y g over ‖x − x'‖ at one y, and the change of ∇²_xy g in the spectral norm over the distance in (x, y). A third
    of the pairs lie around x = 0 and a third around π/2, where 1 is attained."""
    problem, rng = example4(4.0), np.random.default_rng(1)
    x, y, step, other = rng.normal(size=(4, 10_000, 3))
    size = 10 ** rng.uniform(-5, 0.5, size=(10_000, 1))
    x[:3333], x[3333:6666] = size[:3333] * x[:3333], math.pi / 2 + size[3333:6666] * x[3333:6666]
    step, other = size * step, size * other * rng.integers(0, 2, size=(10_000, 1))
    gradient = jax.grad(lambda x, y: problem.g(x, y, None), 1)
    slopes, crosses = jax.jit(jax.vmap(gradient)), jax.jit(jax.vmap(jax.jacfwd(gradient)))
    first = np.linalg.norm(slopes(x + step, y) - slopes(x, y), axis=1) / np.linalg.norm(step, axis=1)
    moved = np.sqrt(np.sum(step**2, axis=1) + np.sum(other**2, axis=1))
    second = np.linalg.norm(np.asarray(crosses(x + step, y + other) - crosses(x, y)), 2, axis=(1, 2)) / moved
    worst = float(max(first.max(), second.max()))
    text = f"The largest slopes are {first.max():.4f} for ∇_y g and {second.max():.4f} for ∇²_xy g."
    return Found(judge(worst <= 1 + 1e-6), worst, text)


@claim(
    "Assumption 2 (i)–(iii)",
    "in Example 3 df/dz is Lipschitz with l_f1 = (p−1)(π/2)^{(p−2)/(p−1)} and bounded by l_f0 = 1",
)
def upper_lipschitz() -> Found:
    """df/dz is computed by automatic differentiation at 4,000 values of y from −1.6 to 1.6 for p = 2, 4, 8. Its
    difference quotients are compared with l_f1, which is attained where f clips z at π/2, and its size with l_f0."""
    slopes, sizes = [], []
    for p in (2.0, 4.0, 8.0):
        problem, c = example3(p), theory.example3_constants(p)
        y = np.linspace(-1.6, 1.6, 4000)
        grad = jax.vmap(jax.grad(lambda y, problem=problem: problem.f(jnp.asarray(0.0), y, None)))(jnp.asarray(y))
        value = np.asarray(grad) / ((p - 1) * np.abs(y) ** (p - 2))
        slopes.append(float(np.max(np.abs(np.diff(value)) / np.diff(y))) / c.l_f1)
        sizes.append(float(np.max(np.abs(value))) / c.l_f0)
    text = (
        f"The largest slope of df/dz is {max(slopes):.4f} times l_f1, and its largest size {max(sizes):.4f} times l_f0."
    )
    return Found(judge(max(slopes + sizes) <= 1 + 1e-9), max(slopes), text)


@claim("Assumption 2 (iv)", "in Example 3 Φ(x_0) − inf Φ is at most Δ_φ = 2")
def initial_gap() -> Found:
    """Δ_φ bounds Φ(x_0) − inf Φ. Φ = f(x, y*(x)) is computed at 100,001 values of x, for p = 4. It takes the values
    from −sin 1 to sin 1, so Δ_φ = 2 is valid and 2 sin 1 is sharp."""
    x = np.linspace(-4, 4, 100_001)
    y_star = spow(np.sin(x), 1 / 3)
    problem, sharp = example3(4.0), theory.example3_constants(4.0).delta_phi
    phi = np.asarray(jax.vmap(lambda x, y: problem.f(x, y, None))(jnp.asarray(x), jnp.asarray(y_star)))
    gap = float(phi.max() - phi.min())
    text = (
        f"The largest minus the smallest value of Φ is {gap:.4f}, {gap / 2:.3f} times 2 and {gap / sharp:.4f} times "
        "2 sin 1."
    )
    return Found(judge(gap <= sharp * (1 + 1e-9) <= 2), gap, text)


@claim(
    "Assumptions 3, 4",
    "the noise of the study has bounded variance in all five oracles, and in ∇_y g also the light tail "
    "E exp(‖e‖²/σ_g1²) ≤ exp(1)",
)
def noise_assumption() -> Found:
    """The error e of ∇_y g must have the light tail E exp(‖e‖²/σ_g1²) ≤ exp(1). For Gaussian noise of variance v the
    left side is (1 − 2v/σ_g1²)^{−1/2}, so σ_g1² must be at least 2v/(1 − e^{−2}) = 2.31v. The experiments use the
    variance v itself, with which the left side is infinite. The mean is computed by quadrature, and the variances of
    our five oracles' noises from 100,000 draws."""
    v = 0.25
    draws = Noise(v, v, v, v, v).draw(jax.random.key(0), 100_000, jnp.asarray(0.5), jnp.asarray(0.7))
    within = max(abs(float(np.mean(np.square(np.asarray(field)))) / v - 1) for field in draws)
    e = np.linspace(-60, 60, 400_001) * math.sqrt(v)
    right = 2 * v / (1 - math.exp(-2))
    density = np.exp(e**2 / right - e**2 / (2 * v)) / math.sqrt(2 * math.pi * v)
    mean = float(np.sum(density) * (e[1] - e[0]))
    text = (
        f"The five variances are within {100 * within:.1f} % of the stated v. With σ_g1² = {right / v:.2f}v "
        f"E exp(‖e‖²/σ_g1²) is {mean:.4f}, which is exp(1); with σ_g1² = v it is infinite."
    )
    return Found(judge(False, within < 0.02 and abs(mean - math.e) < 1e-6), mean, text)
