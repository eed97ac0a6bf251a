"""Reductions only ever make a case simpler, and come to an end."""

from math import prod

from hypothesis import given, settings

from optrove.model.values import (
    DeviceRef,
    Int,
    List,
    MeshPlacement,
    TensorSpec,
    TorchPlacement,
    TtnnPlacement,
    walk,
)
from optrove.testgen.shrink import reductions
from strategies import cases
from trove_rows import case, memory, shard, tensor, value

SHARDED = memory("L1_WIDTH_SHARDED", shard((32, 64), (7, 0)))


def linear(**more):
    return case(
        "ttnn.linear",
        input_tensor_a=tensor(1, 1, 64, 512, where=SHARDED),
        input_tensor_b=tensor(1, 1, 512, 256, dtype="bfloat8_b", number=1),
        **more,
    )


def reduced(one, words):
    """Return the case after the one reduction that has these words."""
    found = [each for each in reductions(one) if each.words == words]
    assert len(found) == 1, [each.words for each in reductions(one)]
    return found[0].apply(one)


def measure(one):
    """Return how large a case is: its arguments, and the elements of its tensors."""
    return len(one.arguments), sum(prod(spec.shape) for spec in one.tensors())


def shapes(one):
    return {
        name: part.shape
        for name, argument in one.arguments
        for _, part in walk(argument)
        if isinstance(part, TensorSpec)
    }


def names(one):
    return [name for name, _ in one.arguments]


def least(one):
    """Apply the first reduction again and again."""
    for _ in range(1000):
        offered = reductions(one)
        if not offered:
            return one
        one = offered[0].apply(one)
    raise AssertionError("there was no end")


def test_tensors_of_torch_shrink_to_one_element_and_keep_the_order_of_their_dimensions():
    placement = TorchPlacement((1, 96, 576, 0), "strided", "cpu", requires_grad=False, offset=7)
    spec = TensorSpec((96, 6, 64, 5), "torch.float32", placement, 0, 0)
    one = case("torch.ops.aten.add.Tensor", self=spec, alpha=Int(64))
    smaller = dict(reduced(one, "64 becomes 1").arguments)["self"]
    assert (smaller.shape, smaller.placement.strides) == ((96, 6, 1, 5), (1, 96, 576, 0))
    halved = dict(reduced(one, "96 becomes 48").arguments)["self"]
    assert (halved.shape, halved.placement.strides) == ((48, 6, 64, 5), (1, 48, 288, 0))
    assert shapes(least(one)) == {"self": (1, 1)}


def test_all_that_is_optional_is_left_out_at_once_and_one_by_one():
    one = linear(bias=tensor(1, 256, number=2), transpose_a=False, memory_config=SHARDED)
    both = reduced(one, "without memory_config, transpose_a")
    assert names(both) == ["bias", "input_tensor_a", "input_tensor_b"]
    assert "bias" not in names(reduced(one, "without bias"))


def test_operands_stay_and_so_do_places_but_the_last():
    offered = {each.words for each in reductions(linear())}
    assert not {"without input_tensor_a", "without input_tensor_b"} & offered
    places = case("ttnn.sum", arg0=tensor(32, 32), arg1=1, arg2=True)
    offered = {each.words for each in reductions(places)}
    assert "without arg2" in offered
    assert not {"without arg0", "without arg1", "without arg1, arg2"} & offered


def test_a_size_shrinks_wherever_it_stands():
    one = linear(shape=[1, 1, 512])
    small = reduced(one, "512 becomes 32")
    assert shapes(small) == {"input_tensor_a": (1, 1, 64, 32), "input_tensor_b": (1, 1, 32, 256)}
    assert dict(small.arguments)["shape"] == List((Int(1), Int(1), Int(32)))
    assert shapes(reduced(one, "512 becomes 256"))["input_tensor_a"] == (1, 1, 64, 256)


def test_halves_are_whole_tiles_and_odd_sizes_become_one():
    one = case("ttnn.relu", input_tensor=tensor(7, 96, 5))
    words = {each.words for each in reductions(one)}
    assert {"96 becomes 32", "96 becomes 64", "7 becomes 1", "5 becomes 2"} <= words


def test_shards_shrink_with_their_tensor_where_whole_tiles_remain():
    spec = dict(reduced(linear(), "512 becomes 256").arguments)["input_tensor_a"]
    fields = dict(dict(spec.placement.memory.fields)["shard_spec"].fields)
    assert fields["shape"] == value([32, 32])
    spec = dict(reduced(linear(), "512 becomes 32").arguments)["input_tensor_a"]
    fields = dict(dict(spec.placement.memory.fields)["shard_spec"].fields)
    assert fields["shape"] == value([32, 64])


def test_memory_becomes_plain_for_tensors_and_arguments():
    one = linear(memory_config=SHARDED)
    plain = reduced(one, "all tensors in interleaved DRAM")
    assert dict(plain.arguments)["input_tensor_a"].placement.memory == memory()
    assert dict(plain.arguments)["memory_config"] == SHARDED
    asked = reduced(one, "memory_config is interleaved DRAM")
    assert dict(asked.arguments)["memory_config"] == memory()


def test_padded_shapes_follow_shapes():
    one = case("ttnn.relu", input_tensor=tensor(1, 1, 64, 50))
    small = dict(reduced(one, "50 becomes 25").arguments)["input_tensor"]
    assert small.placement.padded_shape == (1, 1, 64, 32)


def test_batches_and_dimensions_go():
    one = case("ttnn.relu", input_tensor=tensor(2, 8, 32, 32))
    flat = reduced(reduced(one, "without batches"), "without dimensions of size 1")
    assert shapes(flat) == {"input_tensor": (32, 32)}


def test_a_mesh_becomes_one_chip():
    spread = tensor(32, 32, mesh=(2, 4))
    chips = tuple((row, column) for row in range(2) for column in range(4))
    kept = {name: getattr(spread.placement, name) for name in spread.placement.__slots__}
    kept["mesh"] = MeshPlacement((2, 4), (None, 1), chips)
    on_mesh = TensorSpec(spread.shape, spread.dtype, TtnnPlacement(**kept))
    device = DeviceRef("ttnn.MeshDevice", (2, 4))
    alone = dict(reduced(case("ttnn.x", input=on_mesh, device=device), "on one chip").arguments)
    assert alone["input"].placement.mesh_shape == (1, 1)
    assert alone["input"].placement.mesh is None
    assert alone["device"].mesh_shape == (1, 1)


def test_a_simplest_case_has_no_reductions():
    assert reductions(case("ttnn.relu", input_tensor=tensor(1, 32))) == []


def test_reducing_comes_to_an_end():
    one = linear(bias=tensor(1, 256, number=2), memory_config=SHARDED, alpha=2)
    simplest = least(one)
    assert names(simplest) == ["input_tensor_a", "input_tensor_b"]
    assert set(shapes(simplest).values()) == {(32, 32)}


@settings(max_examples=100, database=None, deadline=None)
@given(cases)
def test_no_reduction_makes_anything_larger(one):
    for each in reductions(one):
        simpler = each.apply(one)
        assert simpler != one
        assert all(new <= old for new, old in zip(measure(simpler), measure(one), strict=True))
