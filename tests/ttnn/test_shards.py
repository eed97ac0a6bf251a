"""The picture of a sharded tensor agrees with where ttnn itself puts its pages."""

import pytest

from optrove.report.shards import shard_layout
from optrove.runconfig.jsonable import to_jsonable
from optrove.serializer.wire import decode

pytestmark = pytest.mark.ttnn

TILE = 32
CASES = (
    ((1, 1, 12544, 32), "HEIGHT_SHARDED", (224, 32), ((0, 0), (7, 6)), "COL_MAJOR"),
    ((1, 1, 12544, 32), "HEIGHT_SHARDED", (224, 32), ((0, 0), (7, 6)), "ROW_MAJOR"),
    ((1, 1, 96, 200), "WIDTH_SHARDED", (96, 32), ((0, 0), (7, 1)), "ROW_MAJOR"),
    ((1, 1, 128, 256), "BLOCK_SHARDED", (32, 128), ((0, 0), (3, 1)), "COL_MAJOR"),
    ((1, 1, 128, 256), "BLOCK_SHARDED", (64, 64), ((0, 0), (5, 3)), "ROW_MAJOR"),
    ((1, 2, 96, 200), "BLOCK_SHARDED", (64, 64), ((1, 2), (6, 5)), "COL_MAJOR"),
)


def placed(ttnn, device, facts):
    shape, layout, shard, cores, orientation = facts
    first, last = (ttnn.CoreCoord(*core) for core in cores)
    grid = ttnn.CoreRangeSet({ttnn.CoreRange(first, last)})
    spec = ttnn.ShardSpec(grid, list(shard), getattr(ttnn.ShardOrientation, orientation))
    layout = getattr(ttnn.TensorMemoryLayout, layout)
    memory = ttnn.MemoryConfig(layout, ttnn.BufferType.L1, spec)
    return ttnn.empty(list(shape), ttnn.bfloat16, ttnn.TILE_LAYOUT, device, memory)


def pages_of(layout):
    """Return the tiles of a tensor that each core holds, by their numbers."""
    across = layout.sizes[1] // TILE
    return {
        core: {
            row * across + column
            for part in parts
            for row in range(part.starts[0] // TILE, part.ends[0] // TILE)
            for column in range(part.starts[1] // TILE, part.ends[1] // TILE)
        }
        for core, parts in layout.held.items()
        if parts
    }


@pytest.mark.parametrize("facts", CASES, ids=lambda facts: f"{facts[1]}-{facts[4]}")
def test_every_core_holds_the_pages_that_ttnn_says(ttnn, device, facts):
    live = placed(ttnn, device, facts)
    found = {}
    for page in ttnn._ttnn.reports.get_buffer_pages([device]):
        if page.address == live.buffer_address():
            found.setdefault((page.core_x, page.core_y), set()).add(page.page_index)
    assert found
    assert pages_of(shard_layout(decode(to_jsonable(live)))) == found
    ttnn.deallocate(live)
