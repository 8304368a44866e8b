"""Draws the arguments for `fuzz_api.py`: mostly ones that are right, sometimes ones that must be refused.

Those are mostly of the right kind, with a wrong size, shape or value: `fuzz_misuse.py` tries the other kinds.
"""

import dataclasses
import pathlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import unibio as ub

BAD = 0.06  # the share of draws that are bad; about every second case has a bad one
ODD = [0.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e300, 1e-300, 1e38, 1e-45, 7, 2**31, 10**400, True, "0.1",
       None, 1 + 1j, np.float32(0.1), np.int8(3), np.array(0.2), np.array([0.1, 0.2]), [0.1], object()]  # fmt: skip
WHOLE = [0, -1, 1.0, 2.5, True, "3", None, float("nan"), 10**30, -(10**30), np.float64(2), [1]]
BAD_LENGTHS: list[Any] = [{}, {"steps": 3, "max_calls": 9}, {"steps": 0}, {"max_calls": 0}]
BAD_GRIDS: list[Any] = [{"lr": [0.1]}, {}, {"step_size": []}, {"step_size": 0.1}, {"terms": [3]}]


def pick(rng: Any, notes: dict[str, Any], name: str, good: list[Any], bad: list[Any], often: float = BAD) -> Any:
    """One of `good` or, with probability `often`, one of `bad`. The choice is written into `notes` under its name."""
    chosen = bad if rng.random() < often else good
    notes[name] = chosen[int(rng.integers(len(chosen)))]
    return notes[name]


def number(rng: Any, notes: dict[str, Any], name: str, low: float = 1e-3, high: float = 1.0) -> Any:
    """A number between `low` and `high` whose logarithm is uniform, or one of ODD."""
    return pick(rng, notes, name, [float(np.exp(rng.uniform(np.log(low), np.log(high))))], ODD)


def order(rng: Any, notes: dict[str, Any]) -> Any:
    """A value for p."""
    return pick(rng, notes, "p", [2.0, 2, 2.5, 3.0, 4.0, 6.0, 8.0, 50.0], [*ODD, 1.9, 1e4])


def size(problem: Any, state: Any) -> dict[str, Any]:
    """A metric as a user writes it."""
    return {"size": jnp.sum(jnp.abs(jax.flatten_util.ravel_pytree(state.x)[0]))}


def _twice(problem: Any, state: Any) -> dict[str, Any]:
    return {"step": jnp.ones(())}


def _vector(problem: Any, state: Any) -> dict[str, Any]:
    return {"vector": jnp.ones(3)}


def _example(maker: Any, dim: int | None) -> Any:
    def make(rng: Any, notes: dict[str, Any], dtype: str, batch: int, noisy: bool) -> ub.problems.Setting:
        variance = number(rng, notes, "variance")
        noise = ub.Noise(grad_y_g=variance, grad_z_f=0.1) if noisy else None
        shape = () if dim is None else (dim,)
        arguments = [] if maker is ub.problems.example1 else [order(rng, notes)]
        return ub.problems.Setting(maker(*arguments, noise, noise), np.ones(shape, dtype), np.ones(shape, dtype))

    return make


def _quadratic(rng: Any, notes: dict[str, Any], dtype: str, batch: int, noisy: bool) -> ub.problems.Setting:
    hessian, coupling = np.eye(3) * float(rng.uniform(0.1, 5)), np.ones((3, 2)) * float(rng.uniform(0.1, 5))
    hessian = pick(rng, notes, "hessian", [hessian], [-hessian, hessian * np.nan, hessian * 0, hessian[:2], None, 3.0])
    coupling = pick(rng, notes, "coupling", [coupling], [coupling.T, coupling * np.inf, "B", coupling * 1e200])
    target = pick(rng, notes, "target", [np.ones(3)], [np.ones(2), np.full(3, np.nan), np.ones((3, 3)), "t"])
    return ub.problems.Setting(ub.problems.quadratic(hessian, coupling, target), np.ones(2, dtype), np.zeros(3, dtype))


def _samples(rng: Any, notes: dict[str, Any], dtype: str) -> Any:
    features, targets = rng.normal(size=(8, 2)).astype(dtype), rng.normal(size=8).astype(dtype)
    bad = [
        (features[:3], targets),
        (features, targets[:0]),
        (features * np.nan, targets),
        (features,),
        None,
        ("a", "b"),
    ]
    return pick(rng, notes, "samples", [(features, targets)], bad)


def _lp(rng: Any, notes: dict[str, Any], dtype: str, batch: int, noisy: bool) -> ub.problems.Setting:
    train, clean = _samples(rng, notes, dtype), _samples(rng, notes, dtype)
    p, c = order(rng, notes), number(rng, notes, "c")
    size = pick(rng, notes, "batch_size", [batch], [0, -1, 9, 1.5, True, "2"])
    problem = ub.problems.lp_regression(train, clean, p, c, size)
    return ub.problems.Setting(problem, np.zeros(8, dtype), np.zeros(2, dtype))


