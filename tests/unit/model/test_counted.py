import pytest

from optrove.model.ops import Amount, Counted, Counting, LeftOut, OpCalls, add_up

MOVED = OpCalls("ttnn.to_device", cases=2, calls=7, nested_cases=1, nested_calls=2)
ADDED = OpCalls("ttnn.add", cases=3, calls=12, nested_cases=1, nested_calls=8)
INNER = OpCalls("ttnn.slice", cases=0, calls=0, nested_cases=1, nested_calls=5)
OPS = (MOVED, ADDED, INNER)


@pytest.mark.parametrize(
    ("counting", "counted"),
    [
        (None, Counted(Amount(1, 3, 12), LeftOut(Amount(1, 2, 7), Amount(3, 3, 15)))),
        (Counting(nested=True), Counted(Amount(2, 5, 25), LeftOut(Amount(1, 3, 9)))),
        (
            Counting(all_ops=True),
            Counted(Amount(2, 5, 19), LeftOut(nested=Amount(3, 3, 15))),
        ),
        (Counting(all_ops=True, nested=True), Counted(Amount(3, 8, 34))),
    ],
)
def test_what_is_not_counted_is_left_out_by_exactly_one_reason(counting, counted):
    found = add_up(OPS, counting)
    assert found == counted
    together = found.left.moving + found.left.nested + found.amount
    assert (together.cases, together.calls) == (8, 34)


def test_nothing_called_counts_nothing():
    assert add_up(()) == Counted()
