"""What is handed to a wrong place is refused by its name, before anything is compiled, and always by the same check."""

# mypy: disable-error-code="arg-type,call-overload,dict-item,misc,list-item"

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.core import kinds
from unibio.core.protocols import BilevelSolver, Hypergradient, LowerSolver

KEY = jax.random.key(0)


def f(x, y, batch):
    return jnp.sum(y**2) + jnp.sum(x)


def g(x, y, batch):
    return jnp.sum((y - jnp.sum(x)) ** 2) / 2


PROBLEM, SOLVER = ub.Problem(f, g, 2.0), ub.SOBA(0.1, 0.1)
ONE = np.ones(2)


def solve(**others):
    arguments = {"problem": PROBLEM, "solver": SOLVER, "x0": ONE, "y0": ONE, "steps": 2, "key": KEY} | others
    return ub.solve(**arguments)


def compare(**others):
    arguments = {"problem": PROBLEM, "solvers": {"a": SOLVER}, "x0": ONE, "y0": ONE, "seeds": [0], "steps": 1} | others
    return ub.compare(**arguments)


def tune(**others):
    arguments = {"problem": PROBLEM, "solver": SOLVER, "x0": ONE, "y0": ONE, "seeds": [0], "steps": 1} | others
    return ub.tune(**arguments)


def trajectory(**others):
    arguments = {"problem": PROBLEM, "solver": SOLVER, "x": ONE, "y": ONE, "steps": 2, "key": KEY} | others
    return ub.trajectory(**arguments)


def made(kind, **fields):
    return lambda: kind(0.1, **fields)


