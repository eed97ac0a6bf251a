import dataclasses
import inspect

import pytest

from optrove.model import case, records, values
from optrove.model.records import Accounting, TestOutcome, TestResult
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


def test_parameters_of_a_test_are_kept_in_the_order_of_their_names():
    result = TestResult(
        "run", "test", TestOutcome.PASSED, parameters=(("b", Int(1)), ("a", Int(2)))
    )
    assert result.parameters == (("a", Int(2)), ("b", Int(1)))
