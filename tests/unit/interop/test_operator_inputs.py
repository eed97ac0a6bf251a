"""Operator-input logs of PyTorch come in whole, and back out again equal."""

import io
import json
from dataclasses import replace

import pytest

from optrove.errors import BadData
from optrove.interop import operator_inputs
from optrove.interop.exporting import export_to
from optrove.interop.formats import read_file
from optrove.interop.importing import import_all
from optrove.model.case import Case
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
    Tuple,
)
from optrove.trove.place import place_of
from optrove.trove.query import CaseFilters
from optrove.trove.reader import open_reader

LOG = """\
Operator: aten._log_softmax.default
cnt: 1, ((T([64, 1000], f16), 1, False), {})
Operator: aten.addmm.default
cnt: 49, ((T([768], f16), T([64, 768], f16), T([768, 768], f16, stride=(1, 768))), {})
cnt: 2, ((T([2], f16), T([4, 3], f16), T([3, 2], f16)), {'beta': -1.5, 'alpha': inf})
Operator: aten.cat.default
cnt: 3, (([T([1, 2], i64), T([3, 2], i64)],), {})
Operator: aten.new_empty_strided.default
cnt: 1, ((T([2], b8), [2], [1]), {'dtype': f32, 'device': torch.device('cuda:1'), 'pin': None})
Operator: aten._to_copy.default
cnt: 4, ((T([], f64),), {'dtype': torch.bfloat16, 'layout': torch.strided, 'mode': 'x'})
"""


def read(text):
    return operator_inputs.read_operator_log(text, "log.txt", strict=False)


def cases_of(text):
    (run,), _ = read(text)
    return {each.case.op: dict(each.case.arguments) for each in run.cases}


def tensor(shape, dtype, strides, number):
    placement = TorchPlacement(strides, "strided", "cpu", requires_grad=False)
    return TensorSpec(shape, f"torch.{dtype}", placement, number, number)


def test_every_configuration_is_read():
    (run,), fidelity = read(LOG)
    assert (fidelity.configurations, fidelity.verbatim) == (6, ())
    assert sum(each.count for each in run.cases) == 60
    assert run.run.accounting.adds_up()
    assert run.run.source == "log.txt"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("T([2, 3], f32)", tensor((2, 3), "float32", (3, 1), 0)),
        ("T([2, 0, 3], bf16)", tensor((2, 0, 3), "bfloat16", (3, 3, 1), 0)),
        ("T([2, 3], c64, stride=(1, 2))", tensor((2, 3), "complex64", (1, 2), 0)),
        ("T([2, 3], f8e5m2)", tensor((2, 3), "float8_e5m2", (3, 1), 0)),
        ("T([2], f8)", tensor((2,), "float8_e4m3fn", (1,), 0)),
        ("[T([], i64), 1]", List((tensor((), "int64", (), 0), Int(1)))),
        ("(1, -2)", Tuple((Int(1), Int(-2)))),
        ("-inf", Float(float("-inf"))),
        ("None", Null()),
        ("True", Bool(True)),
        ("'mean'", Text("mean")),
        ("f16", Symbol("torch.dtype", "float16")),
        ("torch.int8", Symbol("torch.dtype", "int8")),
        ("torch.channels_last", Symbol("torch.memory_format", "channels_last")),
        ("torch.device('cpu')", Struct("torch.device", (("index", Null()), ("type", Text("cpu"))))),
    ],
)
def test_arguments_are_values(text, value):
    found = cases_of(f"Operator: aten.op.default\ncnt: 1, (({text},), {{}})\n")
    assert found == {"torch.ops.aten.op.default": {"arg0": value}}


@pytest.mark.parametrize(
    "text", ["'cuda:1'", "torch.device('cuda:1')", "\"torch.device('cuda:1')\""]
)
def test_a_device_is_a_device_however_it_is_spelled(text):
    log = f"Operator: aten.ones.default\ncnt: 1, (([2],), {{'device': {text}}})\n"
    found = cases_of(log)["torch.ops.aten.ones.default"]["device"]
    assert found == Struct("torch.device", (("index", Int(1)), ("type", Text("cuda"))))


