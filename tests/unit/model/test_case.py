import pytest

from optrove.model.case import Case, obstacles
from optrove.model.values import Callable, Handle, Int, List, Opaque, Struct, Text


def test_arguments_are_kept_in_the_order_of_their_names():
    case = Case("ttnn.add", (("b", Int(2)), ("a", Int(1))))
    assert case.arguments == (("a", Int(1)), ("b", Int(2)))
    assert case == Case("ttnn.add", (("a", Int(1)), ("b", Int(2))))


def test_an_argument_given_twice_is_refused_by_name():
    with pytest.raises(ValueError, match=r"ttnn\.add has more than one value for a"):
        Case("ttnn.add", (("a", Int(1)), ("a", Int(2))))


def test_a_case_of_plain_values_can_be_replayed():
    assert not obstacles(Case("ttnn.add", (("a", List((Int(1), Text("x")))),)))


def test_every_obstacle_to_a_replay_is_named_with_its_path():
    recipe = Struct("ttnn.Semaphore", (("cores", Opaque("cores.Type", "1")),))
    case = Case(
        "ttnn.op",
        (
            ("a", List((Int(1), Opaque("some.Type", "2")))),
            ("b", Handle("ttnn.Semaphore", None)),
            ("c", Handle("ttnn.Semaphore", recipe)),
            ("d", Callable("module:function")),
        ),
    )
    assert [(found.path, found.type) for found in obstacles(case)] == [
        ("$.arguments.a[1]", "some.Type"),
        ("$.arguments.b", "ttnn.Semaphore"),
        ("$.arguments.c.recipe.fields.cores", "cores.Type"),
        ("$.arguments.d", "module:function"),
    ]
    assert obstacles(case)
