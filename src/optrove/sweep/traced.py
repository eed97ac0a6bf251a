"""Traced configurations of an op: specs, names, and where they are found.

    ttnn.add(1x1x32x64 bfloat16 TILE L1_HEIGHT_SHARDED[32x64 ROW_MAJOR 0,0-7,3] on 4x8
             | 1x1x32x64 bfloat16 ROW_MAJOR HOST) -> DRAM_INTERLEAVED

on one line. A memory that these words do not tell, such as one of nd shards, is followed by all of
it, packed: ``DRAM_BLOCK_SHARDED~eJx...``.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import (
    BadData,
    BadTarget,
    FrameworkMissing,
    NotATrove,
    NotFound,
    NoTrove,
    UnusableTrove,
)
from optrove.frameworks.installed import attempt, is_importable, joined_tables
from optrove.model.ops import meant_ops
from optrove.model.values import (
    Int,
    List,
    Null,
    Struct,
    Symbol,
    TensorSpec,
    TtnnPlacement,
    Value,
    walk,
)
from optrove.replay.sweep_module import executing
from optrove.serializer.build import build
from optrove.serializer.described import case_of
from optrove.serializer.text import read, write
from optrove.serializer.wire import decode, encode
from optrove.settings import read_settings
from optrove.trove.opening import located, reading
from optrove.trove.place import is_sqlite_file
from optrove.trove.query import Asked, near, select

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.model.case import Case


MEMORY_CONFIG: Final = "ttnn.MemoryConfig"
USUAL_TILE: Final = (32, 32)

_RESULTS: Final = ("output", "optional_output")
"""How the names of parameters begin that take tensors for results."""

_FIRST: Final = (r"arg(\d+)", r"\w*_q", r"\w*_k", r"input\w*", "predicate", "true_value", "query")
_LAST: Final = (r"bias\w*", "beta", r"residual\w*")
"""Which parameters come before and after all others. Cases know their arguments by name, and in
signatures these stand at the ends; within a row the order is that of the alphabet."""


@dataclass(frozen=True, slots=True)
class TracedTensor:
    """The spec of one input: ``memory`` is None on the host, ``tile`` where it is the usual one.

    ``shape`` is what one chip holds, ``mesh`` the chips that hold such a part; None for one.
    """

    shape: tuple[int, ...]
    dtype: str
    layout: str
    tile: tuple[int, int] | None = None
    memory: Struct | None = None
    mesh: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Traced:
    """One traced configuration; ``output`` is the memory that the call asked for, if it did."""

    op: str
    tensors: tuple[TracedTensor, ...]
    output: Struct | None = None


@dataclass(frozen=True, slots=True)
class Distinct:
    """The configurations of an op that a sweep runs, and what became of the others.

    ``traced == len(kept) + repeated + other_arity + untensored``.
    """

    op: str
    traced: int
    arity: int
    kept: tuple[Traced, ...]
    repeated: int = 0
    other_arity: int = 0
    untensored: int = 0

    def __str__(self) -> str:
        text = f"{self.op}: {self.traced:,} traced, {len(self.kept):,} distinct"
        if self.other_arity:
            text += f", {self.other_arity:,} without {self.arity} tensors left out"
        if self.untensored:
            text += f", {self.untensored:,} without tensors of ttnn left out"
        return text


def traced_of(case: Case) -> Traced | None:
    """Return what a sweep takes over from a case; None if it has no tensor of ttnn."""
    specs = tensors_of(case)
    if not specs:
        return None
    return Traced(case.op, tuple(map(_tensor, specs)), _output(case))


def tensors_of(case: Case) -> list[TensorSpec]:
    """Return the tensors of ttnn that a case takes, in the usual order of parameters."""
    found = []
    for name, value in sorted(case.arguments, key=lambda argument: _place(argument[0])):
        if name.startswith(_RESULTS):
            continue
        found += [
            part
            for _, part in walk(value)
            if isinstance(part, TensorSpec) and isinstance(part.placement, TtnnPlacement)
        ]
    return found


def _place(name: str) -> tuple[int, int, str]:
    for rank, pattern in enumerate(_FIRST):
        match = re.fullmatch(pattern, name)
        if match is not None:
            return rank, int(match[1]) if match.groups() else 0, name
    for rank, pattern in enumerate(_LAST, start=len(_FIRST) + 1):
        if re.fullmatch(pattern, name):
            return rank, 0, name
    return len(_FIRST), 0, name


def distinct(op: str, cases: Iterable[Case], arity: int | None = None) -> Distinct:
    """Return the configurations with different inputs, the first of each, in their order.

    They have as many tensors as most have, or as ``arity`` says.
    """
    told = [traced_of(case) for case in cases]
    found = [each for each in told if each is not None]
    wanted = _usual_arity(found) if arity is None else arity
    fitting = [each for each in found if len(each.tensors) == wanted]
    kept: dict[tuple[TracedTensor, ...], Traced] = {}
    for each in fitting:
        kept.setdefault(each.tensors, each)
    return Distinct(
        op=op,
        traced=len(told),
        arity=wanted,
        kept=tuple(kept.values()),
        repeated=len(fitting) - len(kept),
        other_arity=len(found) - len(fitting),
        untensored=len(told) - len(found),
    )


def _usual_arity(found: Sequence[Traced]) -> int:
    counts = Counter(len(each.tensors) for each in found)
    return max(counts, key=lambda arity: (counts[arity], -arity), default=0)


def _tensor(spec: TensorSpec) -> TracedTensor:
    placement = spec.placement
    assert isinstance(placement, TtnnPlacement)  # noqa: S101 - chosen so; narrows the type
    tile = None if placement.tile is None else placement.tile.shape
    shape = placement.mesh_shape
    return TracedTensor(
        shape=spec.shape,
        dtype=spec.dtype,
        layout=placement.layout,
        tile=None if tile == USUAL_TILE else tile,
        memory=None if placement.storage == "host" else placement.memory,
        mesh=shape if shape and any(size != 1 for size in shape) else None,
    )


def _output(case: Case) -> Struct | None:
    """Return the memory that a call asked for: what its name says, else the first there is."""
    found = {
        name: value
        for name, value in case.arguments
        if isinstance(value, Struct) and value.type == MEMORY_CONFIG
    }
    if "memory_config" in found:
        return found["memory_config"]
    return next(iter(found.values()), None)


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
            tensors=tuple(_tensor_of_name(each) for each in tensors if each is not None),
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


def _tensor_of_name(match: re.Match[str]) -> TracedTensor:
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


log = logging.getLogger(__name__)

LETTERS = "abcdefghijklmnopqrstuvwxyz"
FRAMEWORK = "ttnn."


def configurations_of(source: str | Path | None, op: str, arity: int | None = None) -> Distinct:
    """Return the distinct configurations of an op, and log how many were traced.

    The source is a trove or a file; without one TTNN_MASTER_JSON_PATH says it, or it is the usual
    trove. None are found of an op that was never traced, which is logged as a warning.
    """
    given = str(source) if source is not None else read_settings().master
    try:
        name, cases = _cases_in(given, op)
    except (NoTrove, NotATrove, UnusableTrove, BadTarget) as error:
        if not executing.get():
            raise
        # Names say all of a configuration: whoever executes them needs no trove.
        log.warning("%s: %s", op, error)
        name, cases = op, []
    found = distinct(name, cases, arity)
    if found.traced:
        level = logging.INFO if found.kept and not found.other_arity else logging.WARNING
        log.log(level, "%s", found)
    return found


def _cases_in(source: str | None, op: str) -> tuple[str, list[Case]]:
    path = None if source is None or "://" in source else Path(source).expanduser()
    if path is not None and path.exists() and not is_sqlite_file(path):
        return _cases_in_file(path, op)
    return _cases_in_trove(source, op)


def _cases_in_file(path: Path, op: str) -> tuple[str, list[Case]]:
    # Reading files is the business of modules that a trove does without.
    from optrove.interop.detect import read_file

    imported, _ = read_file(path)
    counts: dict[Case, int] = {}
    for each in (case for one in imported for case in one.cases):
        counts[each.case] = counts.get(each.case, 0) + each.count
    meant = _meant(op, {case.op for case in counts}, str(path))
    if meant is None:
        return op, []
    found = [case for case in counts if case.op == meant]
    return meant, sorted(found, key=lambda case: -counts[case])


def _cases_in_trove(store: str | None, op: str) -> tuple[str, list[Case]]:
    with reading(store) as reader:
        meant = _meant(op, reader.op_names(), str(located(store)))
        if meant is None:
            return op, []
        asked = Asked(name=meant)
        try:
            (answer,) = select(reader, asked)
        except NotFound:  # it is only ever called by other ops
            (answer,) = select(reader, replace(asked, nested=True))
        return meant, [case_of(row.content) for row in reader.cases(answer.query)]


def _meant(op: str, known: Iterable[str], where: str) -> str | None:
    """Return the op of ttnn that a name means; None, after a warning, if it means none."""
    ours = sorted(name for name in known if name.startswith(FRAMEWORK))
    found = meant_ops(op, ours)
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(found[:5])
        raise NotFound(f"{op!r} means {len(found)} ops of {where}: {listed}; give one in full")
    nearest = near(op, ours)
    about = f"; the nearest: {nearest}" if nearest else ""
    log.warning("no configurations of %r were traced in %s%s", op, where, about)
    return None


def live(value: Value) -> Any:
    """Return the live object of ttnn that a value describes; FrameworkMissing without ttnn."""
    table = attempt("ttnn") if is_importable("ttnn") else ModuleNotFoundError("not installed")
    if isinstance(table, Exception):
        raise FrameworkMissing(
            f"traced configurations are objects of ttnn, which cannot be imported: {table}; "
            f"install optrove[ttnn] with Python 3.10 or 3.12"
        )
    return build(value, joined_tables(("ttnn",)))


def live_tensor(tensor: TracedTensor) -> tuple[list[int], Any, Any, Any]:
    """Return shape, dtype, layout and memory configuration of an input, as objects of ttnn."""
    memory = None if tensor.memory is None else live(tensor.memory)
    return list(tensor.shape), _dtype(tensor), _layout(tensor), memory


def _dtype(tensor: TracedTensor) -> Any:
    return live(Symbol("ttnn.DataType", tensor.dtype.rpartition(".")[2].upper()))


def _layout(tensor: TracedTensor) -> Any:
    return live(Symbol("ttnn.Layout", tensor.layout))


def shapes(traced: Traced) -> list[int] | dict[str, list[int]]:
    """Return the one shape of all inputs; where they differ, those of the first two by name."""
    told = [list(tensor.shape) for tensor in traced.tensors]
    if all(shape == told[0] for shape in told):
        return told[0]
    if len(told) == len(("self", "other")):
        return {"self": told[0], "other": told[1]}
    return {f"input_{letter}": shape for letter, shape in zip(LETTERS, told, strict=False)}


def every_value(found: Distinct) -> dict[str, list[Any]]:
    """Return the different values of each parameter, for every combination of them."""
    kept = found.kept
    columns: dict[str, list[Any]] = {"input_shape": _different(map(shapes, kept))}
    inputs = list(zip(*(traced.tensors for traced in kept), strict=True))
    for aspect, make in (("dtype", _dtype), ("layout", _layout), ("memory_config", _memory_config)):
        for letter, tensors in zip(LETTERS, inputs, strict=False):
            columns[f"input_{letter}_{aspect}"] = [make(one) for one in _by(aspect, tensors)]
    if found.arity == 1:
        outputs = _different(traced.output for traced in kept)
        columns["output_memory_config"] = [
            None if output is None else live(output) for output in outputs
        ]
    return columns


def _memory_config(tensor: TracedTensor) -> Any:
    return None if tensor.memory is None else live(tensor.memory)


def _by(aspect: str, tensors: Iterable[TracedTensor]) -> list[TracedTensor]:
    """Return tensors that differ in one aspect, the first of each."""
    name = aspect.removesuffix("_config")
    found: dict[Any, TracedTensor] = {}
    for tensor in tensors:
        found.setdefault(getattr(tensor, name), tensor)
    return list(found.values())


def _different(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
