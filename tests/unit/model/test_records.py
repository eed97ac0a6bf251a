import dataclasses
import inspect

import pytest

from optrove.model import case, records, values
from optrove.model.records import Accounting, Measurement, TestOutcome, TestResult
from optrove.model.values import Int

CLASSES = [
    kind
    for module in (values, case, records)
    for _, kind in inspect.getmembers(module, dataclasses.is_dataclass)
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_record_is_frozen_and_has_slots(kind):
    assert kind.__dataclass_params__.frozen
    assert "__slots__" in kind.__dict__


def test_accounting_adds_up_only_when_no_call_is_missing():
    assert Accounting().adds_up()
    assert Accounting(10, 3, 2, (("hidden", 4),), (("a.Type", 1),)).adds_up()
    assert not Accounting(10, 3, 2, (("hidden", 4),)).adds_up()


def test_measurements_are_equal_when_their_bits_are():
    assert Measurement("n", float("nan")) == Measurement("n", -float("nan"))
    assert Measurement("n", 0.0) != Measurement("n", -0.0)
    assert Measurement("n", 1) == Measurement("n", 1.0)
    assert Measurement("n", 1.0) != Measurement("n", 1.0, threshold=1.0)
    assert Measurement("n", 1.0) != ("n", 1.0, None, None, None)
    assert len({Measurement("n", float("nan")) for _ in range(3)}) == 1


def test_a_measurement_is_a_number():
    with pytest.raises(TypeError, match="n was measured as the text"):
        Measurement("n", "1.0")


def test_parameters_of_a_test_are_kept_in_the_order_of_their_names():
    result = TestResult(
        "run", "test", TestOutcome.PASSED, parameters=(("b", Int(1)), ("a", Int(2)))
    )
    assert result.parameters == (("a", Int(2)), ("b", Int(1)))
