"""Recorded values are converted to the types that a signature asks for, and to no others."""

import pytest

from optrove.frameworks.ttnn.execute.typed_arguments import ArgumentTypes
from optrove.model.values import Bool, Float, Int, List, Mapping, Null, Struct, Symbol, Text

MODE = "ttnn._ttnn.operations.data_movement.Mode"
CONFIG = "ttnn._ttnn.operations.matmul.ProgramConfig"
TYPES = ArgumentTypes(
    members={MODE: ("ttnn.Mode", frozenset({"CACHE", "RECREATE"}))},
    fields={CONFIG: ("ttnn.ProgramConfig", frozenset({"block_w", "block_h"}))},
)
CACHE = Symbol("ttnn.Mode", "CACHE")


def dictionary(**entries):
    return Mapping(frozenset((Text(name), value) for name, value in entries.items()))


@pytest.mark.parametrize(
    ("value", "annotation", "converted"),
    [
        (Text("CACHE"), MODE, CACHE),
        (Text("Mode.CACHE"), f"{MODE} | None", CACHE),
        (Text("ttnn::Mode::CACHE"), MODE, CACHE),
        (Symbol("ttnn.Other", "CACHE"), MODE, CACHE),
        (List((Text("CACHE"),)), f"collections.abc.Sequence[{MODE}]", List((CACHE,))),
        (Text("nullopt"), f"{CONFIG} | None", Null()),
        (Text("None"), "int | None", Null()),
        (Int(1), "bool", Bool(value=True)),
        (Int(0), "bool | None", Bool(value=False)),
        (Text("False"), "bool", Bool(value=False)),
        (Text("12"), "int", Int(12)),
        (Text("0.5"), "float | None", Float(0.5)),
        (Float(-1.0), "int", Int(-1)),
        (Text("[1, 32]"), "ttnn._ttnn.types.Shape", List((Int(1), Int(32)))),
        (Text("(1, 32)"), "collections.abc.Sequence[int] | None", List((Int(1), Int(32)))),
        (
            Struct("ttnn.Core", (("block_h", Int(8)), ("block_w", Int(4)))),
            f"{CONFIG} | None",
            Struct("ttnn.ProgramConfig", (("block_h", Int(8)), ("block_w", Int(4)))),
        ),
        (
            dictionary(block_w=Int(1), type=Text("ProgramConfig")),
            f"{CONFIG} | None",
            Struct("ttnn.ProgramConfig", (("block_w", Int(1)),)),
        ),
    ],
)
def test_a_value_becomes_what_the_parameter_takes(value, annotation, converted):
    assert TYPES.converted(value, [annotation]) == converted


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (Text("CACHE"), "str"),
        (Text("CACHE"), f"str | {MODE}"),
        (Text("OTHER"), MODE),
        (Text("Kind.CACHE"), MODE),
        (Text("nullopt"), "int"),
        (Int(1), "int | bool"),
        (Int(1), "float"),
        (Int(2), "bool"),
        (dictionary(mystery=Int(1)), CONFIG),
        (dictionary(block_w=Int(1), type=Text("Other")), CONFIG),
        (dictionary(block_w=Int(1)), "dict[str, int]"),
        (CACHE, MODE),
        (List((Int(1),)), "collections.abc.Sequence[int]"),
        (Float(1.5), "int"),
        (Text("[1, x]"), "collections.abc.Sequence[int]"),
        (Text("[1, 2]"), "str"),
        (Struct("ttnn.Core", (("x", Int(8)),)), CONFIG),
    ],
)
def test_any_other_value_stays_as_it_is(value, annotation):
    assert TYPES.converted(value, [annotation]) == value


def test_an_overload_that_takes_the_value_as_it_is_comes_first():
    assert TYPES.converted(Int(1), ["bool", "int"]) == Int(1)
    assert TYPES.converted(Int(1), []) == Int(1)


TENSOR = "ttnn._ttnn.tensor.Tensor"


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (Null(), TENSOR),
        (Int(7), f"{CONFIG} | None"),
        (Float(0.5), "int"),
        (List((Null(),)), f"collections.abc.Sequence[{TENSOR}]"),
        (List((Int(1),)), f"{TENSOR} | None"),
    ],
)
def test_a_value_that_no_parameter_takes_is_recognized(value, annotation):
    assert not TYPES.fits(value, annotation)
    assert TYPES.fits(value, "object")
