"""What objects print: one short line, with arrays by their shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub
from unibio.core import show

KEY = jax.random.key(0)
SETTING = ub.problems.PROBLEMS["quadratic"]()
SOLVER = ub.StocBiO(0.3, 0.3, lower_steps=3, terms=5)


def a_loss(x, y, batch):
    return jnp.mean(batch.value * y) * x


def test_a_problem_names_its_functions_and_data():
    batches = ub.Dataset(jnp.ones((50, 3)), batch_size=10, stream=True)
    problem = ub.Problem(a_loss, a_loss, p=4.0, g_batches=batches)
    assert repr(problem) == (
        "Problem(f=a_loss, g=a_loss on Dataset(50 samples of f64[50,3] in batches of 10, without replacement, as a "
        "stream), p=4)"
    )
    assert repr(ub.Problem(a_loss, a_loss)) == "Problem(f=a_loss, g=a_loss, p not stated)"
    assert repr(ub.Dataset(np.ones(5, np.float32))) == "Dataset(5 samples of f32[5])"


def test_a_result_says_what_people_ask_first():
    result = ub.solve(SETTING.problem, SOLVER, SETTING.x, SETTING.y, steps=3, key=KEY, metrics=ub.Truth())
    phi, norm = (result.metrics[name][-1] for name in ("phi", "gradient_norm"))
    text = repr(result)
    numbers = f"Φ = {phi:.3g}, ‖∇Φ‖ = {norm:.3g}; {sum(result.calls)} calls"
    assert text.startswith(f"Result(finished after 3 steps, {numbers}")
    assert text.endswith("x: f64[2], y: f64[3])")
    assert "Φ" not in repr(ub.solve(SETTING.problem, SOLVER, SETTING.x, SETTING.y, steps=1, key=KEY))


def test_an_info_prints_outside_and_inside_of_jit_and_vmap():
    def info(x):
        return ub.hypergradient(SETTING.problem, x, SETTING.y)[1]

    outside = info(SETTING.x)
    assert repr(outside).startswith(f"HyperInfo(lower_not_solved: error {float(outside.error):.3g}, lower_residual ")
    assert "error f64[2]" in repr(jax.vmap(info)(jnp.stack([SETTING.x] * 2)))
    seen = []
    jax.jit(lambda x: seen.append(repr(info(x))))(SETTING.x)
    assert seen[0].startswith("HyperInfo(")


def test_a_comparison_prints_as_its_table():
    compared = ub.compare(SETTING.problem, {"StocBiO": SOLVER}, SETTING.x, SETTING.y, steps=2, seeds=range(2))
    assert repr(compared) == str(compared)
    assert "StocBiO" in repr(compared)


def test_quantities_agree_with_their_number():
    assert [show.quantity(n, "step") for n in (0, 1, 1200)] == ["0 steps", "1 step", "1,200 steps"]


@pytest.mark.parametrize("metrics", [ub.Truth(), ()], ids=["measured", "only the history"])
def test_a_result_draws_its_numbers_against_calls(tmp_path, metrics):
    result = ub.solve(SETTING.problem, SOLVER, SETTING.x, SETTING.y, steps=10, key=KEY, metrics=metrics, every=5)
    figure = result.plot(tmp_path / "run.png")
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == (["‖∇Φ‖", "‖y − y*(x)‖", "Φ"] if metrics else ["length of the direction"])
    line = figure.axes[0].lines[0]
    table, name = (result.metrics, "gradient_norm") if metrics else (result.history, "direction_norm")
    np.testing.assert_array_equal(line.get_xdata(), table["calls"])
    np.testing.assert_array_equal(line.get_ydata(), table[name])
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
