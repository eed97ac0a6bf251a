"""Files of other people make no generated program that does more than call ops.

What a program may do besides is what programs of harmless cases do.
"""

import ast
import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

import commands
import masters
from optrove.errors import NotReplayable
from optrove.frameworks.op_names import refusal
from optrove.model.flow import Step
from optrove.model.records import (
    Call,
    CallOutcome,
    CallSite,
    DeviceKind,
    DeviceParameters,
    Environment,
    Job,
    Run,
    RunKind,
)
from optrove.model.values import (
    Callable,
    Handle,
    Int,
    Mapping,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    TorchPlacement,
)
from optrove.replay.planning import PlannedJob
from optrove.replay.sequence import CallSequence, SequenceCall
from optrove.serializer.hashes import placement_hash
from optrove.testgen.cases import RecordedCase
from optrove.testgen.expressions import NotExpressible, class_path
from optrove.testgen.files import generate
from optrove.testgen.sequence_files import sequence_program, writable_program
from small_trove import imported, make_trove, run_of
from trove_rows import case, memory, tensor

MARKER = "PWNED"
REFUSED = "names no operation of|tests are written of the dispatcher's operations"
CODE = f"__import__('os').system('touch {MARKER}')"
ADD = case("ttnn.add", input_tensor_a=tensor(32, 32), input_tensor_b=1.5)


def strided(dtype="torch.float32", device="cpu", number=0):
    placement = TorchPlacement((3, 1), "strided", device, requires_grad=False)
    return TensorSpec((2, 3), dtype, placement, number, number)


def aten(**arguments):
    return case("torch.ops.aten.add.Tensor", self=strided(), **arguments)


OPS = [
    "os.system",
    "ttnn.os.system",
    "ttnn.operations.os",
    "ttnn.operations.core.os.system",
    "ttnn.__class__",
    "ttnn.Tensor.__init__",
    "ttnn.add.__globals__",
    "ttnn.register_python_operation",
    f"ttnn.add(); {CODE} #",
    f"ttnn.add\n{CODE}\nttnn.add",
    "ttnn.\uff41dd",
    "ttnn." + "a" * 10_000,
    "torch.hub.load",
    "torch.load",
    "torch.os.system",
    "torch.utils.cpp_extension.load",
    "torch.serialization.load",
    "torch.classes.load_library",
    "torch.ops.load_library.__call__.__call__",
    "torch.ops.aten.add.default.__call__",
    "torch.ops.aten.from_file.default",
    "torch.ops.aten.add.__class__",
    f"torch.ops.aten.add.Tensor(); {CODE} #",
]

NAMED_BY_CODE = Struct(
    "ttnn.FooConfig",
    (
        ("buffer_type", Symbol("python.Ellipsis", f"X = {CODE}\nY")),
        ("memory_layout", Symbol("ttnn.TensorMemoryLayout", "INTERLEAVED")),
        ("more", Text("x" * 60)),
    ),
)
"""A configuration that is long enough to become a constant."""

