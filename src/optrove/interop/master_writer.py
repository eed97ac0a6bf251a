"""Write master files of version 2, field by field as tt-metal's tracer writes them.

A configuration that was imported is written as its file has it. Others are written from their
Cases, in the form that tt-metal's tracer gives to the same call: it has no tuples, no padding, no
tiles, no N-dimensional shards and no semaphores, and does not record which tensors are the same. So
each configuration is read back while it is written. Where that gives another Case than the one
written, the configuration also has the key ``optrove`` with the exact Case; a file that is read
back always gives the same Cases and counts.

tt-metal's ``config_hash`` is that of the arguments, the hardware and the mesh, so executions of one
Case on different hardware are different configurations.

The Cases may come in any order and number: their lines wait in a temporary file until all
operations are known. Operations are sorted by name; each configuration is one line.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, Final

from optrove.interop.machines import NOBODY, Exported, Source, model_of, summed
from optrove.interop.master_values import ArgumentReader
from optrove.interop.printed import (
    COMPUTE_CONFIG,
    HANDLES,
    LOST_ARGUMENTS,
    NULLS,
    ROWS,
    SINGLES,
    SLICE_TYPES,
    UNARY_OPS,
)
from optrove.model.case import argument_order
from optrove.model.trove import Machine
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
    Null,
    Opaque,
    Set,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    TtnnPlacement,
    Tuple,
    Value,
)
from optrove.serializer.hashes import case_data
from optrove.serializer.text import write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import BinaryIO

    from optrove.model.case import Case
    from optrove.model.trove import ExecutionRow
    from optrove.serializer.text import Json


_HANDLE_TEXTS: Final = {
    ours: {"type": theirs, "value": f"<ttnn._ttnn.{theirs}.{theirs} object>"}
    for theirs, ours in HANDLES.items()
}

_SLICE_TYPES: Final = {ours: theirs for theirs, ours in SLICE_TYPES.items()}
_ROW_MAJOR: Final = Symbol("ttnn.ShardOrientation", "ROW_MAJOR")
_COMMA: Final = (",", "0", "1")
_SPACED: Final = (", ", "false", "true")
_PYTHON: Final = (", ", "False", "True")
_FIELD_ORDERS: Final = {
    "Conv2dConfig": (
        "weights_dtype activation deallocate_activation reallocate_halo_output "
        "config_tensors_in_dram act_block_h_override act_block_w_div reshard_if_not_optimal "
        "override_sharding_config shard_layout core_grid transpose_shards output_layout "
        "enable_act_double_buffer enable_weights_double_buffer full_inner_dim "
        "enable_kernel_stride_folding enable_activation_reuse force_split_reader "
        "override_output_sharding_config padding_mode"
    ),
    "Conv3dConfig": (
        "weights_dtype output_layout T_out_block W_out_block H_out_block C_out_block "
        "C_in_block dilation alignment compute_with_storage_grid_size "
        "enable_fp32_operand_split"
    ),
    "Op2DSliceConfig": "slice_type num_slices",
    "LayerNormDefaultProgramConfig": "legacy_reduction use_welford",
    "LayerNormShardedMultiCoreProgramConfig": (
        "compute_with_storage_grid_size subblock_w block_h block_w inplace legacy_reduction "
        "use_welford"
    ),
    "MinimalMatmulConfig": (
        "M_block_size K_block_size N_block_size subblock_h subblock_w "
        "compute_with_storage_grid_size"
    ),
    "SDPAProgramConfig": (
        "compute_with_storage_grid_size sub_core_grids q_chunk_size k_chunk_size "
        "exp_approx_mode max_cores_per_head_batch max_k_splits matmul_math_fidelity "
        "segmented_accumulation"
    ),
    "SoftmaxShardedMultiCoreProgramConfig": (
        "compute_with_storage_grid_size subblock_w block_h block_w"
    ),
    "PagedCacheGeometryOverride": "block_size num_kv_heads",
    "QkvCausalConv1dSiluProgramConfig": "channel_chunk_size",
    "ChunkGdnPhasedProgramConfig": "use_mcast scan_serial prep_serial",
    "ChunkGdnFusedProgramConfig": (
        "num_producers num_receivers row_local handoff_depth unicast posted producer_pool "
        "pool_extra_share handoff_checks handoff_fault"
    ),
}
"""The fields of classes that ttnn 0.81 prints with their fields, in the order of printing."""

_STYLES: Final = {
    "SDPAProgramConfig": _SPACED,
    "SoftmaxShardedMultiCoreProgramConfig": _SPACED,
    "PagedCacheGeometryOverride": _SPACED,
    "QkvCausalConv1dSiluProgramConfig": _SPACED,
    "ChunkGdnPhasedProgramConfig": _PYTHON,
    "ChunkGdnFusedProgramConfig": _PYTHON,
}
"""Separator, false and true of classes that are not printed as ``a=0,b=1``."""


def master_value(value: Value) -> Json:
    """Return ``value`` in the form of master files."""
    match value:
        case TensorSpec():
            return _tensor(value)
        case Struct():
            return _struct(value)
        case List(items) | Tuple(items):
            return [master_value(item) for item in items]
        case Set() | FrozenSet() | Mapping():
            return _unordered(value)
        case Symbol() | DeviceRef() | Handle() | Callable() | Opaque():
            return _named(value)
        case Null() | Bool() | Int() | Float() | Complex() | Text() | Bytes():
            return _scalar(value)


def _scalar(value: Null | Bool | Int | Float | Complex | Text | Bytes) -> Json:
    match value:
        case Null():
            return None
        case Float(number):
            return number if math.isfinite(number) else str(number)
        case Bool(plain) | Int(plain) | Text(plain):
            return plain
        case Complex(real, imaginary):
            return {"type": "complex", "value": str(complex(real.value, imaginary.value))}
        case Bytes(content):
            return {"type": "bytes", "value": str(content)}


def _named(value: Symbol | DeviceRef | Handle | Callable | Opaque) -> Json:
    match value:
        case Symbol("python.Ellipsis"):
            return {"type": "ellipsis", "value": "Ellipsis"}
        case Symbol(type_name, name):
            kind = _class(type_name)
            return {"type": kind, "repr": f"{kind}.{name}"}
        case DeviceRef(_, mesh_shape):
            text = f"{'x'.join(map(str, mesh_shape))} grid, {prod(mesh_shape)} devices"
            return {"type": "MeshDevice", "repr": f"MeshDevice({text})", "shape": list(mesh_shape)}
        case Handle(type_name):
            kind = _class(type_name)
            return _HANDLE_TEXTS.get(type_name, {"type": kind, "value": f"<{kind} object>"})
        case Callable(name):
            return {"type": "function", "value": name}
        case Opaque(type_name, token):
            return {"type": type_name, "value": token}


def _unordered(value: Set | FrozenSet | Mapping) -> Json:
    match value:
        case Set(items):
            return {"type": "set", "value": f"{{{', '.join(sorted(map(_printed, items)))}}}"}
        case FrozenSet(items):
            text = f"frozenset({{{', '.join(sorted(map(_printed, items)))}}})"
            return {"type": "frozenset", "value": text}
        case Mapping(items):
            return {_key(key): master_value(item) for key, item in sorted(items, key=_entry)}


def _key(key: Value) -> str:
    return key.value if isinstance(key, Text) else _printed(key)


def _entry(item: tuple[Value, Value]) -> str:
    return _key(item[0])


def _printed(value: Value) -> str:
    """Return the text that Python prints for a value, as far as ``printed`` reads it."""
    match value:
        case Struct():
            return _printed_struct(value)
        case Symbol(type_name, name):
            return f"{_class(type_name)}.{name}"
        case List(items) | Tuple(items):
            return f"[{', '.join(map(_printed, items))}]"
        case Null():
            return "None"
        case Float(number):
            return _printed_float(number)
        case Bool(plain) | Int(plain):
            return str(plain)
        case _:
            return repr(master_value(value))


def _printed_struct(value: Struct) -> str:
    kind = _class(value.type)
    match kind, value.fields:
        case "CoreCoord", (("x", Int(x)), ("y", Int(y))):
            return f"{x}-{y}"
        case "CoreRange", (("end", end), ("start", start)):
            return f"[{_printed(start)} - {_printed(end)}]"
        case "CoreRangeSet", (("ranges", List(items)),):
            return f"{{{', '.join(map(_printed, items))}}}"
        case "UnaryWithParam", (("op_type", op_type), ("params", List(items))):
            params = f", params=[{', '.join(map(_printed, items))}]" if items else ""
            return f"{kind}(op_type={_printed_in_c(op_type, _COMMA)}{params})"
        case _, ((field, List(items)),) if ROWS.get(kind) == field:
            return f"{kind}([{', '.join(map(_printed, items))}])"
        case _, ((field, item),) if SINGLES.get(kind) == field:
            return f"{kind}({_printed(item)})"
    named = ", ".join(f"{name}={_printed(item)}" for name, item in value.fields)
    return f"{kind}({named})"


def _printed_float(number: float) -> str:
    """Return a number as C++ prints a float: with as few digits as give the same float."""
    try:
        (single,) = struct.unpack("f", struct.pack("f", number))
        digits = (f"{number:.{count}g}" for count in range(1, 10))
        return next(
            text for text in digits if struct.pack("f", float(text)) == struct.pack("f", single)
        )
    except (OverflowError, StopIteration):
        return str(number)


def _printed_in_c(value: Value, style: tuple[str, str, str]) -> str:
    """Return a field as C++ prints it."""
    match value:
        case Null():
            return "std::nullopt" if style is not _PYTHON else "None"
        case Bool(truth):
            return style[1 + truth]
        case Symbol("ttnn.Op2DSliceConfig.SliceTypeEnum", name) if name in _SLICE_TYPES:
            return f"SliceType::{_SLICE_TYPES[name]}"
        case Symbol(type_name, name):
            return f"{_class(type_name)}::{name}"
        case List(items) | Tuple(items):
            return f"{{{', '.join(_printed_in_c(item, style) for item in items)}}}"
        case _:
            return _printed(value)


def _class(type_name: str) -> str:
    """Return the name of a class of ttnn without its modules, as Python has it."""
    return type_name.rpartition(".")[2] if type_name.startswith("ttnn.") else type_name


def _struct(value: Struct) -> Json:
    fields = dict(value.fields)
    kind = _class(value.type)
    if value.type in ("python.slice", "python.range"):
        kind = kind.removeprefix("python.")
        steps = [_printed(fields.get(name, Null())) for name in ("start", "stop", "step")]
        if kind == "range" and steps[-1] == "1":
            steps.pop()
        return {"type": kind, "value": f"{kind}({', '.join(steps)})"}
    if value.type == "ttnn.MemoryConfig" and {"memory_layout", "buffer_type"} <= fields.keys():
        return _memory(fields)
    if value.type == COMPUTE_CONFIG and fields:
        return _compute(fields)
    if kind.startswith("Matmul") and isinstance(fields.get("orientation"), Symbol):
        fields["orientation"] = Int(int(fields["orientation"] != _ROW_MAJOR))
    text = _text_of(kind, value, fields)
    if text is not None:
        return {"type": kind, "value": text}
    return {name: _in_field(item) for name, item in fields.items() if name != "type"} | {
        "type": kind
    }


def _text_of(kind: str, value: Struct, fields: dict[str, Value]) -> str | None:
    """Return the text of an object that tt-metal's tracer prints; None of one with fields."""
    if kind in _FIELD_ORDERS:
        style, order = _STYLES.get(kind, _COMMA), _FIELD_ORDERS[kind].split()
        named = [f"{name}={_printed_in_c(fields[name], style)}" for name in order if name in fields]
        return f"{kind}({style[0].join(named)})"
    if kind == "SoftmaxDefaultProgramConfig":
        return f"<ttnn._ttnn.operations.normalization.{kind} object>"
    if kind == "CoreGrid":
        return f"ttnn.{_printed(value)}"
    if kind in ROWS or kind in SINGLES or kind in _PRINTED_CLASSES or not fields:
        return _printed(value)
    match kind, fields:
        case "Tile", {"shape": List() as shape}:
            return f"Tile with shape: {_printed(shape)}"
        case "MeshCoordinateRange", {"start": List() as start, "end": List() as end}:
            ends = f"start=MeshCoordinate({_printed(start)}), end=MeshCoordinate({_printed(end)})"
            return f"{kind}({ends})"
        case "ShardSpec" | "NdShardSpec", {"grid": Struct(_, (("ranges", List(ranges)),))}:
            return _printed_shards(kind, fields, [_compact(_range(item)) for item in ranges])
    return None


