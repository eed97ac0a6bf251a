"""Traced configurations of an op: read from a trove or a file, named, combined, and built.

A name states a whole configuration, on one line:

    ttnn.add(1x1x32x64 bfloat16 TILE L1_HEIGHT_SHARDED[32x64 ROW_MAJOR 0,0-7,3] on 4x8
             | 1x1x32x64 bfloat16 ROW_MAJOR HOST) -> DRAM_INTERLEAVED

A memory configuration that these words cannot state, such as one with nd shards, is appended in
packed form: ``DRAM_BLOCK_SHARDED~eJx...``.
"""

from __future__ import annotations

import base64
import binascii
import logging
import random
import re
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from string import ascii_lowercase
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
from optrove.model.case import Case, renamed, rewrite
from optrove.model.ops import meant_ops
from optrove.model.ttnn_classes import USUAL_TILE, Core, CoreGrid, Memory, Shards, padded_shape
from optrove.model.values import (
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
from optrove.settings import MASTER
from optrove.trove.opening import located, reading
from optrove.trove.place import is_sqlite_file
from optrove.trove.query import CaseFilters, near, select

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

log = logging.getLogger(__name__)

MAX_VECTORS: Final = 10_000
"""The most combinations of an op's specs that are made without a limit."""

_ASPECTS: Final = ("dtype", "layout", "memory")
_MEMORY_CONFIG: Final = "ttnn.MemoryConfig"

_OUTPUTS: Final = ("output", "optional_output")
"""Parameters whose names begin so take tensors for results."""

_FIRST: Final = (r"arg(\d+)", r"\w*_q", r"\w*_k", r"input\w*", "predicate", "true_value", "query")
_LAST: Final = (r"bias\w*", "beta", r"residual\w*")
"""The parameters that come before and after all others in signatures; a case has its arguments by
name only. Parameters of the same rank are in alphabetical order."""


@dataclass(frozen=True, slots=True)
class TracedTensor:
    """The spec of one input; ``memory`` is None on the host, ``tile`` for the default tile.

    ``shape`` is the part on one chip, ``mesh`` the chips that hold such a part; None for one.
    """

    shape: tuple[int, ...]
    dtype: str
    layout: str
    tile: tuple[int, int] | None = None
    memory: Struct | None = None
    mesh: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TracedConfiguration:
    """One traced configuration; ``output`` is the memory that the call asked for, if any."""

    op: str
    tensors: tuple[TracedTensor, ...]
    output: Struct | None = None


@dataclass(frozen=True, slots=True)
class Configurations:
    """The distinct configurations of an op, and the counts of the others.

    ``traced == len(kept) + repeated + other_arity + untensored``.
    """

    op: str
    traced: int
    arity: int
    kept: tuple[TracedConfiguration, ...]
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


def distinct(op: str, cases: Iterable[Case], arity: int | None = None) -> Configurations:
    """Return the first configuration for each combination of inputs, in order.

    They have as many tensors as most cases have, or ``arity``.
    """
    traced = [traced_of(case) for case in cases]
    found = [each for each in traced if each is not None]
    if arity is None:
        counts = Counter(len(each.tensors) for each in found)
        arity = max(counts, key=lambda count: (counts[count], -count), default=0)
    fitting = [each for each in found if len(each.tensors) == arity]
    kept: dict[tuple[TracedTensor, ...], TracedConfiguration] = {}
    for each in fitting:
        kept.setdefault(each.tensors, each)
    return Configurations(
        op=op,
        traced=len(traced),
        arity=arity,
        kept=tuple(kept.values()),
        repeated=len(fitting) - len(kept),
        other_arity=len(found) - len(fitting),
        untensored=len(traced) - len(found),
    )


def traced_of(case: Case) -> TracedConfiguration | None:
    """Return the configuration of a case; None if it has no tensor of ttnn."""
    specs = tensors_of(case)
    if not specs:
        return None
    memories = {
        name: value
        for name, value in case.arguments
        if isinstance(value, Struct) and value.type == _MEMORY_CONFIG
    }
    output = memories.get("memory_config") or next(iter(memories.values()), None)
    return TracedConfiguration(case.op, tuple(map(_traced_tensor, specs)), output)


def tensors_of(case: Case) -> list[TensorSpec]:
    """Return the input tensors of ttnn of a case, in the usual order of parameters."""
    return [
        part
        for name, value in sorted(case.arguments, key=lambda argument: _rank(argument[0]))
        if not name.startswith(_OUTPUTS)
        for _, part in walk(value)
        if isinstance(part, TensorSpec) and isinstance(part.placement, TtnnPlacement)
    ]


def _rank(name: str) -> tuple[int, int, str]:
    for rank, pattern in enumerate((*_FIRST, *_LAST)):
        match = re.fullmatch(pattern, name)
        if match is not None:
            last = rank >= len(_FIRST)
            return rank + last, int(match[1]) if match.groups() else 0, name
    return len(_FIRST), 0, name


def _traced_tensor(spec: TensorSpec) -> TracedTensor:
    placement = spec.placement
    assert isinstance(placement, TtnnPlacement)  # noqa: S101 - chosen so; narrows the type
    tile, mesh = placement.tile, placement.mesh_shape
    return TracedTensor(
        shape=spec.shape,
        dtype=spec.dtype,
        layout=placement.layout,
        tile=None if tile is None or tile.shape == USUAL_TILE.shape else tile.shape,
        memory=None if placement.storage == "host" else placement.memory,
        mesh=mesh if mesh and any(size != 1 for size in mesh) else None,
    )


def combinations(
    op: str, cases: Sequence[Case], *, limit: int | None = None, seed: int = 0
) -> tuple[Configurations, tuple[Case, ...]]:
    """Return the configurations of an op, and a case for every combination of their specs.

    The shapes of one call stay together, since most others would not fit. Arguments that are not
    tensors are those of the first case. With a ``limit`` it is a sample of the combinations, which
    ``seed`` chooses; without one, BadTarget for more than 10,000.
    """
    found = distinct(op, cases)
    if not found.kept:
        return found, ()
    base = next(case for case in cases if len(tensors_of(case)) == found.arity)
    shapes = dict.fromkeys(tuple(each.shape for each in one.tensors) for one in found.kept)
    placements = [
        [dict.fromkeys(getattr(tensor, aspect) for tensor in tensors) for aspect in _ASPECTS]
        for tensors in zip(*(one.tensors for one in found.kept), strict=True)
    ]
    columns: list[list[Any]] = [list(shapes), *(list(product(*each)) for each in placements)]
    count = prod(map(len, columns))
    numbers: Sequence[int] = range(count)
    if limit is not None:
        generator = random.Random(seed)  # noqa: S311 - a sample, not a secret
        numbers = sorted(generator.sample(numbers, min(limit, count)))
    elif count > MAX_VECTORS:
        raise BadTarget(
            f"{op} was traced with specs that make {count:,} combinations, and at most "
            f"{MAX_VECTORS:,} are made at once; take a sample (--limit), or choose fewer cases "
            f"(--model, --dtype, --memory, --shape)"
        )
    made = (_combined(columns, number) for number in numbers)
    return found, tuple(dict.fromkeys(_with_tensors(base, tensors) for tensors in made))


def _combined(columns: Sequence[Sequence[Any]], number: int) -> list[TracedTensor]:
    """Return the tensors of a combination, which has one entry of each column."""
    chosen = []
    for column in reversed(columns):
        number, place = divmod(number, len(column))
        chosen.append(column[place])
    shapes, *placed = reversed(chosen)
    return [
        TracedTensor(shape, dtype, layout, memory=memory)
        for shape, (dtype, layout, memory) in zip(shapes, placed, strict=True)
    ]


def _with_tensors(base: Case, tensors: Sequence[TracedTensor]) -> Case:
    """Return a case with these specs for its inputs, each a tensor of its own."""
    numbers = {id(spec): number for number, spec in enumerate(tensors_of(base))}

    def changed(part: Value) -> Value:
        if id(part) not in numbers or not isinstance(part, TensorSpec):
            return part
        number = numbers[id(part)]
        tensor, placement = tensors[number], part.placement
        if isinstance(placement, TtnnPlacement):
            tiled = tensor.layout == "TILE"
            placement = replace(
                placement,
                padded_shape=padded_shape(tensor.shape, USUAL_TILE.shape)
                if tiled
                else tensor.shape,
                layout=tensor.layout,
                tile=USUAL_TILE if tiled else None,
                memory=tensor.memory,
            )
        return TensorSpec(tensor.shape, tensor.dtype, placement, number, number)

    arguments = tuple((name, rewrite(value, changed)) for name, value in base.arguments)
    # Numbers tensors as recordings do: in the order of the names.
    return renamed(Case(base.op, arguments), {})


_HOST: Final = "HOST"
_SCALAR: Final = "scalar"
_MAX_UNPACKED_BYTES: Final = 1_000_000
_LAYOUTS: Final = "INTERLEAVED|HEIGHT_SHARDED|WIDTH_SHARDED|BLOCK_SHARDED|ND_SHARDED"
_NAME: Final = re.compile(r"(?P<op>[\w.]+)\((?P<tensors>[^()]+)\)(?: -> (?P<output>\S.*))?")
_TENSOR: Final = re.compile(
    rf"(?P<shape>{_SCALAR}|\d+(?:x\d+)*) (?P<dtype>[\w.]+) (?P<layout>[A-Z_]+)"
    r"(?P<tile>\d+x\d+)? (?P<memory>\S+(?:\[[^]]*\])?)(?: on (?P<mesh>\d+(?:x\d+)*))?"
)
_MEMORY: Final = re.compile(
    rf"(?P<buffer>[A-Z0-9_]+)_(?P<layout>{_LAYOUTS})"
    r"(?:\[(?P<shape>\d+(?:x\d+)*) (?P<orientation>[A-Z_]+) (?P<ranges>\S+)\])?"
)
_NOT_IN_SYMBOLS: Final = re.compile(r"[^A-Z0-9_]")
_RANGE: Final = re.compile(r"(\d+),(\d+)-(\d+),(\d+)")


def write_name(traced: TracedConfiguration) -> str:
    """Return the name of a configuration, from which ``read_name`` makes an equal one."""
    tensors = " | ".join(map(_write_tensor, traced.tensors))
    output = "" if traced.output is None else f" -> {_write_memory(traced.output)}"
    return f"{traced.op}({tensors}){output}"


def read_name(name: str) -> TracedConfiguration:
    """Return the configuration that a name states; NotFound for any other text."""
    try:
        match = _match(_NAME, name)
        return TracedConfiguration(
            op=match["op"],
            tensors=tuple(map(_read_tensor, match["tensors"].split(" | "))),
            output=None if match["output"] is None else _read_memory(match["output"]),
        )
    except (ValueError, BadData, zlib.error, binascii.Error) as error:
        raise NotFound(
            f"{name[:200]!r} is not the name of a traced configuration; "
            f"use the names that MasterConfigLoader.get_suite_parameters returns"
        ) from error


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!a} does not match {pattern.pattern}")
    return match


