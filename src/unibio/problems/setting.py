"""What a ready problem comes as."""

from typing import NamedTuple

from unibio.core.problem import Problem
from unibio.core.tree import PyTree


class Setting(NamedTuple):
    """A problem and where to start."""

    problem: Problem
    x: PyTree
    y: PyTree
