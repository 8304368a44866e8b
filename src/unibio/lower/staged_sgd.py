"""Stages of AdaGrad-norm in balls that shrink: a lower solver that knows neither p nor a step size."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from unibio.core import checks, tree
from unibio.core.projections import into_ball
from unibio.core.protocols import Draw, Gradient
from unibio.core.tree import Number, PyTree

_TOO_SHORT = (
    "A stage ends at the mean of its points before each update: after one step that is where it began, and after two "
    "it is R/2 away wherever the minimiser is, so that a search for R (guess=…) needs three."
)


class _Search(NamedTuple):
    """Where a call stands: y_k, R_k, the radius of a last stage, whether R is still being searched for, how many stages
    of the descent and how many of any kind are done."""

    y: PyTree
    radius: jax.Array
    last_radius: jax.Array
    searching: jax.Array
    descended: jax.Array
    stages: jax.Array


class StagedSGD(eqx.Module):
    """SGD in K stages of equal length, each in a ball of half the radius around the mean of the one before.

        N_0 times     w ← Π_{B(y_k, R_k)}(w − √2·R_k·s_t/√S_t),   S_t = Σ_{i≤t}‖s_i‖² of this stage, w_1 = y_k
        y_{k+1} = mean of the N_0 points before each update,   R_k = R_0/2^k
        K = ⌈½log₂N⌉ + 1,   N_0 = ⌊N/K⌋

    The step needs no number from the user, and the rate is that of Epoch-SGD with the best p, up to a logarithm, for
    every p > 1 at once: docs/without_p.md has the theorem with its constants and proof.

    With a `guess` the radius is searched for first, from below: a stage of radius R = guess, 2·guess, 4·guess, …, each
    from y_0 and on the same samples, until its mean lies within R/2 of y_0 or R reaches `radius`. Then the K
    stages start at y_0 with R_0 = min{2R, radius} and fresh samples. Every stage counts as N_0 gradients. A guess that
    is much too small costs doublings and one that is much too large costs accuracy; docs/without_p.md bounds both.
    UniBiO makes the length of its last refresh the guess of the next one.

    With `last_stage` the K stages take half of the steps, N_0 = ⌊N/(2K)⌋, and one more stage the others, from y_K and
    with the radius 2R_j, at most R_0, where j is the last stage that moved by at most R_j/2. It ends up to 1.7 times as
    near to a minimiser where the Hessian is regular, because one of K stages has only N/K samples. It needs some
    hundred steps in a stage: with fewer, and where g grows steeply, shorter stages do not come near the minimiser.

    | symbol | field |
    |---|---|
    | N | `steps`, at least 2, or 3 with a guess; the stages of the search come on top |
    | R_0, or with a guess the largest R_0 | `radius`, which must be at least ‖y_0 − y*‖ |
    | first R | `guess`; without it there is no search |
    | whether half of the steps go to one last stage | `last_stage` |

    Reference: the step is AdaGrad-norm (Streeter and McMahan, 2010; Ward, Wu and Bottou, AdaGrad stepsizes, ICML 2019)
    with a projection; stages that halve a ball are those of Juditsky and Nesterov, Deterministic and stochastic
    primal-dual subgradient algorithms for uniformly convex minimization (2014), and of Xu, Lin and Yang, Stochastic
    convex optimization: faster local growth implies faster global convergence (ICML 2017).
    """

    steps: int = eqx.field(static=True, default=100)
    radius: float = eqx.field(default=1.0, converter=checks.as_real)
    guess: Number | None = eqx.field(default=None, converter=checks.as_real)
    last_stage: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        least = self._least * (2 if self.last_stage else 1)
        checks.whole_number("StagedSGD(steps=…)", self.steps, low=least, remedy=_TOO_SHORT)
        remedy = "It is a bound on the distance between the start and the minimiser; with a guess it may be generous."
        checks.number("StagedSGD(radius=…)", self.radius, low=0.0, strict=True, remedy=remedy)
        if self.guess is not None:
            remedy = "It is the first radius that is tried; None switches the search off."
            checks.number("StagedSGD(guess=…)", self.guess, low=0.0, remedy=remedy)

    @property
    def stages(self) -> int:
        """K, so large that R_K ≤ R_0/(2√N), but so small that every stage has at least two steps, or three with a
        guess."""
        halvings = ((self.steps - 1).bit_length() + 1) // 2  # the least j with 4^j ≥ N
        return min(halvings + 1, self._shared // self._least)

    @property
    def _shared(self) -> int:
        """The steps of the K stages together, before they are rounded down."""
        return self.steps // 2 if self.last_stage else self.steps

    @property
    def _least(self) -> int:
        return 2 if self.guess is None else 3

    @property
    def stage_steps(self) -> int:
        """N_0."""
        return self._shared // self.stages

    @property
    def last_steps(self) -> int:
        """The steps of the last stage: half of N or a few more, or 0 without one."""
        return self.steps - self.stages * self.stage_steps if self.last_stage else 0

    def guided(self, moved: jax.Array) -> "StagedSGD":
        """The same solver with this first guess, if it searches at all."""
        return self if self.guess is None else eqx.tree_at(lambda lower: lower.guess, self, moved)

    def __call__(self, gradient: Gradient, draw: Draw, y: PyTree, p: Number | None) -> tuple[PyTree, jax.Array]:
        n, dtype, zero = self.stage_steps, tree.dtype(y), jnp.int32(0)
        largest = jnp.asarray(self.radius, dtype)
        searches = 0 if self.guess is None else 1
        shape, most = (searches + self.stages, n), (searches + self.stages) * n
        draws = draw(most + self.last_steps)
        blocks = jax.tree.map(lambda leaf: jnp.asarray(leaf[:most]).reshape(*shape, *leaf.shape[1:]), draws)
        # From 0 no doubling leads anywhere; from eps·radius at most 52 do.
        first = largest if self.guess is None else jnp.maximum(self.guess, jnp.finfo(dtype).eps * largest)

        def stage(state: _Search) -> _Search:
            block = jnp.where(state.searching, 0, searches + state.descended)
            y = _stage(gradient, jax.tree.map(lambda leaf: leaf[block], blocks), state.y, state.radius, n)
            found = tree.norm(tree.sub(y, state.y)) <= state.radius / 2
            doubled = jnp.minimum(2 * state.radius, largest)
            calm = state.searching | (found & (state.descended > 0))
            return _Search(
                tree.where(state.searching, state.y, y),
                jnp.where(state.searching, doubled, state.radius / 2),
                jnp.where(calm, doubled, state.last_radius),
                state.searching & ~found & (doubled < largest),
                state.descended + jnp.where(state.searching, 0, 1),
                state.stages + 1,
            )

        first = jnp.minimum(first, largest)
        start = _Search(y, first, first, first < largest, zero, zero)
        end = jax.lax.while_loop(lambda state: state.descended < self.stages, stage, start)
        if self.last_steps == 0:
            return end.y, n * end.stages
        rest = jax.tree.map(lambda leaf: jnp.asarray(leaf[most:]), draws)
        y = _stage(gradient, rest, end.y, end.last_radius, self.last_steps)
        return y, n * end.stages + self.last_steps


def _stage(gradient: Gradient, draws: PyTree, start: PyTree, radius: jax.Array, steps: int) -> PyTree:
    """The mean of the points of one stage: AdaGrad-norm from the centre of the ball."""

    def step(carry: tuple[PyTree, PyTree, jax.Array], realisation: PyTree) -> Any:
        w, moved, root = carry  # root = √S_t, because S_t itself may underflow or overflow
        unit, size = tree.direction(gradient(w, realisation))
        root = jnp.hypot(root, size)
        length = jnp.sqrt(2.0).astype(root.dtype) * radius * size / jnp.where(root == 0, 1, root)
        moved = tree.axpy(jnp.asarray(1 / steps, root.dtype), tree.sub(w, start), moved)
        return (into_ball(tree.axpy(-length, unit, w), start, radius), moved, root), None

    (_, moved, _), _ = jax.lax.scan(step, (start, tree.zeros_like(start), jnp.zeros_like(radius)), draws, length=steps)
    return tree.add(start, moved)
