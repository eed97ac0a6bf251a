"""Names of traced configurations, which say all of it: whoever has the name needs no trove.

    ttnn.add(1x1x32x64 bfloat16 TILE L1_HEIGHT_SHARDED[32x64 ROW_MAJOR 0,0-7,3] on 4x8
             | 1x1x32x64 bfloat16 ROW_MAJOR HOST) -> DRAM_INTERLEAVED

on one line. A memory that these words do not tell, such as one of nd shards, is followed by all of
it, packed: ``DRAM_BLOCK_SHARDED~eJx...``.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from typing import Final

from optrove.codec.text import read, write
from optrove.codec.wire import decode, encode
from optrove.errors import BadData, NotFound
from optrove.model.values import Int, List, Null, Struct, Symbol, Value
from optrove.plan.traced import MEMORY_CONFIG, Traced, TracedTensor

_HOST: Final = "HOST"
_SCALAR: Final = "scalar"
_LAYOUTS: Final = "INTERLEAVED|HEIGHT_SHARDED|WIDTH_SHARDED|BLOCK_SHARDED|ND_SHARDED"
_LONGEST_PACKED: Final = 1_000_000

_NAME: Final = re.compile(r"(?P<op>[\w.]+)\((?P<tensors>[^()]+)\)(?: -> (?P<output>\S.*))?")
_TENSOR: Final = re.compile(
    rf"(?P<shape>{_SCALAR}|\d+(?:x\d+)*) (?P<dtype>[\w.]+) (?P<layout>[A-Z_]+)"
    r"(?P<tile>\d+x\d+)? (?P<memory>\S+(?:\[[^]]*\])?)(?: on (?P<mesh>\d+(?:x\d+)*))?"
)
_MEMORY: Final = re.compile(
    rf"(?P<buffer>[A-Z0-9_]+)_(?P<layout>{_LAYOUTS})"
    r"(?:\[(?P<shape>\d+(?:x\d+)*) (?P<orientation>[A-Z_]+) (?P<ranges>\S+)\])?"
)
_ODD: Final = re.compile(r"[^A-Z0-9_]")
_RANGE: Final = re.compile(r"(\d+),(\d+)-(\d+),(\d+)")


def write_name(traced: Traced) -> str:
    """Return the name of a configuration, from which ``read_name`` makes an equal one."""
    tensors = " | ".join(map(_tensor_text, traced.tensors))
    output = "" if traced.output is None else f" -> {_memory_text(traced.output)}"
    return f"{traced.op}({tensors}){output}"


def read_name(name: str) -> Traced:
    """Return the configuration that a name tells; NotFound if it is not such a name."""
    match = _NAME.fullmatch(name)
    tensors = [] if match is None else [_TENSOR.fullmatch(each) for each in _parts(match)]
    if match is None or not tensors or None in tensors:
        raise _no_name(name)
    try:
        return Traced(
            op=match["op"],
            tensors=tuple(_tensor(each) for each in tensors if each is not None),
            output=None if match["output"] is None else _memory(match["output"]),
        )
    except (ValueError, BadData, zlib.error, binascii.Error) as error:
        raise _no_name(name) from error


def _parts(match: re.Match[str]) -> list[str]:
    return match["tensors"].split(" | ")


def _no_name(name: str) -> NotFound:
    return NotFound(
        f"{name[:200]!r} is no name of a traced configuration; "
        f"take the names that MasterConfigLoader.get_suite_parameters gives"
    )


def _sizes(text: str) -> tuple[int, ...]:
    return () if text == _SCALAR else tuple(map(int, text.split("x")))


def _text(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes)) or _SCALAR


def _tensor_text(tensor: TracedTensor) -> str:
    tile = "" if tensor.tile is None else _text(tensor.tile)
    memory = _HOST if tensor.memory is None else _memory_text(tensor.memory)
    mesh = "" if tensor.mesh is None else f" on {_text(tensor.mesh)}"
    dtype = tensor.dtype.removeprefix("ttnn.")
    return f"{_text(tensor.shape)} {dtype} {tensor.layout}{tile} {memory}{mesh}"


def _tensor(match: re.Match[str]) -> TracedTensor:
    dtype, tile = match["dtype"], match["tile"]
    rows, columns = _sizes(tile) if tile else (0, 0)
    return TracedTensor(
        shape=_sizes(match["shape"]),
        dtype=dtype if "." in dtype else f"ttnn.{dtype}",
        layout=match["layout"],
        tile=(rows, columns) if tile else None,
        memory=None if match["memory"] == _HOST else _memory(match["memory"]),
        mesh=_sizes(match["mesh"]) if match["mesh"] else None,
    )


def _memory_text(memory: Struct) -> str:
    fields = dict(memory.fields)
    head = f"{_symbol(fields.get('buffer_type'))}_{_symbol(fields.get('memory_layout'))}"
    plain = head + _shard_text(fields.get("shard_spec"))
    try:
        if _memory(plain) == memory:
            return plain
    except ValueError:  # these words cannot tell it
        plain = ""
    packed = zlib.compress(write(encode(memory)).encode("ascii"), 9)
    return f"{head}~{base64.urlsafe_b64encode(packed).decode('ascii')}"


def _symbol(value: Value | None) -> str:
    return _ODD.sub("_", value.name) if isinstance(value, Symbol) else "UNKNOWN"


def _shard_text(shard: Value | None) -> str:
    if not isinstance(shard, Struct):
        return ""
    match dict(shard.fields):
        case {
            "grid": Struct(fields=(("ranges", List(ranges)),)),
            "orientation": Symbol(name=orientation),
            "shape": List(shape),
        }:
            sizes = _text(tuple(size.value for size in shape if isinstance(size, Int)))
            return f"[{sizes} {orientation} {'+'.join(map(_range_text, ranges))}]"
    return ""


def _range_text(value: Value) -> str:
    match value:
        case Struct(fields=(("end", Struct(fields=end)), ("start", Struct(fields=start)))):
            numbers = [item.value for _, item in (*start, *end) if isinstance(item, Int)]
            return "{},{}-{},{}".format(*numbers) if len(numbers) == 4 else ""  # noqa: PLR2004 - x and y of both corners
    return ""


def _memory(text: str) -> Struct:
    """Return the memory configuration that a text tells; ValueError if it tells none."""
    head, packed, content = text.partition("~")
    if packed:
        return _unpacked(content)
    match = _MEMORY.fullmatch(head)
    if match is None:
        raise ValueError(f"{text!a} is no memory")
    return Struct(
        MEMORY_CONFIG,
        (
            ("buffer_type", Symbol("ttnn.BufferType", match["buffer"])),
            ("memory_layout", Symbol("ttnn.TensorMemoryLayout", match["layout"])),
            ("nd_shard_spec", Null()),
            ("shard_spec", Null() if match["shape"] is None else _shards(match)),
        ),
    )


def _unpacked(content: str) -> Struct:
    packed = zlib.decompressobj()
    text = packed.decompress(base64.urlsafe_b64decode(content), _LONGEST_PACKED)
    found = decode(read(text.decode("ascii")))
    if not isinstance(found, Struct) or found.type != MEMORY_CONFIG:
        raise ValueError("something else than a memory configuration was packed")
    return found


def _shards(match: re.Match[str]) -> Struct:
    ranges = [_RANGE.fullmatch(each) for each in match["ranges"].split("+")]
    if None in ranges:
        raise ValueError(f"{match['ranges']!a} are no ranges of cores")
    told = tuple(_core_range(each) for each in ranges if each is not None)
    return Struct(
        "ttnn.ShardSpec",
        (
            ("grid", Struct("ttnn.CoreRangeSet", (("ranges", List(told)),))),
            ("orientation", Symbol("ttnn.ShardOrientation", match["orientation"])),
            ("shape", List(tuple(map(Int, _sizes(match["shape"]))))),
        ),
    )


def _core_range(match: re.Match[str]) -> Struct:
    def core(x: str, y: str) -> Struct:
        return Struct("ttnn.CoreCoord", (("x", Int(int(x))), ("y", Int(int(y)))))

    return Struct(
        "ttnn.CoreRange", (("end", core(match[3], match[4])), ("start", core(match[1], match[2])))
    )
