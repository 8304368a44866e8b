"""The API part of `fuzz.py`.

A *structure* is what determines a compiled program: a solver or function on a kind of problem, with its sizes. A
limited number of them is chosen at the beginning; a case draws numbers, options and starting points for one of them.
"""

import dataclasses
import pathlib
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import fuzz_draws as draws
import jax
import numpy as np
from fuzz_judge import Outcome, in_processes, judged

import unibio as ub
from unibio.core.programs import compiled

STRUCTURES = 60  # at most so many are compiled, however many cases there are


def try_cases(cases: int, seed: int) -> Iterator[list[Outcome]]:
    """The outcomes of the cases, piece by piece. Those of a structure share a process, where it is compiled once."""
    count = max(1, min(STRUCTURES, cases // 15))
    shares = [range(i * cases // count, (i + 1) * cases // count) for i in range(count)]
    yield from in_processes(work, [(seed, count, i, share) for i, share in enumerate(shares) if share])


def work(seed: int, count: int, which: int, numbers: range) -> list[Outcome]:
    """Tries the cases of one structure. That more than one program for steps is compiled for it is a finding."""
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)  # nearly all of the time is compilation
    structure = make_structures(np.random.default_rng(seed), count)[which]
    outcomes = [tried(structure, np.random.default_rng((seed, number)), number) for number in numbers]
    made = {name for name in compiled.programs if "advance" in getattr(name[0], "__name__", "")}
    if len(made) > 1:
        outcomes.append(("finding", f"{structure.name}: {len(made)} programs were compiled for its steps, not 1"))
    return outcomes


def tried(structure: Any, rng: Any, number: int) -> Outcome:
    """One case. The documented warning of a folder that cannot be written is right, any other is a finding."""
    notes: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "no checkpoint at step")
        return judged(lambda: structure(rng, notes, pathlib.Path(folder)), f"case {number}, {structure.name}", notes)


def make_structures(rng: Any, count: int) -> list[Any]:
    """`count` structures: solvers on kinds of problems, functions of a problem, `compare` and `tune`, and
    constructors."""
    kinds, solvers = list(draws.PROBLEMS), list(ub.SOLVERS)
    others: list[Any] = [Points(kinds[i % len(kinds)], call) for i, call in enumerate(CALLS)]
    others += [
        Compared("SOBA", "example3", False),
        Compared("UniBiO", "quadratic", False),
        Compared("TTSA", "lp", True),
    ]
    runs = [Run(kinds[i % len(kinds)], solvers[i % len(solvers)], rng) for i in range(STRUCTURES)]
    share = 0 if count < 4 else max(1, len(others) * count // STRUCTURES)
    first = int(rng.integers(len(others)))
    return [Plain(), *[others[(first + i) % len(others)] for i in range(share)], *runs][:count]


class Run:
    """`solve` with one solver on one kind of problem. Dtype, sizes, metrics and kind of key are drawn once, here."""

    def __init__(self, kind: str, solver: str, rng: Any) -> None:
        self.kind, self.dtype = kind, rng.choice(["float64", "float64", "float32"])
        self.solver = draws.solver(rng, solver)
        self.batch = int(rng.choice([1, 2, 4]))
        self.noise = rng.random() < 0.3
        self.metrics: Any = [(), (), ub.Truth(), draws.size][int(rng.integers(4))]
        self.key = [jax.random.key, jax.random.key, jax.random.PRNGKey][int(rng.integers(3))]
        self.name = f"{solver} on {kind} in {self.dtype}"

    def __call__(self, rng: Any, notes: dict[str, Any], folder: pathlib.Path) -> str:
        setting = draws.PROBLEMS[self.kind](rng, notes, self.dtype, self.batch, self.noise)
        solver = draws.other_numbers(rng, notes, self.solver)
        x, y = draws.start(rng, notes, setting, self.dtype)
        options = draws.options(rng, notes, self.metrics, folder)
        options["key"] = draws.pick(rng, notes, "key", [self.key(int(rng.integers(1000)))], [None, 0, "seed", x])
        result = ub.solve(setting.problem, solver, x, y, **options)
        check_result(result, x, y, options)
        if rng.random() < 0.3:
            check_again(rng, notes, result, lambda **more: ub.solve(setting.problem, solver, x, y, **options | more))
        return str(result.status)


def check_result(result: Any, x: Any, y: Any, options: dict[str, Any]) -> None:
    """Asserts that x and y are finite and shaped like the start, that the history has every step, and that the status
    and the message agree with it."""
    for before, after in ((x, result.x), (y, result.y)):
        pairs = list(zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True))
        assert all(np.shape(a) == np.shape(b) for a, b in pairs), "another shape"
        assert all(np.isfinite(np.asarray(b)).all() for _, b in pairs), "an iterate that is not finite"
    history, steps = result.history, result.steps
    assert steps <= options["steps"], "too many steps"
    assert all(len(column) == steps for column in history.values()), "columns of other lengths"
    if steps:
        names = ("grad_f", "grad_g", "hvp", "cross")
        assert (history["step"] == np.arange(steps)).all(), "steps are missing"
        assert all((np.diff(history[name]) >= 0).all() for name in (*names, "calls", "seconds")), "a count went back"
        assert (sum(history[name] for name in names) == history["calls"]).all(), "calls do not add up"
        assert history["calls"][-1] == sum(result.calls), "other calls in the end"
    assert result.message, "no message"
    assert (result.status == "finished") <= (steps == options["steps"]), "finished too early"
    assert (result.status == "diverged") <= ("NaN or infinite" in result.message), "diverged without a word"
    assert (result.status == "budget") <= ("after" in result.message), "ended early without a reason"
    assert result.status != "interrupted", "interrupted by nobody"
    if result.metrics:
        measured = result.metrics["step"]
        assert measured[0] == 0, "no measurement at the start"
        assert measured[-1] == steps, "no measurement at the end"
        assert (np.diff(measured) > 0).all(), "measured twice"


def check_again(rng: Any, notes: dict[str, Any], result: Any, solve: Callable[..., Any]) -> None:
    """Asserts that the same call gives the same bits, that a run in two halves gives the same bits as one run, and
    that a saved result is read back unless its file is damaged."""
    # Such a rule ends a run between two stretches, whose lengths depend on the clock.
    timed = "MaxSeconds" in str(notes["stop"]) or "Below" in str(notes["stop"])
    if not timed:
        notes["again"] = True
        same(solve(checkpoint=None), result)
        same(solve(), result)  # from its last checkpoint, if it keeps any
    if result.status == "finished" and result.state is not None:
        notes["resumed"] = True
        half = solve(checkpoint=None, steps=result.steps // 2, stop=())
        if half.status == "finished":
            same(solve(checkpoint=None, resume=half, stop=()), result)
    with tempfile.TemporaryDirectory() as folder:
        path = result.save(pathlib.Path(folder) / "result.npz")
        same(ub.Result.load(path), result)
        content = path.read_bytes()
        place = int(rng.integers(len(content)))
        path.write_bytes(content[:place])
        refusal = ""
        try:
            ub.Result.load(path)
        except ValueError as error:
            refusal = str(error)
        assert "damaged" in refusal, "a truncated result was read"


def same(one: Any, other: Any) -> None:
    """Asserts that two results agree in every bit except the seconds."""
    assert one.status == other.status, (one.status, other.status)
    for a, b in zip(jax.tree.leaves((one.x, one.y)), jax.tree.leaves((other.x, other.y)), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), "other bits"
    for name, column in other.history.items():
        assert name == "seconds" or np.array_equal(one.history[name], column, equal_nan=name == "direction_norm"), name


CALLS = {
    "hypergradient": lambda problem, x, y, method, key: ub.hypergradient(problem, x, y, method, key)[1].residual,
    "lower_solution": lambda problem, x, y, method, key: ub.lower_solution(problem, x, y),
    "argmin": lambda problem, x, y, method, key: ub.argmin(problem)(x, y),
    "differentiable_in_z": lambda problem, x, y, method, key: ub.differentiable_in_z(problem, x, y),
}


@dataclasses.dataclass
class Points:
    """One of CALLS, a function of a problem at a point."""

    kind: str
    call: str

    @property
    def name(self) -> str:
        return f"{self.call} of {self.kind}"

    def __call__(self, rng: Any, notes: dict[str, Any], folder: pathlib.Path) -> str:
        setting = draws.PROBLEMS[self.kind](rng, notes, "float64", 2, False)
        method = draws.pick(rng, notes, "method", [draws.other_numbers(rng, notes, ub.CG())], [ub.CG, "cg", 3])
        key = draws.pick(rng, notes, "key", [jax.random.key(3)], [0, "seed", np.ones(2)])
        x, y = draws.start(rng, notes, setting, "float64")
        jax.block_until_ready(CALLS[self.call](setting.problem, x, y, method, key))
        return "result"


@dataclasses.dataclass
class Compared:
    """`compare` or `tune` of one solver with two seeds."""

    solver: str
    kind: str
    tuned: bool

    @property
    def name(self) -> str:
        return f"{'tune' if self.tuned else 'compare'} {self.solver} on {self.kind}"

    def __call__(self, rng: Any, notes: dict[str, Any], folder: pathlib.Path) -> str:
        setting = draws.PROBLEMS[self.kind](rng, notes, "float64", 2, False)
        solver = draws.other_numbers(
            rng, notes, ub.SOLVERS[self.solver](*(0.1,) if self.solver == "UniBiO" else (0.1, 0.1))
        )
        x, y = draws.start(rng, notes, setting, "float64")
        length: dict[str, Any] = draws.pick(rng, notes, "length", [{"steps": 3}, {"max_calls": 500}], draws.BAD_LENGTHS)
        seeds = draws.pick(
            rng, notes, "seeds", [[0, 1], (5, 2**32 - 1)], [[], [-1, 0], [0, 0], [0.5, 1], 3, ["a", "b"]]
        )
        more = {"measurements": draws.pick(rng, notes, "measurements", [1, 2, 10**6], [0, -1, 1.5, True])}
        if self.tuned:
            grid = draws.pick(rng, notes, "grid", [{"step_size": [0.1]}], draws.BAD_GRIDS)
            ub.tune(setting.problem, solver, x, y, seeds=seeds, grid=grid, **length, **more)
            return "result"
        found = ub.compare(setting.problem, {"a": solver}, x, y, seeds=seeds, **length, **more)
        found.save(folder / "saved")
        again = ub.Comparison.load(folder / "saved")
        assert (again.table["calls"] == found.table["calls"]).all(), "other calls in the file"
        return "result"


class Plain:
    """Calls that compile nothing: constants and schedules of the theory, data sets, settings of solvers."""

    name = "constructors and theory"

    def __call__(self, rng: Any, notes: dict[str, Any], folder: pathlib.Path) -> str:
        makers = draws.PLAIN
        name = sorted(makers)[int(rng.integers(len(makers)))]
        notes["call"] = name
        makers[name](rng, notes)
        return "result"
