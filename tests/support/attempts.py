"""Attempts at cases made by hand, for tests of what is shown of them; needs no framework."""

from __future__ import annotations

from optrove.model.records import Attempt, DeviceKind, Outcome
from optrove.report.attempts import Attempted
from optrove.serializer.described import describe_case
from trove_rows import case, tensor


def add(number=0):
    """Return one of many different cases of ttnn.add."""
    return case("ttnn.add", input_tensor_a=tensor(32, 32), input_tensor_b=number)


def attempted(outcome=Outcome.PASSED, detail=None, one=None, calls=1, **facts):
    """Return what came of a case; what is not said is as usual on a mock board."""
    one = add() if one is None else one
    case_id = describe_case(one).case_id
    usual = {"run_id": "run", "device_kind": DeviceKind.MOCK, "board": "n150"}
    if outcome is not Outcome.NOT_RUN:
        usual["replayed_case_id"] = case_id
    attempt = Attempt(case_id=case_id, outcome=outcome, detail=detail, **{**usual, **facts})
    return Attempted(one, attempt, calls)
