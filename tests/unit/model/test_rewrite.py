from hypothesis import given

from optrove.model.case import Case, renamed, rewrite
from optrove.model.values import Handle, Int, List, NumpyPlacement, Struct, TensorSpec, Tuple
from strategies import values


@given(values)
def test_rewriting_nothing_changes_nothing(value):
    assert rewrite(value, lambda part: part) == value


def test_every_part_can_be_changed():
    def larger(part):
        return Int(part.value + 1) if isinstance(part, Int) else part

    value = List((Int(1), Tuple((Int(2),)), Struct("ttnn.X", (("a", Int(3)),))))
    assert rewrite(value, larger) == List(
        (Int(2), Tuple((Int(3),)), Struct("ttnn.X", (("a", Int(4)),)))
    )


def test_renamed_arguments_are_numbered_in_the_order_of_their_names():
    def tensor(identity):
        return TensorSpec((1,), "ttnn.bfloat16", NumpyPlacement(()), identity, identity)

    case = Case("ttnn.x", (("arg0", tensor(0)), ("arg1", tensor(1)), ("s", Handle("t.S", None, 0))))
    found = renamed(case, {"arg0": "z", "arg1": "a"})
    assert dict(found.arguments) == {"a": tensor(0), "s": Handle("t.S", None, 0), "z": tensor(1)}