def _printed_shards(kind: str, fields: dict[str, Value], ranges: list[str]) -> str | None:
    facing = _printed_in_c(fields["orientation"], _COMMA)
    match fields:
        case {"shape": List() as shape} if kind == "ShardSpec":
            # ttnn leaves out the brace after each range.
            grid = ", ".join(text[:-1] for text in ranges)
            return f"ShardSpec{{grid=[{grid}], shape={_printed(shape)}, orientation={facing}}}"
        case {"shard_shape": Struct(_, ((_, shape),)), "shard_distribution_strategy": strategy}:
            grid, spread = ", ".join(ranges), _printed_in_c(strategy, _COMMA)
            facts = f'"orientation":"{facing}","shard_distribution_strategy":"{spread}"'
            return f'{{"shard_shape":{_printed(shape)},"grid":[{grid}],{facts}}}'
    return None


_PRINTED_CLASSES: Final = frozenset({"CoreCoord", "CoreRange", "CoreRangeSet", "UnaryWithParam"})


def _compact(data: Json) -> str:
    return json.dumps(data, separators=(",", ":"))


def _compute(fields: dict[str, Value]) -> Json:
    """Return a compute configuration, of which one switch is written as text."""
    written: dict[str, Json] = {name: _in_field(item) for name, item in fields.items()}
    if isinstance(written.get("math_approx_mode"), bool):
        written["math_approx_mode"] = str(written["math_approx_mode"])
    return written


