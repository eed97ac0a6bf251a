import xml.etree.ElementTree as ET

import pytest

from optrove.model.values import Int, List, Struct, TensorSpec, TorchPlacement
from optrove.report.shards import shard_file, shard_layout, shard_svg, shard_words
from trove_rows import core, memory, shard, tensor


def laid(shape, name, shards):
    return tensor(*shape, where=memory(name, shards))


def held(spec):
    """Return the rows and columns that each core holds."""
    return {
        core: [tuple(zip(part.starts, part.ends, strict=True)) for part in parts]
        for core, parts in shard_layout(spec).held.items()
    }


def test_heights_go_to_cores_row_by_row_or_column_by_column():
    rows = held(laid((1, 1, 128, 32), "L1_HEIGHT_SHARDED", shard((32, 32), (1, 1))))
    assert rows == {
        (0, 0): [((0, 32), (0, 32))],
        (1, 0): [((32, 64), (0, 32))],
        (0, 1): [((64, 96), (0, 32))],
        (1, 1): [((96, 128), (0, 32))],
    }
    columns = held(laid((1, 1, 128, 32), "L1_HEIGHT_SHARDED", shard((32, 32), (1, 1), "COL_MAJOR")))
    assert columns[0, 1] == rows[1, 0]
    assert columns[1, 0] == rows[0, 1]


def test_the_last_shard_may_hold_less_and_further_cores_nothing():
    found = held(laid((1, 1, 32, 80), "L1_WIDTH_SHARDED", shard((32, 32), (3, 0))))
    assert found[2, 0] == [((0, 32), (64, 80))]
    assert found[3, 0] == []


def test_blocks_keep_their_places_in_the_tensor():
    found = held(laid((2, 1, 32, 128), "L1_BLOCK_SHARDED", shard((32, 64), (3, 2))))
    assert found[1, 0] == [((0, 32), (64, 128))]
    assert found[0, 1] == [((32, 64), (0, 64))]
    assert found[3, 2] == []
    mirrored = laid((2, 1, 32, 128), "L1_BLOCK_SHARDED", shard((32, 64), (3, 2), "COL_MAJOR"))
    assert held(mirrored)[0, 1] == found[1, 0]


def test_shards_of_more_dimensions_are_assigned_in_turn():
    spec = Struct(
        "ttnn.NdShardSpec",
        (
            ("grid", dict(shard((1, 1), (2, 0)).fields)["grid"]),
            ("orientation", dict(shard((1, 1), (2, 0)).fields)["orientation"]),
            ("shard_shape", Struct("ttnn.Shape", (("shape", List(tuple(map(Int, (1, 32, 32))))),))),
        ),
    )
    fields = dict(memory("L1_ND_SHARDED").fields) | {"nd_shard_spec": spec}
    where = Struct("ttnn.MemoryConfig", tuple(fields.items()))
    layout = shard_layout(tensor(2, 2, 32, 32, where=where))
    assert layout.sizes == (4, 32, 32)
    assert [len(parts) for parts in layout.held.values()] == [2, 1, 1]
    assert "2 shards" in shard_svg(tensor(2, 2, 32, 32, where=where))


@pytest.mark.parametrize(
    "spec",
    [
        tensor(32, 32),
        laid((32, 32), "L1_HEIGHT_SHARDED", shard((0, 32), (0, 0))),
        laid((0, 32), "L1_HEIGHT_SHARDED", shard((32, 32), (0, 0))),
        laid((32, 32), "L1_HEIGHT_SHARDED", shard((32, 32), (10**9, 10**9))),
        laid((32, 32), "L1_HEIGHT_SHARDED", shard((32, 32), (-1, 0))),
        laid((2**30, 2**30), "L1_HEIGHT_SHARDED", shard((1, 1), (7, 7))),
        laid((32, 32), "L1_HEIGHT_SHARDED", Struct("ttnn.ShardSpec", ())),
        laid((32, 32), "L1_HEIGHT_SHARDED", Struct("ttnn.ShardSpec", (("grid", core(1, 1)),))),
        TensorSpec((2,), "torch.float32", TorchPlacement((1,), "strided", "cpu", False)),
    ],
    ids=range(9),
)
def test_what_is_not_sharded_or_cannot_be_has_no_picture(spec):
    assert shard_layout(spec) is None
    assert shard_svg(spec) is None


def test_the_picture_is_sound_names_every_core_and_says_what_it_shows():
    spec = laid((1, 1, 12512, 32), "L1_HEIGHT_SHARDED", shard((224, 32), (7, 6)))
    root = ET.fromstring(shard_svg(spec))  # noqa: S314 - our own text
    titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    words = "L1 height sharded, ROW_MAJOR: 12512x32 in 56 shards of 224x32 on 56 cores"
    assert titles[0] == shard_words(shard_layout(spec)) == words
    assert "core (7,6): shard 55 [12320:12512, 0:32]" in titles
    assert len(titles) == 57
    assert "<style>" not in shard_svg(spec)
    assert "prefers-color-scheme" in shard_file(spec)


def test_names_from_data_are_escaped():
    spec = laid((32, 32), "<script>_<b>", shard((32, 32), (0, 0), '"><x>'))
    picture = shard_svg(spec)
    assert "<script>" not in picture
    assert "<x>" not in picture
    ET.fromstring(picture)  # noqa: S314 - our own text
