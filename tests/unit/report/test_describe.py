import pytest

from drawn import drawn_lines
from optrove.model.case import Case
from optrove.model.values import (
    Bool,
    Bytes,
    Callable,
    Complex,
    DeviceRef,
    Float,
    FrozenSet,
    Handle,
    Int,
    List,
    Mapping,
    MeshPlacement,
    Null,
    NumpyPlacement,
    Opaque,
    Set,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    Tile,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
)
from optrove.report.describe import argument_fields, argument_texts
from optrove.report.describe import value_text as drawn
from trove_rows import core, memory, shard

SHARD = shard((224, 32), (7, 6))


def placed(shape, **changes):
    facts = {
        "padded_shape": shape,
        "layout": "TILE",
        "tile": Tile((32, 32), (16, 16)),
        "storage": "device",
        "memory": memory(),
        "mesh_shape": (1, 1),
        "mesh": MeshPlacement((1,), (None,), ((0, 0),)),
        "device": 0,
    }
    return TtnnPlacement(**facts | changes)


SHARDED = TensorSpec(
    (1, 1, 12544, 32),
    "ttnn.bfloat8_b",
    placed((1, 1, 12544, 32), memory=memory("L1_HEIGHT_SHARDED", SHARD)),
)


def test_a_sharded_tensor_is_drawn_with_its_shards():
    assert drawn(SHARDED) == (
        "Tensor(shape=[1, 1, 12544, 32], dtype=BFLOAT8_B, memory=L1_HEIGHT_SHARDED, "
        "shard(shard_shape=[224, 32], grid=[(0,0)->(7,6)], orientation=ROW_MAJOR))"
    )


def test_arguments_are_folded_where_commas_allow_it():
    case = Case("ttnn.softmax", (("dim", Int(-1)), ("input_tensor", SHARDED)))
    assert drawn_lines([argument_fields(case)], 76) == [
        "dim: -1",
        "input_tensor: Tensor(shape=[1, 1, 12544, 32], dtype=BFLOAT8_B,",
        "                     memory=L1_HEIGHT_SHARDED, shard(shard_shape=[224, 32],",
        "                     grid=[(0,0)->(7,6)], orientation=ROW_MAJOR))",
    ]


@pytest.mark.parametrize(
    ("placement", "text"),
    [
        (placed((2, 4)), "memory=DRAM_INTERLEAVED"),
        (
            placed((2, 4), layout="ROW_MAJOR", tile=None),
            "layout=ROW_MAJOR, memory=DRAM_INTERLEAVED",
        ),
        (placed((2, 4), tile=Tile((16, 32), (16, 16))), "tile=16x32, memory=DRAM_INTERLEAVED"),
        (placed((2, 4), storage="host", memory=None), "memory=HOST"),
        (
            placed((2, 4), mesh=MeshPlacement((2, 1), (1, None), ((0, 0), (1, 0)))),
            "memory=DRAM_INTERLEAVED, mesh=2x1 shard(1) replicate",
        ),
    ],
)
def test_the_unusual_facts_of_a_tensor_are_shown(placement, text):
    spec = TensorSpec((2, 4), "ttnn.bfloat16", placement)
    assert drawn(spec) == f"Tensor(shape=[2, 4], dtype=BFLOAT16, {text})"


