"""A solver whose state stays where its variables lie. Without being told, the compiler may bring the gradient of a
variable that is cut over devices, and with it the variable, to each of them."""

from typing import Any

import equinox as eqx
import jax
from jax.sharding import NamedSharding, PartitionSpec

from unibio.core.problem import Problem
from unibio.core.protocols import BilevelSolver, Info, State
from unibio.core.tree import PyTree


def on_mesh(variable: PyTree) -> bool:
    """Whether some array was placed on a mesh, if only of one device."""
    return any(isinstance(getattr(leaf, "sharding", None), NamedSharding) for leaf in jax.tree.leaves(variable))


class Placed(eqx.Module):
    """A solver on a mesh. State arrays shaped like a leaf of x or y get that leaf's sharding, and so does a stack of
    such arrays (SABA's memory). Everything else is copied to every device. `layout` holds the shapes and the
    shardings."""

    solver: Any
    layout: tuple[tuple[tuple[int, ...], NamedSharding], ...] = eqx.field(static=True)

    def init(self, problem: Problem, x: PyTree, y: PyTree, key: jax.Array) -> tuple[Any, Info]:
        state, info = self.solver.init(problem, x, y, key)
        return self._laid(state), info

    def step(self, problem: Problem, state: State, key: jax.Array) -> tuple[Any, Info]:
        state, info = self.solver.step(problem, state, key)
        return self._laid(state), info

    def shardings(self, state: PyTree) -> Any:
        """The sharding of each array of a state, given the arrays or their shapes."""
        return jax.tree.map(lambda leaf: self._sharding(leaf.shape), state)

    def _laid(self, state: State) -> Any:
        return jax.tree.map(jax.lax.with_sharding_constraint, state, self.shardings(state))

    def _sharding(self, shape: tuple[int, ...]) -> NamedSharding:
        places = dict(reversed(self.layout))  # where x and y have a part of the same shape, it lies like that of x
        if shape in places:
            return places[shape]
        mesh = self.layout[0][1].mesh
        if shape[1:] in places:
            return NamedSharding(mesh, PartitionSpec(None, *places[shape[1:]].spec))
        return NamedSharding(mesh, PartitionSpec())


def placed(solver: BilevelSolver, x: PyTree, y: PyTree) -> Any:
    """The solver in a `Placed`, so that its state stays on the mesh of x and y; the solver itself if there is no
    mesh."""
    if isinstance(solver, Placed):
        return solver
    leaves = [leaf for leaf in jax.tree.leaves((x, y)) if isinstance(leaf.sharding, NamedSharding)]
    return Placed(solver, tuple((leaf.shape, leaf.sharding) for leaf in leaves)) if leaves else solver
