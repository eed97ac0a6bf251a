"""Read the arguments of a version 2 master file into Values, by parsing its spellings.

The file holds configurations partly as objects and partly as the text that C++ or Python printed:
``Shape([1, 8])``, ``{MeshCoordinate([2, 2])}``, ``Config(grid=(x=8,y=8),inplace=0)``. A small
grammar reads that text; nothing is executed. What has no known spelling is ``Unparsed`` and keeps
its text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from optrove.model.values import (
    Bool,
    DeviceRef,
    Float,
    Handle,
    Int,
    List,
    MeshPlacement,
    Null,
    Set,
    Struct,
    Symbol,
    Text,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# ttnn prints these as 0 and 1; the text does not tell them from numbers.
BOOLEANS = frozenset({"inplace", "legacy_reduction", "legacy_rsqrt", "use_welford"})


@dataclass(frozen=True, slots=True)
class RecordedTensor:
    """What a master file says about a tensor; it knows neither padding nor tile."""

    shape: tuple[int, ...]
    dtype: str
    layout: str
    storage: str
    memory: Struct
    mesh_shape: tuple[int, ...]
    distribution_shape: tuple[int, ...]
    placements: tuple[int | None, ...]

    def placement(self, coordinates: tuple[tuple[int, ...], ...]) -> MeshPlacement:
        """Return how the tensor is spread over the chips at ``coordinates``."""
        return MeshPlacement(self.distribution_shape, self.placements, coordinates)


@dataclass(frozen=True, slots=True)
class Unparsed:
    """A part of the file that has no known spelling, and why."""

    text: str
    problem: str


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that the file describes, with its JSON path."""

    path: str
    value: Value | RecordedTensor | Unparsed


class UnknownSpelling(ValueError):
    """Text or an object that this reader does not know."""


def parts(document: dict[str, Any]) -> Iterator[Part]:
    """Yield every argument of every configuration; members of lists and tensors' parts alone."""
    for op, entry in document["operations"].items():
        for index, configuration in enumerate(entry["configurations"]):
            for name, argument in configuration["arguments"].items():
                path = f"$.operations['{op}'].configurations[{index}].arguments.{name}"
                yield from _argument(argument, path)


def _argument(data: Any, path: str) -> Iterator[Part]:
    if isinstance(data, list) and any(isinstance(item, dict) for item in data):
        for index, item in enumerate(data):
            yield from _argument(item, f"{path}[{index}]")
        return
    try:
        value = _tensor(data) if _is_tensor(data) else read(data)
    except (UnknownSpelling, KeyError, TypeError) as error:
        yield Part(path, Unparsed(str(data), f"{type(error).__name__}: {error}"))
        return
    yield Part(path, value)
    if isinstance(value, RecordedTensor):
        yield Part(f"{path}.memory_config", value.memory)


def _is_tensor(data: Any) -> bool:
    return isinstance(data, dict) and data.get("type") == "ttnn.Tensor"


def _tensor(data: dict[str, Any]) -> RecordedTensor:
    """Read a tensor in either form: with a ``tensor_placement``, or with a ``mesh_device``."""
    if "tensor_placement" in data:
        told = data["tensor_placement"]
        placements = [_placement(word) for word in _words(told["placement"])]
        distribution = _integers(told["distribution_shape"])
        mesh_shape = _integers(told["mesh_device_shape"])
    else:
        told = data["mesh_device"]
        placements = [_placement(word) for word in told["placements"]]
        distribution, mesh_shape = tuple(told["distribution_shape"]), tuple(told["shape"])
    return RecordedTensor(
        shape=tuple(data["original_shape"]),
        dtype=f"ttnn.{_member(data['original_dtype'], 'DataType').lower()}",
        layout=_member(data["layout"], "Layout"),
        storage=_member(data["storage_type"], "StorageType").lower(),
        memory=_memory(data["memory_config"]),
        mesh_shape=mesh_shape,
        distribution_shape=distribution,
        placements=tuple(placements),
    )


