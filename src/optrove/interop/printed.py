"""Read ttnn objects from text that C++ or Python printed. Nothing is executed.

``read_printed`` reads values with a small grammar, token by token:

    Shape([1, 8])   {MeshCoordinate([2, 2])}   UnaryOpType::GELU   8-4   {[0-0 - 7-5], [0-6 - 0-6]}
    LayerNormShardedMultiCoreProgramConfig(compute_with_storage_grid_size=(x=4,y=7),inplace=0)
    ShardSpec{grid=[{"start":{"x":0,"y":0},"end":{"x":7,"y":4}], shape=[49, 32], orientation=...}

Other text is refused, so that the caller can keep it verbatim. The last line shows a fault of ttnn
0.81, which leaves out the brace after each range of a shard's grid.

``parse_almost_json`` reads JSON with the additions of C++:

    {"x":0,"y":0} - {"x":7,"y":7}          a range of cores: {"start": ..., "end": ...}
    {[...], [...]}                         a set: braces around items without keys
    "compute_grid":8,8                     a list without brackets
    "arg0":"[{"tensor_spec":...}]"         a list in quotes that are not escaped
    "exp_approx_mode":std::nullopt         a word without quotes

Names of fields are those of ttnn 0.78 to 0.81; each means the same in every class that has it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NoReturn

from optrove.model.ttnn_classes import core, core_range, core_ranges
from optrove.model.values import Bool, Float, Int, List, Null, Set, Struct, Symbol, Text, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.serializer.text import Json


BOOLEANS: Final = frozenset(
    {
        "bcast_batch",
        "bfp8_pack_precise",
        "config_tensors_in_dram",
        "deallocate_activation",
        "dst_full_sync_en",
        "enable_act_double_buffer",
        "enable_activation_reuse",
        "enable_fp32_operand_split",
        "enable_kernel_stride_folding",
        "enable_split_reader",
        "enable_subblock_padding",
        "enable_weights_double_buffer",
        "exp_approx_mode",
        "force_split_reader",
        "fp32_dest_acc_en",
        "full_inner_dim",
        "fuse_batch",
        "gather_in0",
        "in_place",
        "inplace",
        "legacy_reduction",
        "legacy_rsqrt",
        "math_approx_mode",
        "mcast_in0",
        "override_output_sharding_config",
        "override_sharding_config",
        "packer_l1_acc",
        "per_core_allocation",
        "range_lockstep_allocation",
        "reallocate_halo_output",
        "reshard_if_not_optimal",
        "segmented_accumulation",
        "stream_in1",
        "transpose_mcast",
        "transpose_shards",
        "untilize_out",
        "use_welford",
    }
)
"""Fields that are true or false, which C++ prints as 1 and 0."""

ENUMERATIONS: Final = {
    "buffer_type": "BufferType",
    "math_fidelity": "MathFidelity",
    "matmul_math_fidelity": "MathFidelity",
    "memory_layout": "TensorMemoryLayout",
    "orientation": "ShardOrientation",
    "shard_distribution_strategy": "ShardDistributionStrategy",
    "throttle_level": "ThrottleLevel",
}
"""Fields that hold a member of an enumeration; the name of the enumeration may be missing."""

CORE_RANGES: Final = frozenset({"allowed_worker_cores", "hop_cores", "sub_core_grids"})
"""Fields that hold a set of core ranges; an empty one is printed as an empty list or object."""

ROWS: Final = {"Shape": "shape", "MeshShape": "shape", "MeshCoordinate": "coords"}
"""The field of classes that are printed as ``Name([...])``."""

SINGLES: Final = {
    "SubDeviceId": "id",
    "PlacementShard": "dim",
    "MeshId": "value",
    "MeshTraceId": "value",
    "QueueId": "value",
}
"""The field of classes that are printed as ``Name(1)``."""

HANDLES: Final = {
    "global_semaphore": "ttnn.GlobalSemaphore",
    "global_circular_buffer": "ttnn.GlobalCircularBuffer",
}
"""Our names for the classes of runtime objects that ttnn prints by address only."""

_UNARY_OPS: Final = (
    "EXP RECIP GELU GELU_TANH RELU SQRT SIGMOID LOG LOG1P TANH LOG2 LOG10 SIN COS COSH SINH ABS "
    "ABS_INT32 SIGN SQUARE EQZ NEZ GTZ LTZ GEZ LEZ RELU_MAX RELU_MIN POWER POWER_ITERATIVE "
    "LEAKY_RELU ELU EXP2 HEAVISIDE EXPM1 SIGNBIT ASIN ACOS ACOSH RSQRT RELU6 ATAN ASINH ATANH ERF "
    "ERFC ISINF ISPOSINF ISNEGINF ISNAN LOGICAL_NOT_UNARY ISFINITE ERFINV I0 I1 TAN RSUB RDIV SILU "
    "SOFTPLUS IDENTITY NEG ADD_UNARY_SFPU SUB_UNARY_SFPU MUL_UNARY_SFPU DIV_UNARY_SFPU UNARY_NE "
    "UNARY_EQ UNARY_GT UNARY_LT UNARY_GE UNARY_LE TILED_PROD TYPECAST BITCAST BITWISE_XOR "
    "BITWISE_NOT BITWISE_AND BITWISE_OR RIGHT_SHIFT FLOOR CEIL TRUNC FRAC ROUND LEFT_SHIFT "
    "REMAINDER FMOD DROPOUT FILL PRELU_SFPU ZERO_POINT ALT_COMPLEX_ROTATE90 MISH HARDMISH MAXIMUM "
    "MINIMUM TANHSHRINK THRESHOLD SOFTSHRINK HARDSHRINK HARDTANH HARDSIGMOID HARDSWISH WHERE_TSS "
    "MAC_TSS SOFTSIGN CELU CLAMP_TSS SELU RPOW CBRT LOGSIGMOID LOGIT XIELU LGAMMA DIGAMMA "
    "POLYGAMMA SOFTCAP"
)
UNARY_OPS: Final = tuple(_UNARY_OPS.split())
"""The members of UnaryOpType in the order of their numbers, as ttnn 0.81 has them. Program
configurations are written with the number of their fused activation."""

SLICE_TYPES: Final = {
    "DRAM_HEIGHT": "DRAMSliceHeight",
    "DRAM_WIDTH": "DRAMSliceWidth",
    "L1_FULL": "L1Full",
}
"""The members of SLICE_TYPE by the names that C++ prints."""

SLICE_TYPE: Final = "ttnn.Op2DSliceConfig.SliceTypeEnum"

PROGRAM_CONFIGS: Final = (
    ("SDPAProgramConfig", {"q_chunk_size", "k_chunk_size"}),
    ("LayerNormShardedMultiCoreProgramConfig", {"block_h", "block_w", "subblock_w", "inplace"}),
    ("SoftmaxShardedMultiCoreProgramConfig", {"block_h", "block_w", "subblock_w"}),
    ("MatmulMultiCoreReuseMultiCastProgramConfig", {"in0_block_w", "transpose_mcast"}),
    ("MatmulMultiCoreReuseMultiCast1DProgramConfig", {"in0_block_w", "fuse_batch"}),
    ("MatmulMultiCoreReuseMultiCast1DProgramConfig", {"in0_block_w", "mcast_in0"}),
    ("MatmulMultiCoreReuseProgramConfig", {"in0_block_w", "compute_with_storage_grid_size"}),
    (
        "MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig",
        {"in0_block_w", "per_core_M", "per_core_N"},
    ),
)
"""Fields that identify the class of an unnamed program configuration; the first match counts."""

LOST_ARGUMENTS: Final = frozenset({"multi_device_global_semaphore", "barrier_semaphore"})
"""Arguments that tt-metal's tracer leaves out."""

