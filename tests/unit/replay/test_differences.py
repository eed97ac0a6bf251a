from dataclasses import replace

from optrove.model.case import Case
from optrove.model.values import (
    Int,
    List,
    MeshPlacement,
    Null,
    NumpyPlacement,
    TensorSpec,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
)
from optrove.replay.judge import MAX_DIFFERENCES, case_differences, output_differences


def tensor(identity, shape=(2, 2)):
    return TensorSpec(shape, "ttnn.bfloat16", NumpyPlacement(()), identity, identity)


BOUND = Case("ttnn.add", (("input_b", tensor(0)), ("input_c", tensor(1)), ("input_a", Int(3))))
PLACED = Case("ttnn.add", (("arg0", Int(3)), ("arg1", tensor(0)), ("arg2", tensor(1))))
NAMES = (("arg0", "input_a"), ("arg1", "input_b"), ("arg2", "input_c"))


def test_an_equal_case_does_not_differ():
    assert case_differences(BOUND, BOUND, ()) == []


def test_getting_a_name_is_no_difference():
    assert case_differences(PLACED, BOUND, NAMES) == []


def test_tensors_are_numbered_by_the_new_names():
    swapped = (("arg0", "input_a"), ("arg1", "input_c"), ("arg2", "input_b"))
    assert case_differences(PLACED, BOUND, swapped) == []


def test_a_tensor_that_was_passed_twice_and_is_not_any_more_is_a_difference():
    twice = Case("ttnn.add", (("a", tensor(0)), ("b", tensor(0))))
    apart = Case("ttnn.add", (("a", tensor(0)), ("b", tensor(1))))
    assert [line.partition(":")[0] for line in case_differences(twice, apart, ())] == [
        "$.arguments.b.$tensor.identity",
        "$.arguments.b.$tensor.storage",
    ]


def test_absent_arguments_of_which_only_the_place_is_known_are_no_difference():
    recorded = Case("ttnn.add", (*PLACED.arguments, ("arg3", Null())))
    assert case_differences(recorded, BOUND, NAMES) == []


def test_a_named_argument_that_is_none_and_not_passed_is_a_difference():
    recorded = Case("ttnn.add", (*BOUND.arguments, ("dtype", Null())))
    (line,) = case_differences(recorded, BOUND, ())
    assert line == "$.arguments.dtype: recorded null, replayed without"


def test_another_operation_is_the_only_thing_to_say():
    (line,) = case_differences(BOUND, replace(BOUND, op="ttnn.sub"), ())
    assert line == "recorded as a call of ttnn.add, traced as one of ttnn.sub"


def test_long_lists_of_differences_are_cut_and_counted():
    one = Case("ttnn.add", (("a", List(tuple(map(Int, range(30))))),))
    other = Case("ttnn.add", (("a", List(tuple(map(Int, range(1, 31))))),))
    lines = case_differences(one, other, ())
    assert len(lines) == MAX_DIFFERENCES + 1
    assert lines[-1] == "and 10 more"


def spread(dimensions, chips=((0, 0),)):
    """An output that is replicated over these chips, in so many dimensions."""
    mesh = MeshPlacement((1,) * dimensions, (None,) * dimensions, chips)
    placement = TtnnPlacement((2, 2), "ROW_MAJOR", None, "device", None, (1, 1), mesh)
    return Tuple((TensorSpec((2, 2), "ttnn.bfloat16", placement, 0, 0), Int(2)))


def test_on_one_chip_an_output_may_be_spread_in_any_number_of_dimensions():
    assert output_differences((spread(1),), (spread(2),)) == []


def test_on_several_chips_the_dimensions_of_an_output_count():
    chips = ((0, 0), (0, 1))
    lines = output_differences((spread(1, chips),), (spread(2, chips),))
    assert [line.partition(":")[0].rpartition(".")[2] for line in lines] == [
        "distribution_shape",
        "placements",
    ]


def gradient(wanted):
    return TensorSpec(
        (2, 2), "torch.float32", TorchPlacement((2, 1), "strided", "cpu", wanted), 0, 0
    )


def test_that_no_gradient_was_wanted_is_no_difference_of_an_output():
    assert output_differences((gradient(wanted=False),), (gradient(wanted=True),)) == []


def test_that_a_gradient_is_lost_is_a_difference():
    (line,) = output_differences((gradient(wanted=True),), (gradient(wanted=False),))
    assert line.endswith("requires_grad: recorded true, replayed false")
    wanted, unwanted = (
        Case("torch.add", (("a", gradient(wanted=each)),)) for each in (True, False)
    )
    assert len(case_differences(unwanted, wanted, ())) == 1
