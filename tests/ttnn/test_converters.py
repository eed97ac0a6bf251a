"""ttnn's values come apart and back: laws over generated objects, and the forms worth naming."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optrove.errors import BadData
from optrove.frameworks.ttnn.convert import table as values
from optrove.model.values import Callable, Opaque, Struct
from optrove.runconfig.jsonable import from_jsonable, to_jsonable
from optrove.serializer import plain
from optrove.serializer.build import build
from optrove.serializer.describe import Describer, DescriptionCache, describe
from optrove.serializer.hashes import canonical_bytes
from optrove.serializer.tables import StructConverter, SymbolConverter, Tables
from ttnn_samples import Samples, Strategies

pytestmark = pytest.mark.ttnn

LAWS = settings(max_examples=150, database=None)


@pytest.fixture(scope="module")
def tables(ttnn):
    return Tables([values.table(), plain.table()])


@pytest.fixture(scope="module")
def strategies(ttnn):
    """Strategies of ttnn's classes."""
    return Strategies(Samples(ttnn, values.find(ttnn), values.table()))


@pytest.fixture(scope="module")
def objects(strategies):
    """A strategy of objects of every class that has a converter."""
    converters = strategies.table.by_name.values()
    kinds = [c.type for c in converters if isinstance(c, (StructConverter, SymbolConverter))]
    kinds.sort(key=lambda cls: (cls.__module__, cls.__qualname__))
    return st.sampled_from(kinds).flatmap(strategies.of_class)


@pytest.fixture(scope="module")
def sharded(ttnn):
    """Make a sharded memory configuration of the given layout."""

    def make(layout, shape=(32, 64)):
        corners = ((4, 0, 5, 1), (0, 0, 1, 1))
        ranges = [
            ttnn.CoreRange(ttnn.CoreCoord(x, y), ttnn.CoreCoord(to_x, to_y))
            for x, y, to_x, to_y in corners
        ]
        spec = ttnn.ShardSpec(ttnn.CoreRangeSet(ranges), shape, ttnn.ShardOrientation.COL_MAJOR)
        return ttnn.MemoryConfig(layout, ttnn.BufferType.L1, spec)

    return make


def test_what_is_built_is_described_the_same(objects, tables):
    @LAWS
    @given(objects)
    def law(live):
        value = describe(live, tables)
        assert describe(build(value, tables), tables) == value

    law()


def test_what_went_through_json_is_described_the_same(objects, tables):
    @LAWS
    @given(objects)
    def law(live):
        made = from_jsonable(json.loads(json.dumps(to_jsonable(live))))
        assert type(made) is type(live)
        assert describe(made, tables) == describe(live, tables)

    law()


def test_equal_values_have_equal_bytes_and_others_do_not(objects, tables):
    @LAWS
    @given(objects, objects)
    def law(one, other):
        left, right = describe(one, tables), describe(other, tables)
        assert (left == right) == (canonical_bytes(left) == canonical_bytes(right))
        assert canonical_bytes(describe(build(left, tables), tables)) == canonical_bytes(left)

    law()


def test_where_ttnn_can_compare_what_came_back_is_equal(ttnn, strategies, tables):
    comparable = (
        ttnn.MemoryConfig,
        ttnn.ShardSpec,
        ttnn.NdShardSpec,
        ttnn.CoreRangeSet,
        ttnn.Shape,
    )

    @LAWS
    @given(st.sampled_from(comparable).flatmap(strategies.of_class))
    def law(live):
        assert build(describe(live, tables), tables) == live

    law()


@pytest.mark.parametrize("layout", ["HEIGHT_SHARDED", "WIDTH_SHARDED", "BLOCK_SHARDED"])
def test_core_ranges_keep_their_order(ttnn, sharded, layout):
    memory = sharded(getattr(ttnn.TensorMemoryLayout, layout))
    made = from_jsonable(to_jsonable(memory))
    assert made == memory
    assert [core.start.x for core in made.shard_spec.grid.ranges()] == [4, 0]


def test_a_shard_spec_that_a_tensor_completed_is_still_the_same(ttnn, sharded, tables):
    memory = sharded(ttnn.TensorMemoryLayout.HEIGHT_SHARDED)
    spec = ttnn.TensorSpec(
        ttnn.Shape([2, 64, 64]),
        ttnn.bfloat16,
        ttnn.TILE_LAYOUT,
        memory.memory_layout,
        memory.shard_spec,
        memory.buffer_type,
    )
    completed = spec.memory_config
    assert completed.nd_shard_spec is not None
    assert completed == memory
    assert describe(completed, tables) == describe(memory, tables)
    assert from_jsonable(to_jsonable(completed)) == completed


