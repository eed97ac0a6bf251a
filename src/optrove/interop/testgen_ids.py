"""Give cases ids that people can read, each once: ``1x1x32x512-bfloat8_b-L1_WIDTH_SHARDED``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from optrove.model.values import (
    Bool,
    Float,
    FrozenSet,
    Int,
    List,
    Null,
    Set,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    TtnnPlacement,
    Tuple,
    Value,
)
from optrove.model.walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from optrove.interop.testgen_cases import Recorded

_LONGEST: Final = 76
_CASE: Final = 8
_ODD: Final = re.compile(r"[^\w.=+-]+")
_MOST_ITEMS: Final = 6


def ids_of(cases: Sequence[Recorded], names: Mapping[str, str]) -> list[str]:
    """Return an id for each case of a group; ``names`` says what its arguments go by, in order.

    An id tells of the first tensor all, and of everything else what varies in the group. Where
    that is too long, or does not keep two cases apart, the beginning of the case's own id follows.
    """
    told = [_facts(each, names) for each in cases]
    varying = {key for facts in told for key in facts if _varies(key, told)}
    first = next(iter(told[0]), "").partition(" ")[0] if told and told[0] else ""
    found = []
    for facts in told:
        shown = [_part(key, facts[key]) for key in facts if key in varying or _of(key) == first]
        found.append(_ODD.sub("_", "-".join(filter(None, shown))).strip("_"))
    if len(set(found)) == len(found) and all(each and len(each) <= _LONGEST for each in found):
        return found
    return [
        f"{_shortened(each)}-{case.case_id[:_CASE]}"
        for each, case in zip(found, cases, strict=True)
    ]


def _of(key: str) -> str:
    return key.partition(" ")[0]


def _varies(key: str, told: Iterable[dict[str, str]]) -> bool:
    return len({facts.get(key) for facts in told}) > 1


def _part(key: str, text: str) -> str:
    """Return one fact; what is no property of a tensor needs the name of its argument."""
    name, _, aspect = key.partition(" ")
    return text if aspect or not text else f"{name}={text}"


def _shortened(text: str) -> str:
    most = _LONGEST - _CASE - 1
    if len(text) <= most:
        return text
    return text[:most].rpartition("-")[0] or text[:most]


def _facts(recorded: Recorded, names: Mapping[str, str]) -> dict[str, str]:
    """Return all that can be told of a case, tensors by their properties, in order."""
    arguments = dict(recorded.case.arguments)
    tensors: dict[str, str] = {}
    others: dict[str, str] = {}
    for own_name, name in names.items():
        value = arguments.get(own_name)
        if value is None:
            continue
        specs = [part for _, part in walk(value) if isinstance(part, TensorSpec)]
        for place, spec in enumerate(specs[:_MOST_ITEMS]):
            for aspect, text in _properties(spec).items():
                tensors[f"{name} {place} {aspect}"] = text
        if not specs:
            others[name] = short(value)
    return {**tensors, **others}


def _properties(spec: TensorSpec) -> dict[str, str]:
    facts = {
        "shape": "x".join(map(str, spec.shape)) or "scalar",
        "dtype": spec.dtype.rpartition(".")[2],
    }
    placement = spec.placement
    if isinstance(placement, TtnnPlacement):
        facts["layout"] = "" if placement.layout == "TILE" else placement.layout
        on_host = placement.storage == "host" or placement.memory is None
        facts["memory"] = "HOST" if on_host else short(placement.memory or Null())
    return facts


def short(value: Value) -> str:
    """Return a plain value in a few letters; not all of it is told."""
    match value:
        case Null():
            return "None"
        case Bool(plain) | Int(plain) | Float(plain) | Text(plain):
            return str(plain)
        case Symbol(name=name):
            return name
        case List(items) | Tuple(items):
            return _several(list(items))
        case Set(items) | FrozenSet(items):
            return _several(sorted(items, key=short))
        case Struct(kind, fields):
            return _struct(kind, fields)
    return ""


def _several(items: list[Value]) -> str:
    more = "" if len(items) <= _MOST_ITEMS else f"+{len(items) - _MOST_ITEMS}"
    return "x".join(map(short, items[:_MOST_ITEMS])) + more


def _struct(kind: str, fields: tuple[tuple[str, Value], ...]) -> str:
    match dict(fields):
        case {"buffer_type": Symbol(name=buffer), "memory_layout": Symbol(name=layout)}:
            return f"{buffer}_{layout}"
        case {"coords": coordinates} | {"shape": coordinates}:
            return short(coordinates)
    return kind.rpartition(".")[2]