def _read_sizes(text: str) -> tuple[int, ...]:
    return () if text == _SCALAR else tuple(map(int, text.split("x")))


def _write_sizes(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes)) or _SCALAR


def _write_tensor(tensor: TracedTensor) -> str:
    tile = "" if tensor.tile is None else _write_sizes(tensor.tile)
    memory = _HOST if tensor.memory is None else _write_memory(tensor.memory)
    mesh = "" if tensor.mesh is None else f" on {_write_sizes(tensor.mesh)}"
    dtype = tensor.dtype.removeprefix("ttnn.")
    return f"{_write_sizes(tensor.shape)} {dtype} {tensor.layout}{tile} {memory}{mesh}"


def _read_tensor(text: str) -> TracedTensor:
    match = _match(_TENSOR, text)
    dtype, tile = match["dtype"], match["tile"]
    rows, columns = _read_sizes(tile) if tile else (0, 0)
    return TracedTensor(
        shape=_read_sizes(match["shape"]),
        dtype=dtype if "." in dtype else f"ttnn.{dtype}",
        layout=match["layout"],
        tile=(rows, columns) if tile else None,
        memory=None if match["memory"] == _HOST else _read_memory(match["memory"]),
        mesh=_read_sizes(match["mesh"]) if match["mesh"] else None,
    )


