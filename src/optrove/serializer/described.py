"""Cases as a trove stores them: identities, canonical text, searchable facts.

Two tensors of a program often differ in nothing but their shapes. So a journal's tensors are
checked and spelled as a whole only when they are of a new sort; of the others, only what varies.

The content of a Case is the ASCII JSON ``{"arguments":{name:value,...},"op":name}`` with sorted
keys and no spaces; its SHA-256 is the case_id, with nothing before or after it. The semantic_id
and the family_id are made likewise, of what ``identity`` and ``families`` leave of the arguments.

Each argument is a Part, made once and joined with others as often as it is used. Since journals
number their values, describing a Case from there costs little more than the three hashes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from optrove.errors import BadData, Fault
from optrove.model.case import Case, obstacle
from optrove.model.trove import DescribedCase, TensorFacts
from optrove.model.values import (
    FrozenSet,
    Handle,
    List,
    Mapping,
    NumpyPlacement,
    Set,
    Struct,
    Symbol,
    TensorSpec,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
    Value,
    key_step,
    walk,
)
from optrove.serializer.hashes import family_of, semantics
from optrove.serializer.text import Json, check_keys, found, read, read_name, write
from optrove.serializer.wire import bad_data, decode, encode, read_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from optrove.serializer.text import Faults


HOST: Final = "HOST"
"""The memory of a tensor that no device holds."""

STRIDED: Final = "strided"
"""The layout of numpy's arrays, by the name that torch gives to its usual one."""


class Facts(NamedTuple):
    """What one tensor can be searched by, wherever it is; see ``TensorFacts``."""

    shape: str
    dtype: str
    layout: str
    memory: str
    mesh: str | None


def tensor_specs(value: Value) -> Iterator[TensorSpec]:
    """Yield the tensors within ``value``, in an order that depends on nothing but its content."""
    if isinstance(value, TensorSpec):
        yield value
        return
    for part in _parts(value):
        yield from tensor_specs(part)


def _parts(value: Value) -> Iterable[Value]:
    match value:
        case List(items) | Tuple(items):
            return items
        case Set(items) | FrozenSet(items):
            return sorted(items, key=_spelled)
        case Mapping(entries):
            ordered = sorted(entries, key=lambda entry: _spelled(entry[0]))
            return (part for entry in ordered for part in entry)
        case Struct(_, fields):
            return (item for _, item in fields)
        case Handle(_, recipe):
            return () if recipe is None else (recipe,)
        case _:
            return ()


def facts_of(spec: TensorSpec) -> Facts:
    """Return what a tensor can be searched by."""
    layout, memory, mesh = _place(spec)
    dtype = spec.dtype.rpartition(".")[2]
    return Facts(
        by(spec.shape),
        searchable(dtype),
        searchable(layout),
        searchable(memory),
        None if mesh is None else by(mesh),
    )


def by(sizes: Iterable[int]) -> str:
    """Return how a shape is spelled: ``1x1x32x64``."""
    return "x".join(map(str, sizes))


def searchable(text: str) -> str:
    """Return ``text`` as every database takes it: without surrogates and control characters."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _spelled(value: Value) -> str:
    return write(encode(value))


def _place(spec: TensorSpec) -> tuple[str, str, tuple[int, ...] | None]:
    match spec.placement:
        case TtnnPlacement() as placement:
            return placement.layout, _memory(placement), placement.mesh_shape
        case TorchPlacement() as placement:
            return placement.layout, placement.device, None
        case NumpyPlacement():
            return STRIDED, HOST, None


def _memory(placement: TtnnPlacement) -> str:
    """Return buffer and layout of a tensor on a device; the kind of storage of any other."""
    if placement.storage.casefold() == "device" and placement.memory is not None:
        match dict(placement.memory.fields):
            case {"buffer_type": Symbol(_, buffer), "memory_layout": Symbol(_, layout)}:
                return f"{buffer}_{layout}"
            case _:
                return placement.storage.upper()
    return placement.storage.upper()


_LOOSE: Final = re.compile(r'"\$(set|frozenset|map|text|bytes|float|complex)"')
"""What can be spelled in several ways, one of which is canonical."""

_NOWHERE: Final = '{"kind":"numpy","offset":0,"strides":[]}'
"""How the semantic form of a tensor spells its placement."""

_PADDED: Final = '"padded_shape":'
_TENSOR: Final = frozenset({"shape", "dtype", "identity", "storage", "placement"})
_MAX_SIZE: Final = 2**63


@dataclass(frozen=True, slots=True)
class Part:
    """One argument, as canonical JSON in three forms, and what it tells about its Case.

    ``semantic`` is None when the argument says nothing about what is computed.
    """

    content: str
    semantic: str | None
    family: str
    replayable: bool
    tensors: tuple[Facts, ...]


@dataclass(frozen=True, slots=True)
class TensorParts:
    """The Parts of one tensor, whatever numbers it has within a call.

    ``before`` is all that comes before its identity, ``after`` all between its placement and its
    storage; ``placement`` is without the number of the device where it has one.
    """

    before: str
    placement: str
    after: str
    device: int | None
    has_device: bool
    replayable: bool
    facts: tuple[Facts]
    identity: int
    storage: int

    def own(self) -> Part:
        """Return the Part with the tensor's own numbers."""
        return self.part(self.identity, self.storage, None)

    def part(self, identity: int, storage: int, device: int | None) -> Part:
        """Return the Part with these numbers; a device of None leaves the tensor's own."""
        placement = self.placement
        if self.has_device:
            number = self.device if device is None else device
            placement = f'{{"device":{"null" if number is None else number},{placement}'
        before = f'{self.before}{identity},"placement":'
        after = f"{self.after}{storage}}}}}"
        content = f"{before}{placement}{after}"
        semantic = f"{before}{_NOWHERE}{after}"
        return Part(content, semantic, content, self.replayable, self.facts)


