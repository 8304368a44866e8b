import tracemalloc

import numpy as np
import pytest

from unibio.run.result import joined
from unibio.run.rows import Rows, length


def row(step, **values):
    return {"step": np.asarray([step])} | {name: np.asarray([value]) for name, value in values.items()}


def plain(tables, keep=lambda step: True):
    return joined([{name: column[keep(t["step"])] for name, column in t.items()} for t in tables])


@pytest.mark.parametrize("lengths", [[1] * 37, [5, 1, 1, 8, 2], [0, 3, 0, 1], []])
def test_it_is_the_list_of_tables_joined(lengths):
    tables, step = [], 0
    rows = Rows()
    for number in lengths:
        steps = np.arange(step, step + number)
        table = {"step": steps, "a": steps**2, "b": steps + 0.5}
        tables.append(table)
        rows.add(table)
        step += number
    assert len(rows) == step
    assert len(rows.tables) <= np.log2(max(step, 1)) + 2
    for number in range(step + 1):
        expected = plain(tables, lambda s, n=number: s >= n) if number < step else {}
        found = rows.since(number)
        assert length(found) == step - number
        for name, column in expected.items():
            np.testing.assert_array_equal(found[name], column)
            assert found[name].dtype == column.dtype


def test_a_column_that_comes_later_is_nan_before():
    rows = Rows(row(0, a=1.0))
    for step in range(1, 5):
        rows.add(row(step, a=2.0, b=3.0))
    np.testing.assert_array_equal(rows.since(0)["b"], [np.nan, 3, 3, 3, 3])


def test_cut_forgets_what_came_later():
    rows = Rows()
    for step in range(10):
        rows.add(row(step, a=step))
    rows.cut(6)
    assert rows.since(0)["a"].tolist() == list(range(7))
    rows.add(row(7, a=70))
    assert rows.since(6)["a"].tolist() == [6, 70]


def test_a_row_takes_little_more_than_its_numbers():
    """Rows that are views of a large buffer, as a stretch of one step gives them."""
    number, columns = 4096, [f"c{i}" for i in range(10)]
    rows = Rows()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for step in range(number):
        buffer = np.zeros(1024)
        rows.add({"step": np.asarray([step])} | dict.fromkeys(columns, buffer[:1]))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (after - before) / number < 8 * (len(columns) + 1) + 200