def _write_memory(recorded: Struct) -> str:
    memory = Memory.of(recorded)
    if memory is None:
        head = "UNKNOWN_UNKNOWN"
    else:
        names = (memory.buffer, memory.layout)
        head = "_".join(_NOT_IN_SYMBOLS.sub("_", name) for name in names)
        text = head if memory.shards is None else head + _write_shards(memory.shards)
        with suppress(ValueError):  # words cannot state this configuration
            if _read_memory(text) == recorded:
                return text
    packed = zlib.compress(write(encode(recorded)).encode("ascii"), 9)
    return f"{head}~{base64.urlsafe_b64encode(packed).decode('ascii')}"


def _write_shards(shards: Shards) -> str:
    ranges = "+".join(f"{x},{y}-{right},{low}" for (x, y), (right, low) in shards.grid.ranges)
    return f"[{_write_sizes(shards.shape)} {shards.orientation} {ranges}]"


def _read_memory(text: str) -> Struct:
    """Return the memory configuration that a text states; ValueError for any other text."""
    head, is_packed, packed = text.partition("~")
    if is_packed:
        content = base64.urlsafe_b64decode(packed)
        unpacked = zlib.decompressobj().decompress(content, _MAX_UNPACKED_BYTES)
        found = decode(read(unpacked.decode("ascii")))
        if not isinstance(found, Struct) or found.type != _MEMORY_CONFIG:
            raise ValueError("the packed value is not a memory configuration")
        return found
    match = _match(_MEMORY, head)
    shards = None if match["shape"] is None else _read_shards(match)
    return Memory(match["buffer"], match["layout"], shards).struct()