LOWER, METHOD = ub.SGD(3, 0.1), ub.CG()
WRONG = {
    "a preconditioner as lower": (made(ub.UniBiO, lower=ub.preconditioners.Identity()), "lower .* is a Preconditioner"),
    "a method as lower": (made(ub.UniBiO, lower=METHOD), "lower must be EpochSGD.*CG.* is a Hypergradient"),
    "a lower solver as method": (made(ub.UniBiO, hypergradient=LOWER), "hypergradient must be .* is a LowerSolver"),
    "a method as warm start": (made(ub.UniBiO, warm_start=METHOD), "warm_start must be .* is a Hypergradient"),
    "a solver as lower": (made(ub.UniBiO, lower=SOLVER), "lower must be .* cannot be called"),
    "a class as lower": (made(ub.UniBiO, lower=ub.SGD), "lower must be .* is a class: make an instance"),
    "a method as refinement": (lambda: ub.BOREP(0.1, 0.1, refinement=METHOD), "refinement must be .* a Hypergradient"),
    "a lower solver as project": (made(ub.UniBiO, project=LOWER), r"project .* with 1 arguments \(x\)"),
    "text as project": (made(ub.UniBiO, project="box"), "project must be a function of x"),
    "a number as schedule": (made(ub.UniBiO, schedule=0.5), "schedule must be a function t"),
    "six arguments as schedule": (made(ub.UniBiO, schedule=lambda a, b: 1.0), r"schedule .* 1 arguments \(t\)"),
    "a method as preconditioner": (lambda: ub.CG(preconditioner=METHOD), "preconditioner .* is a Hypergradient"),
    "a preconditioner as form": (lambda: ub.Neumann(form=ub.preconditioners.Power()), "form must be .* no method prod"),
    "f of two arguments": (lambda: ub.Problem(lambda x, y: 0.0, g), r"f must be .* 3 arguments \(x, y, batch\)"),
    "a lower solver as solver": (lambda: solve(solver=LOWER), "solver must be .* no method init"),
    "a rule as metric": (lambda: solve(metrics=ub.stop.MaxCalls(3)), "a metric must be .* cannot be called"),
    "a metric of one argument": (lambda: solve(metrics=len), r"a metric is called as metric\(problem, state\); len"),
    "a number as rule": (lambda: solve(stop=3), "stop must be .* cannot be called"),
    "a function of one argument as rule": (lambda: solve(stop=lambda row: True), "stop must be .* 3 arguments"),
    "a function of none as callback": (lambda: solve(callbacks=lambda: None), r"callbacks must be .* \(row\)"),
    "a number as key": (lambda: trajectory(key=0), "key must be one random key"),
    "no key": (lambda: trajectory(key=None), "trajectory needs key"),
    "a number as watch": (lambda: trajectory(watch=3), "watch must be a function of the state"),
    "a watch that gives text": (lambda: trajectory(watch=lambda state: "x"), r"watch\(state\) must be an array"),
    "text as x": (lambda: solve(x0=np.asarray(["a"])), "x must be an array of real numbers"),
    "objects as x": (lambda: solve(x0=np.asarray([object()])), "x must be an array of real numbers"),
    "bfloat16 as x": (lambda: solve(x0=jnp.ones(2, jnp.bfloat16)), "x has dtype bfloat16"),
    "text as data": (lambda: ub.Dataset(np.asarray(["a", "b"])), "data must be an array of real numbers"),
    "a module as data": (lambda: ub.Dataset(np), "data must be an array of real numbers"),
    "ragged data": (lambda: ub.Dataset((np.asarray([object(), None]),)), r"data\[0\] must be an array"),
    "a number as mesh": (lambda: compare(mesh=1), "mesh must be one such as"),
    "a number as folder": (lambda: compare(folder=3), "folder must be a path"),
    "a second solver that is none": (lambda: compare(solvers={"a": SOLVER, "b": LOWER}), "solver must be"),
    "a name that is none": (lambda: compare(solvers={1: SOLVER}), "the name of a solver must be a text"),
    "no criterion": (lambda: tune(criterion=None), "criterion must be Final"),
    "a number as criterion": (lambda: tune(criterion=3), "criterion must be Final"),
    "a list as grid": (lambda: tune(grid=[]), "grid must be values by field"),
    "a number as metric's name": (lambda: ub.criteria.Final(metric=3), "metric must be a text"),
    "a number as rule's name": (lambda: ub.stop.Below(3, 1.0), "must be a text"),
    "strict of text": (lambda: ub.Checkpoints("x", strict="no"), "strict must be True or False"),
    "a number as log": (lambda: ub.logs.JSONLines(3), "must be a path"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_refused_before_anything_is_compiled(monkeypatch, call, message):
    monkeypatch.setattr("unibio.core.programs.Programs.__call__", lambda *a, **k: pytest.fail("compiled"))
    with pytest.raises((TypeError, ValueError), match=message):
        call()


RETURNED = {
    "project of another shape": (ub.UniBiO(0.1, project=lambda x: x[:1]), r"project\(x\) has shape \(1,\)"),
    "project of nothing": (ub.UniBiO(0.1, project=lambda x: None), r"project\(x\) must have the structure"),
    "schedule of text": (ub.UniBiO(0.1, schedule=lambda t: "a"), r"schedule\(t\) must be an array of real"),
    "schedule of a vector": (ub.UniBiO(0.1, schedule=lambda t: jnp.ones(3)), r"schedule\(t\) has shape \(3,\)"),
}


@pytest.mark.parametrize(("solver", "message"), RETURNED.values(), ids=RETURNED)
def test_what_a_function_returns_is_checked(solver, message):
    with pytest.raises((TypeError, ValueError), match=message):
        solve(solver=solver)


def test_other_names_of_arguments_are_fine():
    class Mine(ub.SGD):
        def __call__(self, slope, samples, start, order):
            return super().__call__(slope, samples, start, order)

    assert kinds.fits(Mine(3, 0.1), LowerSolver)
    assert kinds.fits(METHOD, Hypergradient)
    assert kinds.fits(SOLVER, BilevelSolver)
    assert not kinds.fits(SOLVER, LowerSolver)
    assert solve(solver=ub.UniBiO(0.1, lower=Mine(3, 0.1), hypergradient=METHOD)).steps == 2


def test_a_damaged_comparison_is_named(tmp_path):
    compare(metrics=size).save(tmp_path)
    assert ub.Comparison.load(tmp_path).solvers == ["a"]
    for name in ("comparison.csv", "timings.csv", "comparison.json"):
        path = tmp_path / name
        content = path.read_bytes()
        other = content.replace(b"1", b"2", 1) if name.endswith("csv") else b"3"
        for bad in (content[:-9], b"", b"\xff\xfe", other, b"[" * 10**5, b"{}", b"[]"):
            path.write_bytes(bad)
            with pytest.raises(ValueError, match=f"holds no comparison that Comparison.save wrote: {name} is damaged"):
                ub.Comparison.load(tmp_path)
        path.unlink()
        with pytest.raises(ValueError, match=f"{name} is missing"):
            ub.Comparison.load(tmp_path)
        path.write_bytes(content)


def size(problem, state):
    return {"gradient_norm": jnp.sum(state.x**2)}


def linear(w, inputs):
    return inputs @ w


@pytest.mark.parametrize("which", ["train", "validation"])
@pytest.mark.parametrize(
    ("label", "message"),
    [(-1, "sample 2 has the label -1.*0 to 2"), (7, "sample 2 has the label 7.*3 outputs"), (1.5, "whole numbers")],
)
def test_labels_are_numbers_of_classes(which, label, message):
    good = np.ones((5, 2)), np.asarray([0, 1, 2, 0, 1])
    bad = good[0], np.asarray([0, 1, label, 0, 1])
    pairs = {"train": good, "validation": good} | {which: bad}
    with pytest.raises((ValueError, TypeError), match=f"the labels of {which}.*{message}"):
        ub.problems.hyper_cleaning(linear, np.zeros((2, 3)), **pairs)


def test_labels_of_another_loss_may_be_anything():
    pair = np.ones((5, 2)), np.linspace(-1, 7, 5)[:, None]
    made = ub.problems.hyper_cleaning(linear, np.zeros((2, 1)), pair, pair, loss=ub.problems.LpLoss(3.0))
    assert made.x.shape == (5,)


def test_nan_in_the_data_of_a_sweep_is_told():
    rows = np.ones(20)
    rows[3] = np.nan

    def f_of(x, y, batch):
        return jnp.mean(batch.value) * jnp.sum(y**2)

    problem = ub.Problem(f_of, g, 2.0, f_batches=ub.Dataset(rows))
    with pytest.raises(ValueError, match="f is NaN or infinite at the start already, in sample 3 of 20"):
        tune(problem=problem, metrics=size, grid={"step_size": [0.1]}, steps=4)


def test_an_endless_number_of_seeds_is_refused():
    with pytest.raises(ValueError, match="more than 1,048,576 seeds"):
        compare(seeds=range(10**20))


@pytest.mark.parametrize("content", ["[" * 10**5, '{"p": ' * 10**5])
def test_deeply_nested_json_is_told(tmp_path, content):
    from unibio.cli.theory import read_constants

    path = tmp_path / "c.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"c\.json is not JSON"):
        read_constants(path)
