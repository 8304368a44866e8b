"""Φ to second order for free: the value of the Lagrangian, and how far it may be off.

With r = ∇_y g(x, y), v ≈ H⁻¹∇_y f and s = y*(x) − y, Taylor's formula for f and for ∇_y g around y gives

    Φ(x) = f(x, y) − ⟨v, r⟩ + ⟨∇_y f − H v, s⟩ + ½⟨s, (∇²_yy f − ∇³_yyy g[v]) s⟩ + O(‖s‖³).

So f − ⟨v, r⟩ has an error of second order where f(x, y) alone has one of first order. Its gradient in x at fixed y and
v is the hypergradient ∇_x f − A v, and no constant of the problem is needed to know either. How good v was shows in
|⟨v' − v, r⟩| for a better v'.
"""

import jax
import jax.numpy as jnp

from unibio.core import oracle, tree
from unibio.core.problem import Problem
from unibio.core.tree import PyTree


def lagrangian_value(problem: Problem, x: PyTree, y: PyTree, v: PyTree) -> jax.Array:
    """f(x, y) − ⟨v, ∇_y g(x, y)⟩ on all data: Φ(x) up to second order in y*(x) − y if v ≈ H⁻¹∇_y f."""
    r = oracle.grad_g(problem, x, y, problem.g_batches.whole())
    return oracle.value_f(problem, x, y, problem.f_batches.whole()) - tree.dot(v, r)


def value_error(better: PyTree, v: PyTree, r: PyTree) -> jax.Array:
    """|⟨v' − v, r⟩|: by how much Φ̂ changes with a better v', which estimates what v had cost."""
    return jnp.abs(tree.dot(tree.sub(better, v), r))
