"""How a computation ended, in one word: the same words for hypergradients, lower solutions and whole runs."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unibio.core.tree import Number


class Status(eqx.Module):
    """One word that says how a computation ended. `print` shows it; compare it with a word or with `Status.ok`.

    `info.status == "ok"` is a boolean array, so it works under `jit` and, entry by entry, after `vmap`. Outside of
    `jit`, `status.name` is the word and `status.message` says in a sentence what happened and what to do.

    Example:
        >>> print(Status.budget, bool(Status.budget == "ok"))
        budget False
    """

    code: Any  # the place of the word in MEANINGS, an int32 array

    ok: ClassVar["Status"]
    budget: ClassVar["Status"]
    stagnated: ClassVar["Status"]
    not_finite: ClassVar["Status"]
    diverged: ClassVar["Status"]
    not_convex: ClassVar["Status"]
    no_minimiser: ClassVar["Status"]
    unbounded: ClassVar["Status"]
    no_limit: ClassVar["Status"]
    ill_conditioned: ClassVar["Status"]
    lower_not_solved: ClassVar["Status"]
    truncated: ClassVar["Status"]
    stationary: ClassVar["Status"]
    finished: ClassVar["Status"]
    interrupted: ClassVar["Status"]

    @classmethod
    def named(cls, word: str) -> "Status":
        """The status of that name."""
        if word not in MEANINGS:
            raise ValueError(f"there is no status {word!r}; there are {', '.join(MEANINGS)}.")
        status: Status = getattr(cls, word)
        return status

    @classmethod
    def where(cls, condition: Number, a: "Status", b: "Status") -> "Status":
        """a where the condition is true, else b."""
        return cls(jnp.where(condition, a.code, b.code))

    @property
    def name(self) -> str:
        """The word; only of one status outside of `jit`."""
        return list(MEANINGS)[int(self.code)]

    @property
    def message(self) -> str:
        """What happened, and what to do about it."""
        return ": ".join(part for part in MEANINGS[self.name] if part)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, str):
            other = Status.named(other)
        return self.code == other.code if isinstance(other, Status) else NotImplemented

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else ~equal

    def __hash__(self) -> int:
        return int(self.code)

    def __repr__(self) -> str:
        if isinstance(self.code, jax.core.Tracer):
            return "Status(traced)"
        words = np.asarray(list(MEANINGS))[np.asarray(self.code)]
        return str(words)


# What a status word says: what happened, and what to do about it (nothing if empty).
MEANINGS = {
    "ok": ("right within what is promised", ""),
    "budget": (
        "a budget or a stop rule ended it before the goal was reached",
        "allow more steps, calls or seconds, or ask for less accuracy",
    ),
    "stagnated": (
        "no further progress is possible, short of the goal",
        "use float64 or other units for g or y if this precision is too low; check that g is smooth",
    ),
    "not_finite": (
        "NaN or infinity appeared",
        "check that x, y and the data are finite and within the range of their dtype",
    ),
    "diverged": (
        "numbers grew without bound",
        "lower the step sizes of a run. For Neumann: if scale was given, raise it or leave it out; if it was left "
        "out, raise power_steps",
    ),
    "not_convex": (
        "g has negative curvature in y at this point, so y is no minimiser",
        "solve the lower level further, or check that g is convex in y",
    ),
    "no_minimiser": (
        "g has no minimiser in y at this x: it keeps falling, ever more slowly, as y grows",
        "add a penalty on y to g",
    ),
    "unbounded": (
        "g falls without bound in y at this x; of `minimise`: Φ falls without bound",
        "check its sign, or add a penalty on y to g (on x to f)",
    ),
    "no_limit": (
        "the lower Hessian is singular at this y and the hypergradient has no limit there, because nearby points give "
        "other values",
        "check with unibio.differentiable_in_z whether f and ∇_y g are differentiable in z = spow(y − shift, p−1)",
    ),
    "ill_conditioned": (
        "g is flat or nearly so along some direction of y: its minimiser is not unique, or rounding spoils what "
        "depends on it (see info.error)",
        "use float64, or add a penalty on y to g",
    ),
    "lower_not_solved": (
        "y is too far from the minimiser of g(x, ·) for the promised accuracy (see info.error)",
        "solve the lower level further, e.g. with unibio.lower_solution",
    ),
    "truncated": (
        "too few terms or steps for the promised accuracy (see info.error)",
        "raise terms or steps, or use CG or Exact",
    ),
    "stationary": (
        "the hypergradient is 0 up to rounding: x is stationary, or f does not depend on x, nor through y (because "
        "∇_y g does not depend on x, or ∇_y f = 0 at this y)",
        "",
    ),
    "finished": ("all steps of the run were taken, which says nothing about accuracy", ""),
    "interrupted": ("a signal ended the run", "run the same call again: it continues from the last checkpoint"),
}

for _code, _word in enumerate(MEANINGS):
    setattr(Status, _word, Status(np.int32(_code)))
