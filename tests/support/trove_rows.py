"""Cases of ttnn made by hand, and rows as a trove answers with them; needs no framework."""

from __future__ import annotations

from optrove.interop.printed import core, core_range, core_ranges
from optrove.model.case import Case
from optrove.model.records import CallOutcome
from optrove.model.trove import CaseRow, ExecutionRow, Machine
from optrove.model.values import (
    Bool,
    Float,
    Int,
    List,
    Null,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    Tile,
    TtnnPlacement,
    Tuple,
)
from optrove.serializer.described import describe_case
from optrove.trove.query import Configuration


def shard(shape, last, orientation="ROW_MAJOR"):
    """Return how shards of a shape lie on the cores from (0, 0) to ``last``."""
    return Struct(
        "ttnn.ShardSpec",
        (
            ("grid", core_ranges((core_range(core(0, 0), core(*last)),))),
            ("shape", List(tuple(map(Int, shape)))),
            ("orientation", Symbol("ttnn.ShardOrientation", orientation)),
        ),
    )


def memory(name="DRAM_INTERLEAVED", shards=None):
    """Return a memory configuration by its short name: ``L1_WIDTH_SHARDED``."""
    buffer, _, layout = name.partition("_")
    return Struct(
        "ttnn.MemoryConfig",
        (
            ("buffer_type", Symbol("ttnn.BufferType", buffer)),
            ("memory_layout", Symbol("ttnn.TensorMemoryLayout", layout)),
            ("shard_spec", shards or Null()),
            ("nd_shard_spec", Null()),
        ),
    )


def tensor(*shape, dtype="bfloat16", where=None, layout="TILE", mesh=(1, 1), number=0):
    """Return a tensor on a device."""
    return TensorSpec(
        shape,
        f"ttnn.{dtype}",
        TtnnPlacement(
            padded_shape=shape,
            layout=layout,
            tile=Tile((32, 32), (16, 16)) if layout == "TILE" else None,
            storage="device",
            memory=where or memory(),
            mesh_shape=mesh,
            mesh=None,
            device=0,
        ),
        identity=number,
        storage=number,
    )


def value(plain):
    """Return a plain Python value in recorded form; what is in it already stays."""
    kinds = {bool: Bool, int: Int, float: Float, str: Text}
    if plain is None:
        return Null()
    if isinstance(plain, list):
        return List(tuple(map(value, plain)))
    if isinstance(plain, tuple):
        return Tuple(tuple(map(value, plain)))
    return kinds[type(plain)](plain) if type(plain) in kinds else plain


def case(op, **arguments):
    return Case(op, tuple((name, value(item)) for name, item in arguments.items()))


def case_row(one, calls=1):
    found = describe_case(one)
    return CaseRow(
        found.case_id,
        found.semantic_id,
        found.family_id,
        found.op,
        found.replayable,
        calls,
        found.content,
    )


def execution(case_id="", **changes):
    facts = {
        "case_id": case_id,
        "run_id": "run",
        "source": "demo.py",
        "model": None,
        "machine": Machine(),
        "board": None,
        "test_id": None,
        "phase": None,
        "module": None,
        "mode": None,
        "outermost": True,
        "outcome": CallOutcome.RETURNED,
        "count": 1,
        "total_ns": None,
        "outputs": None,
        "error": None,
    }
    return ExecutionRow(**{**facts, **changes})


def configuration(one, *executions, number=1):
    """Return a configuration that is called as often as the executions say."""
    row = case_row(one, sum(each["count"] for each in executions))
    return Configuration(number, row, tuple(execution(row.case_id, **each) for each in executions))
