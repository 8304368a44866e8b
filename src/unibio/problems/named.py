"""The table PROBLEMS: functions that make a problem and a start, by the name that `unibio compare --problem` takes."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from unibio.core.noise import Noise
from unibio.problems.examples import coupled_example3, example1, example3, example4, quadratic
from unibio.problems.hyper_cleaning import Setting
from unibio.problems.lp_regression import corrupted_regression, lp_regression


def _example1() -> Setting:
    """Example 1: p = 4 in one dimension, Φ = sin x; the hypergradient does not depend on y."""
    return Setting(example1(), 1.0, 1.0)


def _example3(p: float = 4.0, variance: float = 0.0) -> Setting:
    """Example 3, of the paper's synthetic study: Φ = sin(sin x); with `variance`, noise on ∇_y g and df/dz."""
    noise = Noise(grad_y_g=variance, grad_z_f=variance) if variance else None
    return Setting(example3(p, noise, noise), 1.0, 1.0)


def _example4(p: float = 4.0, dim: int = 3) -> Setting:
    """Example 4: Φ = Σ sin x_i in any dimension."""
    return Setting(example4(p), jnp.ones(dim), jnp.ones(dim))


def _coupled_example3(p: float = 4.0) -> Setting:
    """Example 3 in three dimensions with coupling: every assumption of the paper holds, and ∇Φ depends on y."""
    coupling = jnp.asarray([[0.6, 0.3, 0.0], [-0.2, 0.5, 0.3], [0.1, -0.4, 0.7]])
    return Setting(coupled_example3(p, coupling), jnp.asarray([1.0, 0.5, 0.8]), jnp.ones(3))


def _lp_regression(p: float = 4.0, n: int = 500, d: int = 20, batch_size: int = 50, c: float = 1e-2) -> Setting:
    """Example 2: hyper-cleaning of an ℓ_p regression on a finite data set, 30 % of whose targets are corrupted.

    There are n training samples and n // 2 clean ones, with d features; batches have `batch_size` samples, and c is the
    weight of the regulariser c‖y‖_p^p. x has a logit for each training sample, and y the d coefficients; both start
    at 0.
    """
    data = corrupted_regression(n, d)
    problem = lp_regression(data.train, data.validation, p, c, batch_size)
    return Setting(problem, jnp.zeros(n), jnp.zeros(d))


def _quadratic() -> Setting:
    """A strongly convex quadratic, p = 2, with Φ and ∇Φ in closed form."""
    hessian = [[2.0, 0.3, 0.0], [0.3, 1.5, 0.2], [0.0, 0.2, 1.0]]
    coupling = [[1.0, 0.5], [-0.3, 0.8], [0.2, -0.4]]
    return Setting(quadratic(hessian, coupling, [1.0, -1.0, 0.5]), jnp.ones(2), jnp.zeros(3))


PROBLEMS: dict[str, Callable[..., Any]] = {
    "example1": _example1,
    "example3": _example3,
    "example4": _example4,
    "coupled_example3": _coupled_example3,
    "lp_regression": _lp_regression,
    "quadratic": _quadratic,
}
