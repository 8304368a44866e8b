"""∇Φ(x), the gradient of x ↦ f(x, y*(x)): exact, conjugate gradients, Neumann, unrolled."""

import jax
import jax.numpy as jnp

from unibio.core import checks, kinds, tree
from unibio.core.noise import Noise
from unibio.core.problem import Problem, check_functions, prepare
from unibio.core.programs import compiled, computed
from unibio.core.protocols import Hypergradient, HyperInfo
from unibio.core.tree import PyTree
from unibio.hypergradients.accuracy import assess
from unibio.hypergradients.argmin import argmin
from unibio.hypergradients.implicit import CG, Exact, Implicit
from unibio.hypergradients.neumann import Horner, Independent, Nested, Neumann, Randomised
from unibio.hypergradients.preconditioners import Auto, Identity, Jacobi, Power
from unibio.hypergradients.singular import (
    DifferentiableInZ,
    differentiable_in_z,
    row_probe,
    vanishing,
)
from unibio.hypergradients.unrolled import Unrolled

__all__ = [
    "CG",
    "Auto",
    "DifferentiableInZ",
    "Exact",
    "Horner",
    "Identity",
    "Independent",
    "Jacobi",
    "Nested",
    "Neumann",
    "Power",
    "Randomised",
    "Unrolled",
    "argmin",
    "differentiable_in_z",
    "hypergradient",
]


def hypergradient(
    problem: Problem, x: PyTree, y: PyTree, method: Hypergradient | None = None, key: jax.Array | None = None
) -> tuple[PyTree, HyperInfo]:
    """∇Φ(x) estimated at y ≈ y*(x), and how good the estimate is.

    Without a key all data are used; with one, random batches of the problem's samplers. Works under
    jit, vmap and grad; another number in `problem` or `method` does not recompile.

    Arguments:
        method: `CG()` (the default), `Exact()`, `Neumann()` or `Unrolled()`.

    Example:
        >>> problem = Problem(lambda x, y, batch: y**3, lambda x, y, batch: y**4 / 4 - y * jnp.sin(x), p=4.0)
        >>> value, info = hypergradient(problem, 0.0, 0.0)  # Φ(x) = sin x; the Hessian is 0 here
        >>> bool(abs(value - 1) < 1e-6)
        True
    """
    problem, x, y = prepare(problem, x, y)
    method = CG() if method is None else method
    kinds.is_a("method", method, Hypergradient, "CG(), Exact(), Neumann() or Unrolled(…)")
    checks.random_key(key)
    method = tree.cast(method, tree.dtype(x))
    value, info, singular = evaluated(method, problem, x, y, key)
    noisy = isinstance(problem.f_batches, Noise) or isinstance(problem.g_batches, Noise)
    if noisy or key is not None:
        return value, info._replace(at=info.at._replace(matrix=None))
    return value, computed(assess, problem, x, y, value, info, singular=singular)


def evaluated(
    method: Hypergradient, problem: Problem, x: PyTree, y: PyTree, key: jax.Array | None = None
) -> tuple[PyTree, HyperInfo, bool]:
    """The estimate without an assessment, and whether a row of the Hessian may vanish.

    Points where one does need a program twice as large. Where y can be looked at, the small one runs first and says
    whether it was enough.
    """
    if not any(map(checks.is_traced, jax.tree.leaves((method, problem, x, y, key)))):
        value, info, singular = compiled.quick(_estimate, method, problem, x, y, key, singular=False)[0]
        if not bool(singular):
            return value, info, False
    value, info, _ = computed(_estimate, method, problem, x, y, key, singular=True)
    return value, info, True


def _estimate(
    method: Hypergradient, problem: Problem, x: PyTree, y: PyTree, key: jax.Array | None, singular: bool
) -> tuple[PyTree, HyperInfo, jax.Array]:
    """The estimate, its info, and whether a row of the Hessian vanishes. With `singular` the program can cope with
    that."""
    check_functions(problem, x, y)
    if isinstance(method, Implicit):
        answer = method.evaluate(problem, x, y, key, search=singular)
    else:
        answer = method(problem, x, y, key)
    if not isinstance(answer[-1], HyperInfo):
        raise TypeError(f"method must return (value, HyperInfo); {type(method).__name__} is no hypergradient method.")
    value, info = answer
    return value, info, jnp.asarray(False) if singular else _is_singular(problem, x, info)


def _is_singular(problem: Problem, x: PyTree, info: HyperInfo) -> jax.Array:
    """Whether a row of the Hessian vanishes, or a coordinate is kept away from where it would."""
    found = (info.floored > 0) | tree.any_true(jax.tree.map(lambda d: d > 0, info.at.distance))
    if info.at.v is not None:
        return found
    # A method that solves no system with the Hessian has not looked at it.
    problem, x, y = jax.lax.stop_gradient((problem, x, info.at.y))
    return found | tree.any_true(vanishing(row_probe(problem, x, y, problem.g_batches.whole())))