def _in_field(value: Value) -> Json:
    """Return a field of a configuration: symbols are text there, and cores plain objects."""
    match value:
        case Symbol(type_name, name):
            return f"{_class(type_name)}.{name}"
        case Struct("ttnn.CoreCoord", (("x", Int(x)), ("y", Int(y)))):
            return {"x": x, "y": y}
        case Struct("ttnn.CoreRangeSet", (("ranges", List(items)),)):
            return [_range(item) for item in items]
        case Struct(
            "ttnn.UnaryWithParam", (("op_type", Symbol(_, kind)), ("params", List(items)))
        ) if kind in UNARY_OPS:
            params = [master_value(item) for item in items]
            return {"op_type": UNARY_OPS.index(kind), "param": params}
        case List(items) | Tuple(items):
            return [_in_field(item) for item in items]
        case _:
            return master_value(value)


def _range(value: Value) -> Json:
    match value:
        case Struct("ttnn.CoreRange", (("end", end), ("start", start))):
            return {"start": _in_field(start), "end": _in_field(end)}
    return master_value(value)


def _memory(fields: dict[str, Value]) -> Json:
    layout = _in_field(fields["memory_layout"])
    return {
        "memory_layout": layout,
        "buffer_type": _in_field(fields["buffer_type"]),
        "shard_spec": shard_form(fields.get("shard_spec", Null())),
        "is_sharded": isinstance(layout, str) and layout.endswith("SHARDED"),
        "interleaved": isinstance(layout, str) and layout.endswith("INTERLEAVED"),
    }


