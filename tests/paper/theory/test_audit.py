"""The audit finds the constants of problems that satisfy the assumptions, and what is wrong with those that do not."""

import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.paper import theory

ALL = [f"g({n})" for n in ("i", "ii", "iii", "iv", "v", "vi")] + [f"f({n})" for n in ("i", "ii", "iii", "iv")]
COUPLING = np.array([[0.6, 0.3], [-0.2, 0.5]])


def restated(problem, p):
    return ub.Problem(problem.f, problem.g, p)


@pytest.fixture(scope="module")
def coupled():
    problem = ub.problems.coupled_example3(4.0, COUPLING)
    return theory.audit(problem, jnp.zeros(2), 0.3 * jnp.ones(2), region=1.0)


@pytest.mark.slow
def test_a_problem_that_satisfies_them(coupled):
    assert [f.assumption for f in coupled.findings] == ALL + [f"n({i})" for i in range(1, 6)]
    assert coupled.violated == []
    constants = theory.coupled_example3_constants(4.0, COUPLING)
    assert constants.mu <= coupled["g(i)"].value  # sampled minima lie above, sampled maxima below
    assert coupled["g(ii)"].value <= constants.L0
    for name, bound in {"g(iii)": constants.l_g1, "g(iv)": constants.l_g2, "f(iii)": constants.l_f0}.items():
        assert 0.5 * bound < coupled[name].value <= bound * (1 + 1e-6)
    assert coupled["f(ii)"].value <= constants.l_f1
    assert coupled["g(v)"].value == pytest.approx(1.0)
    assert coupled["g(vi)"].value == pytest.approx(1.0)
    assert coupled["f(iv)"].verdict == "cannot tell"
    assert all(coupled[f"n({i})"].value == 0 for i in range(1, 6))
    assert "g(vi)" in str(coupled)


@pytest.mark.slow
def test_p_too_large():
    problem = restated(ub.problems.coupled_example3(4.0, COUPLING), 6.0)
    found = theory.audit(problem, jnp.zeros(2), 0.3 * jnp.ones(2), samples=30)
    assert found["g(vi)"].verdict == "violated"
    assert "p is too large" in found["g(vi)"].note
    assert "distance^-2.0" in found["g(vi)"].note


def test_p_too_small():
    problem = restated(ub.problems.coupled_example3(6.0, COUPLING), 4.0)
    found = theory.audit(problem, jnp.zeros(2), 0.3 * jnp.ones(2), samples=30)
    assert found["g(v)"].verdict == "violated"
    assert "vanishes like distance^" in found["g(v)"].note
    assert found["g(v)"].value < 1e-4


@pytest.mark.parametrize(("true", "stated"), [(3.0, 2.0), (6.0, 4.0), (8.0, 6.0)])
@pytest.mark.slow
def test_p_too_small_shows_in_the_modulus(true, stated):
    """Near the shift p·gap/distance^stated is distance^(true − stated), which vanishes. At the smallest distances the
    gap drowns in rounding; those say nothing. In float32 hardly any are left at p = 6: nobody can tell."""
    exact = ub.problems.example3(true)
    problem = ub.Problem(exact.f, exact.g, stated)
    finding = theory.audit(problem, jnp.array(0.3), jnp.array(0.0), samples=20)["g(i)"]
    assert finding.verdict == "violated"
    power = float(finding.note.split("distance^")[2].split(" ")[0])
    assert power == pytest.approx(true - stated, abs=0.3)
    right = theory.audit(exact, jnp.array(0.3), jnp.array(0.0), samples=20)["g(i)"]
    assert right.verdict == "holds"
    if true > 3:
        single = theory.audit(problem, jnp.float32(0.3), jnp.float32(0.0), samples=20)["g(i)"]
        assert single.verdict == "cannot tell"
        assert "drown in rounding" in single.note


def test_where_nothing_but_rounding_is_left_the_modulus_cannot_be_told():
    """At p = 12 the gap is 8e-14 at the distance .1 and 4e-20 at .03."""
    exact = ub.problems.example3(12.0)
    finding = theory.audit(ub.Problem(exact.f, exact.g, 8.0), jnp.array(0.3), jnp.array(0.0), samples=20)["g(i)"]
    assert finding.verdict == "cannot tell"


def test_not_convex():
    def g(x, y, batch):
        return jnp.sum(jnp.cos(3 * y)) - jnp.sum(x * y)

    problem = ub.Problem(lambda x, y, batch: jnp.sum(y**3), g, 4.0)
    found = theory.audit(problem, jnp.zeros(2), 0.3 * jnp.ones(2))
    assert found["g(i)"].verdict == "violated"
    worst = found["g(i)"]
    assert worst.value < 0
    assert worst.y.shape == (2,)


