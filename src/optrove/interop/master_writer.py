"""Write master files of version 2, which tt-metal's tools read.

The form of values is the inverse of ``master_values`` as far as it goes: it has no tuples, no
padding, no tiles, and does not record which tensors are the same. So each configuration is read
back while it is written. Where that gives another Case than the one written, the configuration also
has the key ``optrove`` with the exact Case; a file that is read back always gives the same Cases
and counts.

The Cases may come in any order and number: their lines wait in a temporary file until all
operations are known. Operations are sorted by name; each configuration is one line.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Final

from optrove.interop.machines import Exported, Source, machine_data, model_of, summed
from optrove.interop.master_values import ArgumentReader
from optrove.interop.printed import COMPUTE_CONFIG, HANDLES, NULLS, ROWS, SINGLES
from optrove.model.case import argument_order
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
from optrove.serializer.hashes import CanonicalTexts, case_data
from optrove.serializer.text import write

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import BinaryIO

    from optrove.model.case import Case
    from optrove.model.trove import ExecutionRow
    from optrove.serializer.text import Json


_HANDLE_CLASSES: Final = {ours: theirs for theirs, ours in HANDLES.items()}


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
            return {"type": "bytes", "value": content.hex()}


def _named(value: Symbol | DeviceRef | Handle | Callable | Opaque) -> Json:
    match value:
        case Symbol(type_name, name):
            kind = type_name.removeprefix("ttnn.")
            return {"type": kind, "repr": f"{kind}.{name}"}
        case DeviceRef(_, mesh_shape):
            text = f"{'x'.join(map(str, mesh_shape))} grid, {prod(mesh_shape)} devices"
            return {"type": "MeshDevice", "repr": f"MeshDevice({text})", "shape": list(mesh_shape)}
        case Handle(type_name, _, identity):
            kind = _HANDLE_CLASSES.get(type_name, type_name.removeprefix("ttnn."))
            return {"type": kind, "value": f"<{kind} object {identity}>"}
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
        case Struct(type_name, ((field, List(items)),)) if ROWS.get(_class(type_name)) == field:
            return f"{_class(type_name)}([{', '.join(map(_printed, items))}])"
        case Struct(type_name, ((field, item),)) if SINGLES.get(_class(type_name)) == field:
            return f"{_class(type_name)}({_printed(item)})"
        case Struct(type_name, fields):
            named = ", ".join(f"{name}={_printed(item)}" for name, item in fields)
            return f"{_class(type_name)}({named})"
        case Symbol(type_name, name):
            return f"{_class(type_name)}.{name}"
        case List(items) | Tuple(items):
            return f"[{', '.join(map(_printed, items))}]"
        case Null():
            return "None"
        case Bool(plain) | Int(plain) | Float(plain):
            return str(plain)
        case _:
            return repr(master_value(value))


def _class(type_name: str) -> str:
    return type_name.removeprefix("ttnn.")


def _struct(value: Struct) -> Json:
    fields = dict(value.fields)
    kind = _class(value.type)
    if value.type == "ttnn.MemoryConfig" and {"memory_layout", "buffer_type"} <= fields.keys():
        return _memory(fields)
    if value.type == COMPUTE_CONFIG and fields:
        return {name: _in_field(item) for name, item in fields.items()}
    if value.type == "ttnn.CoreCoord" and fields.keys() == {"x", "y"}:
        return {name: master_value(item) for name, item in fields.items()}
    if kind in ROWS or kind in SINGLES or value.type == "ttnn.CoreRange" or not fields:
        return {"type": kind, "value": _printed_core_range(value)}
    match fields:
        case {"shape": List() as shape, "transpose": Bool(value=False)} if kind == "Tile":
            return {"type": kind, "value": f"Tile with shape: {_printed(shape)}"}
        case {"ranges": List(ranges)} if kind == "CoreRangeSet":
            text = f"{{{', '.join(map(_printed_core_range, ranges))}}}"
            return {"type": kind, "value": text}
    named = {name: _in_field(item) for name, item in fields.items() if name != "type"}
    return {**named, "type": kind}


def _printed_core_range(value: Value) -> str:
    match value:
        case Struct("ttnn.CoreRange", (("end", Struct(_, end)), ("start", Struct(_, start)))):
            return f"[{_printed_core(start)} - {_printed_core(end)}]"
    return _printed(value)


def _printed_core(fields: Iterable[tuple[str, Value]]) -> str:
    return "-".join(_printed(item) for _, item in fields)


def _in_field(value: Value) -> Json:
    """Return a field of a configuration: symbols are text there, and cores plain objects."""
    match value:
        case Symbol(type_name, name):
            return f"{_class(type_name)}.{name}"
        case Struct("ttnn.CoreRangeSet", (("ranges", List(items)),)):
            return [_range(item) for item in items]
        case Struct(
            "ttnn.UnaryWithParam", (("op_type", Symbol() as kind), ("params", List(items)))
        ):
            return {"op_type": _in_field(kind), "param": [master_value(item) for item in items]}
        case List(items) | Tuple(items):
            return [_in_field(item) for item in items]
        case _:
            return master_value(value)


def _range(value: Value) -> Json:
    match value:
        case Struct("ttnn.CoreRange", (("end", end), ("start", start))):
            return {"start": master_value(start), "end": master_value(end)}
    return master_value(value)


def _memory(fields: dict[str, Value]) -> Json:
    layout = _in_field(fields["memory_layout"])
    sharded = isinstance(layout, str) and layout.endswith("SHARDED")
    written: dict[str, Any] = {
        "memory_layout": layout,
        "buffer_type": _in_field(fields["buffer_type"]),
        "shard_spec": _shard(fields.get("shard_spec", Null())),
        "is_sharded": sharded,
        "interleaved": isinstance(layout, str) and layout.endswith("INTERLEAVED"),
    }
    others = {name: item for name, item in fields.items() if name not in written}
    if others.get("nd_shard_spec") == Null():
        del others["nd_shard_spec"]
    return written | {name: _shard(item) for name, item in others.items()}


def _shard(value: Value) -> Json:
    match value:
        case Null():
            return "None"
        case Opaque(_, token) if token not in NULLS:
            return token
        case Struct("ttnn.ShardSpec" | "ttnn.NdShardSpec", fields):
            return {name: _shard_field(item) for name, item in fields}
    return _in_field(value)


def _shard_field(value: Value) -> Json:
    match value:
        case Struct("ttnn.Shape", (("shape", List() as sizes),)):
            return _in_field(sizes)
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
    if placement.mesh is not None:
        words = [
            "PlacementReplicate" if dim is None else f"PlacementShard({dim})"
            for dim in placement.mesh.placements
        ]
        written["tensor_placement"] = {
            "placement": str(words),
            "distribution_shape": str(list(placement.mesh.distribution_shape)),
        }
        if placement.mesh_shape is not None:
            written["tensor_placement"]["mesh_device_shape"] = str(list(placement.mesh_shape))
    return written


def write_master(
    stream: BinaryIO,
    cases: Iterable[tuple[Case, Sequence[ExecutionRow]]],
    *,
    last_updated: str | None = None,
) -> Exported:
    """Write a whole master file; ``last_updated`` is the time of the newest execution."""
    with tempfile.TemporaryFile() as waiting:
        lines = _Lines(waiting)
        for case, rows in cases:
            lines.add(case, rows)
        stream.write(b'{\n  "operations": {')
        lines.copy_to(stream)
        stream.write(b'},\n  "metadata": ')
        metadata = json.dumps(lines.metadata(last_updated), indent=2)
        stream.write(metadata.replace("\n", "\n  ").encode("ascii") + b"\n}\n")
        return Exported(lines.count, lines.calls)


@dataclass(slots=True)
class _Lines:
    """The configurations in a temporary file, and their positions by operation."""

    waiting: BinaryIO
    count: int = 0
    calls: int = 0
    sources: set[str] = field(default_factory=set)
    places: defaultdict[str, list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _texts: CanonicalTexts = field(default_factory=CanonicalTexts)
    _reader: ArgumentReader = field(default_factory=ArgumentReader)

    def add(self, case: Case, rows: Sequence[ExecutionRow]) -> None:
        """Add the configuration of one Case."""
        executions = summed(rows)
        line = json.dumps(self._configuration(case, executions))[1:].encode("ascii")
        self.places[case.op].append((self.waiting.tell(), len(line)))
        self.waiting.write(line)
        self.count += 1
        self.calls += sum(count for _, count in executions)
        self.sources.update(source.name for source, _ in executions)

    def _configuration(self, case: Case, executions: list[tuple[Source, int]]) -> dict[str, Json]:
        named = sorted(case.arguments, key=lambda item: argument_order(item[0]))
        # As a reader will see them: JSON joins pairs of surrogates, for example.
        arguments = json.loads(json.dumps({name: master_value(value) for name, value in named}))
        configuration: dict[str, Any] = {
            "config_hash": self._texts.case_id(case),
            "arguments": arguments,
            "executions": [_execution(source, count) for source, count in executions],
        }
        if not self._is_exact(case, arguments):
            configuration["optrove"] = case_data(case)
        return configuration

    def _is_exact(self, case: Case, arguments: dict[str, Json]) -> bool:
        """Tell whether the arguments as they are written are read as this very Case."""
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
            for place, (begin, length) in enumerate(self.places[op]):
                number += 1
                self.waiting.seek(begin)
                head = f'{"," if place else ""}\n      {{"config_id": {number}, '
                stream.write(head.encode("ascii") + self.waiting.read(length))
            stream.write(b"\n    ]}")
        stream.write(b"\n  ")

    def metadata(self, last_updated: str | None) -> dict[str, Json]:
        """Return the metadata of the file."""
        return {
            "models": sorted(self.sources),
            "unique_operations": len(self.places),
            "total_configurations": self.count,
            "operations_summary": {op: len(self.places[op]) for op in sorted(self.places)},
            "last_updated": last_updated,
        }


def _execution(source: Source, count: int) -> dict[str, Json]:
    execution: dict[str, Json] = {
        "source": source.name,
        "machine_info": machine_data(source.machine),
        "count": count,
    }
    if source.model != model_of(source.name):
        execution["model"] = source.model
    return execution