def shard_form(value: Value) -> Json:
    """Return a shard spec as a memory configuration of a master file has it."""
    match value:
        case Null():
            return None
        case Opaque(_, token) if token not in NULLS:
            return token
        case Struct("ttnn.ShardSpec", fields):
            return {name: _shard_field(item) for name, item in fields}
    return _in_field(value)


def _shard_field(value: Value) -> Json:
    match value:
        case Symbol(_, name):
            # tt-metal's loader drops the whole shard spec if the enumeration is named here.
            return name
    return _in_field(value)


def _tensor(spec: TensorSpec) -> Json:
    dtype = spec.dtype
    placement = spec.placement
    if not isinstance(placement, TtnnPlacement):
        kind = "torch.Tensor" if dtype.startswith("torch.") else "numpy.ndarray"
        return {"type": kind, "shape": list(spec.shape), "dtype": dtype}
    written: dict[str, Any] = {
        "type": "ttnn.Tensor",
        "original_shape": list(spec.shape),
        "original_dtype": f"DataType.{dtype.removeprefix('ttnn.').upper()}",
        "layout": f"Layout.{placement.layout}",
        "storage_type": f"StorageType.{placement.storage.upper()}",
    }
    if placement.memory is not None:
        written["memory_config"] = _struct(placement.memory)
    if placement.mesh is not None and placement.mesh.placements:
        words = [
            "PlacementReplicate" if dim is None else f"PlacementShard({dim})"
            for dim in placement.mesh.placements
        ]
        parts = list(placement.mesh.distribution_shape)
        # Of a tensor on the host, tt-metal derives the mesh from the distribution.
        mesh = list(placement.mesh_shape or (parts if len(parts) > 1 else [1, *parts]))
        written["tensor_placement"] = {
            "placement": str(words),
            "distribution_shape": str(parts),
            "mesh_device_shape": str(mesh),
        }
    return written


ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
"""The address of an object in the text that Python prints for it."""
_SHAPE: Final = re.compile(r"Shape\(\[([0-9,\s]+)\]\)")


