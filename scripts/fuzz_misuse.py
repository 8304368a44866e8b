"""The misuse part of `fuzz.py`: every argument of every public call, in turn, replaced by things that it cannot be.

There is one pool of odd values. For each kind of argument a line below says which of them it may be, written without a
look at the library's own checks. Any other value is nonsense there: the call must end with an error that the library
raises on purpose, by the name of the argument. A call that accepts nonsense, or that ends with an error of Python's,
NumPy's or JAX's own, is a finding. Which arguments and values are tried first is drawn from the seed.
"""

import contextlib
import dataclasses
import functools
import inspect
import math
import pathlib
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from fuzz_judge import Outcome, in_processes, judged

import unibio as ub
from unibio.paper.data import noise as label_noise
from unibio.paper.data import toy_nli
from unibio.run.logs import JSONLines


def of_no_argument() -> int:
    """A function that cannot be called with anything."""
    return 0


def of_six(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> int:
    """A function of more arguments than anything of ours has."""
    return 0


class Text(str):
    """A text that is none of ours."""


def f(x: Any, y: Any, batch: Any) -> Any:
    """The upper function."""
    return jnp.sum(y**2) + jnp.sum(x)


def g(x: Any, y: Any, batch: Any) -> Any:
    """The lower function."""
    return jnp.sum((y - jnp.sum(x)) ** 2) / 2


def linear(w: Any, inputs: Any) -> Any:
    """A model."""
    return inputs @ w


PROBLEM = ub.Problem(f, g, 2.0)


def pool() -> dict[str, Any]:
    """The odd values, by how they are written."""
    return {
        "None": None, "True": True, "False": False, "0": 0, "1": 1, "-1": -1, "3": 3, "10**30": 10**30,
        "10**400": 10**400, "0.5": 0.5, "1.5": 1.5, "-0.5": -0.5, "2.0": 2.0, "nan": math.nan, "inf": math.inf,
        "-inf": -math.inf, "1j": 1j, "'text'": "text", "''": "", "'0.1'": "0.1", "bytes": b"abc", "object": object(),
        "[]": [], "{}": {}, "()": (), "[1, 2]": [1, 2], "['a']": ["a"], "{'a': 1}": {"a": 1}, "{1, 2}": {1, 2},
        "ragged": [[1.0], [1.0, 2.0]], "texts": np.asarray(["a", "b"]), "objects": np.asarray([object(), None]),
        "dates": np.asarray(["2026-01-01"], "M8[D]"),
        "bfloat16": jnp.ones(2, jnp.bfloat16), "float16": np.ones(2, "f2"),
        "complex": np.ones(2) * 1j, "booleans": np.ones(2, bool), "integers": np.arange(2), "floats": np.ones(2),
        "matrix": np.ones((2, 2)), "NaNs": np.full(2, np.nan), "none": np.ones(0), "structured": np.zeros(2, "i4,f4"),
        "np.float64(0.5)": np.float64(0.5), "np.int64(3)": np.int64(3), "np.str_": np.str_("a"),
        "jnp 0.5": jnp.asarray(0.5), "print": print, "max": max, "of no argument": of_no_argument, "of six": of_six,
        "a class": ub.SOBA, "another class": ub.CG, "type": type, "a module": np, "an error": ValueError("x"),
        "a generator": (number for number in (1, 2)), "range(2)": range(2), "a path": pathlib.Path("nowhere"),
        "'\\0'": "\0", "a key": jax.random.key(0), "keys": jax.random.split(jax.random.key(0), 2),
        "SOBA": ub.SOBA(0.1, 0.1), "SGD": ub.SGD(2, 0.1), "CG": ub.CG(), "Identity": ub.preconditioners.Identity(),
        "Horner": ub.neumann.Horner(), "Box": ub.Box(0.0, 1.0), "Noise": ub.Noise(1.0), "Truth": ub.metrics.Truth(),
        "Dataset": ub.Dataset(np.ones(4)), "Below": ub.stop.Below("phi", 1.0), "Newton": ub.Newton(),
        "Checkpoints": ub.Checkpoints("nowhere"), "adam": optax.adam(0.1), "Problem": PROBLEM,
        "Final": ub.criteria.Final(),
        "Lines": ub.logs.Lines(), "Status": ub.Status.ok, "slice": slice(2), "...": ..., "Text": Text("text"),
        "a mesh of another kind": jax.sharding.Mesh(np.asarray(jax.devices()[:1]), ("other",)),
    }  # fmt: skip


@functools.cache
def names() -> tuple[str, ...]:
    """How the odd values are written."""
    return tuple(pool())


NUMBERS = {"0", "1", "-1", "3", "0.5", "1.5", "-0.5", "2.0", "10**30", "np.float64(0.5)", "np.int64(3)", "jnp 0.5"}
WHOLE = {"0", "1", "-1", "3", "10**30", "np.int64(3)"}
ARRAYS = {"booleans", "integers", "floats", "matrix", "NaNs", "bfloat16", "float16"}
CALLED = {"print", "max", "Box", "type", "a class", "another class"}
FUNCTIONS_OF_ONE = {"print", "max", "Box", "Final", "Lines", "a mesh of another kind"}  # a Mesh decorates functions


def numbers_in(low: float, high: float = math.inf, strict: bool = False) -> set[str]:
    """The numbers of the pool between these bounds."""
    values = pool()
    inside = {name for name in NUMBERS if low <= float(values[name]) <= high}
    return {name for name in inside if not strict or float(values[name]) != low}


def whole_from(low: int) -> set[str]:
    """The whole numbers of the pool that are not smaller."""
    values = pool()
    return {name for name in WHOLE if int(values[name]) >= low}


# What an argument of each kind may be, among the values of the pool.
MAY_BE: dict[str, set[str]] = {
    "positive": numbers_in(0.0, strict=True),
    "positive or None": numbers_in(0.0, strict=True) | {"None"},
    "at least 0": numbers_in(0.0),
    "at least 0 or None": numbers_in(0.0) | {"None"},
    "number": set(NUMBERS),
    "fraction": {"0", "0.5", "np.float64(0.5)", "jnp 0.5"},
    "share or 0": {"0", "0.5", "1", "np.float64(0.5)", "jnp 0.5"},
    "share": {"0.5", "1", "np.float64(0.5)", "jnp 0.5"},
    "order": numbers_in(2.0),
    "order or None": numbers_in(2.0) | {"None"},
    "at least 1": numbers_in(1.0),
    "at least 1 or None": numbers_in(1.0) | {"None"},
    "at least 2": numbers_in(2.0),
    "whole from 0": whole_from(0),
    "whole from 1": whole_from(1),
    "whole from 1 or None": whole_from(1) | {"None"},
    "whole from 2": whole_from(2),
    "power of two or None": {"1", "None"},
    "flag": {"True", "False"},
    "flag or None": {"True", "False", "None"},
    "text": {"'text'", "'0.1'", "np.str_", "Text", "'\\0'"},
    "path": {"'text'", "'0.1'", "np.str_", "Text", "a path", "''"},
    "path or None": {"'text'", "'0.1'", "np.str_", "Text", "a path", "''", "None"},
    "name of a solver": {"np.str_"},
    "file": set(),  # nothing of the pool is a file that can be read
    "key": {"a key"},
    "key or None": {"a key", "None"},
    "seeds": {"[1, 2]", "{1, 2}", "range(2)", "integers", "a generator"},
    "variable": {"0.5", "1.5", "-0.5", "2.0", "np.float64(0.5)", "jnp 0.5", "floats", "matrix"},
    "problem": {"Problem"},
    "solver": {"SOBA"},
    "solvers": set(),
    "lower": {"SGD"},
    "lower or None": {"SGD", "None"},
    "method": {"CG"},
    "method or None": {"CG", "None"},
    "preconditioner": {"Identity"},
    "form": {"Horner"},
    "function": {"print", "max", "Newton"},  # of three arguments; what these return is looked at later
    "schedule": FUNCTIONS_OF_ONE | {"None"},
    "project": FUNCTIONS_OF_ONE | {"None"},
    "watch": FUNCTIONS_OF_ONE | {"None"},
    "criterion": FUNCTIONS_OF_ONE,
    "metric": {"print", "max", "Truth", "[]", "()"},
    "metrics": {"Truth", "[]", "()"},
    "rules": {"Newton", "Below", "[]", "()", "print", "max", "Lines"},
    "listeners": {"a mesh of another kind", "Below", "[]", "()", "Lines", "print", "max", "Final", "Box"},
    "optimiser": {"adam"},
    "optimiser or None": {"adam", "None"},
    "sampler or None": {"Dataset", "Noise", "None"},
    "data": {
        "range(2)",
        "Dataset",
        "integers",
        "floats",
        "matrix",
        "NaNs",
        "booleans",
        "bfloat16",
        "float16",
        "complex",
    },
    "pair": set(),
    "grid": set(),
    "grid or None": {"None"},
    "checkpoint": {"Checkpoints", "None"},
    "result or None": {"None"},
    "mesh or None": {"None"},
    "bool": {"True", "False"},
    "stream or None": {"None"},
    "labels": {"booleans", "integers", "[1, 2]", "range(2)"},
    "real array": ARRAYS | NUMBERS | {"[1, 2]", "nan", "inf", "-inf", "True", "False", "none", "range(2)", "()", "[]"},
    "step or mapping": whole_from(1) | {"{'a': 1}"},
    "values": {"floats", "float16", "bfloat16", "integers", "[1, 2]", "range(2)"},
    "list of names": {"['a']"},
    "square matrix": {"matrix"},
    "vector of 2": {"floats", "integers", "booleans", "bfloat16", "float16", "NaNs", "[1, 2]", "range(2)"},
    "weights": set(),
    "loss": {"print", "max", "Truth"},
}
MAY_BE["metrics"] |= {"print", "max"}  # of any number of arguments: refused by what they return


@dataclasses.dataclass(frozen=True)
class Call:
    """A public call, with arguments that are right and the kind of each."""

    make: Callable[..., Any]
    arguments: dict[str, tuple[Any, str]]

    def right(self) -> dict[str, Any]:
        """Arguments that are right."""
        return {name: good for name, (good, _) in self.arguments.items()}


def no_numbers(problem: Any, state: Any) -> dict[str, Any]:
    """A metric that measures nothing."""
    return {}


X, Y, KEY = np.ones(2), np.ones(2), jax.random.key(0)
SAMPLES = np.ones((8, 2)), np.zeros(8, int)
DATASET = ub.Dataset(np.ones(8))
KIND_OF_FIELD = {
    "step_size": "positive", "lower_step_size": "positive", "linear_step_size": "positive or None",
    "neumann_step": "positive or None", "multiplier": "positive", "radius": "positive", "momentum": "fraction",
    "upper_decay": "at least 0", "lower_decay": "at least 0", "decay": "at least 0", "upper_weight": "share",
    "lower_weight": "share", "period": "whole from 1", "lower_steps": "whole from 1", "linear_steps": "whole from 1",
    "checkpoint_batches": "whole from 1", "lower": "lower",
    "warm_start": "lower or None", "refinement": "lower or None",
    "hypergradient": "method", "schedule": "schedule", "optimiser": "optimiser or None", "project": "project",
}  # fmt: skip


def solver_calls() -> dict[str, Call]:
    """A call for the constructor of each solver, from its fields."""
    found = {}
    for name, kind in ub.SOLVERS.items():
        made = kind(0.1, 0.1) if name != "UniBiO" else kind(0.1)
        arguments = {}
        for field in dataclasses.fields(made):
            wanted = {"terms": "whole from 0" if name in ("StocBiO", "VRBO") else "whole from 1"} | KIND_OF_FIELD
            if name == "BO-REP":
                wanted["lower_steps"] = "whole from 2"
            if field.name in wanted:
                kind_ = wanted[field.name]
                optional = field.default is None and not kind_.endswith("None") and f"{kind_} or None" in MAY_BE
                arguments[field.name] = (getattr(made, field.name), f"{kind_} or None" if optional else kind_)
        found[name] = Call(kind, arguments)
    return found


def constructor_calls() -> dict[str, Call]:
    """Everything else that one makes: methods, lower solvers, data, rules, criteria."""
    return {
        "EpochSGD": Call(ub.EpochSGD, {
            "steps": (8, "whole from 1"), "step_size": (0.1, "positive or None"), "first_epoch": (2.0, "at least 2"),
            "radius": (1.0, "positive or None"), "tau": (None, "at least 1 or None"),
        }),
        "SGD": Call(ub.SGD, {"steps": (3, "whole from 1"), "step_size": (0.1, "positive")}),
        "Optax": Call(ub.Optax, {"optimiser": (optax.adam(0.1), "optimiser"), "steps": (3, "whole from 1"),
                                 "step_size": (0.1, "positive")}),
        "Newton": Call(ub.Newton, {"max_steps": (5, "whole from 1")}),
        "CG": Call(ub.CG, {"rtol": (1e-6, "at least 0"), "max_steps": (5, "whole from 1"),
                           "preconditioner": (ub.preconditioners.Jacobi(), "preconditioner")}),
        "Neumann": Call(ub.Neumann, {
            "terms": (3, "whole from 1"), "scale": (1.0, "positive or None"), "power_steps": (3, "whole from 1"),
            "form": (ub.neumann.Horner(), "form"), "preconditioner": (ub.preconditioners.Power(), "preconditioner"),
        }),
        "Unrolled": Call(ub.Unrolled, {"steps": (3, "whole from 1"), "step_size": (0.1, "positive")}),
        "Jacobi": Call(ub.preconditioners.Jacobi, {"probes": (8, "power of two or None")}),
        "Box": Call(ub.Box, {"low": (-1e31, "number"), "high": (1e31, "number")}),
        "Simplex": Call(ub.Simplex, {"total": (1.0, "positive")}),
        "Noise": Call(ub.Noise, dict.fromkeys(("grad_y_g", "grad_x_f", "hess_z"), (0.1, "at least 0 or None"))),
        "Problem": Call(ub.Problem, {
            "f": (f, "function"), "g": (g, "function"), "p": (2.0, "order or None"),
            "f_batches": (None, "sampler or None"), "g_batches": (None, "sampler or None"),
        }),
        "Dataset": Call(ub.Dataset, {
            "data": (np.ones(8), "data"), "batch_size": (2, "whole from 1 or None"), "replace": (None, "flag or None"),
            "chunk_size": (2, "whole from 1 or None"), "stream": (False, "flag"),
        }),
        "Checkpoints": Call(ub.Checkpoints, {"folder": ("x", "path"), "every": (1, "whole from 1"),
                                             "keep": (1, "whole from 1"), "strict": (True, "flag")}),
        "Below": Call(ub.stop.Below, {"name": ("a", "text"), "tolerance": (1.0, "number")}),
        "Above": Call(ub.stop.Above, {"name": ("a", "text"), "bound": (1.0, "number")}),
        "MaxSeconds": Call(ub.stop.MaxSeconds, {"seconds": (1.0, "positive")}),
        "MaxCalls": Call(ub.stop.MaxCalls, {"calls": (1, "whole from 1")}),
        "Truth": Call(ub.metrics.Truth, {"method": (ub.CG(), "method")}),
        "Accuracy": Call(lambda apply, labels, name: ub.metrics.Accuracy(apply, np.ones((8, 2)), labels, name), {
            "apply": (linear, "loss"), "labels": (np.zeros(8, int), "labels"), "name": ("a", "text")}),
        "OnHost": Call(ub.metrics.OnHost, {"function": (len, "criterion"), "names": (("a",), "list of names")}),
        "JSONLines": Call(JSONLines, {"path": ("x", "path")}),
        "Lines": Call(ub.logs.Lines, {"stream": (None, "stream or None")}),
        "Final": Call(ub.criteria.Final, {"metric": ("phi", "text"), "share": (0.2, "share")}),
        "CallsToReach": Call(ub.criteria.CallsToReach, {"target": (1.0, "number"), "metric": ("phi", "text")}),
        "PerSample": Call(ub.problems.PerSample, {"start": (0.0, "number")}),
        "LossNetwork": Call(ub.problems.LossNetwork, {"hidden": (4, "whole from 1")}),
        "NoiseRate": Call(ub.problems.NoiseRate, {"start": (0.05, "fraction")}),
        "LpLoss": Call(ub.problems.LpLoss, {"p": (2.0, "at least 1")}),
    }  # fmt: skip


def function_calls(folder: pathlib.Path) -> dict[str, Call]:
    """The functions. What they need on disk is made in the folder."""
    variables = {"x0": (X, "variable"), "y0": (Y, "variable")}
    solve = {"problem": (PROBLEM, "problem"), "solver": (ub.SOBA(0.1, 0.1), "solver"), **variables}
    ensemble = {
        "seeds": ([0, 1], "seeds"), "steps": (2, "whole from 1"), "metrics": (no_numbers, "metrics"),
        "measurements": (1, "whole from 1"), "folder": (None, "path or None"), "mesh": (None, "mesh or None"),
    }  # fmt: skip
    at = {"problem": (PROBLEM, "problem"), "x": (X, "variable"), "y": (Y, "variable")}
    kinds = {"p": "order", "mu": "positive", "mu_J": "positive", "C": "positive"}
    constants = {field.name: (2.0 if field.name == "p" else 1.0, kinds.get(field.name, "at least 0"))
                 for field in dataclasses.fields(ub.theory.Constants)
                 if field.default is dataclasses.MISSING and not field.name.startswith("sigma")}  # fmt: skip
    cleaning = {"apply": (linear, "loss"), "params": (np.zeros((2, 3)), "variable"), "train": (SAMPLES, "pair"),
                "validation": (SAMPLES, "pair"), "p": (3.0, "order"), "c": (0.1, "at least 0"),
                "batch_size": (2, "whole from 1"), "weights": (ub.problems.PerSample(), "weights"),
                "rho": (None, "at least 0 or None")}  # fmt: skip
    return {
        "solve": Call(ub.solve, solve | {
            "steps": (2, "whole from 0"), "key": (KEY, "key"), "metrics": ((), "metrics"),
            "every": (None, "whole from 1 or None"), "stop": ((), "rules"), "callbacks": ((), "listeners"),
            "chunk": (None, "whole from 1 or None"), "resume": (None, "result or None"),
            "checkpoint": (None, "checkpoint"), "back_off": (0, "whole from 0"),
        }),
        "trajectory": Call(ub.trajectory, {
            "problem": (PROBLEM, "problem"), "solver": (ub.SOBA(0.1, 0.1), "solver"), "x": (X, "variable"),
            "y": (Y, "variable"), "steps": (2, "whole from 1"), "key": (KEY, "key"), "watch": (None, "watch"),
        }),
        "compare": Call(ub.compare, {"problem": (PROBLEM, "problem"), "solvers": ({"a": ub.SOBA(0.1, 0.1)}, "solvers"),
                                     **variables, **ensemble, "steps": (2, "step or mapping")}),
        "compare the solver": Call(lambda solver: ub.compare(PROBLEM, {"a": solver}, X, Y, seeds=[0], steps=1),
                                   {"solver": (ub.SOBA(0.1, 0.1), "solver")}),
        "tune": Call(ub.tune, solve | ensemble | {
            "criterion": (_first, "criterion"), "grid": ({"step_size": [0.1]}, "grid or None"),
            "lanes": (2, "whole from 1"),
        }),
        "tune a field": Call(lambda values: ub.tune(PROBLEM, ub.SOBA(0.1, 0.1), X, Y, seeds=[0], steps=1,
                                                    criterion=_first, metrics=(), grid={"step_size": values}),
                             {"values": ([0.1], "values")}),
        "hypergradient": Call(ub.hypergradient, at | {
            "method": (None, "method or None"), "key": (None, "key or None")}),
        "lower_solution": Call(ub.lower_solution, {"problem": (PROBLEM, "problem"), **{
            "x": (X, "variable"), "y0": (Y, "variable")}}),
        "argmin": Call(lambda problem, x, y: ub.argmin(problem)(x, y), at),
        "differentiable_in_z": Call(ub.differentiable_in_z, at),
        "hyper_cleaning": Call(ub.problems.hyper_cleaning, cleaning),
        "labels": Call(lambda labels: ub.problems.hyper_cleaning(linear, np.zeros((2, 3)), (np.ones((2, 2)), labels),
                                                                 SAMPLES), {"labels": (np.asarray([0, 2]), "labels")}),
        "lp_regression": Call(ub.problems.lp_regression, {"train": (SAMPLES, "pair"), "validation": (SAMPLES, "pair"),
            "p": (2.0, "order"), "c": (0.1, "at least 0"), "batch_size": (2, "whole from 1 or None")}),
        "quadratic": Call(ub.problems.quadratic, {
            "hessian": (np.eye(2), "square matrix"), "coupling": (np.eye(2), "square matrix"),
            "target": (np.ones(2), "vector of 2")}),
        "corrupted_regression": Call(ub.problems.corrupted_regression, {
            "n": (8, "whole from 2"), "d": (2, "whole from 1"), "share": (0.3, "share or 0"), "shift": (1.0, "number"),
            "seed": (0, "whole from 0")}),
        "example3": Call(ub.problems.example3, {"p": (4.0, "order"), "f_batches": (None, "sampler or None")}),
        "example4": Call(ub.problems.example4, {"p": (4.0, "order")}),
        "modulus": Call(ub.theory.modulus, {"p": (4.0, "order"), "dim": (1, "whole from 1")}),
        "Constants": Call(ub.theory.Constants, constants),
        "example3_constants": Call(ub.theory.example3_constants, {"p": (4.0, "order"), "dim": (1, "whole from 1")}),
        "schedule": Call(lambda **more: ub.theory.schedule(ub.theory.example3_constants(4.0, 1), **more),
                         {"epsilon": (0.1, "positive"), "delta": (0.1, "fraction")}),
        "mesh": Call(ub.distributed.mesh, {"parameters": (1, "whole from 1")}),
        "Result.load": Call(ub.Result.load, {"path": (folder / "result.npz", "file")}),
        "Result.save": Call(lambda path: result().save(path), {"path": (folder / "saved.npz", "path")}),
        "Result.plot": Call(lambda path: result().plot(path), {"path": (folder / "drawn.svg", "path or None")}),
        "Comparison.load": Call(ub.Comparison.load, {"folder": (folder / "comparison", "file")}),
        "Comparison.save": Call(lambda folder: compared().save(folder), {"folder": (folder / "again", "path")}),
        "reach": Call(lambda target, metric: compared().reach(target, metric), {
            "target": (1.0, "number"), "metric": ("direction_norm", "file")}),
        "lane": Call(lambda solver, seed: compared().lane(solver, seed), {
            "solver": ("a", "name of a solver"), "seed": (0, "lane")}),
        "flip": Call(lambda labels, seed: label_noise.flip(labels, label_noise.symmetric(0.1, 3), seed), {
            "labels": (np.zeros(4, int), "labels"), "seed": (0, "whole from 0")}),
        "symmetric": Call(label_noise.symmetric, {"rate": (0.1, "rate"), "classes": (3, "whole from 2")}),
        "toy_nli": Call(toy_nli.generate, {"count": (2, "whole from 1"), "seed": (0, "whole from 0")}),
    }  # fmt: skip


MAY_BE |= {"lane": {"0", "1", "True", "False"}, "rate": {"0", "0.5", "np.float64(0.5)", "jnp 0.5"}}


def _first(table: Any) -> tuple[float, ...]:
    return (0.0,)


@functools.cache
def result() -> ub.Result:
    """A run."""
    return ub.solve(PROBLEM, ub.SOBA(0.1, 0.1), X, Y, steps=2, key=KEY)


@functools.cache
def compared() -> ub.Comparison:
    """A comparison."""
    return ub.compare(
        PROBLEM, {"a": ub.SOBA(0.1, 0.1)}, X, Y, seeds=[0, 1], steps=2, measurements=1, metrics=no_numbers
    )


def all_cases(seed: int) -> list[tuple[str, str, str]]:
    """(call, argument, value) of everything that is nonsense, in an order that the seed decides."""
    with tempfile.TemporaryDirectory() as folder:
        calls = all_calls(pathlib.Path(folder))
    cases = [
        (call, argument, value)
        for call, made in calls.items()
        for argument, (_, kind) in made.arguments.items()
        for value in names()
        if value not in MAY_BE[kind]
    ]
    order = np.random.default_rng((seed, 1)).permutation(len(cases))
    return [cases[i] for i in order]


def all_calls(folder: pathlib.Path) -> dict[str, Call]:
    """Every call, by its name."""
    return solver_calls() | constructor_calls() | function_calls(folder)


def try_cases(cases: int, seed: int) -> Iterator[list[Outcome]]:
    """The outcomes of as many cases, all of them if there are fewer, piece by piece."""
    chosen = all_cases(seed)[:cases] if cases else []
    yield from in_processes(work, [(chosen[i : i + 1000],) for i in range(0, len(chosen), 1000)])


def work(cases: list[tuple[str, str, str]]) -> list[Outcome]:
    """The outcomes of these cases. Before the first case of a call its right arguments are tried."""
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)
    outcomes = []
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = pathlib.Path(name)
        result().save(folder / "result.npz")
        compared().save(folder / "comparison")
        calls = all_calls(folder)
        right: set[str] = set()
        for call, argument, value in cases:
            made = calls[call]
            if call not in right:
                made.make(**made.right())
                right.add(call)
            outcomes.append(
                judged(functools.partial(refused, made, {argument: pool()[value]}), f"{call}({argument}={value})")
            )
    return outcomes


def refused(call: Call, wrong: dict[str, Any]) -> str:
    """Makes the call with a wrong argument, which must raise an error."""
    call.make(**call.right() | wrong)
    raise AssertionError("nonsense is accepted")


def signature_gaps() -> list[str]:
    """Arguments of public calls that no case replaces, for whoever extends this."""
    with tempfile.TemporaryDirectory() as folder:
        calls = all_calls(pathlib.Path(folder))
    missing = []
    for name, made in calls.items():
        if inspect.isfunction(made.make) and made.make.__name__ == "<lambda>":
            continue
        wanted = set(inspect.signature(made.make).parameters) - {"self", "args", "kwargs"}
        missing += [f"{name}({argument})" for argument in sorted(wanted - made.arguments.keys())]
    return missing


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    print(f"{len(all_cases(0))} cases; not tried: {', '.join(signature_gaps())}")
