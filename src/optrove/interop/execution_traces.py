"""Read execution traces of PyTorch: the Chakra JSON that ``ExecutionTraceObserver`` writes.

A node with a schema is one call of an operation; the operations inside composite ones are nodes of
their own. Other nodes (threads, autograd functions, communication records) are counted as not
kept. Arguments get their names from the schema. Arguments that have their default value are left
out as torch leaves them out at the dispatcher, so that a call has the same case as in a recording.

A trace has the identities, storages and devices of tensors; it does not say which need gradients.
Tensors without a storage (sparse ones) and quantized ones are kept verbatim.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData
from optrove.interop.fidelity import FidelityCounter, PartNotes, expected
from optrove.interop.machines import EPOCH, Source, SourceExecution, runs_of
from optrove.model.case import Case
from optrove.model.torch_target import device_value
from optrove.model.values import (
    Bool,
    Float,
    Int,
    List,
    Null,
    Symbol,
    TensorSpec,
    Text,
    TorchPlacement,
    contiguous_strides,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.interop.machines import Content
    from optrove.model.values import Value
    from optrove.serializer.text import Json

NAME: Final = "execution-trace"
_NONE: Final = "<None>"
_UNDEFINED: Final = "Tensor(nullptr (uninitialized))"
_BOOKKEEPING: Final = ("prim", "profiler")
_TENSOR_FACTS: Final = 6
_SCHEMA: Final = re.compile(r"([\w.]+)::([\w.]+)\((.*)\) -> .*", re.DOTALL)
_PARAMETER: Final = re.compile(r"(.*[^\w])(\w+)", re.DOTALL)
_INT_KIND: Final = re.compile(r"(ScalarType|Layout|MemoryFormat)\??")

_SCALAR_TYPES: Final = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32",
    "complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16", "quint4x2",
    "quint2x4", "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16", "float8_e5m2",
    "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "uint16", "uint32", "uint64",
)  # fmt: skip
_LAYOUTS: Final = (
    "strided", "sparse_coo", "sparse_csr", "_mkldnn", "sparse_csc", "sparse_bsr", "sparse_bsc",
    "jagged",
)  # fmt: skip
_FORMATS: Final = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
_NUMBERED: Final = {
    "ScalarType": ("torch.dtype", _SCALAR_TYPES),
    "Layout": ("torch.layout", _LAYOUTS),
    "MemoryFormat": ("torch.memory_format", _FORMATS),
}
"""The constants that a trace has as numbers, by the type in a schema."""

_DTYPES: Final = {
    "bool": "bool", "unsigned char": "uint8", "signed char": "int8", "short int": "int16",
    "short": "int16", "int": "int32", "long int": "int64", "long": "int64", "long long": "int64",
    "c10::Half": "float16", "c10::BFloat16": "bfloat16", "float": "float32", "double": "float64",
    "c10::complex<c10::Half>": "complex32", "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128", "unsigned short": "uint16", "short unsigned int":
    "uint16", "unsigned int": "uint32", "unsigned long": "uint64", "long unsigned int": "uint64",
    "unsigned long long": "uint64", "c10::Float8_e5m2": "float8_e5m2",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2fnuz": "float8_e5m2fnuz",
    "c10::Float8_e4m3fnuz": "float8_e4m3fnuz",
}  # fmt: skip
"""The dtypes of torch by their names in C++, on Linux, macOS and Windows."""


def is_execution_trace(document: Json) -> bool:
    """Return whether a JSON document is an execution trace."""
    if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
        return False
    nodes = document.get("nodes")
    return isinstance(nodes, list) and all(
        isinstance(each, dict) and {"id", "name"} <= each.keys() for each in nodes[:1]
    )


def read_execution_trace(document: Json, file: str, *, strict: bool) -> Content:
    """Return the run of a trace; a node that cannot be read is counted and listed."""
    counter = FidelityCounter(strict=strict)
    source = Source(file, None)
    schemas = _Schemas()
    executions = []
    for index, node in enumerate(document["nodes"]):
        path = f"$.nodes[{index}]"
        try:
            found = _call(node, schemas)
        except BadData as error:
            counter.refuse(error.within(path).faults)
            continue
        if found is None:
            counter.note("not kept: a node that is not a call of an operation")
            continue
        case, notes = found
        counter.configuration(path, [("", notes)])
        executions.append(SourceExecution(case, source, 1, path))
    if not executions:
        counter.check()
        raise BadData.at("$.nodes", "no node is a call of an operation; record the trace again")
    runs, cases = runs_of(executions, EPOCH)
    return runs, counter.fidelity(file, NAME, cases)


@dataclass(frozen=True, slots=True)
class _Parameter:
    """One parameter of a schema; ``default`` is the text after ``=``, None if it has none."""

    name: str
    kind: str
    default: str | None
    keyword_only: bool


_Schema = tuple[str, tuple[_Parameter, ...]]


class _Schemas:
    """The name and the parameters of each schema, parsed once."""

    def __init__(self) -> None:
        self._known: dict[str, _Schema] = {}

    def parse(self, text: str) -> _Schema:
        """Return the full name of an operation and its parameters; BadData if it has no form."""
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = _parse_schema(text)
        return known


def _parse_schema(text: str) -> _Schema:
    found = _SCHEMA.fullmatch(text)
    if found is None:
        raise BadData.at("$.op_schema", f"expected the schema of an operation, found {text[:80]!a}")
    space, name, inner = found.groups()
    parameters = []
    keyword_only = False
    for part in _split(inner):
        if part == "*":
            keyword_only = True
            continue
        declared, equals, default = part.partition("=")
        named = _PARAMETER.fullmatch(declared)
        if named is None:
            raise BadData.at("$.op_schema", f"{part!a} is not a parameter")
        kind, parameter = named.groups()
        parameters.append(
            _Parameter(parameter, kind.strip(), default if equals else None, keyword_only)
        )
    full = name if "." in name else f"{name}.default"
    return f"torch.ops.{space}.{full}", tuple(parameters)


def _split(text: str) -> Iterator[str]:
    """Yield the parts of a list that commas separate, outside of brackets and quotes."""
    depth, quote, begin = 0, "", 0
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[begin:at].strip()
            begin = at + 1
    if text[begin:].strip():
        yield text[begin:].strip()


def _call(node: Json, schemas: _Schemas) -> tuple[Case, PartNotes] | None:
    """Return the case of a node; None if it is not a call of an operation."""
    if not isinstance(node, dict):
        raise BadData((expected("a node", "$", node),))
    text = _attribute(node, "op_schema")
    if not text:
        return None
    op, parameters = schemas.parse(text)
    if op.split(".")[2] in _BOOKKEEPING:
        return None
    reader = _Arguments(*_inputs(node))
    if reader.count > len(parameters):
        raise BadData.at("$.inputs", f"{reader.count} arguments, but {op} has {len(parameters)}")
    by_name = sorted(range(reader.count), key=lambda place: parameters[place].name)
    values = {place: reader.value(place, parameters[place].kind) for place in by_name}
    kept = _without_defaults(parameters, values)
    numbered = [(parameters[place].name, values[place]) for place in by_name if place in kept]
    return Case(op, tuple(numbered)), reader.notes


def _attribute(node: dict[str, Json], name: str) -> str:
    """Return an attribute of a node; the first versions have it in the node itself."""
    found = node.get(name)
    for each in node.get("attrs") or ():
        if isinstance(each, dict) and each.get("name") == name:
            found = each.get("value")
    return found if isinstance(found, str) else ""


def _inputs(node: dict[str, Json]) -> tuple[list[Json], list[Json], list[Json], list[Json] | None]:
    """Return the values, shapes, types and strides of a node; old traces have no strides."""
    inputs = node.get("inputs")
    if isinstance(inputs, dict):
        given = {name: inputs.get(name) for name in ("values", "shapes", "types", "strides")}
    else:
        shapes, types = node.get("input_shapes"), node.get("input_types")
        given = {"values": inputs, "shapes": shapes, "types": types}
    strides = given.pop("strides", None)
    found: list[list[Json]] = []
    for name, each in given.items():
        if not isinstance(each, list):
            raise BadData((expected("a list", f"$.inputs.{name}", each),))
        found.append(each)
    values, shapes, types = found
    if not len(values) == len(shapes) == len(types):
        raise BadData.at("$.inputs", "values, shapes and types differ in number")
    steps = strides if isinstance(strides, list) and len(strides) == len(values) else None
    return values, shapes, types, steps


class _Arguments:
    """Reads the arguments of one node; tensors and storages are numbered as they are read."""

    def __init__(
        self,
        values: list[Json],
        shapes: list[Json],
        types: list[Json],
        strides: list[Json] | None,
    ) -> None:
        self.count = len(values)
        self.notes = PartNotes()
        self._facts = (values, shapes, types, strides or [None] * len(values))
        self._tensors: dict[int, int] = {}
        self._storages: dict[int, int] = {}

    def value(self, place: int, kind: str) -> Value:
        """Return the argument at a place, whose parameter has a type in the schema."""
        values, shapes, types, strides = self._facts
        path = f".inputs.values[{place}]"
        return self._value(
            values[place], str(types[place]), (shapes[place], strides[place]), kind, path
        )

    def _value(
        self, data: Json, type_: str, sizes: tuple[Json, Json], kind: str, path: str
    ) -> Value:
        if data == _NONE or type_ in ("None", _UNDEFINED):
            return Null()
        if type_.startswith("GenericList[") and isinstance(data, list):
            inner = [*_split(type_[len("GenericList[") : -1])]
            if len(inner) == len(data):
                return List(tuple(self._items(data, inner, sizes, kind, path)))
        if type_.startswith("Tensor("):
            spec = self._tensor(data, type_, *sizes)
            return self._verbatim(data, type_, path) if spec is None else spec
        numbered = _INT_KIND.fullmatch(kind)
        if numbered and type(data) is int:
            symbol, names = _NUMBERED[numbered[1]]
            if 0 <= data < len(names):
                return Symbol(symbol, names[data])
        plain = _plain(data, type_)
        return self._verbatim(data, type_, path) if plain is None else plain

    def _items(
        self, data: list[Json], types: list[str], sizes: tuple[Json, Json], kind: str, path: str
    ) -> Iterator[Value]:
        shapes, strides = (_of_length(each, len(data)) for each in sizes)
        for at, item in enumerate(data):
            inner = f"{path}[{at}]"
            yield self._value(item, types[at], (shapes[at], strides[at]), kind, inner)

    def _tensor(self, data: Json, type_: str, shape: Json, strides: Json) -> TensorSpec | None:
        dtype = _DTYPES.get(type_.removeprefix("Tensor(").removesuffix(")"))
        sizes, steps = _integers(shape), _integers(strides)
        if dtype is None or sizes is None or _integers(data, last=str) is None:
            return None
        if len(data) != _TENSOR_FACTS or not data[-1]:
            return None
        identity, storage, offset = data[:3]
        if steps is None or len(steps) != len(sizes):
            steps = contiguous_strides(sizes)
        placement = TorchPlacement(steps, "strided", data[-1], requires_grad=False, offset=offset)
        return TensorSpec(
            sizes,
            f"torch.{dtype}",
            placement,
            self._tensors.setdefault(identity, len(self._tensors)),
            self._storages.setdefault(storage, len(self._storages)),
        )

    def _verbatim(self, data: Json, type_: str, path: str) -> Value:
        return self.notes.keep(f"execution trace {type_[:80]}", json.dumps(data), path)


def _of_length(data: Json, length: int) -> list[Json]:
    return data if isinstance(data, list) and len(data) == length else [None] * length


def _integers(data: Json, *, last: type = int) -> tuple[int, ...] | None:
    """Return a list of numbers, of which the last may be of another type; None for other data."""
    if not isinstance(data, list):
        return None
    kinds = [*(int for _ in data[1:]), last]
    if not all(type(each) is kind for each, kind in zip(data, kinds, strict=False)):
        return None
    return tuple(data)


def _plain(data: Json, type_: str) -> Value | None:
    """Return a number, truth value, text or device; None for other data."""
    match type_, data:
        case "Bool", bool():
            return Bool(data)
        case "Int", int():
            return Int(data)
        case "Double", float() | int():
            return Float(float(data))
        case "Double", "inf" | "-inf" | "nan" | "-nan" | "Infinity" | "-Infinity" | "NaN":
            return Float(float(data.replace("-nan", "nan")))
        case "Device", str():
            return device_value(data)
        case "String", str():
            return Text(data)
    return None


def _without_defaults(parameters: Sequence[_Parameter], values: dict[int, Value]) -> set[int]:
    """Return the places that torch passes: by place up to the last that differs, by name those."""
    differing = {
        place for place, value in values.items() if not _is_default(parameters[place], value)
    }
    by_place = [place for place in differing if not parameters[place].keyword_only]
    last = max(by_place, default=-1)
    leading = {
        place for place in values if place <= last and not _is_none(parameters, place, values)
    }
    return leading | {place for place in differing if parameters[place].keyword_only}


def _is_none(parameters: Sequence[_Parameter], place: int, values: dict[int, Value]) -> bool:
    """Return whether an argument is a None that is the default, which a recording leaves out."""
    return parameters[place].default == "None" and isinstance(values[place], Null)


def _is_default(parameter: _Parameter, value: Value) -> bool:
    if parameter.default is None:
        return False
    try:
        default = ast.literal_eval(parameter.default)
    except (ValueError, SyntaxError):
        return False  # the name of a constant
    return _equals(value, default)


def _equals(value: Value, default: Any) -> bool:
    match value:
        case Null():
            return default is None
        case Bool(given):
            return type(default) is bool and given is default
        case Int(number) | Float(number):
            return type(default) in (int, float) and number == default
        case Text(text):
            return type(default) is str and text == default
        case List(items):
            return (
                type(default) is list
                and len(default) == len(items)
                and all(_equals(*pair) for pair in zip(items, default, strict=True))
            )
    return False
