"""The stochastic Neumann series of the paper, in four forms.

v ≈ s·Σ_{q=0}^{Q−1} Π_{j=1}^{q} (I − s·M H(ζ_j)) b,   b = M∇_y f,  s = 1/C,  M = D unless told otherwise.
"""

from typing import Any, ClassVar, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, coordinates, kinds, linear, oracle, tree
from unibio.core.problem import Problem
from unibio.core.protocols import Calls, add_counts, count
from unibio.core.status import Status
from unibio.core.streams import Site
from unibio.core.tree import PyTree
from unibio.hypergradients.implicit import Implicit, LinearSolution, Prepared, with_rows
from unibio.hypergradients.preconditioners import Power, Preconditioner

Factor = Any  # (u, realisation) ↦ (I − s·M H(ζ)) u


@kinds.part
class Form(Protocol):
    """How the series is summed: `products(Q)` at most, and (Σ, last term, products) from a factor.

    `ends_with_residual`: whether that last term is the residual of the system, so that its size tells how far the sum
    has come.
    """

    @property
    def ends_with_residual(self) -> bool: ...

    def products(self, terms: int) -> int: ...
    def __call__(self, factor: Factor, b: PyTree, draws: PyTree, terms: int, key: jax.Array | None) -> Any: ...


class Horner(eqx.Module):
    """u ← b + (I − s J(ζ_j)) u with a fresh sample each: Q−1 products, the same expectation."""

    ends_with_residual: ClassVar[bool] = True

    def products(self, terms: int) -> int:
        return terms - 1

    def __call__(self, factor: Factor, b: PyTree, draws: PyTree, terms: int, key: jax.Array | None) -> Any:
        def step(carry: PyTree, draw: PyTree) -> Any:
            u, _ = carry
            following = tree.add(b, factor(u, draw))
            return (following, tree.sub(following, u)), None

        (u, last), _ = jax.lax.scan(step, (b, b), draws, length=terms - 1)
        return u, last, terms - 1


class Independent(eqx.Module):
    """As in the paper: fresh samples for every (q, j), Q(Q−1)/2 products, the lowest variance."""

    ends_with_residual: ClassVar[bool] = True

    def products(self, terms: int) -> int:
        return terms * (terms - 1) // 2

    def __call__(self, factor: Factor, b: PyTree, draws: PyTree, terms: int, key: jax.Array | None) -> Any:
        firsts = jnp.asarray([j == 1 for q in range(1, terms) for j in range(1, q + 1)], bool)
        lasts = jnp.asarray([j == q for q in range(1, terms) for j in range(1, q + 1)], bool)

        def step(carry: PyTree, inputs: PyTree) -> Any:
            total, u = carry
            first, last, draw = inputs
            u = factor(tree.where(first, b, u), draw)
            return (tree.add(total, tree.where(last, u, tree.zeros_like(u))), u), None

        products = self.products(terms)
        (total, u), _ = jax.lax.scan(step, (b, b), (firsts, lasts, draws), length=products)
        return total, u, products


class Nested(eqx.Module):
    """r ← (I − s J(ζ_j)) r and Σ r: term q contains the samples of every shorter one. Q−1 products."""

    ends_with_residual: ClassVar[bool] = True

    def products(self, terms: int) -> int:
        return terms - 1

    def __call__(self, factor: Factor, b: PyTree, draws: PyTree, terms: int, key: jax.Array | None) -> Any:
        def step(carry: PyTree, draw: PyTree) -> Any:
            total, r = carry
            r = factor(r, draw)
            return (tree.add(total, r), r), None

        (total, r), _ = jax.lax.scan(step, (b, b), draws, length=terms - 1)
        return total, r, terms - 1


class Randomised(eqx.Module):
    """Q·Π_{j=1}^{q} (I − s J(ζ_j)) b with q uniform on 0..Q−1: unbiased for the sum, (Q−1)/2 products in
    the mean, a large variance."""

    ends_with_residual: ClassVar[bool] = False

    def products(self, terms: int) -> int:
        return terms - 1

    def __call__(self, factor: Factor, b: PyTree, draws: PyTree, terms: int, key: jax.Array | None) -> Any:
        if key is None:
            raise ValueError("Randomised() draws its length: pass key=jax.random.key(0), or use Horner().")
        q = jax.random.randint(key, (), 0, terms, jnp.int32)

        def step(u: PyTree, inputs: PyTree) -> Any:
            j, draw = inputs
            return jax.lax.cond(j < q, lambda: factor(u, draw), lambda: u), None

        u, _ = jax.lax.scan(step, b, (jnp.arange(terms - 1, dtype=jnp.int32), draws), length=terms - 1)
        return tree.scale(jnp.asarray(terms, tree.dtype(b)), u), u, q


