"""One instance of every solver and the small problems that the common tests share. Sizes are tiny, because a compiled
program costs seconds; f and g are polynomials, because a power with a real exponent costs more of them."""

import collections
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from oracles import lp_data

import unibio as ub

STEPS = 50  # of the run that most laws look at
CHUNK = 7
KEY = 0
SAMPLES, FEATURES, BATCH = 8, 2, 4

_LOWER = ub.EpochSGD(steps=6, step_size=0.3, first_epoch=2, radius=0.5)

# Decays of 0 keep a step constant, so that a run without noise converges at a linear rate.
CHOSEN: dict[str, Any] = {
    "UniBiO": ub.UniBiO(0.1, lower=_LOWER, hypergradient=ub.Neumann(terms=3, power_steps=3)),
    "StocBiO": ub.StocBiO(0.3, 0.5, lower_steps=2, terms=2),
    "TTSA": ub.TTSA(0.1, 0.5, terms=3, upper_decay=0.0, lower_decay=0.0),
    "SOBA": ub.SOBA(0.2, 0.5, upper_decay=0.0, lower_decay=0.0),
    "SABA": ub.SABA(0.1, 0.3),
    "MA-SOBA": ub.MASOBA(0.1, 0.5, momentum=0.8),
    "SUSTAIN": ub.SUSTAIN(0.05, 0.4, decay=0.0, terms=3),
    "VRBO": ub.VRBO(0.2, 0.5, lower_steps=1, period=2, terms=2),
    "BO-REP": ub.BOREP(0.1, 0.5, momentum=0.5, lower_steps=2, refinement=_LOWER),
    "AmIGO": ub.AmIGO(0.3, 0.5, lower_steps=2, linear_steps=2),
    "F2SA": ub.F2SA(0.1, 0.5, multiplier=2.0, lower_steps=2, upper_decay=0.0, lower_decay=0.0),
}


def found(name: str, kind: Any) -> Any:
    """A solver without a line in `CHOSEN`: 0.1 for `step_size`, 0.4 for other step sizes, and its own defaults."""
    required = [field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING]
    unknown = [field for field in required if not field.endswith("step_size")]
    if unknown:
        arguments = ", ".join(f"{field}=…" for field in required)
        raise ValueError(
            f"tests/common/settings.py: add the line  {name!r}: ub.{kind.__name__}({arguments}),  to CHOSEN."
        )
    return kind(**{field: 0.1 if field == "step_size" else 0.4 for field in required})


SETTINGS = {name: CHOSEN[name] if name in CHOSEN else found(name, kind) for name, kind in ub.SOLVERS.items()}
# Ways to use a solver that have a state or a control flow of their own: the laws hold for them too.
MODES = {"UniBiO-without-p": ub.UniBiO.without_p(0.1, steps=40, radius=1.0, guess=0.05)}

traces: collections.Counter[str] = collections.Counter()  # how often Python ran each function below


def upper(x, y, batch):
    """mean (A y − t)⁴ / 4 on clean data."""
    traces["f"] += 1
    features, targets = batch.value
    return jnp.mean((features @ y - targets) ** 4) / 4


def lower(x, y, batch):
    """mean σ(x_i)(A y − t)_i⁴ + ‖y‖_4^4/20."""
    traces["g"] += 1
    features, targets = batch.value
    return jnp.mean(jax.nn.sigmoid(x[batch.index]) * (features @ y - targets) ** 4) + jnp.sum(y**4) / 20


def regression(samples=SAMPLES, dtype=None, place=lambda array: array, **drawing) -> tuple[Any, Any, Any]:
    """ℓ_4 regression with minibatches, and its start (x, y); `place` puts what has a row per sample on devices, and
    `drawing` says how batches are drawn."""
    train, clean, weights = lp_data(0, n=samples, m=samples, d=FEATURES, scale=0.5)
    train, weights = jax.tree.map(lambda array: place(jnp.asarray(array, dtype)), (train, weights))
    clean = jax.tree.map(lambda array: jnp.asarray(array, dtype), clean)
    samplers = {"f_batches": ub.Dataset(clean, BATCH, **drawing), "g_batches": ub.Dataset(train, BATCH, **drawing)}
    return ub.Problem(upper, lower, 4.0, **samplers), weights, jnp.asarray([0.3, -0.4], dtype)


HESSIAN = np.array([[1.5, 0.3, 0.0], [0.3, 1.0, 0.2], [0.0, 0.2, 1.2]])
COUPLING = np.array([[1.0, 0.4], [-0.3, 0.8], [0.5, -0.6]])
TARGET = np.array([1.0, -2.0, 0.5])


def quadratic(target=TARGET):
    """`unibio.problems.quadratic`, and a start (x, y) of two and three entries."""
    return ub.problems.quadratic(HESSIAN, COUPLING, target), jnp.array([0.5, -1.5]), jnp.array([0.2, 0.4, -0.3])


def _sum_upper(x, y, batch):
    return jnp.mean(jnp.sum((y[None] - batch.value) ** 2, axis=1)) / 2 + jnp.sum(x**2) / 20


def _sum_lower(x, y, batch):
    hessians, couplings = batch.value
    return jnp.mean(y @ (hessians @ y).T) / 2 - jnp.mean((couplings @ x) @ y)


def finite_sum(target=TARGET, samples=4, batch_size=2):
    """The same quadratic (f up to a constant) as a mean over samples that differ much; the same start."""
    rng = np.random.default_rng(1)
    noise = {name: rng.normal(size=(samples, *np.shape(a))) for name, a in (("H", HESSIAN), ("B", COUPLING))}
    hessians = HESSIAN + 0.1 * _centred(noise["H"] + noise["H"].transpose(0, 2, 1))
    couplings = COUPLING + _centred(noise["B"])
    targets = target + _centred(rng.normal(size=(samples, 3)))
    datasets = ub.Dataset(targets, batch_size), ub.Dataset((hessians, couplings), batch_size)
    problem = ub.Problem(_sum_upper, _sum_lower, 2.0, f_batches=datasets[0], g_batches=datasets[1])
    return problem, *quadratic()[1:]


def _centred(array):
    return array - array.mean(axis=0)


def gradient_phi(x, target=TARGET):
    """∇Φ of the quadratic: x/10 + BᵀH⁻¹(H⁻¹Bx − t)."""
    y_star = np.linalg.solve(HESSIAN, COUPLING @ np.asarray(x))
    return np.asarray(x) / 10 + COUPLING.T @ np.linalg.solve(HESSIAN, y_star - target)


def stationary_point(target=TARGET):
    """x* and y*(x*), where ∇Φ = 0."""
    to_y = np.linalg.solve(HESSIAN, COUPLING)
    x = np.linalg.solve(np.eye(2) / 10 + to_y.T @ to_y, to_y.T @ target)
    return x, to_y @ x


class Nested(eqx.Module):
    """A function of vectors as one of the nested dictionaries that `nest_x` and `nest_y` make."""

    inner: Any

    def __call__(self, x, y, batch):
        return self.inner(flatten(x), flatten(y), batch)


def nest(problem):
    """The problem with x and y as nested dictionaries."""
    return dataclasses.replace(problem, f=Nested(problem.f), g=Nested(problem.g))


def nest_x(x):
    return {"a": x[:1].reshape(1, 1), "b": {"c": x[1]}}


def nest_y(y):
    return {"u": {"v": y[:2].reshape(2, 1)}, "w": y[2]}


def flatten(tree):
    """The entries of a variable in order, as one vector; a vector is returned as it is."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])