CASES = [
    replace(ADD, arguments=(*ADD.arguments, (f"x=1, **{CODE}, y", Int(1)))),
    replace(ADD, arguments=(*ADD.arguments, (f"x\n{CODE}", Int(1)))),
    case("ttnn.add", a=tensor(32, 32), b=Struct("ttnn.os.system", (("value", Text(CODE)),))),
    case("ttnn.add", a=tensor(32, 32), b=Struct("torch.hub.load", (("value", Text(CODE)),))),
    case("ttnn.add", a=tensor(32, 32), b=Struct("ttnn.SetRootDir", (("value", Text(CODE)),))),
    case("ttnn.add", a=tensor(32, 32), b=Struct("python.eval", (("value", Text(CODE)),))),
    case("ttnn.add", a=tensor(32, 32), b=Struct("ttnn.CoreCoord", ((f"x=1)+{CODE}+(", Int(1)),))),
    case("ttnn.add", a=tensor(32, 32), b=Struct("ttnn.FooConfig", ((f"x=1)+{CODE}+(", Int(1)),))),
    case("ttnn.add", a=tensor(32, 32), b=Struct(f"ttnn.FooConfig(){CODE}", ())),
    case("ttnn.add", a=tensor(32, 32), b=Symbol("ttnn.os", "system")),
    case("ttnn.add", a=tensor(32, 32), b=Symbol("ttnn.Layout", f"TILE)+{CODE}+(")),
    case("ttnn.add", a=tensor(32, 32), b=Symbol("ttnn.Layout", "__class__")),
    case("ttnn.add", a=tensor(32, 32), b=Symbol("torch.layout", "os.system")),
    case("ttnn.add", a=tensor(32, 32), b=Symbol("torch.memory_format", "load")),
    case("ttnn.add", a=tensor(32, 32), b=Symbol("torch.dtype", "hub.load")),
    case("ttnn.add", a=tensor(32, 32), b=Callable(CODE)),
    case("ttnn.add", a=tensor(32, 32), b=NAMED_BY_CODE),
    case("ttnn.add", a=tensor(32, 32), b=Handle("ttnn.os.system", Struct("x", ()))),
    case("ttnn.add", a=tensor(32, 32, dtype=f"bfloat16, {CODE}"), b=1),
    case("ttnn.add", a=tensor(32, 32, dtype="os.system"), b=1),
    case("ttnn.add", a=tensor(32, 32, layout=f"TILE)+{CODE}+("), b=1),
    case("ttnn.add", a=tensor(32, 32, where=memory(f"L1_{CODE}")), b=1),
    case("ttnn.add", a=replace(tensor(32, 32), dtype="torch.load"), b=1),
    aten(other=strided(f"torch.float32)+{CODE}+(", number=1)),
    aten(other=strided("torch.load", number=1)),
    aten(other=strided(device=f"cpu'+{CODE}+'", number=1)),
    aten(other=Struct("torch.hub.load", (("value", Text(CODE)),))),
    aten(other=Symbol("torch.layout", "load")),
    replace(aten(), arguments=(("self", strided()), (f"x=1, **{CODE}, y", Int(1)))),
]

QUOTED = [
    case("ttnn.add", a=tensor(32, 32), b=f'""" + {CODE} + """', c=f"\\\n'''{CODE}\n\" #"),
    case("ttnn.add", a=tensor(32, 32), b=Mapping(frozenset({(Text(f"'+{CODE}+'"), Int(1))}))),
    aten(other=f'""" + {CODE} + """'),
]


def dotted(node):
    """Return the name that an expression spells; empty if it is another one."""
    if isinstance(node, ast.Name):
        return node.id
    before = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{before}.{node.attr}" if before else ""


def facts(text):
    """Return what a program calls, names of its frameworks, and imports."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            found.add(("calls", dotted(node.func)))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.add(("imports", ast.unparse(node)))
        if isinstance(node, ast.Attribute) and dotted(node).startswith(("ttnn.", "torch.")):
            found.add(("names", dotted(node)))
    return found


def programs(cases):
    """Return the tests, standalone files and sequences of cases that can be written."""
    recorded = [RecordedCase(placement_hash(each), each) for each in cases]
    made = [
        file.text for alone in (False, True) for file in generate(recorded, standalone=alone).files
    ]
    for checked in (False, True):
        for each in cases:
            try:
                made.append(sequence_program(sequence(each), CODE, checked=checked).text)
            except NotReplayable:  # noqa: PERF203 - each may be refused
                continue
    return made


def sequence(*cases, file=f"x.py\n{CODE}"):
    run = Run(f"\n{CODE}", RunKind.TRACE, f'"""\n{CODE}', Environment("1", "3.12", "linux"), "")
    calls = [
        SequenceCall(
            Call(
                "run", f"{place}", place, call_site=CallSite(file, 1), outcome=CallOutcome.RETURNED
            ),
            PlannedJob(Job(one, DeviceKind.HOST, flow=Step(place)), f"{place}"),
        )
        for place, one in enumerate(cases)
    ]
    return CallSequence(run, 0, tuple(calls))