@pytest.mark.parametrize(
    ("tensor", "shard"),
    [
        ([2, 64, 64], [1, 32, 64]),
        ([64, 64], [32, 64]),
        ([32, 256], [32, 64]),
        ([64, 128], [32, 64]),
        ([2, 3, 64, 96], [3, 64, 96]),
        ([2, 6, 32, 64], [3, 32, 32]),
        ([5, 7, 32, 64], [2, 2, 32, 32]),
    ],
)
def test_an_nd_shard_spec_that_a_tensor_completed_comes_back_complete(ttnn, tables, tensor, shard):
    grid = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))])
    spec = ttnn.NdShardSpec(ttnn.Shape(shard), grid)
    plain_form = ttnn.MemoryConfig(ttnn.BufferType.L1, spec)
    completed = ttnn.TensorSpec(
        ttnn.Shape(tensor),
        ttnn.bfloat16,
        ttnn.TILE_LAYOUT,
        nd_shard_spec=spec,
        buffer_type=ttnn.BufferType.L1,
    ).memory_config
    assert from_jsonable(to_jsonable(completed)) == completed
    assert from_jsonable(to_jsonable(plain_form)) == plain_form
    same = completed == plain_form
    assert (describe(completed, tables) == describe(plain_form, tables)) == same


@pytest.mark.parametrize("switch", ["per_core_allocation", "range_lockstep_allocation"])
def test_experimental_switches_are_kept(ttnn, sharded, switch):
    memory = sharded(ttnn.TensorMemoryLayout.HEIGHT_SHARDED)
    if not hasattr(memory, f"experimental_set_{switch}"):
        pytest.skip(f"this ttnn has no {switch}")
    without = to_jsonable(memory)
    getattr(memory, f"experimental_set_{switch}")(True)
    recorded = to_jsonable(memory)
    assert recorded["fields"][switch] is True
    assert switch not in without["fields"]
    assert from_jsonable(recorded) == memory
    assert from_jsonable(without) != memory


def test_public_names_do_not_tell_where_ttnn_keeps_a_class(ttnn):
    assert to_jsonable(ttnn.WormholeComputeKernelConfig())["$struct"] == (
        "ttnn.WormholeComputeKernelConfig"
    )
    level = ttnn._ttnn.operations.core.ThrottleLevel.NO_THROTTLE
    assert to_jsonable(level) == {"$symbol": "ttnn.ThrottleLevel", "name": "NO_THROTTLE"}
    assert not any("_ttnn" in name for name in values.table().by_name)


def test_a_field_that_a_later_release_added_takes_its_default(ttnn):
    recorded = to_jsonable(ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi2))
    del recorded["fields"]["throttle_level"]
    made = from_jsonable(recorded)
    assert made.math_fidelity == ttnn.MathFidelity.HiFi2
    assert made.throttle_level.name == "NO_THROTTLE"


def test_a_field_that_the_class_lacks_is_a_fault_that_names_it(ttnn):
    recorded = to_jsonable(ttnn.WormholeComputeKernelConfig())
    recorded["fields"]["math_speed"] = 3
    with pytest.raises(BadData, match="math_speed") as caught:
        from_jsonable({"config": recorded})
    assert caught.value.faults[0].path.startswith("$.config")


def test_a_missing_field_without_a_default_is_a_fault_that_names_it(ttnn):
    with pytest.raises(BadData, match="q_chunk_size"):
        from_jsonable({"$struct": "ttnn.SDPAProgramConfig", "fields": {}})


def test_a_field_of_the_wrong_type_is_a_fault(ttnn):
    with pytest.raises(BadData, match=r"ttnn\.CoreCoord"):
        from_jsonable({"$struct": "ttnn.CoreCoord", "fields": {"x": "left", "y": 0}})


def test_an_unreadable_configuration_is_opaque_and_never_half_described(ttnn, tables):
    config = ttnn.MeshMapperConfig([ttnn.PlacementReplicate()], ttnn.MeshShape([4]))
    assert isinstance(describe(config, tables), Opaque)


def test_nested_plain_containers_keep_their_live_objects(ttnn):
    source = {"grid": (ttnn.CoreCoord(1, 2), None), "dtypes": [ttnn.bfloat8_b]}
    made = from_jsonable(json.loads(json.dumps(to_jsonable(source))))
    assert made == source


def test_a_mapping_of_fields_is_a_struct_in_the_order_of_names(ttnn, tables):
    value = describe(ttnn.CoreGrid(y=4, x=8), tables)
    assert isinstance(value, Struct)
    assert [name for name, _ in value.fields] == ["x", "y"]


