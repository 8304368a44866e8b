"""Logs of a run: what is in the files, and that an interrupted run's log goes on without gaps or doubles."""

import io
import json
import os

import pytest

from unibio.run.logs import JSONLines, Lines

ROWS = [{"step": t, "calls": 10 * t, "seconds": 0.5 * t, "direction_norm": 1 / (t + 1)} for t in (4, 8, 12)]


def test_lines():
    stream = io.StringIO()
    Lines(stream)(ROWS[0])
    assert stream.getvalue() == "step 4  calls 40  seconds 2  direction_norm 0.2\n"


def test_a_log_goes_on(tmp_path):
    """The first run dies after step 12, in the middle of a line; the second goes on from step 6, the third is new."""
    path = tmp_path / "log"
    first = JSONLines(path)
    for row in ROWS:
        first(row)
    with path.open("a") as file:
        file.write('{"step": 16, "cal')
    second = JSONLines(path)
    second.begin(6, 0)
    for row in ({**ROWS[1], "calls": 81}, ROWS[2]):
        second(row)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [int(line["step"]) for line in lines] == [4, 8, 12]
    assert [int(line["calls"]) for line in lines] == [40, 81, 120]
    assert [float(line["direction_norm"]) for line in lines] == [1 / 5, 1 / 9, 1 / 13]

    second.begin(0, 0)
    second(ROWS[2])
    assert len(path.read_text().splitlines()) == 1


def test_a_log_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    log = JSONLines(tmp_path / "file" / "log")
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        log(ROWS[0])
    log(ROWS[1])  # said once


@pytest.mark.parametrize(
    "line", ["5", "null", '"a"', "[]", "{}", '{"step": "a"}', '{"step": Infinity}', "[" * 10**5, "not JSON", ""]
)
def test_a_file_with_other_lines_is_kept(tmp_path, line):
    """What no run has written is not lost, and does not end the run."""
    path = tmp_path / "log"
    path.write_text(json.dumps(ROWS[0]) + "\n" + line + "\n")
    before = path.read_bytes()
    for start, kept in ((6, [4, 8]), (0, [8])):
        path.write_bytes(before)
        log = JSONLines(path)
        log.begin(start, 0)
        with pytest.warns(UserWarning, match="has lines that no run has written; it is kept as"):
            log(ROWS[1])
        assert [json.loads(each)["step"] for each in path.read_text().splitlines()] == kept
    others = [other.read_bytes() for other in tmp_path.iterdir() if other != path]
    assert others == [before, before]


def test_a_log_does_not_replace_a_device(tmp_path):
    """A pipe stands for it: if this test fails, nothing on the machine is spoilt."""
    os.mkfifo(tmp_path / "device")
    log = JSONLines(tmp_path / "device")
    with pytest.warns(RuntimeWarning, match="is no regular file"):
        log(ROWS[0])


def test_steps_that_back_off_undid_stay_in_the_log(tmp_path):
    """The run was restarted at step 4 after step 12, and killed after step 8: what it wrote before its restart is no
    later than its last checkpoint."""
    path = tmp_path / "log"
    first = JSONLines(path)
    for row in [*ROWS, {**ROWS[1], "restarts": 1}, {**ROWS[2], "restarts": 1}]:
        first(row)
    again = JSONLines(path)
    again.begin(8, 1)
    again({**ROWS[2], "restarts": 1})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["step"], line.get("restarts", 0)) for line in lines] == [(4, 0), (8, 0), (12, 0), (8, 1), (12, 1)]


def test_a_run_that_goes_on_after_a_restart_at_its_start_keeps_the_lines_before_it(tmp_path):
    """The run was restarted from step 0 twice, and died after it had stored that; the next process goes on there."""
    path = tmp_path / "log"
    first = JSONLines(path)
    first.begin(0, 0)
    for restarts, step in ((0, 4), (1, 0), (2, 0), (2, 4)):
        first({**ROWS[0], "step": step, "restarts": restarts})
    second = JSONLines(path)
    second.begin(0, 2)
    second({**ROWS[0], "restarts": 2})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["restarts"], line["step"]) for line in lines] == [(0, 4), (1, 0), (2, 0), (2, 4)]