@pytest.fixture(scope="module")
def usual():
    """What programs of harmless cases do."""
    harmless = [
        ADD,
        aten(other=1),
        aten(other=strided(number=1)),
        case("ttnn.add", a=tensor(8), b="x"),
    ]
    return set().union(*(facts(text) for text in programs(harmless)))


def foreign(text, usual):
    """Return what a program does besides calls of ops, with values of the frameworks' classes."""
    return [(kind, name) for kind, name in facts(text) - usual if not is_expected(kind, name)]


def is_expected(kind, name):
    if kind == "imports":
        return False
    if kind == "calls" and not name.startswith(("ttnn.", "torch.")):
        return name in ("dict", "frozenset", "set")
    for prefix in (name, name.rpartition(".")[0]):
        try:
            class_path(prefix, "$")
        except NotExpressible:
            continue
        return True
    parts = name.split(".")
    return any(refusal(".".join(parts[:end])) is None for end in range(2, len(parts) + 1))


@pytest.mark.parametrize("op", OPS, ids=range(len(OPS)))
def test_no_program_calls_what_is_no_op(op, usual):
    one = case(op, a=f"touch {MARKER}")
    (left,) = generate([RecordedCase(placement_hash(one), one)]).left_out
    assert re.search(REFUSED, left.reason)
    assert left.reason.isascii()
    assert left.reason.isprintable()
    assert len(left.reason) < 600
    with pytest.raises(NotReplayable, match=REFUSED):
        sequence_program(sequence(one), "title")
    beside = ADD if op.startswith(("ttnn", "os")) else aten(other=1)
    kept = writable_program(sequence(beside, one), CODE)
    texts = [kept.text, *programs([beside, one])]
    assert [foreign(text, usual) for text in texts] == [[]] * len(texts)


@pytest.mark.parametrize("one", [*CASES, *QUOTED], ids=range(len(CASES) + len(QUOTED)))
def test_no_part_of_a_case_becomes_code(one, usual):
    beside = ADD if one.op.startswith("ttnn.") else aten(other=1)
    for text in programs([beside, one]):
        assert foreign(text, usual) == []


@pytest.mark.parametrize("one", CASES, ids=range(len(CASES)))
def test_cases_with_code_in_names_are_left_out(one):
    generated = generate([RecordedCase(placement_hash(one), one)])
    if generated.files:  # devices are texts, which are quoted
        assert f"+{CODE}+" not in generated.files[0].text
    assert len(generated.files) + len(generated.left_out) == 1


OF_OTHER_TESTS = {
    ("calls", "device.get_num_devices"),
    ("calls", "pytest.raises"),
    ("calls", "pytest.skip"),
    ("calls", "ttnn.MeshShape"),
    ("calls", "ttnn.close_mesh_device"),
    ("calls", "ttnn.create_mesh_mapper"),
    ("calls", "ttnn.get_num_devices"),
    ("calls", "ttnn.open_mesh_device"),
    ("calls", "ttnn.set_fabric_config"),
    ("names", "ttnn.FabricConfig.DISABLED"),
    ("names", "ttnn.FabricConfig.FABRIC_1D"),
    ("names", "ttnn.close_mesh_device"),
    ("names", "ttnn.create_mesh_mapper"),
    ("names", "ttnn.get_num_devices"),
    ("names", "ttnn.open_mesh_device"),
    ("names", "ttnn.set_fabric_config"),
}
"""What tests on several chips, and of calls that raise, do as well."""


