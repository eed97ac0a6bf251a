import pytest

from optrove.errors import BadData
from optrove.model.case import Case
from optrove.model.trove import TensorFacts
from optrove.model.values import (
    Bool,
    Callable,
    DeviceRef,
    Float,
    FrozenSet,
    Handle,
    Int,
    List,
    Mapping,
    Null,
    NumpyPlacement,
    Opaque,
    Set,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
)
from optrove.serializer.described import case_of, describe_case


def memory(buffer="L1", spread="HEIGHT_SHARDED"):
    fields = (
        ("buffer_type", Symbol("ttnn.BufferType", buffer)),
        ("memory_layout", Symbol("ttnn.TensorMemoryLayout", spread)),
    )
    return Struct("ttnn.MemoryConfig", fields)


def tensor(shape=(1, 1, 32, 64), dtype="ttnn.bfloat16", identity=0, **changes):
    facts = {"storage": "device", "memory": memory(), "mesh_shape": (1, 8), "device": 0}
    placement = TtnnPlacement(shape, "TILE", None, mesh=None, **{**facts, **changes})
    return TensorSpec(shape, dtype, placement, identity, identity)


def case(op="ttnn.add", **arguments):
    return Case(op, tuple(arguments.items()))


def facts(**arguments):
    return [
        (each.place, each.argument, each.shape, each.dtype, each.memory)
        for each in describe_case(case(**arguments)).tensors
    ]


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "null", "{}", '{"op":"a"}', '{"arguments":{},"op":1}'),
        *('{"arguments":[],"op":"a"}', '{"arguments":{"x":{"$what":1}},"op":"a"}'),
        '{"arguments":{},"op":"a","more":1}',
    ],
)
def test_what_is_no_content_is_bad_data(content):
    with pytest.raises(BadData):
        case_of(content)


def test_every_fault_of_a_content_is_named_with_its_path():
    content = '{"arguments":{"x":{"$tuple":1},"odd name":[{"$int":2}]},"op":"a"}'
    with pytest.raises(BadData) as raised:
        case_of(content)
    paths = [fault.path for fault in raised.value.faults]
    assert paths == ["$.arguments.x.$tuple", '$.arguments["odd name"][0]']


COORDINATES = [Struct("ttnn.MeshCoordinate", (("coords", List((Int(0), Int(n)))),)) for n in (0, 1)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"batch_idx": Int(0)}, {"batch_idx": Int(127)}),
        ({"scale": Float(0.5)}, {"scale": Float(float("nan"))}),
        ({"name": Text("a")}, {"name": Text("b")}),
        ({"on": Bool(value=True)}, {"on": Bool(value=False)}),
        ({"dims": List((Int(1), Int(2)))}, {"dims": List((Int(3), Int(4)))}),
        ({"dims": Tuple((Int(1), Null()))}, {"dims": Tuple((Int(3), Null()))}),
        (
            {"options": Mapping(frozenset({(Text("a"), Int(1))}))},
            {"options": Mapping(frozenset({(Text("a"), Int(2))}))},
        ),
        ({"at": COORDINATES[0]}, {"at": COORDINATES[1]}),
        (
            {"mesh_coords": Set(frozenset(COORDINATES))},
            {"mesh_coords": Set(frozenset(COORDINATES[:1]))},
        ),
        ({"axes": FrozenSet(frozenset({Int(1)}))}, {"axes": FrozenSet(frozenset({Int(5)}))}),
    ],
)
def test_cases_that_differ_in_scalars_only_are_one_family(one, other):
    left, right = (describe_case(case(x=tensor(), **each)) for each in (one, other))
    assert left.case_id != right.case_id
    assert left.family_id == right.family_id


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"batch_idx": Int(0)}, {"batch_idx": Null()}),
        ({"batch_idx": Int(0)}, {"batch_idx": Float(0.0)}),
        ({"batch_idx": Int(0)}, {"batch_idx": Bool(value=False)}),
        ({"batch_idx": Int(0)}, {"index": Int(0)}),
        ({"batch_idx": Int(0)}, {}),
        ({"dims": List((Int(1),))}, {"dims": List((Int(1), Int(2)))}),
        ({"dims": List((Int(1),))}, {"dims": Tuple((Int(1),))}),
        ({"y": tensor((32, 32))}, {"y": tensor((32, 64))}),
        ({"y": tensor(memory=memory("DRAM"))}, {"y": tensor(memory=memory("L1"))}),
        ({"dtype": Symbol("ttnn.DataType", "A")}, {"dtype": Symbol("ttnn.DataType", "B")}),
        (
            {"config": Struct("ttnn.ProgramConfig", (("width", Int(1)),))},
            {"config": Struct("ttnn.ProgramConfig", (("width", Int(2)),))},
        ),
        (
            {"options": Mapping(frozenset({(Text("a"), Int(1))}))},
            {"options": Mapping(frozenset({(Text("b"), Int(1))}))},
        ),
        ({"device": DeviceRef("ttnn.MeshDevice", (1, 2))}, {"device": DeviceRef("x", (1, 8))}),
    ],
)
def test_cases_that_differ_in_more_than_scalars_are_of_different_families(one, other):
    left, right = (describe_case(case(x=tensor(), **each)) for each in (one, other))
    assert left.family_id != right.family_id