@pytest.mark.parametrize(
    ("placement", "text"),
    [
        (TorchPlacement((3, 1), "strided", "cpu", requires_grad=False), ""),
        (TorchPlacement((1, 2), "strided", "cpu", requires_grad=False), ", strides=[1, 2]"),
        (
            TorchPlacement((), "sparse_coo", "cuda:0", requires_grad=True),
            ", device=cuda:0, layout=sparse_coo, requires_grad",
        ),
        (
            TorchPlacement(
                (3, 1), "strided", "cpu", False, offset=4, conjugate=True, negative=True
            ),
            ", offset 4, conjugate, negative",
        ),
    ],
)
def test_a_torch_tensor_is_drawn(placement, text):
    spec = TensorSpec((2, 3), "torch.float32", placement)
    assert drawn(spec) == f"torch.Tensor(shape=[2, 3], dtype=float32{text})"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Null(), "None"),
        (Bool(True), "True"),
        (Int(7), "7"),
        (Float(-0.0), "-0.0"),
        (Complex(Float(1.0), Float(-2.0)), "(1-2j)"),
        (Text("a\nb"), r"'a\nb'"),
        (Text("x" * 300), f"'{'x' * 200}...'"),
        (Bytes(b"abc"), "<3 bytes>"),
        (List((Int(1), Null())), "[1, None]"),
        (Tuple((Int(1),)), "(1,)"),
        (Tuple((Int(1), Int(2))), "(1, 2)"),
        (Set(frozenset({Int(2), Int(1)})), "{1, 2}"),
        (FrozenSet(frozenset()), "{}"),
        (Mapping(frozenset({(Text("a"), Int(1))})), "{'a': 1}"),
        (Symbol("ttnn.DataType", "BFLOAT16"), "DataType.BFLOAT16"),
        (Struct("ttnn.Some", (("b", Null()), ("a", Int(1)))), "Some(a=1)"),
        (memory("L1_INTERLEAVED"), "MemoryConfig(L1_INTERLEAVED)"),
        (core(1, 2), "(1,2)"),
        (dict(SHARD.fields)["grid"], "[(0,0)->(7,6)]"),
        (DeviceRef("ttnn.MeshDevice", (4, 8)), "MeshDevice(4x8)"),
        (Handle("ttnn.GlobalSemaphore", None), "GlobalSemaphore(unknown recipe)"),
        (Handle("ttnn.X", Struct("ttnn.X", (("cores", Int(2)),))), "X(cores=2)"),
        (Callable("torch.relu"), "torch.relu"),
        (Opaque("some.Thing", "1"), "<some.Thing, which no converter knows>"),
        (
            TensorSpec((2,), "numpy.int8", NumpyPlacement((1,))),
            "numpy.ndarray(shape=[2], dtype=int8)",
        ),
    ],
)
def test_every_kind_of_value_has_a_text(value, text):
    assert drawn(value) == text


def test_arguments_without_names_come_first_by_their_number():
    case = Case("ttnn.f", tuple((name, Null()) for name in ("a", "arg10", "arg2", "arg1")))
    named = ["arg1: None", "arg2: None", "arg10: None", "a: None"]
    assert drawn_lines([argument_fields(case)], 80) == named


def test_what_torch_tensors_share_is_said_after_the_value():
    placement = TorchPlacement((1,), "strided", "cpu", requires_grad=False)
    tensors = [TensorSpec((4,), "torch.float32", placement, *n) for n in ((0, 0), (1, 0), (2, 1))]
    first, view, other = tensors
    arguments = (("a", first), ("b", view), ("c", other), ("d", first))
    case = Case("torch.f", (*arguments, ("e", List((other, Tuple((view,)))))))
    text = drawn(first)
    assert argument_texts(case) == (
        ("a", text),
        ("b", f"{text}, shares its storage with a"),
        ("c", text),
        ("d", f"{text}, same tensor as a"),
        ("e", f"[{text}, ({text},)], e[0] same tensor as c, e[1][0] same tensor as b"),
    )


def test_a_folded_list_is_aligned_with_its_first_item():
    semaphore = Handle("ttnn.GlobalSemaphore", None)
    case = Case("ttnn.f", (("semaphores_of_all", List((semaphore, semaphore))),))
    assert drawn_lines([argument_fields(case)], 60) == [
        "semaphores_of_all: [GlobalSemaphore(unknown recipe),",
        "                    GlobalSemaphore(unknown recipe)]",
    ]


def test_a_long_list_of_tensors_is_folded_and_a_shape_is_not():
    case = Case("ttnn.concat", (("tensors", List((SHARDED, SHARDED))),))
    lines = drawn_lines([argument_fields(case)], 78)
    assert max(map(len, lines)) <= 78
    assert lines[0].startswith("tensors: [Tensor(shape=[1, 1, 12544, 32], dtype=BFLOAT8_B,")