def linear(w: Any, inputs: Any) -> Any:
    """The model of the hyper-cleaning problem."""
    return inputs @ w


def _cleaning(rng: Any, notes: dict[str, Any], dtype: str, batch: int, noisy: bool) -> ub.problems.Setting:
    inputs = (_samples(rng, notes, dtype) or [None])[0]
    good, bad = rng.integers(0, 3, 8), [rng.normal(size=8), np.zeros((8, 2), int), np.zeros(3, int)]
    labels = pick(rng, notes, "labels", [good], bad)
    p, c = order(rng, notes), number(rng, notes, "c")
    size = pick(rng, notes, "batch_size", [batch], [0, -1, 1.5, True, "2"])
    params = pick(
        rng, notes, "params", [np.zeros((2, 3), dtype)], [np.zeros(3, dtype), None, "w", np.zeros((2, 3), int)]
    )
    return ub.problems.hyper_cleaning(linear, params, (inputs, labels), (inputs, labels), p, c, batch_size=size)


PROBLEMS = {
    "example1": _example(ub.problems.example1, None),
    "example3": _example(ub.problems.example3, 2),
    "example4": _example(ub.problems.example4, 3),
    "quadratic": _quadratic,
    "lp": _lp,
    "cleaning": _cleaning,
}


def solver(rng: Any, name: str) -> Any:
    """The solver of that name. UniBiO and BO-REP get a random lower solver, UniBiO also a random hypergradient
    method."""
    lowers: list[Any] = [
        ub.EpochSGD(steps=8, first_epoch=2.0),
        ub.SGD(3, 0.1),
        ub.Optax(optax.adam(0.1), 3),
        ub.EpochSGD(7, tau=2.0),
    ]
    methods: list[Any]
    methods = [ub.Neumann(3), ub.Neumann(3, 1.0, form=ub.Randomised()), ub.Neumann(2, form=ub.Independent()), ub.CG(),
               ub.CG(max_steps=2, preconditioner=ub.Jacobi()), ub.Exact(), ub.Unrolled(3, 0.1)]  # fmt: skip
    lower, method = lowers[int(rng.integers(4))], methods[int(rng.integers(7))]
    if name == "UniBiO":
        project = [None, None, ub.Box(-2.0, 2.0)][int(rng.integers(3))]
        return ub.UniBiO(0.1, lower=lower, hypergradient=method, project=project, period=int(rng.integers(1, 3)))
    more: dict[str, dict[str, Any]]
    more = {"BO-REP": {"refinement": lower}, "StocBiO": {"terms": 2}, "VRBO": {"period": 2, "terms": 2}}
    return ub.SOLVERS[name](0.1, 0.1, **more.get(name, {}))


def other_numbers(rng: Any, notes: dict[str, Any], module: Any, path: str = "") -> Any:
    """The same solver or method with other numbers in some of its fields, so that it shares the compiled program."""
    changed = {}
    for field in dataclasses.fields(module):
        value, name = getattr(module, field.name), path + field.name
        if field.metadata.get("static", False):
            continue
        if isinstance(value, eqx.Module):
            changed[field.name] = other_numbers(rng, notes, value, f"{name}.")
        elif isinstance(value, float) and rng.random() < 0.5:
            drawn = number(rng, notes, name)
            # None where it is allowed would be another structure.
            changed[field.name] = value if drawn is None and field.default is None else drawn
    return dataclasses.replace(module, **changed)


def start(rng: Any, notes: dict[str, Any], setting: Any, dtype: str) -> tuple[Any, Any]:
    """x and y of the right shape and of any scale, or values that must be refused."""
    drawn = []
    for name, like in (("x", setting.x), ("y", setting.y)):
        scale = pick(rng, notes, f"{name} scale", [0.0, 0.1, 1.0, 1.0, 10.0], [1e30, 1e-30, 1e300], 0.2)
        good = np.clip(scale * rng.normal(size=np.shape(like)), -1e38, 1e38).astype(dtype)
        other = "float32" if dtype == "float64" else "float64"
        bad = [np.full_like(good, np.nan), np.full_like(good, np.inf), np.zeros((0, *good.shape), dtype), {"a": good},
               _another_shape(good), np.ones_like(good, other)]  # fmt: skip
        drawn.append(pick(rng, notes, name, [good], bad, BAD / 2))
    return drawn[0], drawn[1]


def _another_shape(good: Any) -> Any:
    """An array of a shape that does not broadcast to that of `good`; for a number, which broadcasts to all, a text."""
    return np.ones((good.shape[0] + 2, *good.shape[1:]), good.dtype) if good.ndim else "abc"


