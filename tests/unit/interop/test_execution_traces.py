"""Execution traces of PyTorch come in whole; each node is counted."""

import json

import pytest

from optrove.errors import BadData
from optrove.interop.execution_traces import read_execution_trace
from optrove.interop.formats import read_file
from optrove.model.values import (
    Bool,
    Float,
    Int,
    List,
    Null,
    Opaque,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    TorchPlacement,
)

ADDMM = (
    "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"
)
FULL = (
    "aten::full(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None,"
    " Device? device=None, bool? pin_memory=None) -> Tensor"
)
CONV = (
    "aten::conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1],"
    " SymInt[2] padding=[0, 0], SymInt[2] dilation=[1, 1], SymInt groups=1) -> Tensor"
)
INDEX = "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor"
GELU = "aten::gelu(Tensor self, *, str approximate='none') -> Tensor"
ENTER = "profiler::_record_function_enter_new(str name, str? args=None) -> object"


def node(schema, *arguments):
    """Return a node with arguments of (value, shape, type, strides)."""
    values, shapes, types, strides = (
        map(list, zip(*arguments, strict=True)) if arguments else [[]] * 4
    )
    return {
        "id": 3,
        "name": schema.partition("(")[0],
        "ctrl_deps": 2,
        "inputs": {"values": values, "shapes": shapes, "types": types, "strides": strides},
        "attrs": [{"name": "op_schema", "type": "string", "value": schema}],
    }


def tensor(number, storage, shape, strides, *, offset=0, kind="float", device="cpu"):  # noqa: PLR0913 - the facts of a tensor
    return [number, storage, offset, 6, 4, device], shape, f"Tensor({kind})", strides


def plain(value, kind):
    return value, [], kind, []


def read(*nodes, strict=False):
    document = {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": list(nodes)}
    return read_execution_trace(document, "trace.json", strict=strict)


def case_of(schema, *arguments):
    (run,), fidelity = read(node(schema, *arguments))
    assert fidelity.refused == 0
    (one,) = run.cases
    return one.case.op, dict(one.case.arguments)


def test_tensors_keep_their_identities_storages_offsets_and_devices():
    op, found = case_of(
        ADDMM,
        tensor(7, 1, [3], [1], kind="c10::BFloat16", device="cuda:0"),
        tensor(9, 4, [2, 3], [1, 2], offset=6),
        tensor(9, 4, [2, 3], [1, 2], offset=6),
        plain(1, "Int"),
        plain(0.5, "Double"),
    )
    assert op == "torch.ops.aten.addmm.default"
    strided = TorchPlacement((1, 2), "strided", "cpu", requires_grad=False, offset=6)
    matrix = TensorSpec((2, 3), "torch.float32", strided, 0, 0)
    bias = TorchPlacement((1,), "strided", "cuda:0", requires_grad=False)
    assert found == {  # beta has its default value
        "alpha": Float(0.5),
        "mat1": matrix,
        "mat2": matrix,
        "self": TensorSpec((3,), "torch.bfloat16", bias, 1, 1),
    }


def test_numbers_of_the_schemas_types_become_constants():
    _, found = case_of(
        FULL,
        ([2, 3], [[], []], "GenericList[Int,Int]", [[], []]),
        plain("-inf", "Double"),
        plain(15, "Int"),
        plain(0, "Int"),
        plain("cuda:1", "Device"),
        plain(False, "Bool"),
    )
    assert found == {
        "device": Struct("torch.device", (("index", Int(1)), ("type", Text("cuda")))),
        "dtype": Symbol("torch.dtype", "bfloat16"),
        "fill_value": Float(float("-inf")),
        "layout": Symbol("torch.layout", "strided"),
        "pin_memory": Bool(False),
        "size": List((Int(2), Int(3))),
    }


def test_arguments_are_left_out_as_the_dispatcher_leaves_them_out():
    pair = "GenericList[Int,Int]"
    inner = [[], []]
    _, found = case_of(
        CONV,
        tensor(1, 1, [1, 3, 8, 8], [192, 64, 8, 1]),
        tensor(2, 2, [4, 3, 3, 3], [27, 9, 3, 1]),
        plain("<None>", "None"),
        ([1, 1], inner, pair, inner),
        ([2, 2], inner, pair, inner),
        ([1, 1], inner, pair, inner),
        plain(1, "Int"),
    )
    assert found.keys() == {"input", "weight", "stride", "padding"}


def test_lists_of_tensors_have_null_for_undefined_ones():
    undefined = [109, 0, 0, 0, 0, ""]
    _, found = case_of(
        INDEX,
        tensor(1, 1, [4, 4], [4, 1]),
        (
            [undefined, [5, 3, 0, 2, 8, "cpu"]],
            [[], [2]],
            "GenericList[Tensor(nullptr (uninitialized)),Tensor(long int)]",
            [[], [1]],
        ),
    )
    empty, index = found["indices"].items
    assert empty == Null()
    assert index.dtype == "torch.int64"


def test_every_node_is_counted():
    engine = {"id": 1, "name": "autograd::engine", "inputs": {}, "attrs": []}
    sparse = ([9, 0, 0, 0, 0, ""], [2, 2], "Tensor(float)", [0, 0])
    gelu = node(GELU, tensor(1, 1, [2], [1]), plain("tanh", "String"))
    (run,), fidelity = read(
        engine,
        gelu,
        gelu,
        node(GELU, sparse),
        node(ENTER),
        node("nonsense"),
        node(GELU, *[sparse] * 3),
    )
    assert [(dict(each.case.arguments)["approximate"], each.count) for each in run.cases[:1]] == [
        (Text("tanh"), 2)
    ]
    assert isinstance(dict(run.cases[1].case.arguments)["self"], Opaque)
    assert (fidelity.configurations, fidelity.understood, fidelity.partly) == (5, 2, 1)
    assert [path for path, _ in fidelity.refusals] == [
        "$.nodes[5]: $.op_schema",
        "$.nodes[6]: $.inputs",
    ]
    assert fidelity.notes == (("not kept: a node that is not a call of an operation", 2),)


def test_the_first_versions_have_everything_in_the_node():
    old = {
        "id": 2,
        "name": "aten::relu",
        "parent": 1,
        "op_schema": "aten::relu(Tensor self) -> Tensor",
        "inputs": [[4, 5, 0, 6, 4, "cpu"]],
        "input_shapes": [[2, 3]],
        "input_types": ["Tensor(float)"],
    }
    (run,), _ = read(old)
    (spec,) = dict(run.cases[0].case.arguments).values()
    assert (spec.shape, spec.placement.strides) == ((2, 3), (3, 1))


def test_a_file_is_detected_and_faults_are_named(tmp_path):
    file = tmp_path / "trace.json"
    gelu = node(GELU, tensor(1, 1, [2], [1]))
    file.write_text(json.dumps({"schema": "1.0.1", "nodes": [gelu]}))
    runs, fidelity = read_file(file)
    assert fidelity.format == "execution-trace"
    assert len(runs) == 1
    file.write_text(json.dumps({"schema": "1.0.1", "nodes": [{"id": 1, "name": "a"}]}))
    with pytest.raises(BadData, match="no node is a call of an operation"):
        read_file(file)
    with pytest.raises(BadData, match="Generator has no known form"):
        read(node(GELU, plain("<Generator>", "Generator")), strict=True)