@pytest.mark.parametrize(
    "more",
    [
        {"case_id": f"\n{CODE}"},
        {"case_id": "../../../x"},
        {"notes": (f'"""\n{CODE}\n"""',)},
        {"board": f"n300'; {CODE} #"},
        {"raised": f"OSError\n{CODE}: x"},
        {"shrunk_from": f"\n{CODE}"},
        {"device": DeviceParameters(fabric_config=f"X)\n{CODE}", mesh_shape=(1, 2))},
        {"device": DeviceParameters(dispatch_axis=f"ROW)\n{CODE}")},
    ],
    ids=lambda more: next(iter(more)),
)
@pytest.mark.parametrize("one", [ADD, aten(other=1)], ids=["ttnn", "torch"])
@pytest.mark.parametrize("standalone", [False, True])
def test_facts_about_a_case_become_no_code(one, more, standalone, usual):
    generated = generate(
        [RecordedCase(**{"case_id": placement_hash(one), "case": one, **more})],
        standalone=standalone,
    )
    for file in generated.files:
        found = set(foreign(file.text, usual | OF_OTHER_TESTS))
        assert found == set()
        assert "/" not in file.name


def hostile_files(directory):
    """Write the files that others may send; return their paths.

    Arguments have names, so that ttnn is not imported to find these.
    """
    value = f"touch {directory / MARKER}"
    ops = ("ttnn.os.system", "ttnn.operations.core.os.system", f"ttnn.add(); {CODE} #")
    configured = {
        op: {"configurations": [masters.configuration({"a": value}, number=number)]}
        for number, op in enumerate(ops, 1)
    }
    about = {"models": ["m"], "last_updated": "2026-03-08 13:48:13"}
    master = directory / "master.json"
    master.write_text(json.dumps({"operations": configured, "metadata": about}))
    log = directory / "log.txt"
    log.write_text(
        "".join(
            f"Operator: {op}\ncnt: 1, (({value!r},), {{}})\n"
            for op in ("os.system.default", "load_library.__call__.__call__", "aten.os.__class__")
        )
    )
    lines = directory / "ops.jsonl"
    known = {"run_id": "run", "test_nodeid": None, "module": None, "output": None}
    lines.write_text(
        "".join(
            json.dumps(
                {**known, "op_index": at, "op_name": op, "inputs": [], "kwargs": {"a": value}}
            )
            + "\n"
            for at, op in enumerate(ops)
        )
    )
    parameters = directory / "operation_parameters"
    parameters.mkdir()
    for number, op in enumerate(ops):
        content = {
            "operation_id": number,
            "operation_name": op,
            "args": [],
            "kwargs": {"a": value},
        }
        path = parameters / f"{number}_ttnn_add_20260115_104616_{345670 + number}.json"
        path.write_text(json.dumps(content))
    trove = make_trove(
        directory / "sent.db",
        imported(run_of("ab" * 16, f'"""\n{CODE}'), [(case(op, a=value), 1) for op in OPS]),
    )
    return {"master": master, "log": log, "lines": lines, "parameters": parameters, "trove": trove}


@pytest.mark.parametrize("kind", ["master", "log", "lines", "parameters", "trove"])
def test_nothing_of_a_hostile_file_is_called(kind, tmp_path, monkeypatch, usual):
    monkeypatch.chdir(tmp_path)
    path = hostile_files(tmp_path)[kind]
    store = path if kind == "trove" else tmp_path / "store.db"
    if kind != "trove":
        commands.ask("import", path, "--store", store)
    made = tmp_path / "made"
    filters = ("--all-ops", "--nested", "--store", store)
    refused = commands.run("testgen", "*", *filters, "-o", made)
    assert refused.exit_code == 2, refused.output
    assert "names no operation of" in refused.stderr, refused.output
    assert not made.exists()
    vectors = commands.run(
        "vectors", "*", "--dump-file", "--vector-dir", tmp_path / "v", "--store", store
    )
    assert not isinstance(vectors.exception, Exception) or isinstance(vectors.exception, SystemExit)
    assert not (tmp_path / MARKER).exists()


def test_programs_of_hostile_texts_run_without_harm(tmp_path):
    text = sequence_program(sequence(QUOTED[2]), CODE).text
    (tmp_path / "program.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1  # add takes no text
    assert not (tmp_path / MARKER).exists()