@pytest.mark.parametrize("text", ["ST([2], f32, 1)", "open('x')", "T([2], q9)", "a.b.c", "{1: 2}"])
def test_what_is_unknown_is_kept_and_nothing_is_evaluated(text):
    (run,), fidelity = read(f"Operator: aten.op.default\ncnt: 1, (({text},), {{}})\n")
    (value,) = dict(run.cases[0].case.arguments).values()
    assert isinstance(value, Opaque)
    assert value.token == text
    assert sum(each.count for each in fidelity.verbatim) == 1


@pytest.mark.parametrize(
    "text",
    [
        "cnt: 1, ((), {})\n",
        "Operator: aten.op.default\nsomething else\n",
        "Operator: aten.op.default\ncnt: 1, ((1, {})\n",
        "Operator: aten.op.default\ncnt: 1, (1, {})\n",
        "Operator: aten.op.default\ncnt: 1, ((), {1: 2})\n",
    ],
)
def test_other_files_are_refused(text):
    with pytest.raises(BadData):
        read(text)


@pytest.mark.parametrize("form", ["op-inputs", "op-inputs-json"])
def test_an_export_is_equal(tmp_path, form):
    (tmp_path / "log.txt").write_text(LOG)
    store = str(tmp_path / "trove.db")
    (added,) = import_all(store, [str(tmp_path / "log.txt")])
    assert (added.format, added.added.calls, added.added.cases_new) == ("op-inputs", 60, 6)
    with open_reader(place_of(store)) as reader:
        exported = export_to(reader, str(tmp_path / "out"), form, CaseFilters())
    assert (exported.cases, exported.calls) == (6, 60)
    if form == "op-inputs":
        assert (tmp_path / "out").read_text() == LOG
    (again,), _ = read_file(tmp_path / "out")
    (first,), _ = read(LOG)
    assert {(each.case, each.count) for each in again.cases} == {
        (each.case, each.count) for each in first.cases
    }


@pytest.mark.parametrize(
    "document",
    [
        {"aten.relu.default": ["((T([2], f32),), {})"]},
        {"aten.relu.default": {"((T([2], f32),), {})": 3}},
        [{"op_name": "aten.relu.default", "args": "((T([2], f32),), {})", "count": 3}],
    ],
)
def test_the_same_texts_in_json_are_read(tmp_path, document):
    (tmp_path / "inputs.json").write_text(json.dumps(document))
    (run,), fidelity = read_file(tmp_path / "inputs.json")
    assert fidelity.format == "op-inputs"
    (found,) = run.cases
    assert found.case.op == "torch.ops.aten.relu.default"
    assert found.count in (1, 3)


def test_a_recorded_case_is_written_with_its_names():
    case = Case(
        "torch.ops.aten.sum.dim_IntList",
        (
            ("dim", List((Int(1),))),
            ("dtype", Symbol("torch.dtype", "float32")),
            ("self", tensor((2, 3), "float32", (1, 2), 0)),
        ),
    )
    stream = io.BytesIO()
    row = type("Row", (), {"configuration": None, "count": 7})
    operator_inputs.write_operator_log(stream, [(case, (row,))])
    assert stream.getvalue().decode() == (
        "Operator: aten.sum.dim_IntList\n"
        "cnt: 7, ((), {'dim': [1], 'dtype': f32, 'self': T([2, 3], f32, stride=(1, 2))})\n"
    )
    (run,), _ = read(stream.getvalue().decode())
    assert run.cases[0].case == case


def test_an_export_says_what_a_log_cannot_express():
    plain = tensor((2,), "float32", (1,), 0)
    sparse = replace(plain, placement=replace(plain.placement, layout="sparse_coo"))
    on_gpu = replace(plain, placement=replace(plain.placement, device="cuda:0"))
    cases = [
        Case("torch.ops.aten.mul.Tensor", (("other", plain), ("self", plain))),
        Case("torch.ops.aten.relu.default", (("self", sparse),)),
        Case("torch.ops.aten.abs.default", (("self", on_gpu),)),
        Case("torch.ops.aten.neg.default", (("self", plain),)),
        Case("ttnn.add", ()),
    ]
    row = type("Row", (), {"configuration": None, "count": 1})
    exported = operator_inputs.write_operator_log(io.BytesIO(), [(case, (row,)) for case in cases])
    assert (exported.cases, exported.calls) == (4, 4)
    assert exported.notes == (
        "1 case with tensors that share memory: written as if each had its own",
        "1 case with a sparse_coo tensor: written as strided",
        "1 case on cuda:0: the log has no devices",
        "1 case of another library than torch: left out",
    )
