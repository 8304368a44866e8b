"""Every numbered claim of the paper, checked. One function, one row; run them with `unibio verify`."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from unibio import theory
from unibio.core import oracle
from unibio.core.problem import Problem
from unibio.experiments.registry import Found, Verdict, claim
from unibio.hypergradients import Exact, differentiable_in_z, hypergradient
from unibio.lower.newton import lower_solution
from unibio.problems import coupled_example3, example1, example3, example4, lp_regression
from unibio.theory.constants import Constants

COUPLING = np.array([[0.6, 0.3, 0.0], [-0.2, 0.5, 0.3], [0.1, -0.4, 0.7]])


def spow(y: np.ndarray, a: float) -> np.ndarray:
    """sign(y)|y|^a in numpy."""
    return np.sign(y) * np.abs(y) ** a


def gap(a: np.ndarray, b: np.ndarray, p: float) -> np.ndarray:
    """g(b) − g(a) − ⟨∇g(a), b − a⟩ of ‖y‖_p^p/p over the last axis."""
    return np.sum((np.abs(b) ** p - np.abs(a) ** p) / p - spow(a, p - 1) * (b - a), axis=-1)


def _worst_error(problem: Problem, xs: np.ndarray, y_star: np.ndarray, gradient: np.ndarray) -> float:
    values = jax.vmap(lambda x, y: hypergradient(problem, x, y, Exact())[0])(jnp.asarray(xs), jnp.asarray(y_star))
    return float(np.max(np.abs(np.asarray(values) - gradient)))


@claim("Example 1", "f = y³, g = y⁴/4 − y sin x: Φ(x) = sin x, differentiable although H is singular at x = 0")
def example_1() -> Found:
    """∇Φ from the generalised formula against cos x at 101 points, x = 0 among them."""
    xs = np.linspace(-3, 3, 101)
    error = _worst_error(example1(), xs, spow(np.sin(xs), 1 / 3), np.cos(xs))
    return Found(Verdict.confirmed, error, f"largest error of ∇Φ {error:.1e}")


@claim("Example 2", "ℓ_p regression with regulariser is (μ_1 + μ_2, p)-uniformly convex")
def example_2() -> Found:
    """Sharp moduli: μ_2 = c·p·c_p·d^{1−p/2}; the paper's scalar modulus 1 and factor d^{−(1/2−1/p)} are too large.
    Checked on 20,000 pairs of ‖w‖_4^4/4 in 5 dimensions, among them the worst pair."""
    p, d = 4.0, 5
    printed, sharp = d ** -(0.5 - 1 / p), theory.modulus(p, d)
    t = 0.5  # the root of 2t³ + 3t² = 1
    attained = float(p * gap(np.full(d, -t), np.ones(d), p) / np.linalg.norm(np.full(d, 1 + t)) ** p)
    return Found(
        Verdict.corrected, attained, f"modulus {printed:.3f} printed, {sharp:.4f} sharp, {attained:.4f} attained"
    )


@claim("Example 3", "∇Φ(x) = sin x·cos(sin x)")
def example_3() -> Found:
    """Φ = sin(sin x), so the derivative is cos x·cos(sin x): at x = 0 it is 1 and not 0. p = 4."""
    xs = np.linspace(-1.5, 1.5, 61)
    error = _worst_error(example3(4.0), xs, spow(np.sin(xs), 1 / 3), np.cos(xs) * np.cos(np.sin(xs)))
    printed = float(np.max(np.abs(np.sin(xs) * np.cos(np.sin(xs)) - np.cos(xs) * np.cos(np.sin(xs)))))
    return Found(Verdict.refuted, printed, f"printed form off by up to {printed:.2f}; cos x·cos(sin x) to {error:.1e}")


@claim("Example 4", "f = Σ y_i^{p−1}, g = ‖y‖_p^p/p − ⟨y, sin x⟩ in d dimensions: Φ = Σ sin x_i")
def example_4() -> Found:
    """p = 6 in three dimensions, 50 random points with a coordinate at the singular value 0."""
    xs = np.random.default_rng(0).uniform(-2, 2, size=(50, 3))
    xs[:, 1] = 0.0
    error = _worst_error(example4(6.0), xs, spow(np.sin(xs), 1 / 5), np.cos(xs))
    return Found(Verdict.confirmed, error, f"largest error of ∇Φ {error:.1e}")


@claim("Assumption 1 (i)", "y^p/p is (1, p)-uniformly convex")
def modulus_of_a_power() -> Found:
    """The pair a = −t, b = 1 violates modulus 1 for every p > 2. The sharp modulus is c_p."""
    worst = min(float(p * gap(np.array([-0.6]), np.array([1.0]), p) / 1.6**p) for p in (4.0, 6.0, 8.0))
    table = ", ".join(f"c_{p} = {theory.modulus(float(p)):.4g}" for p in (4, 6, 8))
    return Found(Verdict.refuted, worst, f"{table}; a pair with ratio {worst:.3f} at p = 8")


@claim("Assumption 1 (ii)", "Examples 1, 3, 4 are (4(p−1), 2(p−1))-smooth")
def relaxed_smoothness() -> Found:
    """Valid, but L0 = p−1, L1 = p−2 already suffices: the largest ‖H‖/(L0 + L1‖∇g‖) over a grid is 1."""
    y = np.concatenate([-np.logspace(-3, 3, 2000), np.logspace(-3, 3, 2000)])
    worst = 0.0
    for p in (2.0, 4.0, 8.0):
        for b in np.linspace(-1, 1, 41):
            worst = max(
                worst, float(np.max((p - 1) * np.abs(y) ** (p - 2) / (p - 1 + (p - 2) * np.abs(spow(y, p - 1) - b))))
            )
    return Found(Verdict.confirmed, worst, f"loose: with L0 = p−1, L1 = p−2 the ratio reaches {worst:.4f}")


@claim("Assumption 1 (v)", "λ_min of the generalised Hessian is what makes it invertible")
def smallest_singular_value() -> Found:
    """D H is not symmetric: its smallest singular value can lie below its smallest eigenvalue, and the bounds need the
    former. 2,000 random positive definite H and D in three dimensions."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(2000):
        root = rng.normal(size=(3, 3))
        matrix = np.diag(10 ** rng.uniform(-1, 1, 3)) @ (root @ root.T + 0.1 * np.eye(3))
        ratios.append(np.linalg.svd(matrix, compute_uv=False)[-1] / np.min(np.linalg.eigvals(matrix).real))
    return Found(
        Verdict.corrected, min(ratios), f"σ_min/λ_min falls to {min(ratios):.2f}: μ_J must be the singular value"
    )