@pytest.mark.parametrize(
    ("arguments", "replayable"),
    [
        ({"x": tensor()}, True),
        ({"x": Opaque("a.B", "1")}, False),
        ({"x": List((Handle("ttnn.GlobalSemaphore", None),))}, False),
        ({"x": List((Handle("ttnn.GlobalSemaphore", memory()),))}, True),
        ({"x": Callable("a.b")}, False),
        ({"x": tensor(memory=Struct("a", (("b", Opaque("c", "d")),)))}, False),
    ],
)
def test_what_cannot_be_recreated_makes_a_case_not_replayable(arguments, replayable):
    assert describe_case(case(y=tensor(), **arguments)).replayable is replayable


def test_tensors_are_listed_in_the_order_of_arguments():
    weights = List((tensor((2, 3)), tensor((4,)), Tuple((tensor(()),))))
    assert facts(b=weights, a=tensor((7, 8), "ttnn.bfloat8_b"), c=Int(1)) == [
        (0, "a", "7x8", "bfloat8_b", "L1_HEIGHT_SHARDED"),
        (1, "b", "2x3", "bfloat16", "L1_HEIGHT_SHARDED"),
        (2, "b", "4", "bfloat16", "L1_HEIGHT_SHARDED"),
        (3, "b", "", "bfloat16", "L1_HEIGHT_SHARDED"),
    ]


def test_tensors_without_an_order_are_sorted_by_their_text():
    items = [(Text(name), tensor((size,))) for name, size in (("b", 1), ("c", 2), ("a", 3))]
    shapes = [fact[2] for fact in facts(x=Mapping(frozenset(items)))]
    assert shapes == ["3", "1", "2"]
    several = Set(frozenset(tensor((size,)) for size in (3, 1, 2)))
    assert [fact[2] for fact in facts(x=several)] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (tensor(), ("TILE", "L1_HEIGHT_SHARDED", "1x8")),
        (tensor(memory=memory("DRAM", "INTERLEAVED")), ("TILE", "DRAM_INTERLEAVED", "1x8")),
        (tensor(storage="host", mesh_shape=None), ("TILE", "HOST", None)),
        (tensor(memory=None), ("TILE", "DEVICE", "1x8")),
        (tensor(memory=Struct("ttnn.MemoryConfig", ())), ("TILE", "DEVICE", "1x8")),
        (
            TensorSpec((2,), "torch.float32", TorchPlacement((1,), "strided", "cuda:1", False)),
            ("strided", "cuda:1", None),
        ),
        (TensorSpec((2,), "numpy.float32", NumpyPlacement((4,))), ("strided", "HOST", None)),
    ],
)
def test_a_tensor_has_its_layout_memory_and_mesh(spec, expected):
    (tensor_facts,) = describe_case(case(x=spec)).tensors
    assert (tensor_facts.layout, tensor_facts.memory, tensor_facts.mesh) == expected


def test_names_that_no_database_takes_are_escaped_where_they_are_searched_by():
    odd = TensorSpec((1,), "a.b\0", TorchPlacement((1,), "x\ny", "z", False))
    (tensor_facts,) = describe_case(Case("op", (("\ud800", odd),))).tensors
    assert tensor_facts == TensorFacts(0, "\\ud800", "1", "b\\x00", "x\\ny", "z", None)
