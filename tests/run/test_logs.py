"""Logs of a run: what is in the files, and that an interrupted run's log goes on without gaps or doubles."""

import csv
import io
import json
import math
import struct

import pytest

from unibio.run.logs import CSVLog, JSONLines, Lines, TensorBoard

ROWS = [{"step": t, "calls": 10 * t, "seconds": 0.5 * t, "direction_norm": 1 / (t + 1)} for t in (4, 8, 12)]


def test_lines():
    stream = io.StringIO()
    Lines(stream)(ROWS[0])
    assert stream.getvalue() == "step 4  calls 40  seconds 2  direction_norm 0.2\n"


@pytest.mark.parametrize("kind", [JSONLines, CSVLog])
def test_a_log_goes_on(tmp_path, kind):
    """The first run dies after step 12, in the middle of a line; the second goes on from step 6, the third is new."""
    path = tmp_path / "log"
    first = kind(path)
    for row in ROWS:
        first(row)
    with path.open("a") as file:
        file.write('{"step": 16, "cal')
    second = kind(path)
    second.begin(6)
    for row in ({**ROWS[1], "calls": 81}, ROWS[2]):
        second(row)
    with path.open(newline="") as file:
        lines = [json.loads(line) for line in file] if kind is JSONLines else list(csv.DictReader(file))
    assert [int(line["step"]) for line in lines] == [4, 8, 12]
    assert [int(line["calls"]) for line in lines] == [40, 81, 120]
    assert [float(line["direction_norm"]) for line in lines] == [1 / 5, 1 / 9, 1 / 13]

    second.begin(0)
    second(ROWS[2])
    assert len(path.read_text().splitlines()) == (1 if kind is JSONLines else 2)


@pytest.mark.parametrize("kind", [JSONLines, CSVLog, TensorBoard])
def test_a_log_that_cannot_be_written(tmp_path, kind):
    (tmp_path / "file").touch()
    log = kind(tmp_path / "file" / "log")
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        log(ROWS[0])
    log(ROWS[1])  # said once


def crc32c(content):
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1))
    return crc ^ 0xFFFFFFFF


def fields(message):
    """(number, value) of a protocol buffer's fields."""
    place = 0

    def varint():
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        content, place = message[place : place + size], place + size
        yield key >> 3, struct.unpack("<d", content)[0] if kind == 1 else content


def test_tensorboard(tmp_path):
    """The event file read by the formats' definitions."""
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    log = TensorBoard(tmp_path)
    log.begin(2)
    for row in (*ROWS, {"step": 16, "huge": 1e300}):
        log(row)
    (path,) = tmp_path.iterdir()
    content, events = path.read_bytes(), []
    while content:
        length, crc = struct.unpack("<QI", content[:12])
        event, rest = content[12 : 12 + length], content[12 + length :]
        for part, stated in ((content[:8], crc), (event, struct.unpack("<I", rest[:4])[0])):
            sum_ = crc32c(part)
            assert stated == ((sum_ >> 15 | sum_ << 17) + 0xA282EAD8) & 0xFFFFFFFF
        events.append(dict(fields(event)))
        content = rest[4:]
    assert events[0][3] == b"brain.Event:2"
    assert (events[1][2], dict(fields(events[1][7]))) == (3, {1: 1})  # a session starts at step 3
    assert [event[2] for event in events[2:]] == [4, 8, 12, 16]
    values = [dict(fields(value)) for number, value in fields(events[3][5]) if number == 1]
    found = {value[1].decode(): struct.unpack("<f", value[2])[0] for value in values}
    assert found.keys() == {"calls", "seconds", "direction_norm"}
    assert math.isclose(found["direction_norm"], 1 / 9, rel_tol=1e-6)