def _hashed(data: Json) -> Json:
    """Return arguments as tt-metal hashes them: without facts of one build or process."""
    match data:
        case str():
            return ADDRESS.sub("", data)
        case list():
            return [_hashed(item) for item in data]
        case {"type": "Shape", "value": str(text)} if found := _SHAPE.fullmatch(text):
            return [int(size) for size in found[1].split(",")]
        case dict():
            return {
                key: "None" if key == "shard_spec" and item is None else _hashed(item)
                for key, item in data.items()
                if not (key == "hash" and isinstance(item, int))
                and not (key == "allowed_worker_cores" and item is None)
            }
    return data


def config_hash(op: str, arguments: dict[str, Json], machine: dict[str, Json]) -> str:
    """Return tt-metal's hash of a configuration on a machine."""
    hardware, mesh = _hardware(machine)
    hashed = {name: _hashed(item) for name, item in arguments.items()}
    content = {"operation": op, "arguments": hashed, "hardware": hardware, "mesh": mesh}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _hardware(machine: dict[str, Json]) -> tuple[Json, Json]:
    """Return the facts of a machine that tt-metal's hash counts: hardware and mesh."""
    hardware, mesh = None, None
    if machine.get("board_type"):
        series = machine.get("device_series")
        if isinstance(series, list):
            series = series[0] if series else None
        hardware = [machine["board_type"], series, machine.get("card_count", 1)]
    nothing = {"placement_type": None, "shard_dim": None}
    if machine.get("mesh_device_shape"):
        mesh = {"mesh_shape": machine["mesh_device_shape"], **nothing}
    elif machine.get("device_count"):
        mesh = {"mesh_shape": None, "device_count": machine["device_count"], **nothing}
    return hardware, mesh


