"""Pieces of an experiment: saved, found again, and computed again when damaged or made with other arguments."""

import subprocess
import time
import warnings

import pytest

from unibio.paper.framework.pieces import Piece, gather, helpers
from unibio.paper.framework.study import Options, child

CALLS: list[int] = []


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


def saved_in(folder, **others):
    return Options(folder="" if folder is None else str(folder), **others)


def test_saved_and_found_again(tmp_path):
    messages: list[str] = []
    first = gather(pieces(), saved_in(tmp_path), messages.append)
    assert first["up to 2"] == [{"n": 1, "value": 1.0}, {"n": 2, "value": 4.0}]
    assert messages == ["up to 2 (1 of 2)", "up to 3 (2 of 2)"]
    assert gather(pieces(), saved_in(tmp_path), messages.append) == first
    assert CALLS == [2, 3]
    gather(pieces(power=3), saved_in(tmp_path), messages.append)
    assert CALLS == [2, 3, 2, 3]
    for _ in range(2):
        gather(pieces(power=3), saved_in(tmp_path), messages.append, data="other files")
    assert CALLS == [2, 3, 2, 3, 2, 3]


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:-3], lambda b: b.replace(b"1", b"7", 1)])
def test_a_damaged_piece_is_redone(tmp_path, damage):
    first = gather(pieces(), saved_in(tmp_path), lambda text: None)
    CALLS.clear()
    for file in tmp_path.iterdir():
        file.write_bytes(damage(file.read_bytes()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert gather(pieces(), saved_in(tmp_path), lambda text: None) == first
    assert CALLS == [2, 3]


def test_an_error_keeps_what_is_finished(tmp_path):
    with pytest.raises(ValueError, match="no such data"):
        gather([*pieces(), Piece("broken", broken, {})], saved_in(tmp_path), lambda text: None)
    CALLS.clear()
    gather(pieces(), saved_in(tmp_path), lambda text: None)
    assert CALLS == []


def test_every_order_gives_the_same(tmp_path):
    """Of three processes each has its own, and finds what another has made."""
    made = [gather(pieces(), saved_in(None, turn=turn), lambda text: None) for turn in range(3)]
    assert made[0] == made[1] == made[2]
    assert list(made[1]) == ["up to 2", "up to 3"]
    assert CALLS[:4] == [2, 3, 3, 2]
    CALLS.clear()
    for turn in range(3):
        gather(pieces(), saved_in(tmp_path, turn=turn), lambda text: None)
    assert CALLS == [2, 3]


SMALL = {"hidden": "4", "train": "64", "validation": "32", "tuning": "32", "test": "32", "epochs": "1", "p": "3",
         "seeds": "1", "more_seeds": "1"}  # fmt: skip


@pytest.mark.slow
def test_a_helper_makes_pieces_and_ends_with_its_parent(tmp_path):
    options = Options(settings=tuple(SMALL.items()), folder=str(tmp_path / "pieces"), jobs=2)
    with helpers("hypercleaning", options):
        end = time.monotonic() + 240
        while not list(tmp_path.glob("pieces/*.table")):
            assert time.monotonic() < end
            time.sleep(0.1)
    count = len(list(tmp_path.glob("pieces/*.table")))
    command = child("", "hypercleaning", options._replace(turn=1))
    left = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1)
    assert left.stdin is not None
    left.stdin.close()
    assert left.wait(60) == 1
    assert len(list(tmp_path.glob("pieces/*.table"))) == count
