"""Positive diagonals M: every one gives the same v = H⁻¹∇_y f, some give it sooner."""

from typing import NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, coordinates, kinds, linear, oracle, tree
from unibio.core.batches import AllSamples, Batch
from unibio.core.noise import AnyBatch
from unibio.core.problem import Problem
from unibio.core.protocols import add_counts, count
from unibio.core.tree import PyTree

_ROUGH_ROWS = 2048


class Diagonal(NamedTuple):
    """What a preconditioner found: the positive diagonal `m`; `rows`, the size of each row of the Hessian if products
    with it were made anyway (0 exactly where the row is 0), else None; `hvp`, the samples shown to the Hessian."""

    m: PyTree
    rows: PyTree | None
    hvp: jax.Array


@kinds.part
class Preconditioner(Protocol):
    """A positive diagonal for the Hessian on a batch."""

    def __call__(self, problem: Problem, x: PyTree, y: PyTree, batch: AnyBatch) -> Diagonal: ...


class Identity(eqx.Module):
    """M = I: no preconditioner."""

    def __call__(self, problem: Problem, x: PyTree, y: PyTree, batch: AnyBatch) -> Diagonal:
        return Diagonal(jax.tree.map(jnp.ones_like, y), None, jnp.int32(0))


class Power(eqx.Module):
    """M = D = 1/((p−1)|y−a0|^(p−2)), the paper's coordinate; best when c‖y‖_p^p dominates g."""

    def __call__(self, problem: Problem, x: PyTree, y: PyTree, batch: AnyBatch) -> Diagonal:
        return Diagonal(coordinates.scaling(y, problem.p, problem.shift), None, jnp.int32(0))


class Jacobi(eqx.Module):
    """M = 1/diag(H), the diagonal estimated from blocks of `probes` products (a power of two), or exactly, by
    one product per unknown, with `probes=None` or where there are at most 32 unknowns.

    On more than four times 2048 samples, the first block looks at 2048 of them, evenly spread. The second,
    on all, corrects it. Where the first says that all entries are about equal, M is a constant.
    """

    probes: int | None = eqx.field(static=True, default=8)

    def __check_init__(self) -> None:
        if self.probes is not None:
            checks.whole_number("probes", self.probes, low=1)
            if self.probes & (self.probes - 1):
                raise ValueError(f"probes must be a power of two; got {self.probes}. Use 8 or 16.")

    def __call__(self, problem: Problem, x: PyTree, y: PyTree, batch: AnyBatch) -> Diagonal:
        tiny = jnp.finfo(tree.dtype(y)).tiny
        operator, samples = oracle.hessian_g(problem, x, y, batch), oracle.samples(batch)
        if self.probes is None:
            diagonal, hvp = linear.exact_diagonal(operator, y), count(tree.size(y), samples)
            rows = diagonal
        else:
            part = rough_part(batch)
            rough = operator if part is batch else oracle.hessian_g(problem, x, y, part)
            diagonal, rows, refined = linear.estimate_diagonal(operator, y, self.probes, rough)
            products = linear.block(y, self.probes)
            second = count(products * refined.astype(jnp.int32), samples)
            hvp = add_counts(count(products, oracle.samples(part)), second)
        return Diagonal(jax.tree.map(lambda d: 1 / jnp.maximum(d, tiny), diagonal), rows, hvp)


class Auto(eqx.Module):
    """Power if the batch has at most half as many samples as there are unknowns (and p is stated), else Jacobi.

    So few samples leave the data's part of H rank-deficient and c‖y‖_p^p in charge of the rest, on which
    D H is a multiple of the identity: CG then needs about as many steps as there are samples. Racing the
    two over a few steps would choose wrongly: with D the error falls late, but then all at once.
    """

    def __call__(self, problem: Problem, x: PyTree, y: PyTree, batch: AnyBatch) -> Diagonal:
        few = isinstance(batch, (Batch, AllSamples)) and 2 * oracle.samples(batch) <= tree.size(y)
        chosen: Preconditioner = Power() if few and problem.p is not None else Jacobi()
        return chosen(problem, x, y, batch)


def rough_part(batch: AnyBatch) -> AnyBatch:
    """The batch itself, or 2048 evenly spread samples of a data set of more than 8192: enough for a rough diagonal."""
    if isinstance(batch, AllSamples) and batch.n > 4 * _ROUGH_ROWS:
        return batch.dataset.spread(_ROUGH_ROWS)
    return batch