def _read_shards(match: re.Match[str]) -> Shards:
    ranges = tuple(map(_read_range, match["ranges"].split("+")))
    return Shards(_read_sizes(match["shape"]), CoreGrid(ranges), match["orientation"])


def _read_range(text: str) -> tuple[Core, Core]:
    left, top, right, bottom = map(int, _match(_RANGE, text).groups())
    return (left, top), (right, bottom)


def configurations_of(
    source: str | Path | None, op: str, arity: int | None = None
) -> Configurations:
    """Return the distinct configurations of an op, and log how many were traced.

    The source is a trove or a file; the default is TTNN_MASTER_JSON_PATH, then the default trove.
    An op that was never traced has none, which is logged as a warning.
    """
    source = str(source) if source is not None else MASTER.value
    try:
        name, cases = _cases_in(source, op)
    except (NoTrove, NotATrove, UnusableTrove, BadTarget) as error:
        if not executing.get():
            raise
        # A name states its configuration: executing vectors needs no trove.
        log.warning("%s: %s", op, error)
        name, cases = op, []
    found = distinct(name, cases, arity)
    if found.traced:
        level = logging.INFO if found.kept and not found.other_arity else logging.WARNING
        log.log(level, "%s", found)
    return found


def _cases_in(source: str | None, op: str) -> tuple[str, list[Case]]:
    """Return the full name of an op and its cases in a trove or a file, most called first."""
    path = None if source is None or "://" in source else Path(source).expanduser()
    if path is not None and path.exists() and not is_sqlite_file(path):
        return _cases_in_file(path, op)
    with reading(source) as reader:
        name = _full_name(op, reader.op_names(), str(located(source)))
        if name is None:
            return op, []
        asked = CaseFilters(name=name)
        try:
            (answer,) = select(reader, asked)
        except NotFound:  # only other ops call it
            (answer,) = select(reader, replace(asked, nested=True))
        return name, [case_of(row.content) for row in reader.cases(answer.query)]


