"""Φ to second order for free: the value of the Lagrangian.

With r = ∇_y g(x, y), v ≈ H⁻¹∇_y f and s = y*(x) − y, Taylor's formula for f and for ∇_y g around y gives

    Φ(x) = f(x, y) − ⟨v, r⟩ + ⟨∇_y f − H v, s⟩ + ½⟨s, (∇²_yy f − ∇³_yyy g[v]) s⟩ + O(‖s‖³).

So f − ⟨v, r⟩ has an error of second order where f(x, y) alone has one of first order. Its gradient in x at fixed y and
v is the hypergradient ∇_x f − A v, and no constant of the problem is needed to know either. How good v was shows in
|⟨v' − v, r⟩| for a better v'.
"""

import jax

from unibio.core import tree
from unibio.core.tree import PyTree


def lagrangian_value(f: jax.Array, v: PyTree, r: PyTree) -> jax.Array:
    """f − ⟨v, r⟩, from f and r = ∇_y g at one (x, y): Φ(x) up to second order in y*(x) − y if v ≈ H⁻¹∇_y f."""
    return f - tree.dot(v, r)
