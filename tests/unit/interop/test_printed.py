import pytest

from optrove.interop.printed import (
    NotAlmostJson,
    UnknownForm,
    core,
    core_range,
    core_ranges,
    parse_almost_json,
    read_printed,
)
from optrove.model.values import Bool, Float, Int, List, Null, Set, Struct, Symbol, Text


def row(*numbers):
    return List(tuple(Int(number) for number in numbers))


def struct(name, **fields):
    return Struct(f"ttnn.{name}", tuple(fields.items()))


RANGES = core_ranges((core_range(core(0, 0), core(7, 5)), core_range(core(0, 6), core(0, 6))))

SPELLINGS = {
    "8": Int(8),
    "-8": Int(-8),
    "0.5": Float(0.5),
    "1e-05": Float(1e-05),
    "-inf": Float(float("-inf")),
    "nullopt": Null(),
    "std::nullopt": Null(),
    "None": Null(),
    "true": Bool(value=True),
    "relu": Text("relu"),
    "[1, 2]": row(1, 2),
    "[]": List(()),
    "{}": Set(frozenset()),
    "DataType::BFLOAT8_B": Symbol("ttnn.DataType", "BFLOAT8_B"),
    "DataType.BFLOAT8_B": Symbol("ttnn.DataType", "BFLOAT8_B"),
    "ttnn::operations::unary::UnaryOpType::GELU": Symbol("ttnn.UnaryOpType", "GELU"),
    "8-4": core(8, 4),
    "(x=8,y=4)": core(8, 4),
    "[0-0 - 7-5]": core_range(core(0, 0), core(7, 5)),
    "{[0-0 - 7-5], [0-6 - 0-6]}": RANGES,
    "Shape([1, 8])": struct("Shape", shape=row(1, 8)),
    "MeshShape([4, 8])": struct("MeshShape", shape=row(4, 8)),
    "{MeshCoordinate([2, 2])}": Set(frozenset({struct("MeshCoordinate", coords=row(2, 2))})),
    "MeshCoordinateRange(start=MeshCoordinate([0, 0]), end=MeshCoordinate([0, 1]))": struct(
        "MeshCoordinateRange", start=row(0, 0), end=row(0, 1)
    ),
    "Tile with shape: [16, 32]": struct("Tile", shape=row(16, 32), transpose=Bool(value=False)),
    "ttnn.CoreGrid(x=8, y=7)": struct("CoreGrid", x=Int(8), y=Int(7)),
    "SubDeviceId(1)": struct("SubDeviceId", id=Int(1)),
    "PlacementShard(1)": struct("PlacementShard", dim=Int(1)),
    "PlacementReplicate()": struct("PlacementReplicate"),
    "UnaryWithParam(op_type=UnaryOpType::SILU)": struct(
        "UnaryWithParam", op_type=Symbol("ttnn.UnaryOpType", "SILU"), params=List(())
    ),
    "UnaryWithParam(op_type=UnaryOpType::GELU, params=[1])": struct(
        "UnaryWithParam", op_type=Symbol("ttnn.UnaryOpType", "GELU"), params=List((Float(1.0),))
    ),
    "SDPAProgramConfig(compute_with_storage_grid_size=8-4, exp_approx_mode=0, q_chunk_size=1)": (
        struct(
            "SDPAProgramConfig",
            compute_with_storage_grid_size=core(8, 4),
            exp_approx_mode=Bool(value=False),
            q_chunk_size=Int(1),
        )
    ),
    # ttnn 0.81 leaves out the brace that ends a range.
    'ShardSpec{grid=[{"start":{"x":0,"y":0},"end":{"x":7,"y":5}, '
    '{"start":{"x":0,"y":6},"end":{"x":0,"y":6}], shape=[64, 32], '
    "orientation=ShardOrientation::ROW_MAJOR}": struct(
        "ShardSpec",
        grid=RANGES,
        shape=row(64, 32),
        orientation=Symbol("ttnn.ShardOrientation", "ROW_MAJOR"),
    ),
}


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_printed_value_is_read(text):
    assert read_printed(text) == SPELLINGS[text]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Mystery<8>",
        "Config(a=1",
        "Config(a=1,a=2)",
        "Config(1)",
        "[1, 2",
        "[1 2]",
        "1 2",
        "(x=1)",
        "Tile with shape: 32",
        "<ttnn.object at 0x7f>",
        "[" * 5000,
        "9" * 5000,
        "1-" + "9" * 5000,
    ],
)
def test_other_text_is_refused_and_not_guessed(text):
    with pytest.raises(UnknownForm):
        read_printed(text)


def test_ranges_and_sets_of_almost_json_become_json():
    one = {"start": {"x": 0, "y": 0}, "end": {"x": 7, "y": 6}}
    assert parse_almost_json('[{"x":0,"y":0} - {"x":7,"y":6}]') == [one]
    two = '{"grid":{[{"x":0,"y":0} - {"x":7,"y":6}], [{"x":0,"y":0} - {"x":7,"y":6}]},"n":-1.5}'
    assert parse_almost_json(two) == {"grid": [[one], [one]], "n": -1.5}


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"a"}', '{"a":1,}', '{"a":1 "b":2}', "[1,", "1 2", '{"a":1,"a":2}', "[" * 500],
)
def test_what_is_not_even_almost_json_is_refused_with_its_place(text):
    with pytest.raises(NotAlmostJson):
        parse_almost_json(text)
