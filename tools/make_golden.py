"""Write the golden files of the current format version.

Golden files must load for ever, so this refuses to replace one that is there. Run it once for
each new format version: python tools/make_golden.py tests/golden
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from optrove.model.case import Case
from optrove.model.records import (
    Accounting,
    Attempt,
    Call,
    CallOutcome,
    CallSite,
    DeviceKind,
    DeviceParameters,
    Environment,
    Job,
    Measurement,
    Outcome,
    Phase,
    Query,
    Run,
    RunKind,
    TestOutcome,
    TestResult,
)
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
    Value,
)
from optrove.serializer.described import describe_case
from optrove.serializer.hashes import (
    canonical_bytes,
    case_data,
    fingerprint,
    placement_hash,
)
from optrove.serializer.records import record_to_builtins
from optrove.serializer.text import write
from optrove.serializer.wire import encode

VERSION = 1
KINDS = {
    Case: "case",
    Run: "run",
    TestResult: "test_result",
    Call: "call",
    Job: "job",
    Attempt: "attempt",
    Query: "query",
}
MEMORY = Struct(
    "ttnn.MemoryConfig",
    (
        ("memory_layout", Symbol("ttnn.TensorMemoryLayout", "INTERLEAVED")),
        ("buffer_type", Symbol("ttnn.BufferType", "DRAM")),
    ),
)
TENSOR = TensorSpec(
    (1, 1, 30, 60),
    "ttnn.bfloat16",
    TtnnPlacement(
        padded_shape=(1, 1, 32, 64),
        layout="TILE",
        tile=Tile((32, 32), (16, 16)),
        storage="DEVICE",
        memory=MEMORY,
        mesh_shape=(1, 2),
        mesh=MeshPlacement((2,), (None,), ((0, 0), (0, 1))),
        device=1,
    ),
)
RECIPE = Struct("ttnn.GlobalSemaphore", (("initial_value", Int(0)),))
VALUES: dict[str, Value] = {
    "null": Null(),
    "true": Bool(value=True),
    "one": Int(1),
    "large": Int(-(10**30)),
    "float one": Float(1.0),
    "negative zero": Float(-0.0),
    "tenth": Float(0.1),
    "tiny": Float(5e-324),
    "huge": Float(1.7976931348623157e308),
    "exponent": Float(1e22),
    "nan": Float(float("nan")),
    "minus infinity": Float(float("-inf")),
    "complex": Complex(Float(1.5), Float(float("inf"))),
    "text": Text('quote " backslash \\ newline \n \u00e9 \u4e2d \U0001d11e'),
    "lone surrogate": Text("\ud800"),
    "surrogate pair": Text("\ud834\udd1e"),
    "bytes": Bytes(b"\x00\xff"),
    "list": List((Int(1), Tuple((Int(2), List(()))))),
    "set": Set(frozenset({Text("b"), Text("a"), Int(10), Int(9), Null(), Tuple((Int(1),))})),
    "frozen set": FrozenSet(frozenset({Int(10), Int(9), FrozenSet(frozenset())})),
    "mapping": Mapping(frozenset({(Text("b"), Int(1)), (Text("a"), Null())})),
    "mapping of numbers": Mapping(frozenset({(Int(10), Int(1)), (Int(9), Int(2))})),
    "mapping of dollars": Mapping(frozenset({(Text("$tuple"), List(()))})),
    "symbol": Symbol("ttnn.DataType", "BFLOAT16"),
    "struct": MEMORY,
    "ttnn tensor": TENSOR,
    "torch tensor": TensorSpec(
        (2, 3), "torch.float32", TorchPlacement((3, 1), "strided", "cpu", requires_grad=True), 1, 1
    ),
    "torch view": TensorSpec(
        (2,),
        "torch.complex64",
        TorchPlacement(
            (1,), "strided", "cpu", requires_grad=False, offset=4, conjugate=True, negative=True
        ),
        2,
        1,
    ),
    "numpy array": TensorSpec((2,), "numpy.int64", NumpyPlacement((-8,), 8), 3, 2),
    "device": DeviceRef("ttnn.MeshDevice", (4, 8)),
    "second device": DeviceRef("ttnn.MeshDevice", (1, 8), 1),
    "handle": Handle("ttnn.GlobalSemaphore", RECIPE, 1),
    "handle without recipe": Handle("ttnn.GlobalSemaphore", None),
    "callable": Callable("torch.nn.functional:relu"),
    "opaque": Opaque("builtins.object", "0123456789abcdef"),
}
CASES = {
    "everything": Case("ttnn.everything", tuple(VALUES.items())),
    "add": Case("ttnn.add", (("input_tensor_b", TENSOR), ("input_tensor_a", TENSOR))),
    "placed": Case(
        "ttnn.relu",
        (("input_tensor", TENSOR), ("memory_config", MEMORY), ("output_tensor", Null())),
    ),
    "no arguments": Case("ttnn.nothing", ()),
}


def canonical_examples() -> dict[str, object]:
    """Return every example with the bytes and hashes that it must have for ever."""
    values = {
        name: {
            "data": encode(value),
            "canonical": canonical_bytes(value).decode("ascii"),
            "sha256": fingerprint(encode(value)),
        }
        for name, value in VALUES.items()
    }
    cases = {
        name: {
            "data": case_data(case),
            "placement": placement_hash(case),
            "semantic": describe_case(case).semantic_id,
        }
        for name, case in CASES.items()
    }
    return {"values": values, "cases": cases}


STARTED = "2026-01-01T00:00:00+00:00"
PARAMETERS = DeviceParameters((4, 8), "FABRIC_1D", "ROW", 24576, 1 << 20, 1 << 20, 2)
MEASUREMENT = Measurement("pcc", 0.999, 0.99, passed=True, output=1)


def golden_records() -> list[object]:
    """Return one full and one minimal record of every kind."""
    return [*CASES.values(), *observed_records(), *executed_records()]


def observed_records() -> list[object]:
    """Return records of what was traced."""
    environment = Environment(
        *("0.1.0", "3.12.1", "Linux-x86_64", ("pytest", "-k", "x"), "host", "a" * 40),
        *(False, "0.81.1", "2.9.0", DeviceKind.SHADOW, "galaxy", "wormhole_b0", "tt_galaxy_wh"),
        *(4, 32, PARAMETERS),
    )
    accounting = Accounting(10, 3, 2, (("hidden", 4),), (("builtins.object", 1),))
    case_id = placement_hash(CASES["everything"])
    return [
        Run(
            *("r1", RunKind.TRACE, "t.py [HF_MODEL:m]", environment, STARTED, STARTED),
            *("m", 0, accounting),
        ),
        Run("r2", RunKind.IMPORT, "m.json", Environment("0.1.0", "3.10", "Linux"), STARTED),
        TestResult(
            *("r1", "t.py::test[x]", TestOutcome.XFAILED, "mlp", "decode", STARTED, 1, 2, 3),
            *((("seq_len", Int(32)),), (MEASUREMENT,), (("note", Text("n")),), PARAMETERS, "boom"),
        ),
        TestResult("r1", "t.py::test", TestOutcome.UNFINISHED),
        Call(
            *("r1", case_id, 5, 1, 4, 2, "t.py::test[x]", Phase.CALL, "mlp", "decode"),
            *(CallSite("t.py", 12), STARTED, 1234, (TENSOR, Null()), CallOutcome.RAISED),
            *("TT_FATAL", PARAMETERS),
        ),
        Call("r1", case_id, 0),
    ]


def executed_records() -> list[object]:
    """Return records of what was to be executed, and of their results."""
    case = CASES["everything"]
    case_id = placement_hash(case)
    job = Job(case, DeviceKind.MOCK, 7, ("pcc", "ulp"), PARAMETERS, 10**9)
    return [
        job,
        Job(CASES["add"], DeviceKind.HARDWARE),
        Attempt(
            *("r1", case_id, Outcome.NUMERICS, DeviceKind.HARDWARE, 7, "n300", "pcc too low"),
            *((MEASUREMENT, Measurement("ulp", float("inf"))), (TENSOR,), case_id, STARTED, 99),
        ),
        Attempt("r1", case_id, Outcome.NOT_RUN, DeviceKind.MOCK),
        Query("ttnn.add", shape=(1, 32), replayable=True, outermost_only=False, limit=3),
        Query(),
    ]


def write_new(path: Path, content: bytes) -> None:
    """Write a golden file, unless it is there already."""
    if path.exists():
        sys.exit(f"{path} is there already; golden files are never replaced")
    path.write_bytes(content)
    print(f"wrote {path}")


def main(directory: Path) -> None:
    """Write the golden files of the current version into ``directory``."""
    lines = [
        {"kind": KINDS[type(record)], "record": record_to_builtins(record)}
        for record in golden_records()
    ]
    header = {"format": "optrove", "version": VERSION}
    content = "".join(f"{write(line)}\n" for line in [header, *lines])
    examples = json.dumps(canonical_examples(), indent=1, sort_keys=True) + "\n"
    write_new(directory / f"records-{VERSION}.jsonl", content.encode("ascii"))
    write_new(directory / f"canonical-{VERSION}.json", examples.encode("ascii"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