class Neumann(Implicit):
    """The Neumann estimate, by default with the paper's coordinate D and Horner's order.

    Arguments:
        terms: Q ≥ 1.
        scale: C ≥ λ_max(M H)/2, better ≥ λ_max; left out, it is estimated by `power_steps` power
            iterations. If the terms grow, the status is `diverged`, and without a key the value is NaN.
        form: `Horner()`, `Independent()`, `Nested()` or `Randomised()`.
        preconditioner: M; `Identity()` gives the estimator of the strongly convex literature.

    The bias for symmetric J = M H is J⁻¹(I − sJ)^Q b, at most (1/μ)(1 − μ/C)^Q‖b‖.
    """

    terms: int = eqx.field(static=True, default=10)
    scale: float | None = eqx.field(default=None, converter=checks.as_real)
    form: Form = Horner()
    preconditioner: Preconditioner = Power()
    power_steps: int = eqx.field(static=True, default=10)

    def __check_init__(self) -> None:
        checks.whole_number("terms", self.terms, low=1)
        checks.whole_number("power_steps", self.power_steps, low=1)
        kinds.is_a("form", self.form, Form, "Horner(), Independent(), Nested() or Randomised()")
        kinds.is_a("preconditioner", self.preconditioner, Preconditioner, "Power(), Jacobi() or Identity()")
        if self.scale is not None:
            checks.number("scale", self.scale, low=0.0, strict=True, remedy="Leave it out to have it estimated.")

    def solve(
        self, problem: Problem, x: PyTree, y: PyTree, b: PyTree, prepared: Prepared, key: jax.Array | None
    ) -> LinearSolution:
        key_terms, _, key_form = (None, None, None) if key is None else jax.random.split(key, 3)
        m, c = prepared.m, prepared.scale if self.scale is None else self.scale
        # The series is linear in b: of length one, its products with a tiny H do not underflow.
        b = tree.mul(m, b)
        b, b_norm = tree.direction(b)
        most = self.form.products(self.terms)
        draws = None if key_terms is None else problem.g_draws(key_terms, most, x, y, Site.hessian)

        def factor(u: PyTree, draw: PyTree) -> PyTree:
            batch = problem.g_batches.whole() if key is None else problem.g_batches.batch(draw)
            return tree.axpy(-1 / c, tree.mul(m, oracle.hvp_g(problem, x, y, u, batch)), u)

        total, last, products = self.form(factor, b, draws, self.terms, key_form)
        # In the norm of M⁻¹ the factor is symmetric: a last term longer than the first proves |1−sλ| > 1.
        growth = _ratio(last, b, jax.tree.map(jax.lax.rsqrt, m))
        # The last term is M∘(∇_y f − H v), up to one factor: seen through w/m it is w∘(∇_y f − H v).
        residual = jnp.maximum(growth, _ratio(last, b, tree.divide(prepared.weight, m)))
        samples = oracle.samples(problem.g_batch(key_terms, x, y, Site.hessian))
        diverging = ~(growth <= 1)
        status = Status.where(diverging, Status.diverged, Status.ok)
        status = Status.where(jnp.isfinite(b_norm) & jnp.isfinite(c), status, Status.not_finite)
        v = tree.scale(b_norm / c, total)
        if key is None:
            v = tree.or_nan(~diverging, v)
        calls = Calls(hvp=count(products, samples))
        residual = residual if self.form.ends_with_residual else jnp.full_like(residual, jnp.nan)
        return LinearSolution(v, residual, jnp.asarray(products, jnp.int32), calls, status)

    def prepare(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array | None) -> Prepared:
        """M, C and the rows, on one batch. In the paper's coordinate D⁻¹ stands for the rows: where it vanishes the
        coordinate does, and a product would be one more than the few of a short series."""
        key_scale = None if key is None else jax.random.split(key, 3)[1]
        batch = problem.g_batch(key_scale, x, y, Site.scale)
        diagonal = self.preconditioner(problem, x, y, batch)
        if key is not None and isinstance(self.preconditioner, Power):
            diagonal = diagonal._replace(rows=coordinates.inverse_scaling(y, problem.p, problem.shift))
        prepared = with_rows(diagonal, problem, x, y, batch)
        if self.scale is not None:
            return prepared
        operator = oracle.hessian_g(problem, x, y, batch)
        return prepared._replace(
            scale=linear.largest_eigenvalue(operator, prepared.m, self.power_steps),
            hvp=add_counts(prepared.hvp, count(self.power_steps, oracle.samples(batch))),
        )


def _ratio(last: PyTree, first: PyTree, weight: PyTree) -> jax.Array:
    """‖w∘last‖/‖w∘first‖, 0 where both are 0."""
    whole = tree.norm(tree.mul(weight, first))
    return tree.norm(tree.mul(weight, last)) / jnp.where(whole > 0, whole, 1.0)