CAUGHT = {
    "one negative curvature in twenty": (
        ub.Problem(
            lambda x, y, batch: jnp.sum(y) + 0 * x,
            lambda x, y, batch: jnp.sum(jnp.ones(20).at[-1].set(-0.5) * y**2) / 2 - y[0] * x,
            2.0,
        ),
        jnp.full(20, 0.5),
        "g(i)",
        "violated",
    ),
    "y⁴ with p = 2": (
        ub.Problem(lambda x, y, batch: y + 0 * x, lambda x, y, batch: y**4 / 4 - y * x, 2.0),
        jnp.asarray(0.3),
        "g(i)",
        "violated",
    ),
    "df/dz is not Lipschitz": (
        ub.Problem(lambda x, y, batch: jnp.abs(y) ** 3.5 + 0 * x, lambda x, y, batch: y**4 / 4 - y * x, 4.0),
        jnp.asarray(0.3),
        "f(ii)",
        "violated",
    ),
    "NaN": (
        ub.Problem(lambda x, y, batch: y + 0 * x, lambda x, y, batch: y**4 / 4 - y * x + 0 * jnp.log(y), 4.0),
        jnp.asarray(-3.0),
        "g(i)",
        "cannot tell",
    ),
}


@pytest.mark.parametrize(("problem", "y", "name", "verdict"), CAUGHT.values(), ids=CAUGHT)
@pytest.mark.slow
def test_what_hides(problem, y, name, verdict):
    assert theory.audit(problem, jnp.asarray(0.3), y, samples=20)[name].verdict == verdict


def test_the_shift_counts_only_inside_the_region():
    """D H ≤ 1/(3·2.9²) where |y − 3| ≤ .1, although it has no bound at 0; l_g2 covers its slope."""
    problem = ub.Problem(lambda x, y, batch: jnp.sin(y) + 0 * x, lambda x, y, batch: y**2 / 2 - y * x, 4.0)
    found = theory.audit(problem, jnp.asarray(3.0), jnp.asarray(3.0), region=0.1, samples=50)
    assert found.violated == []
    assert 1 / (3 * 3.1**2) < found["g(vi)"].value <= 1 / (3 * 2.9**2)
    assert 2 / (3 * 3.1**3) * 0.5 < found["g(iv)"].value <= 2 / (3 * 2.9**3)


@pytest.mark.slow
def test_float32_cannot_approach_the_shift_at_p_20():
    x = jnp.asarray(0.3, jnp.float32)
    found = theory.audit(ub.problems.example3(20.0), x, x, samples=20)
    assert found.violated == []
    assert found["g(v)"].verdict == "cannot tell"


@pytest.mark.slow
def test_hyper_cleaning_has_no_bound_on_the_generalised_hessian():
    data = ub.problems.corrupted_regression(30, 3)
    problem = ub.problems.lp_regression(data.train, data.validation, 4.0)
    found = theory.audit(problem, jnp.zeros(30), jnp.ones(3), samples=40)
    assert found["g(vi)"].verdict == "violated"
    assert found["f(iii)"].verdict == "violated"
    assert found["g(i)"].verdict == "holds"


@pytest.mark.slow
def test_noise_is_measured():
    noise = ub.Noise(grad_y_g=0.5, grad_x_f=0.2, grad_z_f=2.0, cross=0.1, hess_z=0.3)
    problem = ub.problems.coupled_example3(4.0, COUPLING, f_batches=noise, g_batches=noise)
    found = theory.audit(problem, jnp.zeros(2), 0.3 * jnp.ones(2), samples=20)
    variances = {"n(1)": 0.2, "n(3)": 0.1, "n(4)": 2.0, "n(5)": 0.3}
    for name, variance in variances.items():
        assert found[name].value ** 2 == pytest.approx(variance, rel=0.35)  # 256 draws
    # the light tail: E exp(‖e‖²/σ²) = e for a Gaussian of total variance v in d dimensions: (1 − 2v/(dσ²))^{−d/2} = e
    v, d = 0.5, 2
    assert found["n(2)"].value ** 2 == pytest.approx(2 * v / d / (1 - np.exp(-2 / d)), rel=0.35)


def test_a_noise_of_nothing_is_exact():
    problem = ub.problems.example3(4.0, ub.Noise(), ub.Noise())
    found = theory.audit(problem, jnp.asarray(0.3), jnp.asarray(0.3), samples=10)
    assert {found[f"n({i})"].note for i in range(1, 6)} == {"the oracle is exact"}


def test_bad_input():
    problem = ub.problems.coupled_example3(4.0, COUPLING)
    with pytest.raises(ValueError, match="region must be finite and > 0"):
        theory.audit(problem, jnp.zeros(2), jnp.ones(2), region=0.0)
    with pytest.raises(ValueError, match="audit checks the assumptions for a stated p"):
        theory.audit(restated(problem, None), jnp.zeros(2), jnp.ones(2))
    with pytest.raises(KeyError, match="there is no assumption"):
        theory.audit(problem, jnp.zeros(2), jnp.ones(2), samples=10)["g(vii)"]