def write_master(
    stream: BinaryIO, cases: Iterable[tuple[Case, Sequence[ExecutionRow]]]
) -> Exported:
    """Write a whole master file."""
    with tempfile.TemporaryFile() as waiting:
        lines = _Lines(waiting)
        for case, rows in cases:
            lines.add(case, rows)
        stream.write(b'{\n  "operations": {')
        lines.copy_to(stream)
        stream.write(b'},\n  "metadata": ')
        metadata = json.dumps(lines.metadata(), indent=2)
        stream.write(metadata.replace("\n", "\n  ").encode("ascii") + b"\n}\n")
        return Exported(lines.cases, lines.calls)


@dataclass(slots=True)
class _Lines:
    """The configurations in a temporary file, and their positions by operation."""

    waiting: BinaryIO
    cases: int = 0
    count: int = 0
    calls: int = 0
    sources: set[str] = field(default_factory=set)
    places: defaultdict[str, list[tuple[float, int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _reader: ArgumentReader = field(default_factory=ArgumentReader)

    def add(self, case: Case, rows: Sequence[ExecutionRow]) -> None:
        """Add the configurations of one Case: one for each way in which it was recorded."""
        self.cases += 1
        alike: defaultdict[tuple[str, str], list[ExecutionRow]] = defaultdict(list)
        imported = all(row.configuration is not None for row in rows)
        by_name = {} if rows and imported else _arguments(case, ())
        for row in rows:
            if row.configuration is None:
                row = replace(row, machine=_machine(row, by_name))  # noqa: PLW2901 - the same, as tt-metal has it
                alike[write([_hardware(row.machine.data()), row.places]), ""].append(row)
            else:
                alike["", row.configuration].append(row)
        for (_, known), each in alike.items() or {("", ""): []}.items():
            self._add(case, json.loads(known) if known else {}, each)

    def _add(self, case: Case, known: dict[str, Any], rows: Sequence[ExecutionRow]) -> None:
        executions = [each for each in summed(rows) if each != (NOBODY, 0)]
        place = known.pop("config_id", None)
        listed = [_execution(source, count) for source, count in executions]
        machine = listed[0]["machine_info"] if listed else {}
        arguments = known.get("arguments")
        if not isinstance(arguments, dict):
            opened = json.loads((rows[0].device if rows else None) or "{}")
            ids = machine.get("device_ids") or opened.get("device_ids") or []
            arguments = _with_ids(_arguments(case, rows[0].places if rows else ()), ids)
        if "config_hash" not in known:
            known["config_hash"] = config_hash(case.op, arguments, machine)
        configuration: dict[str, Any] = {
            **known,
            "arguments": arguments,
            "executions": listed,
        }
        if not self._is_exact(case, arguments):
            configuration["optrove"] = case_data(case)
        line = json.dumps(configuration)[1:].encode("ascii")
        rank = place if type(place) is int else math.inf
        self.places[case.op].append((rank, self.waiting.tell(), len(line)))
        self.waiting.write(line)
        self.count += 1
        self.calls += sum(count for _, count in executions)
        self.sources.update(source.name for source, _ in executions)

    def _is_exact(self, case: Case, arguments: dict[str, Json]) -> bool:
        """Return whether the arguments as they are written are read as this very Case."""
        if "::" in case.op:
            return False
        read, _ = self._reader.case(case.op, arguments.items(), printed=False)
        return read == case

    def copy_to(self, stream: BinaryIO) -> None:
        """Write all operations with their configurations, numbered from one."""
        number = 0
        for index, op in enumerate(sorted(self.places)):
            stream.write(b",\n    " if index else b"\n    ")
            stream.write(write(op).encode("ascii") + b': {"configurations": [')
            for place, (_, begin, length) in enumerate(sorted(self.places[op])):
                number += 1
                self.waiting.seek(begin)
                head = f'{"," if place else ""}\n      {{"config_id": {number}, '
                stream.write(head.encode("ascii") + self.waiting.read(length))
            stream.write(b"\n    ]}")
        stream.write(b"\n  ")

    def metadata(self) -> dict[str, Json]:
        """Return the metadata of the file."""
        return {
            "models": sorted(self.sources),
            "unique_operations": len(self.places),
            "total_configurations": self.count,
            "operations_summary": {op: len(self.places[op]) for op in sorted(self.places)},
            "last_updated": None,
        }


def _arguments(case: Case, places: Sequence[str]) -> dict[str, Json]:
    """Return the arguments of a Case as tt-metal's tracer writes them.

    Those in ``places`` were passed by place, and are called ``arg0``, ``arg1`` and so on.
    """
    names = {name: f"arg{place}" for place, name in enumerate(places)}
    named = [(names.get(name, name), value) for name, value in case.arguments]
    ordered = sorted(named, key=lambda item: argument_order(item[0]))
    written = {name: master_value(value) for name, value in ordered if name not in LOST_ARGUMENTS}
    # As a reader will see them: JSON joins pairs of surrogates, for example.
    arguments: dict[str, Json] = json.loads(json.dumps(written))
    return arguments


def _with_ids(data: Json, device_ids: list[int]) -> Json:
    """Return arguments whose devices have the numbers of their chips, where these are known."""
    match data:
        case {"type": "MeshDevice", "shape": list(shape)} if len(device_ids) == prod(shape):
            return {**data, "device_ids": device_ids}
        case dict():
            return {key: _with_ids(item, device_ids) for key, item in data.items()}
        case list():
            return [_with_ids(item, device_ids) for item in data]
    return data


def _execution(source: Source, count: int) -> dict[str, Any]:
    execution: dict[str, Json] = {
        "source": source.name,
        "machine_info": source.machine.data(),
        "count": count,
    }
    provenance = {name: json.loads(text) for name, text in source.provenance}
    # A file without sources has the model in its metadata.
    if source.model != model_of(source.name) and "source" not in provenance:
        execution["model"] = source.model
    return execution | provenance


_CARDS: Final = {
    "n150": ("Wormhole", "n150", 1),
    "n300": ("Wormhole", "n300", 1),
    "t3k": ("Wormhole", "n300", 4),
    "galaxy": ("Wormhole", "tt-galaxy-wh", 32),
    "p100": ("Blackhole", "p100a", 1),
    "p150": ("Blackhole", "p150b", 1),
    "p300": ("Blackhole", "p300c", 1),
    "bh-galaxy": ("Blackhole", "tt-galaxy-bh", 32),
}
"""Type, series and number of the cards of a board, as tt-smi names them."""


def _machine(row: ExecutionRow, arguments: dict[str, Json]) -> Machine:
    """Return the machine of an execution that was not imported, as tt-metal's tracer has it.

    We record our name of the board, and the device with the calls. tt-metal has the mesh of the
    first tensor that was passed. A Case does not have that order: tensors on a device come first.
    """
    data = row.machine.data()
    board = str(data.get("board_type")).partition(":")[0]
    if board not in _CARDS:
        return row.machine
    names = ("board_type", "device_series", "card_count")
    data |= dict(zip(names, _CARDS[board], strict=True))
    opened = json.loads(row.device or "{}")
    meshes = sorted(_meshes(arguments), key=lambda each: each[0] != "StorageType.DEVICE")
    if meshes:
        mesh = json.loads(meshes[0][1])
        data |= {"mesh_device_shape": mesh, "device_count": prod(mesh)}
        if opened.get("mesh_shape") == mesh and opened.get("device_ids"):
            data["device_ids"] = opened["device_ids"]
    return Machine.of(data)


def _meshes(data: Json) -> Iterator[tuple[str, str]]:
    """Yield the storage and the mesh of each tensor in arguments as they are written."""
    match data:
        case {"storage_type": str(storage), "tensor_placement": {"mesh_device_shape": str(text)}}:
            yield storage, text
        case dict():
            for item in data.values():
                yield from _meshes(item)
        case list():
            for item in data:
                yield from _meshes(item)
