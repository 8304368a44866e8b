"""The hypergradient estimate of the strongly convex literature: a truncated Neumann series in y itself.

    ĥ = ∇_x f − A v,   v ≈ s·Σ_q Π_{j≤q} (I − s H(ζ_j)) ∇_y f

Unlike `unibio.Neumann` it knows neither D nor singular points: it is what those algorithms prescribe.
"""

import jax

from unibio.core import oracle, tree
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, count
from unibio.core.streams import Site
from unibio.core.tree import Number, PyTree
from unibio.hypergradients.neumann import Form


def series_estimate(
    problem: Problem, x: PyTree, y: PyTree, key: jax.Array, form: Form, terms: int, step: Number
) -> tuple[PyTree, Calls]:
    """Returns ĥ(x, y) and its calls. `step` is s, and `form` sums a series of `terms` terms (at most, if its length is
    random). There is one batch for ∇f, one for A and a fresh one for each factor of the product; the same key gives the
    same samples."""
    key_f, key_hess, key_cross, key_form = jax.random.split(key, 4)
    f_batch = problem.f_batch(key_f, x, y, Site.upper)
    cross_batch = problem.g_batch(key_cross, x, y, Site.cross)
    grad_x, grad_y = oracle.grads_f(problem, x, y, f_batch)

    def factor(u: PyTree, draw: PyTree) -> PyTree:
        product = oracle.hvp_g(problem, x, y, u, problem.g_batches.batch(draw))
        return tree.axpy(-step, product, u)

    draws = problem.g_draws(key_hess, form.products(terms), x, y, Site.hessian)
    total, _, products = form(factor, grad_y, draws, terms, key_form)
    value = tree.sub(grad_x, oracle.cross_g(problem, x, y, tree.scale(step, total), cross_batch))
    samples = oracle.samples(cross_batch)
    return value, Calls(grad_f=oracle.samples(f_batch), hvp=count(products, samples), cross=samples)