def options(rng: Any, notes: dict[str, Any], metrics: Any, folder: pathlib.Path) -> dict[str, Any]:
    """The options of `solve`: steps, measurements, stop rules, callbacks and checkpoints."""
    rules = [(), (), (), ub.MaxCalls(int(rng.integers(1, 400))), ub.MaxSeconds(0.05), ub.Below("direction_norm", 1e-3),
             [ub.MaxCalls(50), ub.MaxSeconds(1e-9)]]  # fmt: skip
    bad = [ub.Below("nonsense", 1.0), ub.Below("gradient_norm", 1e-3)]
    drawn = {
        "steps": pick(rng, notes, "steps", [0, 1, 2, 7, 40, 1500, np.int64(5)], [v for v in WHOLE if v != 10**30]),
        "every": pick(rng, notes, "every", [None, None, 1, 3, 10**30], WHOLE),
        "chunk": pick(rng, notes, "chunk", [None, None, 1, 7, 10**30], WHOLE),
        "stop": pick(rng, notes, "stop", rules, bad),
        "metrics": pick(rng, notes, "metrics", [metrics], [_twice, _vector], BAD / 2),
        "checkpoint": None,
    }
    if rng.random() < 0.03 and drawn["steps"] == 1500:  # any number of steps is allowed if a stop rule ends the run
        drawn |= {"steps": 10**12, "stop": ub.MaxSeconds(0.02)}
        notes |= {"steps": 10**12, "stop": "MaxSeconds"}
    if rng.random() < 0.15:
        (folder / "file").write_text("not a folder")
        where = pick(
            rng, notes, "folder", [folder / "run"], [folder / "file", folder / "file" / "x", "", 3, None, "\0"]
        )
        every, keep = (pick(rng, notes, f"checkpoint {n}", [1, 5, 1000], WHOLE) for n in ("every", "keep"))
        drawn["checkpoint"] = ub.Checkpoints(where or folder, every=every, keep=keep)
    elif rng.random() < 0.02:
        drawn["checkpoint"] = pick(rng, notes, "checkpoint", [str(folder), 3, ub.Checkpoints], [True])
    return drawn


def _constants(rng: Any, notes: dict[str, Any]) -> Any:
    names = [field.name for field in dataclasses.fields(ub.theory.Constants)][:-1]
    values = {name: number(rng, notes, name, 1e-2, 10.0) for name in names} | {"p": order(rng, notes)}
    return ub.theory.Constants(**values)


def _schedule(rng: Any, notes: dict[str, Any]) -> None:
    p, dim = order(rng, notes), pick(rng, notes, "dim", [1, 3, 100], WHOLE)
    makers = [ub.theory.example3_constants, ub.theory.example4_constants]
    constants = _constants(rng, notes) if rng.random() < 0.5 else makers[int(rng.integers(2))](p, dim)
    epsilon, delta = (number(rng, notes, name, 1e-4, 0.7) for name in ("epsilon", "delta"))
    plan = ub.theory.schedule(
        constants, epsilon, delta, pick(rng, notes, "analysis", ["paper", "sharp"], ["", None, 3])
    )
    assert plan.rows(), "no rows"
    assert not np.isnan(plan.log_total), "NaN calls"
    ub.UniBiO(0.1)
    plan.as_solver(ub.UniBiO, number(rng, notes, "most", 1.0, 1e12))


def _dataset(rng: Any, notes: dict[str, Any]) -> None:
    data = pick(rng, notes, "data", [np.ones((5, 2)), (np.ones((5, 2)), np.ones(5))],
                [(np.ones(5), np.ones(4)), np.ones(()), None, {}, "abc", np.ones((0, 2)), [1], 3.0], 0.3)  # fmt: skip
    batch, chunk = (pick(rng, notes, name, [1, 3, 5], WHOLE, 0.2) for name in ("batch_size", "chunk_size"))
    replace = pick(rng, notes, "replace", [True, False, None], [1, "yes"])
    made = ub.Dataset(data, batch, replace, chunk, pick(rng, notes, "stream", [True, False], [None, 1, "yes"]))
    drawn = made.draw(jax.random.key(0), 4)
    assert (None if drawn is None else drawn.shape) == (None if batch is None else (4, batch)), (
        "another number of samples"
    )


PLAIN = {
    "theory.schedule": _schedule,
    "Constants": _constants,
    "Dataset": _dataset,
    "Noise": lambda rng, notes: ub.Noise(*(number(rng, notes, str(i)) for i in range(5))),
    "Box": lambda rng, notes: ub.Box(number(rng, notes, "low"), number(rng, notes, "high", 1.0, 9.0))(jnp.ones(2)),
    "Simplex": lambda rng, notes: ub.Simplex(number(rng, notes, "total"))(jnp.ones(2)),
}
