"""∇Φ(x), the gradient of x ↦ f(x, y*(x)): exact, conjugate gradients, Neumann, unrolled."""

import jax

from unibio.core import checks, tree
from unibio.core.problem import Problem, check_functions, prepare
from unibio.core.protocols import Hypergradient, HyperInfo
from unibio.core.tree import PyTree
from unibio.hypergradients.argmin import argmin
from unibio.hypergradients.implicit import CG, Exact
from unibio.hypergradients.neumann import Horner, Independent, Nested, Neumann, Randomised
from unibio.hypergradients.preconditioners import Auto, Identity, Jacobi, Power
from unibio.hypergradients.singular import DifferentiableInZ, differentiable_in_z
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
    checks.instance("method", method, "CG(), Exact(), Neumann() or Unrolled(…)")
    checks.random_key(key)
    return _estimate(tree.cast(method, tree.dtype(x)), problem, x, y, key)


@jax.jit
def _estimate(
    method: Hypergradient, problem: Problem, x: PyTree, y: PyTree, key: jax.Array | None
) -> tuple[PyTree, HyperInfo]:
    check_functions(problem, x, y)
    value, info = method(problem, x, y, key)
    if not isinstance(info, HyperInfo):
        raise TypeError(f"method must return (value, HyperInfo); {type(method).__name__} is no hypergradient method.")
    return value, info
