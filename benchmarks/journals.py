"""Make journals of any size with the real writer, of calls such as a model on ttnn makes.

ttnn is not needed: the values are made by hand, in the form in which it would be described.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Final

from optrove.frameworks.installed import loaded_tables
from optrove.journal import format as layout
from optrove.journal.writer import Journal, Numbering
from optrove.model.records import DeviceKind, Environment, Phase, Run, RunKind, Scope
from optrove.model.values import (
    Bool,
    DeviceRef,
    Float,
    Int,
    List,
    MeshPlacement,
    Null,
    Struct,
    Symbol,
    TensorSpec,
    Tile,
    TtnnPlacement,
)
from optrove.serializer.describe import Describer
from optrove.serializer.records import record_to_builtins

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from optrove.model.values import Value

TESTS: Final = 40
SITES: Final = 300
MESH: Final = (1, 8)


def make_journal(directory: Path, calls: int, cases: int, run_id: str = "benchmark") -> Path:
    """Write a journal and return its lines file."""
    journal = Journal(directory, 0, {"run": record_to_builtins(_run(run_id))})
    numbering = Numbering(journal)
    numbered = [_number(numbering, op, made, result) for op, made, result in _cases(cases)]
    scopes = [
        numbering.scope(Scope(f"tests/test_model.py::test_layer[{number}]", Phase.CALL))
        for number in range(TESTS)
    ]
    sites = [numbering.site("models/demos/layer.py", 10 + line) for line in range(SITES)]
    _write_calls(journal, calls, numbered, scopes, sites)
    finished = "2026-03-01T11:00:00.000000Z"
    journal.write({"end": {"finished_at": finished, "exit_code": 0, "faults": {}}})
    journal.close()
    return journal.path.with_name(journal.path.name + layout.LINES)


def _run(run_id: str) -> Run:
    environment = Environment(
        "1.0", "3.12", "Linux", device_kind=DeviceKind.MOCK, board="t3k", arch="wormhole_b0"
    )
    return Run(
        run_id,
        RunKind.TRACE,
        "tests/test_model.py [HF_MODEL:some/Model]",
        environment,
        "2026-03-01T10:00:00.000000Z",
        model="some/Model",
    )


def _number(
    numbering: Numbering, op: str, arguments: dict[str, Value], result: Value
) -> tuple[int, int]:
    session = Describer(loaded_tables())
    case = numbering.case(op, arguments, session, keep=True)
    return case.number, numbering.outputs((result,), session)


def _write_calls(
    journal: Journal,
    calls: int,
    numbered: list[tuple[int, int]],
    scopes: list[int],
    sites: list[int],
) -> None:
    """Write records as the recorder does: layer by layer, so that calls repeat in an order."""
    chance = random.Random(1)  # noqa: S311 - durations, not secrets
    clock = journal.clock_ns
    window = journal.window
    for op_index in range(calls):
        test = op_index * TESTS // calls
        # A test calls its own cases again and again, and a few that all tests share.
        own = len(numbered) // TESTS
        which = test * own + op_index % own if op_index % 8 else op_index // 8 % own
        number, outputs = numbered[which]
        try:
            place = window.take()
        except StopIteration:
            window = journal.window_after(window)
            place = window.take()
        clock += chance.randrange(2_000, 60_000)
        took = chance.randrange(9_000, 90_000)
        nested = op_index % 10 == 9
        if nested:
            layout.PARENT.pack_into(window.memory, place + layout.PARENT_OFFSET, op_index)
        word = layout.word(number, layout.CASE, int(nested))
        scope, site = scopes[test], sites[number % SITES]
        layout.ENTRY.pack_into(window.memory, place, word, site, scope, clock)
        exit_place = place + layout.EXIT_OFFSET
        layout.EXIT.pack_into(window.memory, exit_place, clock + took, outputs, layout.RETURNED)


def _cases(count: int) -> Iterator[tuple[str, dict[str, Value], Value]]:
    for number in range(count):
        kind, rest = number % len(_OPS), number // len(_OPS)
        rows, columns = 32 * (1 + rest % 64), 32 * (1 + rest // 64)
        yield _OPS[kind](rows, columns, rest)


def _matmul(rows: int, columns: int, number: int) -> tuple[str, dict[str, Value], Value]:
    arguments = {
        "input_tensor_a": _tensor((1, 1, rows, 4096), _sharded(rows, 512)),
        "input_tensor_b": _tensor((1, 1, 4096, columns), _DRAM, "bfloat8_b", 1),
        "memory_config": _L1,
        "dtype": Symbol("ttnn.DataType", "BFLOAT16"),
        "program_config": _program(number % 16),
        "compute_kernel_config": _COMPUTE,
    }
    return "ttnn.matmul", arguments, _tensor((1, 1, rows, columns), _L1, identity=2)


def _add(rows: int, columns: int, _: int) -> tuple[str, dict[str, Value], Value]:
    one = _tensor((1, 1, rows, columns), _L1)
    other = _tensor((1, 1, rows, columns), _DRAM, identity=1)
    arguments = {"input_tensor_a": one, "input_tensor_b": other, "memory_config": _L1}
    return "ttnn.add", arguments, _tensor((1, 1, rows, columns), _L1, identity=2)


def _softmax(rows: int, columns: int, _: int) -> tuple[str, dict[str, Value], Value]:
    arguments = {
        "input_tensor": _tensor((1, 8, rows, columns), _DRAM),
        "dim": Int(-1),
        "numeric_stable": Bool(value=True),
        "compute_kernel_config": _COMPUTE,
    }
    return "ttnn.softmax", arguments, _tensor((1, 8, rows, columns), _DRAM, identity=1)


def _fill_cache(rows: int, columns: int, number: int) -> tuple[str, dict[str, Value], Value]:
    arguments = {
        "cache_tensor": _tensor((128, 8, 32, columns), _DRAM, "bfloat8_b"),
        "input_tensor": _tensor((1, 8, 128, columns), _DRAM, identity=1),
        "page_table_tensor": _tensor((1, 64), _DRAM, "int32", 2),
        "batch_idx": Int(rows + number),
    }
    return "ttnn.experimental.paged_fill_cache", arguments, Null()


def _reshape(rows: int, columns: int, _: int) -> tuple[str, dict[str, Value], Value]:
    shape = List(tuple(map(Int, (1, rows, 1, columns))))
    arguments = {
        "input_tensor": _tensor((1, 1, rows, columns), _DRAM),
        "shape": shape,
        "pad_value": Float(0.0),
        "device": DeviceRef("ttnn.MeshDevice", MESH),
    }
    return "ttnn.reshape", arguments, _tensor((1, rows, 1, columns), _DRAM, identity=1)


_OPS: Final = (_matmul, _add, _softmax, _fill_cache, _reshape)


def _tensor(
    shape: tuple[int, ...], memory: Struct, dtype: str = "bfloat16", identity: int = 0
) -> TensorSpec:
    chips = tuple(itertools.product(*map(range, MESH)))
    placement = TtnnPlacement(
        padded_shape=shape,
        layout="TILE",
        tile=Tile((32, 32), (16, 16)),
        storage="device",
        memory=memory,
        mesh_shape=MESH,
        mesh=MeshPlacement(MESH, (None, 3), chips),
        device=0,
    )
    return TensorSpec(shape, f"ttnn.{dtype}", placement, identity, identity)


def _memory(buffer: str, spread: str, shard: Value) -> Struct:
    return Struct(
        "ttnn.MemoryConfig",
        (
            ("buffer_type", Symbol("ttnn.BufferType", buffer)),
            ("memory_layout", Symbol("ttnn.TensorMemoryLayout", spread)),
            ("shard_spec", shard),
            ("nd_shard_spec", Null()),
        ),
    )


def _core(x: int, y: int) -> Struct:
    return Struct("ttnn.CoreCoord", (("x", Int(x)), ("y", Int(y))))


def _sharded(rows: int, columns: int) -> Struct:
    cores = Struct("ttnn.CoreRange", (("start", _core(0, 0)), ("end", _core(7, 0))))
    shard = Struct(
        "ttnn.ShardSpec",
        (
            ("grid", Struct("ttnn.CoreRangeSet", (("ranges", List((cores,))),))),
            ("shape", List((Int(rows), Int(columns)))),
            ("orientation", Symbol("ttnn.ShardOrientation", "ROW_MAJOR")),
        ),
    )
    return _memory("L1", "WIDTH_SHARDED", shard)


def _program(number: int) -> Struct:
    return Struct(
        "ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig",
        (
            ("compute_with_storage_grid_size", _core(8, 8)),
            ("in0_block_w", Int(1 + number)),
            ("out_subblock_h", Int(1)),
            ("out_subblock_w", Int(4)),
            ("per_core_M", Int(1)),
            ("per_core_N", Int(2 + number)),
            ("fuse_batch", Bool(value=True)),
            ("fused_activation", Null()),
            ("mcast_in0", Bool(value=True)),
        ),
    )


_DRAM: Final = _memory("DRAM", "INTERLEAVED", Null())
_L1: Final = _memory("L1", "INTERLEAVED", Null())
_COMPUTE: Final = Struct(
    "ttnn.WormholeComputeKernelConfig",
    (
        ("math_fidelity", Symbol("ttnn.MathFidelity", "HiFi2")),
        ("math_approx_mode", Bool(value=False)),
        ("fp32_dest_acc_en", Bool(value=True)),
        ("packer_l1_acc", Bool(value=True)),
    ),
)
