import dataclasses

import pytest

from optrove.model.case import Case
from optrove.model.records import Attempt, DeviceKind, Measurement, Outcome, Query, Sweep
from optrove.model.values import Int, Text, Tuple
from optrove.serializer.records import record_from_builtins, record_to_builtins
from optrove.serializer.text import read, write

ATTEMPT = Attempt(
    *("run", "case", Outcome.PASSED, DeviceKind.MOCK),
    measurements=(Measurement("pcc", 1.0), Measurement("ulp", float("inf"), passed=False)),
)


def again(record):
    return record_from_builtins(read(write(record_to_builtins(record))), type(record))


@pytest.mark.parametrize("number", [3, True, 0.5, -0.0, float("nan"), float("-inf"), 10**20])
def test_a_measurement_of_any_number_is_read_back(number):
    for measurement in (Measurement("n", number), Measurement("n", 1.0, threshold=number)):
        attempt = dataclasses.replace(ATTEMPT, measurements=(measurement,))
        assert again(attempt) == attempt
        assert hash(again(attempt)) == hash(attempt)
        assert record_to_builtins(again(attempt)) == record_to_builtins(attempt)


def test_fields_that_have_their_default_are_left_out():
    assert record_to_builtins(Query()) == {}
    assert record_to_builtins(Query(shape=(1, 2), vectors=True)) == {
        "shape": [1, 2],
        "vectors": True,
    }
    assert again(Sweep(filters=(("a", "b"),))) == Sweep(filters=(("a", "b"),))


def test_equal_records_have_equal_text():
    case = Case("ttnn.add", (("b", Int(1)), ("a", Tuple((Text("line\nbreak\u2028"),)))))
    text = write(record_to_builtins(case))
    assert write(record_to_builtins(Case("ttnn.add", case.arguments[::-1]))) == text
    assert text.isascii()
    assert len(text.splitlines()) == 1
