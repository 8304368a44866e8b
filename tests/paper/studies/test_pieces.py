"""Pieces of an experiment: kept, found again, redone when damaged or made otherwise."""

import pytest

from unibio.paper.framework.pieces import Piece, gather

CALLS = []


def squares(count, power=2):
    CALLS.append(count)
    return [{"n": n, "value": float(n**power)} for n in range(1, count + 1)]


def broken():
    raise ValueError("no such data")


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()


def pieces(power=2):
    return [Piece(f"up to {count}", squares, {"count": count, "power": power}) for count in (2, 3)]


def test_kept_and_found_again(tmp_path):
    said = []
    first = gather(pieces(), tmp_path, 1, said.append)
    assert first["up to 2"] == [{"n": 1, "value": 1.0}, {"n": 2, "value": 4.0}]
    assert said == ["up to 2 (1 of 2)", "up to 3 (2 of 2)"]
    assert gather(pieces(), tmp_path, 1, said.append) == first
    assert CALLS == [2, 3]
    gather(pieces(power=3), tmp_path, 1, said.append)
    assert CALLS == [2, 3, 2, 3]
    for _ in range(2):
        gather(pieces(power=3), tmp_path, 1, said.append, data="other files")
    assert CALLS == [2, 3, 2, 3, 2, 3]


@pytest.mark.parametrize("name", ["up to 2.csv", "up to 2.json"])
@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:-3], lambda b: b.replace(b"1", b"7", 1)])
def test_a_damaged_piece_is_redone(tmp_path, name, damage):
    first = gather(pieces(), tmp_path, 1, lambda text: None)
    CALLS.clear()
    file = tmp_path / name
    file.write_bytes(damage(file.read_bytes()))
    assert gather(pieces(), tmp_path, 1, lambda text: None) == first
    assert CALLS in ([2], [])
    if name.endswith("csv"):
        assert CALLS == [2]


def test_an_error_keeps_what_is_finished(tmp_path):
    with pytest.raises(ValueError, match="no such data"):
        gather([*pieces(), Piece("broken", broken, {})], tmp_path, 1, lambda text: None)
    CALLS.clear()
    gather(pieces(), tmp_path, 1, lambda text: None)
    assert CALLS == []


@pytest.mark.slow
def test_in_processes(tmp_path):
    assert gather(pieces(), tmp_path, 2, lambda text: None) == gather(pieces(), None, 1, lambda text: None)
