import dataclasses

import pytest

from optrove.model.case import Case
from optrove.model.values import (
    DeviceRef,
    Float,
    FrozenSet,
    Handle,
    Int,
    List,
    Mapping,
    Null,
    Opaque,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    TtnnPlacement,
    Tuple,
)
from optrove.serializer.described import describe_case
from optrove.serializer.hashes import SEMANTIC_TTNN, placement_hash, project

DRAM, L1 = (
    Struct("ttnn.MemoryConfig", (("buffer_type", Symbol("ttnn.BufferType", name)),))
    for name in ("DRAM", "L1")
)
RELU = Struct("ttnn.UnaryWithParam", (("op_type", Symbol("ttnn.UnaryOpType", "RELU")),))
SILU = Struct("ttnn.UnaryWithParam", (("op_type", Symbol("ttnn.UnaryOpType", "SILU")),))


def tensor(
    memory=DRAM, shape=(32, 32), dtype="ttnn.bfloat16", identity=0, storage=0, mesh_shape=None
):
    placement = TtnnPlacement(shape, "TILE", None, "DEVICE", memory, mesh_shape, None)
    return TensorSpec(shape, dtype, placement, identity, storage)


def semantic_hash(case):
    return describe_case(case).semantic_id


def case(op="ttnn.relu", **arguments):
    return Case(op, tuple({"x": tensor(), **arguments}.items()))


def program(activation=None, width=1):
    fields = (("width", Int(width)), ("fused_activation", activation or Null()))
    return Struct("ttnn.MatmulProgramConfig", fields)


@pytest.mark.parametrize(
    "same",
    [
        case(x=tensor(memory=L1)),
        case(x=tensor(mesh_shape=(4, 8))),
        case(memory_config=L1),
        case(memory_config=Null()),
        case(device=DeviceRef("ttnn.MeshDevice", (1, 2))),
        case(layout=Symbol("ttnn.Layout", "TILE")),
        case(layouts=FrozenSet(frozenset({Symbol("ttnn.Layout", "TILE")}))),
        case(semaphores=List((Handle("ttnn.GlobalSemaphore", None),))),
        case(program_config=program()),
        case(configs=Tuple((DRAM, L1))),
        case(options=Mapping(frozenset({(Text("memory"), L1)}))),
        case(torch_device=Symbol("torch.device", "cpu")),
        case(memory_format=Symbol("torch.memory_format", "contiguous_format")),
    ],
)
def test_where_and_how_do_not_change_the_semantics(same):
    assert semantic_hash(same) == semantic_hash(case())
    assert placement_hash(same) != placement_hash(case())


@pytest.mark.parametrize(
    "other",
    [
        case(op="ttnn.gelu"),
        case(x=tensor(shape=(32, 64))),
        case(x=tensor(dtype="ttnn.bfloat8_b")),
        case(x=tensor(identity=1)),
        case(x=tensor(storage=1)),
        case(names=FrozenSet(frozenset({Int(1)}))),
        case(dim=Int(1)),
        case(alpha=Float(0.5)),
        case(dtype=Symbol("ttnn.DataType", "BFLOAT16")),
        case(activation=RELU),
        case(dtype=Symbol("torch.dtype", "float32")),
        case(config=Struct("python.dataclass:m:Config", (("a", Int(1)),))),
        case(mode=Symbol("python.enum:m:Mode", "A")),
        case(path=Struct("python.PosixPath", (("path", Text("/x")),))),
        case(unknown=Opaque("m.Type", "1")),
        case(shape=List(())),
        case(program_config=program(RELU)),
    ],
)
def test_what_is_computed_changes_both_identities(other):
    assert semantic_hash(other) != semantic_hash(case())
    assert placement_hash(other) != placement_hash(case())


def test_a_fused_activation_counts_and_the_rest_of_its_configuration_does_not():
    relu = semantic_hash(case(program_config=program(RELU)))
    assert relu == semantic_hash(case(program_config=program(RELU, width=2)))
    assert relu != semantic_hash(case(program_config=program(SILU)))


def test_a_list_of_fused_activations_counts_and_a_list_of_numbers_does_not():
    def config(items):
        return case(config=Struct("ttnn.SomeConfig", (("items", List(items)),)))

    assert semantic_hash(config((RELU,))) != semantic_hash(config((SILU,)))
    assert semantic_hash(config((Int(1),))) == semantic_hash(config((Int(2),)))


def test_items_that_go_leave_their_place_behind():
    assert project(List((DRAM, Int(1)))) == List((Null(), Int(1)))
    assert project(List((Int(1), DRAM))) == List((Int(1), Null()))


def test_unknowns_are_never_merged():
    first, second = (case(unknown=Opaque("m.Type", token)) for token in ("1", "2"))
    assert semantic_hash(first) != semantic_hash(second)


def test_the_two_meshes_of_eight_chips_are_two_placements():
    wide, square = (case(x=tensor(mesh_shape=shape)) for shape in ((1, 8), (2, 4)))
    assert placement_hash(wide) != placement_hash(square)


def test_two_devices_are_two_placements_and_one_computation():
    def on(*numbers):
        refs = (DeviceRef("ttnn.MeshDevice", (1, 2), number) for number in numbers)
        return case(devices=List(tuple(refs)))

    assert placement_hash(on(0, 0)) != placement_hash(on(0, 1))
    assert semantic_hash(on(0, 0)) == semantic_hash(on(0, 1))


def test_the_table_of_semantic_types_names_ttnn_types_only():
    assert all(name.startswith("ttnn.") for name in SEMANTIC_TTNN)


def test_every_fact_of_a_placement_counts_for_the_placement_hash():
    base = tensor().placement
    changes = {
        "padded_shape": (64, 64),
        "layout": "ROW_MAJOR",
        "storage": "HOST",
        "memory": None,
        "mesh_shape": (1, 1),
        "device": 1,
    }
    hashes = {placement_hash(case())}
    for name, value in changes.items():
        changed = dataclasses.replace(base, **{name: value})
        hashes.add(placement_hash(case(x=TensorSpec((32, 32), "ttnn.bfloat16", changed))))
    assert len(hashes) == len(changes) + 1