@dataclass(frozen=True, slots=True)
class _Sort:
    """What tensors have in common that differ in dtype and shapes only."""

    before_padded: str
    after_padded: str
    device: int | None
    layout: str
    memory: str
    mesh: str | None
    replayable: bool


def part_of(value: Value) -> Part:
    """Return the Part of an argument; BadData for what no reader would accept."""
    data = encode(value)
    if isinstance(value, TensorSpec):
        return tensor_parts(value, data).own()
    return _other_part(value, write(data))


def _other_part(value: Value, content: str) -> Part:
    """Return the Part of what is no tensor, from its canonical JSON."""
    computed = semantics(value)
    return Part(
        content,
        None if computed is None else _unless_same(computed, value, content),
        _unless_same(family_of(value), value, content),
        is_buildable(value),
        tuple(map(facts_of, tensor_specs(value))),
    )


def is_buildable(value: Value) -> bool:
    """Tell whether a replay has all that it takes to make ``value`` anew."""
    return all(obstacle(path, part) is None for path, part in walk(value))


def tensor_parts(spec: TensorSpec, data: Json) -> TensorParts:
    """Return the Parts of a tensor, whose canonical form is ``data``."""
    content = data["$tensor"]
    placement = dict(content["placement"])
    has_device = isinstance(spec.placement, TtnnPlacement)
    device = placement.pop("device") if has_device else None
    # The number of the device comes first, in the order of the alphabet.
    text = write(placement)[1:] if has_device else write(placement)
    return TensorParts(
        _before(spec.dtype),
        text,
        _after(spec.shape),
        device,
        has_device,
        is_buildable(spec),
        (facts_of(spec),),
        spec.identity,
        spec.storage,
    )


class WrittenParts:
    """Makes Parts of what was written as JSON, which may be spelled in any way that is valid."""

    __slots__ = ("_known", "_sorts")

    def __init__(self) -> None:
        self._known: dict[str, Part] = {}
        self._sorts: dict[str, _Sort] = {}

    def part(self, data: Json) -> Part:
        """Return the Part of a value; BadData when it is none."""
        text = write(data)
        part = self._known.get(text)
        if part is None:
            value = decode(data)
            loose = isinstance(value, TensorSpec) or _LOOSE.search(text)
            part = part_of(value) if loose else _other_part(value, text)
            self._known[text] = part
        return part

    def tensor(self, data: Json) -> TensorParts:
        """Return the Parts of a tensor; BadData when it is none."""
        if not _is_usual(data):
            return self._tensor_anew(data)
        content = data["$tensor"]
        placement = content["placement"]
        key = write({**placement, "padded_shape": None})
        sort = self._sorts.get(key)
        if sort is None:
            # Only what is as a whole valid and canonical gives a pattern for others.
            parts = self._tensor_anew(data)
            if not _LOOSE.search(key):
                self._sorts[key] = _sort(key, parts)
            return parts
        shape, dtype = content["shape"], content["dtype"]
        padded = ",".join(map(str, placement["padded_shape"]))
        name = searchable(dtype.rpartition(".")[2])
        return TensorParts(
            _before(dtype),
            f"{sort.before_padded}[{padded}]{sort.after_padded}",
            _after(shape),
            sort.device,
            has_device=True,
            replayable=sort.replayable,
            facts=(Facts(by(shape), name, sort.layout, sort.memory, sort.mesh),),
            identity=content["identity"],
            storage=content["storage"],
        )

    def _tensor_anew(self, data: Json) -> TensorParts:
        spec = decode(data)
        if not isinstance(spec, TensorSpec):
            raise BadData((Fault("$", "a value that is no tensor is used as one"),))
        return tensor_parts(spec, encode(spec))