COMPUTE_CONFIG: Final = "ttnn.WormholeComputeKernelConfig"
"""The class of compute configurations on every board; master files leave its name out."""

NULLS: Final = frozenset({"None", "nullopt", "std::nullopt"})


_DEEPEST: Final = 100
_SCALARS: Final = json.JSONDecoder()
_BARE: Final = re.compile(r"[A-Za-z_][\w:.]*(?:\([^()]*\))?")
_NEXT_NUMBER: Final = re.compile(r"\s*,\s*-?\d")


class NotAlmostJson(ValueError):
    """Text of another form; the message has the position."""


def parse_almost_json(text: str) -> Json:
    """Return the data of ``text``, with ranges and sets as objects and lists."""
    parser = _Parser(text)
    value = parser.value(0)
    parser.end()
    return value


class _Parser:
    """A recursive-descent parser over one text."""

    __slots__ = ("_at", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def value(self, depth: int) -> Json:
        """Return the value that begins here, or the range that it begins."""
        if depth > _DEEPEST:
            raise NotAlmostJson(f"nested more than {_DEEPEST} levels deep")
        start = self._single(depth)
        if not self._takes("-"):
            return start
        return {"start": start, "end": self._single(depth)}

    def end(self) -> None:
        """Refuse text after the value."""
        if self._next():
            raise self._refusal("expected the end")

    def _single(self, depth: int) -> Json:
        if self._takes("{"):
            return self._braces(depth + 1)
        if self._takes("["):
            return self._items("]", depth + 1)
        return self._scalar()

    def _scalar(self) -> Json:
        self._next()
        if self._text.startswith('"[{"', self._at):
            begin = self._at
            try:
                return self._quoted_list()
            except NotAlmostJson:
                self._at = begin
        word = _BARE.match(self._text, self._at)
        if word is not None and word[0] not in ("true", "false", "null", "NaN", "Infinity"):
            self._at = word.end()
            return word[0]
        try:
            value, self._at = _SCALARS.raw_decode(self._text, self._at)
        except (json.JSONDecodeError, RecursionError) as error:
            raise self._refusal("expected a value") from error
        return value

    def _quoted_list(self) -> Json:
        """Read a list whose quotes were not escaped when it was put into quotes itself."""
        self._need('"')
        self._need("[")
        items = self._items("]", 1)
        self._need('"')
        return items

    def _braces(self, depth: int) -> Json:
        """Read an object, or a set where the first item is not a key."""
        if self._next() in ("", "}", '"'):
            return self._object(depth)
        return self._items("}", depth)

    def _object(self, depth: int) -> dict[str, Json]:
        found: dict[str, Json] = {}
        while not self._takes("}"):
            if found:
                self._need(",")
            if self._next() != '"':
                raise self._refusal("expected a key in quotes")
            key = self._scalar()
            self._need(":")
            if key in found:
                raise self._refusal(f"the key {key!a} comes twice")
            found[key] = self._bare_items(self.value(depth), depth)
        return found

    def _bare_items(self, first: Json, depth: int) -> Json:
        """Return a value, or the list of numbers that it begins: ``8,8`` and no brackets."""
        items = [first]
        while type(first) is int and _NEXT_NUMBER.match(self._text, self._at):
            self._need(",")
            items.append(self.value(depth))
        return items if len(items) > 1 else first

    def _items(self, closing: str, depth: int) -> list[Json]:
        items: list[Json] = []
        while not self._takes(closing):
            if items:
                self._need(",")
            items.append(self.value(depth))
        return items

    def _next(self) -> str:
        """Skip spaces and return the next character; empty at the end."""
        text = self._text
        while self._at < len(text) and text[self._at].isspace():
            self._at += 1
        return text[self._at : self._at + 1]

    def _takes(self, sign: str) -> bool:
        if self._next() != sign:
            return False
        self._at += 1
        return True

    def _need(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._refusal(f"expected {sign}")

    def _refusal(self, problem: str) -> NotAlmostJson:
        return NotAlmostJson(f"{problem} at character {self._at + 1}")


_TOKEN: Final = re.compile(
    r"\s*(-?\d+\.\d*(?:e[-+]?\d+)?|-?\d+e[-+]?\d+|-?\d+|-?inf\b|-?nan\b|[A-Za-z_][\w:.]*"
    r'|"[^"\\]*"|\S)'
)
_WHOLE: Final = re.compile(r"-?\d+\Z")
_REAL: Final = re.compile(r"-?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|inf|nan)\Z")
_NAME: Final = re.compile(r"[A-Za-z_][\w:.]*\Z")
_TILE: Final = "Tile with shape: "
_DEEPEST_TEXT: Final = 60
_MAX_CHARS: Final = 1_000_000
_MAX_NUMBER_CHARS: Final = 600


class UnknownForm(ValueError):
    """Text or an object of unknown form."""


def read_printed(text: str) -> Value:
    """Return the value that ``text`` shows; UnknownForm for other text."""
    if len(text) > _MAX_CHARS:
        raise UnknownForm(f"text of {len(text)} characters")
    value = _Reader(text.removeprefix(_TILE)).value_alone()
    if not text.startswith(_TILE):
        return value
    if not isinstance(value, List):
        raise UnknownForm(f"{text!r} is not a tile")
    # Only the shape is printed; a transposed tile looks the same.
    return Struct("ttnn.Tile", (("shape", value), ("transpose", Bool(value=False))))


class _Reader:
    """A recursive-descent reader of one printed value."""

    __slots__ = ("_at", "_depth", "_text", "_tokens")

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [found[1] for found in _TOKEN.finditer(text)]
        self._at = 0
        self._depth = 0

    def value_alone(self) -> Value:
        value = self._value()
        if self._at != len(self._tokens):
            self._refuse()
        return value

    def _refuse(self) -> NoReturn:
        shown = self._text if len(self._text) <= 100 else f"{self._text[:100]}..."  # noqa: PLR2004 - enough to recognise it
        raise UnknownForm(f"{shown!r} is not understood at part {self._at + 1}")

    def _peek(self, ahead: int = 0) -> str:
        place = self._at + ahead
        return self._tokens[place] if place < len(self._tokens) else ""

    def _take(self, wanted: str | None = None) -> str:
        token = self._peek()
        if not token or (wanted is not None and token != wanted):
            self._refuse()
        self._at += 1
        return token

    def _value(self) -> Value:
        self._depth += 1
        if self._depth > _DEEPEST_TEXT:
            self._refuse()
        value = self._one()
        self._depth -= 1
        return value

    def _one(self) -> Value:
        first = self._take()
        match first:
            case "[":
                return self._list()
            case "{":
                return self._braces()
            case "(":
                return self._core()
        if _WHOLE.match(first):
            return self._number(first)
        if _REAL.match(first):
            return Float(float(first))
        if not _NAME.match(first):
            self._refuse()
        return self._named(first)

    def _number(self, digits: str) -> Value:
        """Read a whole number, or a core printed as ``8-8``."""
        if max(len(digits), len(self._peek())) > _MAX_NUMBER_CHARS:
            self._refuse()
        if not digits.startswith("-") and re.fullmatch(r"-\d+", self._peek()):
            return core(int(digits), -int(self._take()))
        return Int(int(digits))

    def _core(self) -> Value:
        """Read the rest of a core printed as ``(x=8,y=8)``."""
        fields = dict(self._fields(")"))
        x, y = fields.get("x"), fields.get("y")
        if len(fields) != len(("x", "y")) or not isinstance(x, Int) or not isinstance(y, Int):
            self._refuse()
        return core(x.value, y.value)

    def _list(self) -> Value:
        """Read the rest of a list, or of a range printed as ``[0-0 - 7-5]``."""
        if self._peek() != "]":
            first = self._value()
            if self._peek() == "-":
                self._take("-")
                end = self._value()
                self._take("]")
                return core_range(first, end)
            return List((first, *self._more("]")))
        self._take("]")
        return List(())

    def _braces(self) -> Value:
        """Read the rest of a set, of a set of core ranges, or of one range written out."""
        if self._peek() == '"start"':
            return self._written_range()
        if self._peek() == "}":
            self._take("}")
            return Set(frozenset())
        items = (self._value(), *self._more("}"))
        if all(isinstance(item, Struct) and item.type == "ttnn.CoreRange" for item in items):
            return core_ranges(items)
        return Set(frozenset(items))

    def _written_range(self) -> Value:
        ends = []
        for name in ("start", "end"):
            self._take(f'"{name}"')
            self._take(":")
            ends.append(self._written_core())
            if name == "start":
                self._take(",")
        if self._peek() == "}":
            self._take("}")
        return core_range(*ends)

    def _written_core(self) -> Value:
        """Read a core printed as ``{"x":8,"y":8}``."""
        numbers = []
        for before, name in (("{", '"x"'), (",", '"y"')):
            for token in (before, name, ":"):
                self._take(token)
            numbers.append(self._whole())
        self._take("}")
        return core(*numbers)

    def _whole(self) -> int:
        token = self._take()
        if not _WHOLE.match(token) or len(token) > _MAX_NUMBER_CHARS:
            self._refuse()
        return int(token)

    def _more(self, end: str) -> tuple[Value, ...]:
        """Read the items after the first one, up to the closing bracket."""
        items: list[Value] = []
        while self._peek() != end:
            self._take(",")
            items.append(self._value())
        self._take(end)
        return tuple(items)

    def _named(self, name: str) -> Value:
        if name in NULLS:
            return Null()
        if name in ("true", "false", "True", "False"):
            return Bool(value=name in ("true", "True"))
        last = name.replace("::", ".").removeprefix("ttnn.")
        if self._peek() == "{":
            self._take("{")
            return with_our_fields(Struct(f"ttnn.{last}", tuple(self._fields("}"))))
        if self._peek() == "(":
            self._take("(")
            return self._object(last)
        kind, _, member = last.rpartition(".")
        if kind and member:
            return Symbol(f"ttnn.{kind.rpartition('.')[2]}", member)
        return Text(name)

    def _object(self, name: str) -> Value:
        if name in ROWS or name in SINGLES:
            content = self._value()
            self._take(")")
            return Struct(f"ttnn.{name}", ((ROWS.get(name) or SINGLES[name], content),))
        return with_our_fields(Struct(f"ttnn.{name}", tuple(self._fields(")"))))

    def _fields(self, end: str) -> Iterator[tuple[str, Value]]:
        """Yield ``name=value`` pairs up to the closing bracket."""
        names: set[str] = set()
        while self._peek() != end:
            if names:
                self._take(",")
            name = self._take()
            if not _NAME.match(name) or name in names:
                self._refuse()
            names.add(name)
            self._take("=")
            yield name, as_boolean(name, self._value())
        self._take(end)


def as_boolean(field: str, value: Value) -> Value:
    """Return 0 or 1 as false or true where the field is known to be one."""
    if field in BOOLEANS and value in (Int(0), Int(1)):
        return Bool(value=value == Int(1))
    return value


def with_our_fields(value: Struct) -> Struct:
    """Return an object with the fields that our converters give to its class."""
    fields = dict(value.fields)
    match value.type, fields:
        case "ttnn.UnaryWithParam", {"op_type": _}:
            params = fields.get("params", List(()))
            if isinstance(params, List):
                fields["params"] = List(tuple(map(_as_float, params.items)))
        case "ttnn.MeshCoordinateRange", {"start": Struct() as start, "end": Struct() as end}:
            fields = {"start": start.fields[0][1], "end": end.fields[0][1]}
        case "ttnn.Op2DSliceConfig", {"slice_type": Symbol(_, name)} if name in SLICE_TYPES:
            fields["slice_type"] = Symbol(SLICE_TYPE, SLICE_TYPES[name])
        case "ttnn.ShardSpec", {"grid": List(ranges)}:
            fields["grid"] = core_ranges(ranges)
        case _:
            return value
    return Struct(value.type, tuple(fields.items()))


def _as_float(value: Value) -> Value:
    return Float(float(value.value)) if isinstance(value, Int) else value