def test_memory_configurations_that_may_be_cached_differ_in_every_part(ttnn, sharded, tables):
    """Caching by value is only right while ttnn's ``==`` looks at all that is recorded."""
    layouts, orientations = ttnn.TensorMemoryLayout, ttnn.ShardOrientation
    base = sharded(layouts.HEIGHT_SHARDED)
    spec = base.shard_spec
    backwards = ttnn.CoreRangeSet(spec.grid.ranges()[::-1])
    others = [
        sharded(layouts.WIDTH_SHARDED),
        sharded(layouts.HEIGHT_SHARDED, (64, 32)),
        ttnn.MemoryConfig(base.memory_layout, ttnn.BufferType.DRAM, spec),
        ttnn.MemoryConfig(base.memory_layout, base.buffer_type),
        ttnn.MemoryConfig(
            base.memory_layout,
            base.buffer_type,
            ttnn.ShardSpec(spec.grid, spec.shape, orientations.ROW_MAJOR),
        ),
        ttnn.MemoryConfig(
            base.memory_layout,
            base.buffer_type,
            ttnn.ShardSpec(backwards, spec.shape, spec.orientation),
        ),
        ttnn.MemoryConfig(base.buffer_type, ttnn.NdShardSpec(ttnn.Shape([32, 64]), spec.grid)),
    ]
    for other in others:
        assert describe(other, tables) != describe(base, tables)
        assert other != base
    cache = DescriptionCache()
    kept = [Describer(tables, cache=cache).describe(memory) for memory in (base, *others)]
    assert kept == [describe(memory, tables) for memory in (base, *others)]


def test_the_transpose_of_a_tile_is_kept(ttnn):
    made = from_jsonable(to_jsonable(ttnn.Tile([32, 32], True)))
    assert made.transpose_of_faces
    assert made.transpose_within_face


def nd_sharded(ttnn, shard, cores=(4, 2)):
    """Return the document of nd shards on so many columns and rows of cores."""
    grid = ttnn.CoreRangeSet(
        [ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(cores[0] - 1, cores[1] - 1))]
    )
    spec = ttnn.NdShardSpec(ttnn.Shape(shard), grid)
    return to_jsonable(ttnn.MemoryConfig(ttnn.BufferType.L1, spec))


IMPOSSIBLE_SHARDS = [
    ([0, 32], (4, 2)),
    ([32, 0], (4, 2)),
    ([2, 0, 64], (4, 2)),
    ([2**31, 32, 64], (4, 2)),
    ([32, 64], (2**32, 2)),
    ([32, 64], (4, 2**32)),
    ([2, 32, 64], (2**32, 2**32)),
]


@pytest.mark.parametrize(("shard", "cores"), IMPOSSIBLE_SHARDS)
def test_shards_that_ttnn_would_die_of_are_a_fault(ttnn, shard, cores):
    recorded = nd_sharded(ttnn, shard, cores)
    assert from_jsonable(recorded).nd_shard_spec is not None
    recorded["fields"]["memory_layout"]["name"] = "HEIGHT_SHARDED"
    with pytest.raises(BadData, match=r"check the shard grid|holds nothing"):
        from_jsonable(recorded)


@pytest.mark.parametrize(
    ("tensor", "shard", "cores"),
    [([64, 128], *impossible) for impossible in IMPOSSIBLE_SHARDS]
    + [([64, 0], [32, 64], (4, 2)), ([2**16, 2**16], [32, 64], (4, 2))],
)
def test_a_tensor_spec_that_ttnn_would_die_of_is_a_fault(ttnn, tensor, shard, cores):
    recorded = to_jsonable(ttnn.TensorSpec(ttnn.Shape(tensor), ttnn.bfloat16, ttnn.TILE_LAYOUT))
    recorded["fields"]["memory_config"] = nd_sharded(ttnn, shard, cores)
    with pytest.raises(BadData, match=r"check|holds nothing"):
        from_jsonable(recorded)


def test_a_range_over_more_chips_than_any_mesh_has_is_not_walked(ttnn, tables):
    vast = ttnn.MeshCoordinateRange(ttnn.MeshShape(2**31, 2**31))
    assert isinstance(describe(vast, tables), Opaque)
    recorded = to_jsonable(ttnn.MeshCoordinateRange(ttnn.MeshShape(2, 4)))
    recorded["fields"]["end"] = [2**31, 2**31]
    with pytest.raises(BadData, match="chips"):
        from_jsonable(recorded)


def test_the_largest_range_round_trips(ttnn, tables):
    live = ttnn.MeshCoordinateRange(ttnn.MeshShape(64, 64))
    value = describe(live, tables)
    assert describe(build(value, tables), tables) == value


def test_an_operation_goes_by_its_public_name(ttnn, tables):
    assert describe(ttnn.add, tables) == Callable("ttnn.add")
    assert describe(ttnn.transformer.scaled_dot_product_attention, tables) == Callable(
        "ttnn.transformer.scaled_dot_product_attention"
    )
    assert from_jsonable(to_jsonable([ttnn.add])) == [Callable("ttnn.add")]
    assert to_jsonable(ttnn.add) != to_jsonable(ttnn.multiply)


def test_an_operation_that_its_name_does_not_lead_to_is_opaque(ttnn, tables):
    impostor = copy.copy(ttnn.add)
    assert impostor.python_fully_qualified_name == "ttnn.add"
    assert isinstance(describe(impostor, tables), Opaque)