def _words(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


def _placement(word: str) -> int | None:
    if word == "PlacementReplicate":
        return None
    found = re.fullmatch(r"PlacementShard\((-?\d+)\)", word)
    if found is None:
        raise UnknownSpelling(f"{word!r} is no placement")
    return int(found[1])


def _integers(text: str) -> tuple[int, ...]:
    value = Reader(text).value_alone()
    if not isinstance(value, List) or not all(isinstance(item, Int) for item in value.items):
        raise UnknownSpelling(f"{text!r} is no list of whole numbers")
    return tuple(item.value for item in value.items if isinstance(item, Int))


def _member(text: str, enumeration: str) -> str:
    head, _, name = text.rpartition(".")
    if head not in (enumeration, ""):
        raise UnknownSpelling(f"{text!r} is no {enumeration}")
    return name


def read(data: Any) -> Value:
    """Read one argument that is no tensor; UnknownSpelling if its form is not known."""
    if not isinstance(data, dict):
        return _plain(data)
    if "memory_layout" in data:
        return _memory(data)
    if "math_fidelity" in data:
        return _compute(data)
    match data:
        case {"type": "MeshDevice", "shape": shape}:
            return DeviceRef("ttnn.MeshDevice", tuple(shape))
        case {"type": "global_semaphore"}:
            return Handle("ttnn.GlobalSemaphore", None)
        case {"type": str(kind), "repr": str(text)}:
            return Symbol(f"ttnn.{kind}", _member(text, kind))
        case {"type": str(), "value": str(text)}:
            return Reader(text).value_alone()
        case {"type": str(kind)}:
            fields = {name: item for name, item in data.items() if name != "type"}
            return Struct(f"ttnn.{kind}", tuple((name, _field(v)) for name, v in fields.items()))
    raise UnknownSpelling(f"an object with the keys {', '.join(sorted(data))}")


def _field(data: Any) -> Value:
    if isinstance(data, dict) and data.keys() == {"x", "y"}:
        return _core(data)
    return read(data)


def _plain(data: Any) -> Value:
    match data:
        case None:
            return Null()
        case bool():
            return Bool(data)
        case int():
            return Int(data)
        case float():
            return Float(data)
        case str():
            return Text(data)
        case list():
            return List(tuple(_plain(item) for item in data))
    raise UnknownSpelling(f"a {type(data).__name__}")


def _memory(data: dict[str, Any]) -> Struct:
    """Read a memory configuration. Its hash is ttnn's own and changes between releases."""
    shards = data["shard_spec"]
    spec: Value = Null() if shards in ("None", None) else _shard_spec(shards)
    return Struct(
        "ttnn.MemoryConfig",
        (
            ("memory_layout", _symbol(data["memory_layout"], "TensorMemoryLayout")),
            ("buffer_type", _symbol(data["buffer_type"], "BufferType")),
            ("shard_spec", spec),
            ("nd_shard_spec", Null()),
        ),
    )


def _symbol(text: str, enumeration: str) -> Symbol:
    return Symbol(f"ttnn.{enumeration}", _member(text, enumeration))


def _shard_spec(data: dict[str, Any]) -> Struct:
    ranges = tuple(
        Struct("ttnn.CoreRange", tuple((end, _core(cores[end])) for end in ("start", "end")))
        for cores in data["grid"]
    )
    return Struct(
        "ttnn.ShardSpec",
        (
            ("grid", Struct("ttnn.CoreRangeSet", (("ranges", List(ranges)),))),
            ("shape", _plain(data["shape"])),
            ("orientation", _symbol(data["orientation"], "ShardOrientation")),
        ),
    )


def _core(data: dict[str, Any]) -> Struct:
    return Struct("ttnn.CoreCoord", (("x", Int(data["x"])), ("y", Int(data["y"]))))


def _compute(data: dict[str, Any]) -> Struct:
    symbols = {"math_fidelity": "MathFidelity", "throttle_level": "ThrottleLevel"}
    return Struct(
        "ttnn.WormholeComputeKernelConfig",
        tuple(
            (name, _symbol(item, symbols[name]) if name in symbols else _truth(item))
            for name, item in data.items()
        ),
    )


def _truth(data: Any) -> Bool:
    spellings = {"True": True, "False": False, True: True, False: False}
    if data not in spellings:
        raise UnknownSpelling(f"{data!r} is neither true nor false")
    return Bool(spellings[data])


_TOKEN = re.compile(r"\s*(-?\d+\.\d+(?:e-?\d+)?|-?\d+|[A-Za-z_][\w:.]*|.)")

# The single field of classes that are printed as Name([...]).
_ROWS = {"Shape": "shape", "MeshShape": "shape", "MeshCoordinate": "coords"}


class Reader:
    """A recursive-descent reader of one printed value."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tile = text.startswith("Tile with shape: ")
        body = text.removeprefix("Tile with shape: ")
        self._tokens = [found[1] for found in _TOKEN.finditer(body)]
        self._at = 0

    def value_alone(self) -> Value:
        """Return the one value that the text is; UnknownSpelling if it is anything else."""
        value = self._value()
        if self._at != len(self._tokens):
            self._refuse()
        if self._tile:
            return Struct("ttnn.Tile", (("shape", value), ("transpose", Bool(value=False))))
        return value

    def _refuse(self) -> NoReturn:
        raise UnknownSpelling(f"{self._text!r} is not understood at part {self._at + 1}")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, wanted: str | None = None) -> str:
        token = self._peek()
        if not token or (wanted is not None and token != wanted):
            self._refuse()
        self._at += 1
        return token

    def _value(self) -> Value:
        first = self._take()
        match first:
            case "[":
                return List(self._items("]"))
            case "{":
                return Set(frozenset(self._items("}")))
            case "(":
                return self._core()
        if re.fullmatch(r"-?\d+", first):
            return self._number(first)
        if re.fullmatch(r"-?\d+\.\d+(e-?\d+)?", first):
            return Float(float(first))
        if not re.fullmatch(r"[A-Za-z_][\w:.]*", first):
            self._refuse()
        return self._named(first)

    def _number(self, digits: str) -> Value:
        """Read a whole number, or a core printed as ``8-8``."""
        if re.fullmatch(r"-\d+", self._peek()) and not digits.startswith("-"):
            return _core({"x": int(digits), "y": -int(self._take())})
        return Int(int(digits))

    def _core(self) -> Value:
        """Read the rest of a core printed as ``(x=8,y=8)``."""
        fields = dict(self._fields())
        if fields.keys() != {"x", "y"}:
            self._refuse()
        return Struct("ttnn.CoreCoord", tuple(fields.items()))

    def _named(self, name: str) -> Value:
        if name in ("std::nullopt", "nullopt", "None"):
            return Null()
        if self._peek() != "(":
            kind, _, member = name.replace("::", ".").rpartition(".")
            return Symbol(f"ttnn.{kind}", member) if kind else Text(name)
        self._take("(")
        if name in _ROWS:
            row = self._value()
            self._take(")")
            return Struct(f"ttnn.{name}", ((_ROWS[name], row),))
        return Struct(f"ttnn.{name}", tuple(self._fields()))

    def _items(self, end: str) -> tuple[Value, ...]:
        items: list[Value] = []
        while self._peek() != end:
            items.append(self._value())
            if self._peek() != end:
                self._take(",")
        self._take(end)
        return tuple(items)

    def _fields(self) -> Iterator[tuple[str, Value]]:
        """Yield ``name=value`` pairs up to the closing bracket."""
        while self._peek() != ")":
            name = self._take()
            self._take("=")
            value = self._value()
            numeric = name in BOOLEANS and isinstance(value, Int)
            yield name, Bool(value == Int(1)) if numeric else value
            if self._peek() != ")":
                self._take(",")
        self._take(")")
