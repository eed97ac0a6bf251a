import dataclasses
import io

import pytest

from optrove.errors import BadData
from optrove.model.case import Case
from optrove.model.records import Attempt, Call, DeviceKind, Measurement, Outcome
from optrove.model.values import Int, Text, Tuple
from optrove.serializer.lines import (
    CURRENT_VERSION,
    UPGRADES,
    BadLine,
    GoodLine,
    Upgrades,
    read_lines,
    record_line,
    scan_lines,
    write_lines,
)

CASE = Case("ttnn.add", (("b", Int(1)), ("a", Tuple((Text("line\nbreak\u2028"),)))))
CALL = Call("run", "case", 3, outputs=(Int(1),))
ATTEMPT = Attempt(
    *("run", "case", Outcome.PASSED, DeviceKind.MOCK),
    measurements=(Measurement("pcc", 1.0), Measurement("ulp", float("inf"), passed=False)),
)


def test_written_records_are_read_back_in_order():
    stream = io.BytesIO()
    assert write_lines(stream, [CASE, CALL, ATTEMPT]) == 3
    stream.seek(0)
    assert read_lines(stream) == (CASE, CALL, ATTEMPT)


@pytest.mark.parametrize("number", [3, True, 0.5, -0.0, float("nan"), float("-inf"), 10**20])
def test_a_measurement_of_any_number_is_read_back(number):
    for measurement in (Measurement("n", number), Measurement("n", 1.0, threshold=number)):
        attempt = dataclasses.replace(ATTEMPT, measurements=(measurement,))
        stream = io.BytesIO()
        write_lines(stream, [attempt])
        stream.seek(0)
        (again,) = read_lines(stream)
        assert again == attempt
        assert hash(again) == hash(attempt)
        assert record_line(again) == record_line(attempt)


def test_a_line_is_ascii_and_holds_no_other_line_break():
    line = record_line(CASE)
    assert line.isascii()
    assert line.decode("ascii").splitlines(keepends=True) == [line.decode("ascii")]


def test_equal_records_have_equal_lines():
    assert record_line(Case("ttnn.add", CASE.arguments[::-1])) == record_line(CASE)


def test_empty_lines_are_skipped_but_counted():
    stream = io.BytesIO()
    write_lines(stream, [CASE])
    stream.write(b"\n  \n" + record_line(CALL))
    stream.seek(0)
    assert [line.number for line in scan_lines(stream)] == [2, 5]


def test_reading_names_the_line_of_every_fault():
    stream = io.BytesIO(b'{"format":"optrove","version":1}\n{\n\n[]\n')
    with pytest.raises(BadData) as caught:
        read_lines(stream)
    assert [fault.path for fault in caught.value.faults] == ["line 2: $", "line 4: $"]


def test_old_records_are_lifted_one_version_at_a_time():
    def rename(kind, raw):
        return {("op" if key == "operation" else key): item for key, item in raw.items()}

    def prefix(kind, raw):
        return {**raw, "op": f"ttnn.{raw['op']}"}

    upgrades = Upgrades(3, [(2, prefix), (1, rename)])
    old = b'{"format":"optrove","version":1}\n'
    record = b'{"kind":"case","record":{"operation":"add","arguments":{}}}\n'
    (line,) = scan_lines(io.BytesIO(old + record), upgrades)
    assert line == GoodLine(2, Case("ttnn.add", ()))
    newer = old.replace(b"1", b"2")
    (line,) = scan_lines(io.BytesIO(newer + record.replace(b"operation", b"op")), upgrades)
    assert line == GoodLine(2, Case("ttnn.add", ()))
    (line,) = scan_lines(io.BytesIO(newer + record), upgrades)
    assert isinstance(line, BadLine)
    assert "not a case of format version 2" in line.faults[0].problem


def step(kind, raw):
    return raw


def test_a_step_may_not_be_registered_twice():
    with pytest.raises(ValueError, match="two steps lift version 1"):
        Upgrades(2, [(1, step), (1, step)])


@pytest.mark.parametrize(("current", "versions"), [(3, [1]), (3, [2]), (1, [1]), (2, [])])
def test_every_version_needs_its_step(current, versions):
    with pytest.raises(ValueError, match="needs one"):
        Upgrades(current, [(version, step) for version in versions])


def test_the_table_of_steps_reaches_the_current_version():
    assert UPGRADES.current == CURRENT_VERSION