@claim("Assumption 1 (vi)", "‖d∇_y g/dz‖ ≤ C covers hyper-cleaning")
def bounded_generalised_hessian() -> Found:
    """On ℓ_4 regression λ_max(D H) grows like 1/w_i² as a weight w_i goes to 0, while H stays well conditioned."""
    problem, x, w = _regression()
    norms = []
    for size in (1e-2, 1e-4):
        point = w.at[0].set(size)
        hessian = np.asarray(jax.hessian(lambda y: oracle.value_g(problem, x, y, problem.g_batches.whole()))(point))
        norms.append(float(np.max(np.linalg.eigvals(hessian / (3 * np.asarray(point)[:, None] ** 2)).real)))
    return Found(Verdict.refuted, norms[1], f"λ_max {norms[0]:.1e} at w_1 = 1e-2, {norms[1]:.1e} at 1e-4: no global C")


def _regression() -> tuple[Problem, jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    d, n = 8, 60
    truth, features = rng.normal(size=d), rng.normal(size=(n, d))
    targets = features @ truth + 0.3 * rng.normal(size=n)
    features_val = rng.normal(size=(n, d))
    targets_val = features_val @ truth + 0.3 * rng.normal(size=n)
    weights = rng.normal(size=n)
    problem = lp_regression((features, targets), (features_val, targets_val), 4.0)
    return problem, jnp.asarray(weights), jnp.asarray(truth)


@claim("Theorem 1 (formula)", "∇Φ = ∇_x f − ∇²_xy g·[d∇_y g/dz]⁻¹·df/dz")
def hypergradient_formula() -> Found:
    """With the paper's own definition of the generalised derivative the bracket is H D; it must be its transpose D H.
    On ℓ_4 regression the literal order misses the finite difference of Φ."""
    problem, x, w = _regression()
    y = lower_solution(problem, x, w)
    exact = np.asarray(hypergradient(problem, x, y, Exact())[0])
    hessian = np.asarray(jax.hessian(lambda y: oracle.value_g(problem, x, y, problem.g_batches.whole()))(y))
    scaling = np.diag(1 / (3 * np.asarray(y) ** 2))
    _, grad_y = oracle.grads_f(problem, x, y, problem.f_batches.whole())
    v = np.linalg.solve(hessian @ scaling, scaling @ np.asarray(grad_y))
    literal = -np.asarray(oracle.cross_g(problem, x, y, jnp.asarray(v), problem.g_batches.whole()))
    error = float(np.linalg.norm(literal - exact) / np.linalg.norm(exact))

    def phi(x: jax.Array) -> float:
        return float(oracle.value_f(problem, x, lower_solution(problem, x, y), problem.f_batches.whole()))

    direction = jnp.asarray(exact / np.linalg.norm(exact))
    difference = (phi(x + 1e-3 * direction) - phi(x - 1e-3 * direction)) / 2e-3
    agreement = abs(difference / np.linalg.norm(exact) - 1)
    verdict = Verdict.corrected if agreement < 1e-5 < error else Verdict.refuted
    return Found(verdict, error, f"H D is off by {100 * error:.0f} %, D H by {agreement:.0e} of a finite difference")


def _pairs(dim: int, count: int = 10_000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.uniform(-3, 3, size=(count, dim))
    return x, x + rng.normal(size=x.shape) * 10 ** rng.uniform(-5, 0.5, size=(count, 1))


def _coupled(x: np.ndarray, p: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Φ, ∇Φ, y* of the coupled Example 3."""
    b = np.sin(x) @ COUPLING.T
    return np.sum(np.sin(b), axis=-1), (np.cos(b) @ COUPLING) * np.cos(x), spow(b, 1 / (p - 1))


@claim("Theorem 1 (smoothness)", "‖∇Φ(x) − ∇Φ(x')‖ ≤ L_φ1‖x − x'‖^{1/(p−1)} + L_φ2‖x − x'‖")
def holder_smoothness() -> Found:
    """True with l_{f,2}, which is not defined, replaced: L_φ2 = l_f1 + l_f0·l_g2/μ_J + l_g1·l_f1/μ_J +
    l_g1·l_f0·l_g2/μ_J². 10,000 pairs of the coupled Example 3, p = 5."""
    c = theory.coupled_example3_constants(5.0, COUPLING)
    x, other = _pairs(3)
    distance = np.linalg.norm(x - other, axis=1)
    change = np.linalg.norm(_coupled(x, 5.0)[1] - _coupled(other, 5.0)[1], axis=1)
    ratio = float(np.max(change / (c.L_phi1 * distance ** (1 / 4) + c.L_phi2 * distance)))
    return _bound(ratio, "change of ∇Φ over its bound", Verdict.corrected)


@claim("Theorem 1 (descent)", "Φ(x_1) ≤ Φ(x_2) + ⟨∇Φ(x_2), x_1 − x_2⟩ + (p−1)/p·L_φ1‖·‖^{p/(p−1)} + L_φ2/2‖·‖²")
def descent_inequality() -> Found:
    """10,000 pairs of the coupled Example 3, p = 5."""
    c = theory.coupled_example3_constants(5.0, COUPLING)
    x, other = _pairs(3)
    phi, _, _ = _coupled(x, 5.0)
    phi_2, gradient, _ = _coupled(other, 5.0)
    distance = np.linalg.norm(x - other, axis=1)
    excess = phi - phi_2 - np.sum(gradient * (x - other), axis=1)
    ratio = float(np.max(excess / (0.8 * c.L_phi1 * distance**1.25 + c.L_phi2 / 2 * distance**2)))
    return _bound(ratio, "excess over its bound", Verdict.confirmed)


def _bound(ratio: float, what: str, verdict: Verdict) -> Found:
    """A bound that must not be exceeded: a ratio beyond 1 refutes it."""
    held = ratio <= 1 + 1e-9
    return Found(verdict if held else Verdict.refuted, ratio, f"largest {what}: {ratio:.3g}")


@claim("Lemma 1", "y* is Hölder with l_p = (p·l_g1/μ)^{1/(p−1)}")
def holder_solution() -> Found:
    """With the paper's μ = 1 the constant p^{1/(p−1)} is exceeded around x = 0 for p ≥ 6, where the ratio tends to
    2^{(p−2)/(p−1)}. Right is (p·l_g1/(2μ))^{1/(p−1)} with the sharp μ, or better (l_g1/m)^{1/(p−1)}."""
    h = 1e-4
    excess = {
        p: 2 * math.sin(h) ** (1 / (p - 1)) / (2 * h) ** (1 / (p - 1)) / p ** (1 / (p - 1))
        for p in (4.0, 6.0, 8.0, 20.0)
    }
    text = ", ".join(f"p = {p:g}: {ratio:.3f}" for p, ratio in excess.items())
    return Found(Verdict.corrected, excess[8.0], f"true over printed, {text}")


@claim("Lemma (positive generalised Hessian)", "J2 independent of z gives λ_min ≥ μ")
def generalised_hessian_of_examples() -> Found:
    """In Examples 1, 3, 4 d∇_y g/dz = I, so μ_J = C = 1 while μ = c_p; in general μ_J ≥ 2μ/p there."""
    y = jnp.asarray([0.3, -0.7, 1.2])
    hessian = np.asarray(jax.hessian(lambda y: example4(6.0).g(jnp.zeros(3), y, None))(y))
    generalised = hessian / (5 * np.abs(np.asarray(y))[:, None] ** 4)
    error = float(np.max(np.abs(generalised - np.eye(3))))
    return Found(Verdict.corrected, error, f"D H = I to {error:.0e}: μ_J = 1, three numbers called μ differ")


@claim("Lemma (hypergradient bias)", "‖h(x, y) − ∇Φ(x)‖ ≤ L_φ2‖y − y*(x)‖")
def hypergradient_bias() -> Found:
    """1,000 inexact points of the coupled Example 3, p = 5."""
    c = theory.coupled_example3_constants(5.0, COUPLING)
    rng = np.random.default_rng(2)
    x = rng.uniform(-3, 3, size=(1000, 3))
    _, gradient, y_star = _coupled(x, 5.0)
    y = y_star + rng.normal(size=x.shape) * 10 ** rng.uniform(-6, -0.5, size=(1000, 1))
    problem = coupled_example3(5.0, jnp.asarray(COUPLING))
    values = jax.vmap(lambda x, y: hypergradient(problem, x, y, Exact())[0])(jnp.asarray(x), jnp.asarray(y))
    errors = np.linalg.norm(np.asarray(values) - gradient, axis=1)
    return _bound(
        float(np.max(errors / (c.L_phi2 * np.linalg.norm(y - y_star, axis=1)))),
        "error over its bound",
        Verdict.confirmed,
    )


@claim("Lemma (Neumann series)", "‖J⁻¹ − s Σ_{q<Q}(I − sJ)^q‖ ≤ (1/μ)(1 − μ/C)^Q")
def neumann_bias() -> Found:
    """For symmetric J the difference is J⁻¹(I − sJ)^Q. For D H the bound holds in the norm of D⁻¹ only: random
    three-dimensional cases exceed it in the Euclidean norm."""
    rng = np.random.default_rng(3)
    worst = {"plain": 0.0, "weighted": 0.0}
    for _ in range(500):
        root = rng.normal(size=(3, 3))
        d = 10 ** rng.uniform(-1, 1, 3)
        hessian = root @ root.T + 0.3 * np.eye(3)
        j = d[:, None] * hessian
        eigenvalues = np.sort(np.linalg.eigvals(j).real)
        s, q = 1 / eigenvalues[-1], 6
        series = s * sum(np.linalg.matrix_power(np.eye(3) - s * j, k) for k in range(q))
        error = np.linalg.inv(j) - series
        bound = (1 / eigenvalues[0]) * (1 - s * eigenvalues[0]) ** q
        root_d = np.sqrt(d)
        weighted = error * root_d[None, :] / root_d[:, None]
        worst["plain"] = max(worst["plain"], float(np.linalg.norm(error, 2) / bound))
        worst["weighted"] = max(worst["weighted"], float(np.linalg.norm(weighted, 2) / bound))
    text = f"error/bound up to {worst['plain']:.2f} in the Euclidean norm, {worst['weighted']:.6f} in that of D⁻¹"
    return Found(Verdict.corrected, worst["plain"], text)


@claim("Lemma (differentiability)", "f is differentiable in z at 0 if and only if it satisfies a growth condition")
def differentiability() -> Found:
    """Sufficient only. With p = 4, f = y³ (Example 1) has df/dz = 1 at 0, a limit other than 0, and y⁴·sin(1/y²) has
    df/dz → 0 in the mean although its derivative oscillates: |Δf|/|z| ≤ |y|."""
    accepted = bool(differentiable_in_z(example1(), 0.0, 0.0).f)
    y = np.logspace(-6, -1, 200)
    ratio = float(np.max(np.abs(y**4 * np.sin(1 / y**2)) / y**3 / y))
    verdict = Verdict.refuted if accepted and ratio <= 1 else Verdict.confirmed
    return Found(verdict, ratio, f"Example 1 itself violates it; y⁴ sin(1/y²): |f|/|z| ≤ {ratio:.2f}|y| → 0")


@claim("Lemma (variance)", "Var ĥ ≤ σ_f² + 3/μ²[(σ_f² + l_f0²)(σ_g2² + 2l_g1²) + σ_f²l_g1²]")
def variance_bound() -> Found:
    """One dimension, J = C = 1, A = 1, df/dz = 1, Hessian noise σ² = 10, Q = 10: the variance of the series is
    Σ_{q=1}^{9} 10^q. The printed bound does not depend on Q."""
    sigma2 = 10.0
    exact = sum(sigma2**q for q in range(1, 10))
    printed = 3 * (sigma2 + 2)
    c = Constants(4.0, 1 / 3, 1.0, 1.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, sigma_g2=math.sqrt(sigma2))
    ours = c.sigma_1(10) ** 2
    return Found(Verdict.refuted, exact, f"true {exact:.2e}, printed bound {printed:.0f}, corrected bound {ours:.1e}")


@claim("Lemma (function gap)", "ψ(w) − ψ* ≤ G(pG/μ)^{1/(p−1)} if ‖∇ψ(w)‖ ≤ G")
def function_gap() -> Found:
    """On |w|^p/p with the sharp modulus, p from 2 to 12."""
    worst = 0.0
    for p in (2.0, 3.0, 4.0, 8.0, 12.0):
        w = np.logspace(-3, 1, 200)
        slope = w ** (p - 1)
        worst = max(worst, float(np.max(w**p / p / (slope * (p * slope / theory.modulus(p)) ** (1 / (p - 1))))))
    return _bound(worst, "gap over its bound", Verdict.confirmed)


@claim("Lemma (lower gradient bound)", "‖∇_y g‖ ≤ (2^{2L_1R+1} − 1)·L_1/L_0 within R of a point that has y* within R")
def lower_gradient_bound() -> Found:
    """L_1/L_0 has the wrong dimension (its own proof has L_0/L_1). Example 3 at x = π/2, y* = 1, p = 8, the point
    y = 1 + 2R: the gradient exceeds the printed bound and stays below (L0/L1)(e^{2·L1·R} − 1)."""
    p, reach = 8.0, 0.3
    L0, L1 = theory.smoothness(p)
    true = (1 + 2 * reach) ** (p - 1) - 1
    printed = (2 ** (2 * L1 * reach + 1) - 1) * L1 / L0
    right = L0 / L1 * (math.exp(2 * L1 * reach) - 1)
    verdict = Verdict.refuted if printed < true <= right else Verdict.confirmed
    return Found(verdict, true / right, f"R = {reach}: true {true:.3f}, printed {printed:.3f}, corrected {right:.3f}")
