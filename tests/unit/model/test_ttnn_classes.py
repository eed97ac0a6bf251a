"""Views of recorded objects of ttnn, of which files of other people may hold anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optrove.model.ttnn_classes import (
    INTERLEAVED_DRAM,
    CoreGrid,
    Memory,
    Shards,
    padded_shape,
    whole_numbers,
)
from optrove.model.values import Int, List, Null, Struct, Symbol, Text, Tuple

cores = st.tuples(st.integers(0, 12), st.integers(0, 12))
grids = st.builds(CoreGrid, st.lists(st.tuples(cores, cores), min_size=1, max_size=3).map(tuple))
shards = st.builds(
    Shards,
    st.lists(st.integers(1, 99), min_size=1, max_size=4).map(tuple),
    grids,
    st.sampled_from(["ROW_MAJOR", "COL_MAJOR"]),
    st.sampled_from([None, "GRID_2D", "ROUND_ROBIN_1D"]),
)
memories = st.builds(
    Memory,
    st.sampled_from(["L1", "DRAM"]),
    st.sampled_from(["INTERLEAVED", "BLOCK_SHARDED"]),
    st.none() | shards,
)


@given(memories)
def test_a_view_gives_back_what_it_was_made_of(memory):
    assert Memory.of(memory.struct()) == memory


def test_the_recorded_form_has_every_field():
    names = ["buffer_type", "memory_layout", "nd_shard_spec", "shard_spec"]
    assert [name for name, _ in INTERLEAVED_DRAM.struct().fields] == names
    assert dict(INTERLEAVED_DRAM.struct().fields)["shard_spec"] == Null()


@pytest.mark.parametrize(
    "value",
    [
        None,
        Null(),
        Text("MemoryConfig"),
        Struct("ttnn.MemoryConfig", ()),
        Struct("ttnn.MemoryConfig", (("buffer_type", Text("L1")), ("memory_layout", Int(1)))),
    ],
)
def test_other_values_are_no_memory(value):
    assert Memory.of(value) is None
    assert Shards.of(value) is None
    assert CoreGrid.of(value) == CoreGrid()


@pytest.mark.parametrize("corner", [Null(), Struct("ttnn.CoreCoord", (("x", Int(1)),)), Text("1")])
def test_a_grid_with_one_absurd_corner_is_none(corner):
    one = CoreGrid((((0, 0), (1, 1)),)).struct()
    (ranges,) = (value for _, value in one.fields)
    odd = Struct("ttnn.CoreRange", (("start", corner), ("end", corner)))
    assert CoreGrid.of(Struct(one.type, (("ranges", List((*ranges.items, odd))),))).ranges == ()


def test_numbers_are_those_of_lists_and_shapes_only():
    assert whole_numbers(Tuple((Int(1), Int(2)))) == (1, 2)
    assert whole_numbers(Struct("ttnn.Shape", (("shape", List((Int(3),))),))) == (3,)
    assert whole_numbers(List((Int(1), Text("2")))) == ()
    assert whole_numbers(Symbol("ttnn.Layout", "TILE")) == ()


@pytest.mark.parametrize(
    ("shape", "alignment", "padded"),
    [
        ((1, 33), (32, 32), (32, 64)),
        ((5,), (32, 32), (32, 32)),
        ((3, 7), (1,), (3, 7)),
        ((2, 3, 8), (1, 8), (2, 3, 8)),
        ((), (32, 32), (32, 32)),
        ((4, 5, 6), (4, 8, 8), (4, 8, 8)),
    ],
)
def test_shapes_are_padded_as_ttnn_does(shape, alignment, padded):
    assert padded_shape(shape, alignment) == padded


def test_an_alignment_below_one_is_refused():
    with pytest.raises(ValueError, match="alignment"):
        padded_shape((1, 2), (0, 32))
