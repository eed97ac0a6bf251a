"""Attempts at cases made by hand, for tests of what is shown of them; needs no framework."""

from __future__ import annotations

from optrove.model.records import Attempt, AttemptedCase, DeviceKind, Outcome
from optrove.serializer.described import describe_case
from trove_rows import case, tensor


def add(number=0):
    """Return one of many different cases of ttnn.add."""
    return case("ttnn.add", input_tensor_a=tensor(32, 32), input_tensor_b=number)


def attempted(outcome=Outcome.PASSED, detail=None, one=None, calls=1, **facts):
    """Return an attempt at a case; the defaults are those of a mock board."""
    one = add() if one is None else one
    described = describe_case(one)
    case_id = described.case_id
    usual = {"run_id": "run", "device_kind": DeviceKind.MOCK, "board": "n150"}
    if outcome is not Outcome.NOT_RUN:
        usual["replayed_case_id"] = case_id
    attempt = Attempt(case_id=case_id, outcome=outcome, detail=detail, **{**usual, **facts})
    return AttemptedCase(one.op, attempt, calls, described.content)
