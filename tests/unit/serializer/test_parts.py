from dataclasses import replace

import pytest

from optrove.errors import BadData
from optrove.model.values import (
    Float,
    FrozenSet,
    Int,
    List,
    Null,
    Opaque,
    Struct,
    TensorSpec,
    Text,
    TtnnPlacement,
)
from optrove.serializer.described import WrittenParts, part_of
from optrove.serializer.wire import encode


def tensor(shape, field, storage="device"):
    memory = Struct("ttnn.MemoryConfig", (("padded_shape", field), ("zone", Null())))
    placement = TtnnPlacement(shape, "TILE", None, storage, memory, (1, 8), None, 0)
    return TensorSpec(shape, "ttnn.bfloat16", placement)


@pytest.mark.parametrize(
    "field",
    [
        Null(),
        Int(1),
        Text('"padded_shape":null'),
        List((Null(), Null())),
        Opaque("a", "b"),
        Float(float("inf")),
        FrozenSet(frozenset({Text("b"), Text("a")})),
    ],
)
@pytest.mark.parametrize("storage", ["device", '"padded_shape":null', "{"])
def test_what_looks_like_a_part_of_the_tensor_is_not_taken_for_it(field, storage):
    written = WrittenParts()
    for shape in ((1, 2), (3, 4), (5,), ()):
        spec = tensor(shape, field, storage)
        assert written.tensor(encode(spec)).own() == part_of(spec)
        assert written.part(encode(spec)) == part_of(spec)


GOOD = encode(tensor((1, 2), Null()))
PLACEMENT = GOOD["$tensor"]["placement"]


@pytest.mark.parametrize(
    ("name", "junk"),
    [
        *(("shape", junk) for junk in (None, 1, "12", [True], [-1], [1.0], ["1"], [[1]])),
        *(("identity", junk) for junk in (None, True, -1, "1", 2**2001)),
        *(("storage", junk) for junk in (None, 0.0, [0])),
        *(("dtype", junk) for junk in (None, 1, "\ud800")),
        ("placement", None),
        *(
            ("placement", {**PLACEMENT, "padded_shape": junk})
            for junk in (None, 1, "12", [True], [-1], [1.0], {})
        ),
        ("more", 1),
    ],
)
def test_a_known_sort_of_tensor_is_still_checked_in_what_varies(name, junk):
    written = WrittenParts()
    written.tensor(GOOD)
    bad = {"$tensor": {**GOOD["$tensor"], name: junk}}
    with pytest.raises(BadData):
        written.tensor(bad)


def test_another_device_or_none_is_another_sort():
    written = WrittenParts()
    spec = tensor((1, 2), Null())
    for device in (0, None, 3, 0):
        placed = replace(spec, placement=replace(spec.placement, device=device))
        parts = written.tensor(encode(placed))
        assert parts.own() == part_of(placed)
        again = replace(placed, placement=replace(placed.placement, device=7))
        assert parts.part(0, 0, 7) == part_of(again)