def _sort(key: str, parts: TensorParts) -> _Sort:
    """Return what a tensor has in common with others; ``key`` has null for the padded shape.

    The last such null is the tensor's own, since what follows it holds no other names.
    """
    before, _, after = key.rpartition(f"{_PADDED}null")
    device = "null" if parts.device is None else str(parts.device)
    (facts,) = parts.facts
    return _Sort(
        before.removeprefix(f'{{"device":{device},') + _PADDED,
        after,
        parts.device,
        facts.layout,
        facts.memory,
        facts.mesh,
        parts.replayable,
    )


def _is_usual(data: Json) -> bool:
    """Tell whether data is a ttnn tensor as far as its names, numbers and sizes go."""
    content = data.get("$tensor") if type(data) is dict else None
    if type(content) is not dict or len(data) != 1 or content.keys() != _TENSOR:
        return False
    placement, dtype = content["placement"], content["dtype"]
    if type(placement) is not dict or placement.get("kind") != "ttnn":
        return False
    sizes = (content["shape"], placement.get("padded_shape"))
    numbers = [content["identity"], content["storage"]]
    return type(dtype) is str and dtype.isascii() and all(map(_are_sizes, (*sizes, numbers)))


def _are_sizes(data: Json) -> bool:
    return type(data) is list and all(type(size) is int and 0 <= size < _MAX_SIZE for size in data)


def _before(dtype: str) -> str:
    return f'{{"$tensor":{{"dtype":{write(dtype)},"identity":'


def _after(shape: Sequence[int]) -> str:
    return f',"shape":[{",".join(map(str, shape))}],"storage":'


def _unless_same(form: Value, value: Value, content: str) -> str:
    return content if form == value else write(encode(form))


_MOST_KNOWN: Final = 8192


def described(op: str, parts: Iterable[tuple[str, Part]]) -> DescribedCase:
    """Return the Case of these arguments, which are in the order of their names."""
    content, semantic, family = [], [], []
    tensors: list[TensorFacts] = []
    replayable = True
    for name, part in parts:
        before = f"{_name(name)}:"
        content.append(before + part.content)
        family.append(before + part.family)
        if part.semantic is not None:
            semantic.append(before + part.semantic)
        replayable = replayable and part.replayable
        for facts in part.tensors:
            tensors.append(TensorFacts(len(tensors), searchable(name), *facts))
    end = _end(op)
    whole = _whole(content, end)
    return DescribedCase(
        case_id=_hash(whole),
        semantic_id=_hash(_whole(semantic, end)),
        family_id=_hash(_whole(family, end)),
        op=op,
        replayable=replayable,
        content=whole,
        tensors=tuple(tensors),
    )


def case_id_of(op: str, parts: Iterable[tuple[str, Part]]) -> str:
    """Return the case_id that ``described`` gives, and nothing else of it."""
    content = [f"{_name(name)}:{part.content}" for name, part in parts]
    return _hash(_whole(content, _end(op)))


def describe_case(case: Case) -> DescribedCase:
    """Return a Case as a trove keeps it; BadData for what no reader would accept."""
    return described(case.op, ((name, part_of(value)) for name, value in case.arguments))


class Descriptions:
    """Describes many Cases; arguments that repeat are made a Part once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Value, Part] = {}

    def of(self, case: Case) -> DescribedCase:
        """Return what ``describe_case`` does."""
        return described(case.op, [(name, self.part(value)) for name, value in case.arguments])

    def part(self, value: Value) -> Part:
        """Return what ``part_of`` does."""
        part = self._known.get(value)
        if part is None:
            part = part_of(value)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[value] = part
        return part


def case_of(content: str) -> Case:
    """Return the Case whose content this is; BadData names every fault with its path."""
    data = read(content)
    faults: Faults = []
    if type(data) is not dict:
        raise bad_data([Fault("$", f"expected an object, found {found(data)}")])
    check_keys(data, "$", faults, ("arguments", "op"))
    op = read_name(data.get("op"), "$.op", faults)
    arguments = data.get("arguments")
    if type(arguments) is not dict:
        faults.append(Fault("$.arguments", f"expected an object, found {found(arguments)}"))
        arguments = {}
    named = [
        (name, read_value(item, f"$.arguments{key_step(name)}", faults))
        for name, item in arguments.items()
    ]
    if faults:
        raise bad_data(faults)
    return Case(op, tuple(named))


@lru_cache(maxsize=4096)
def _name(text: str) -> str:
    return write(text)


def _end(op: str) -> str:
    return f'}},"op":{_name(op)}}}'


def _whole(arguments: list[str], end: str) -> str:
    return f'{{"arguments":{{{",".join(arguments)}{end}'


def _hash(text: str) -> str:
    return sha256(text.encode("ascii")).hexdigest()