def _cases_in_file(path: Path, op: str) -> tuple[str, list[Case]]:
    # Reading a trove does not need the modules that read files.
    from optrove.interop.formats import read_file

    imported, _ = read_file(path)
    counts: Counter[Case] = Counter()
    for each in (case for one in imported for case in one.cases):
        counts[each.case] += each.count
    name = _full_name(op, {case.op for case in counts}, str(path))
    if name is None:
        return op, []
    found = [case for case in counts if case.op == name]
    return name, sorted(found, key=lambda case: -counts[case])


def _full_name(op: str, known: Iterable[str], where: str) -> str | None:
    """Return the op of ttnn that a name means; None, after a warning, for an unknown one."""
    ours = sorted(name for name in known if name.startswith("ttnn."))
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
    """Return the object of ttnn that a value describes; FrameworkMissing without ttnn."""
    table = attempt("ttnn") if is_importable("ttnn") else ModuleNotFoundError("not installed")
    if isinstance(table, Exception):
        raise FrameworkMissing(
            f"traced configurations are objects of ttnn, which cannot be imported: {table}; "
            f"install optrove[ttnn] with Python 3.10 or 3.12"
        )
    return build(value, joined_tables(("ttnn",)))


def live_tensor(tensor: TracedTensor) -> tuple[list[int], Any, Any, Any]:
    """Return shape, dtype, layout and memory configuration of an input, as objects of ttnn."""
    dtype, layout, memory = (_live_aspect(each, getattr(tensor, each)) for each in _ASPECTS)
    return list(tensor.shape), dtype, layout, memory


def _live_aspect(aspect: str, value: Any) -> Any:
    if aspect == "dtype":
        return live(Symbol("ttnn.DataType", value.rpartition(".")[2].upper()))
    if aspect == "layout":
        return live(Symbol("ttnn.Layout", value))
    return None if value is None else live(value)


def shapes(traced: TracedConfiguration) -> list[int] | dict[str, list[int]]:
    """Return the shape of the inputs if all have the same; else the shapes by name."""
    found = [list(tensor.shape) for tensor in traced.tensors]
    if all(shape == found[0] for shape in found):
        return found[0]
    if len(found) == len(("self", "other")):
        return {"self": found[0], "other": found[1]}
    return {f"input_{letter}": shape for letter, shape in zip(ascii_lowercase, found, strict=False)}


def every_value(found: Configurations) -> dict[str, list[Any]]:
    """Return the distinct values of each parameter, for every combination of them."""
    by_shapes = {tuple(each.shape for each in one.tensors): shapes(one) for one in found.kept}
    columns: dict[str, list[Any]] = {"input_shape": list(by_shapes.values())}
    inputs = list(zip(*(one.tensors for one in found.kept), strict=True))
    for aspect in _ASPECTS:
        parameter = "memory_config" if aspect == "memory" else aspect
        for letter, tensors in zip(ascii_lowercase, inputs, strict=False):
            values = dict.fromkeys(getattr(tensor, aspect) for tensor in tensors)
            columns[f"input_{letter}_{parameter}"] = [_live_aspect(aspect, each) for each in values]
    if found.arity == 1:
        outputs = dict.fromkeys(one.output for one in found.kept)
        columns["output_memory_config"] = [_live_aspect("memory", each) for each in outputs]
    return columns
