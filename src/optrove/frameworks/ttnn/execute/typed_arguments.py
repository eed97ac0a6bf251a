"""Convert recorded values to the types that the signature of an operation asks for.

Files of other programs leave some values unconverted: a member of an enumeration as text
(``CACHE``), ``nullopt`` as text, 0 and 1 for a switch, a configuration as a plain dictionary. The
annotation of the parameter says what was passed. A value that has a type of the annotation is never
changed, and neither is one that no rule converts.
"""

from __future__ import annotations

import re
from ast import literal_eval
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from optrove.frameworks.ttnn.convert.configs import constructors
from optrove.frameworks.ttnn.convert.table import find
from optrove.model.values import (
    Bool,
    Float,
    Int,
    List,
    Mapping,
    Null,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    Tuple,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

_NULLS: Final = frozenset({"nullopt", "std::nullopt", "None", "null"})
_TRUTHS: Final = {"true": True, "false": False, "1": True, "0": False}
_TAKEN_BY: Final[dict[type, set[str]]] = {
    Null: {"None"},
    Text: {"str"},
    Bool: {"bool", "int", "float"},
    Int: {"int", "float"},
    Float: {"float"},
}
"""The annotations that take a plain value as it is."""

_PATH: Final = re.compile(r"[A-Za-z_][\w.]*\.(\w+)")
_ITEMS: Final = re.compile(r"collections\.abc\.(?:Sequence|Set)\[(.*)\]\Z")


@dataclass(frozen=True, slots=True)
class ArgumentTypes:
    """The classes that annotations name: the members of enumerations, the fields of others."""

    members: dict[str, tuple[str, frozenset[str]]]
    """Our name and the members of an enumeration, by its path in annotations."""
    fields: dict[str, tuple[str, frozenset[str]]]
    """Our name and the constructor's parameters of a class, by its path in annotations."""

    @classmethod
    def of(cls, ttnn: ModuleType) -> ArgumentTypes:
        """Return the classes of the loaded ttnn."""
        classes = find(ttnn)
        members = {
            f"{kind.__module__}.{kind.__qualname__}": (name, frozenset(_members(kind)))
            for kind, name in classes.enums.items()
        }
        fields = {
            f"{kind.__module__}.{kind.__qualname__}": (
                name,
                frozenset().union(*(each.names for each in constructors(kind))),
            )
            for kind, name in classes.values.items()
        }
        return cls(members, fields)

    def member(self, annotation: str, text: str) -> Symbol | None:
        """Return the member that ``text`` names of an enumeration in the annotation."""
        head, _, name = text.replace("::", ".").rpartition(".")
        for path in _PATH.finditer(annotation):
            known, members = self.members.get(path[0], ("", frozenset()))
            if name in members and head.rpartition(".")[2] in ("", path[1]):
                return Symbol(known, name)
        return None

    def converted(self, value: Value, annotations: Iterable[str]) -> Value:
        """Return a value as the first of these annotations takes it, or as it is."""
        listed = list(annotations)
        if not listed or any(self.fits(value, annotation) for annotation in listed):
            return value
        found = (self._converted(value, annotation) for annotation in listed)
        return next((each for each in found if each is not None), value)

    def fits(self, value: Value, annotation: str) -> bool:
        """Return whether a value has a type of the annotation, as far as that can be known."""
        kinds = _alternatives(annotation)
        if "object" in kinds or type(value) in _TAKEN_BY:
            return bool(kinds & {"object", *_TAKEN_BY.get(type(value), ())})
        match value:
            case Mapping():
                return "dict" in annotation or "Mapping" in annotation
            case TensorSpec():
                return "Tensor" in annotation.replace("tensor.", "")
            case Symbol(name, _):
                paths = [path[0] for path in _PATH.finditer(annotation)]
                return not paths or any(
                    self.members.get(path, (name,))[0] == name for path in paths
                )
            case List(items) | Tuple(items):
                rows = _item_annotations(annotation)
                if not rows:
                    return not all(map(_is_single, kinds))
                return any(all(self.fits(item, row) for item in items) for row in rows)
            case Struct():
                return self._as_annotated(value, annotation) is None
        return True

    def _converted(self, value: Value, annotation: str) -> Value | None:
        kinds = _alternatives(annotation)
        match value:
            case Text(text):
                return self._from_text(text, annotation, kinds)
            case Int(0 | 1 as number) if "bool" in kinds:
                return Bool(value=number == 1)
            case Float(number) if "int" in kinds and number.is_integer():
                return Int(int(number))
            case Symbol(_, name):
                return self.member(annotation, name)
            case Mapping(entries):
                return self._from_mapping(entries, annotation)
            case Struct():
                return self._as_annotated(value, annotation)
            case List(items) | Tuple(items):
                for row in _item_annotations(annotation):
                    made = type(value)(tuple(self.converted(item, [row]) for item in items))
                    if self.fits(made, annotation):
                        return made
        return None

    def _as_annotated(self, value: Struct, annotation: str) -> Struct | None:
        """Return an object as one of the only class in the annotation, if it has its fields.

        Files have a grid of cores in the form of a core, for example. None if the object has a
        class of the annotation already, or if there are several to choose from.
        """
        known = [self.fields[each] for each in _alternatives(annotation) if each in self.fields]
        names = {name for name, _ in value.fields}
        if len(known) == 1 and known[0][0] != value.type and known[0][1] == names:
            return Struct(known[0][0], value.fields)
        return None

    def _from_text(self, text: str, annotation: str, kinds: frozenset[str]) -> Value | None:
        if text in _NULLS and "None" in kinds:
            return Null()
        if text.startswith(("[", "(")) and ("Sequence" in annotation or "Shape" in annotation):
            return _row(text)
        if "bool" in kinds and text.lower() in _TRUTHS:
            return Bool(value=_TRUTHS[text.lower()])
        for kind, make in (("int", lambda word: Int(int(word))), ("float", _float)):
            if kind in kinds:
                try:
                    return make(text)
                except ValueError:
                    pass
        return self.member(annotation, text)

    def _from_mapping(
        self, entries: frozenset[tuple[Value, Value]], annotation: str
    ) -> Struct | None:
        """Return a dictionary as an object of the class whose parameters are its keys."""
        named = {key.value: item for key, item in entries if isinstance(key, Text)}
        kind = named.pop("type", Null())
        for path in _PATH.finditer(annotation):
            known, fields = self.fields.get(path[0], ("", frozenset()))
            wanted = not isinstance(kind, Text) or kind.value == path[1]
            if named and wanted and len(named) >= len(entries) - 1 and named.keys() <= fields:
                return Struct(known, tuple(named.items()))
        return None


def _float(text: str) -> Value:
    return Float(float(text))


def _row(text: str) -> Value | None:
    """Return the list of numbers that a text shows, such as ``[1, 32]``; None if it shows none."""
    try:
        return _numbers(literal_eval(text))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _numbers(data: object) -> Value:
    match data:
        case list() | tuple():
            return List(tuple(map(_numbers, data)))
        case bool():
            return Bool(data)
        case int():
            return Int(data)
        case float():
            return Float(data)
    raise ValueError(f"{data!r} is not a number")


def _is_single(kind: str) -> bool:
    """Return whether a type takes one value, never a row of them."""
    return kind in ("int", "float", "bool", "str", "None") or kind.endswith((".Tensor", "Config"))


def _members(kind: type) -> Iterable[str]:
    return getattr(kind, "__members__", {}).keys()


@lru_cache(maxsize=1024)  # more than ttnn has: every replayed call asks for those of its op
def _alternatives(annotation: str) -> frozenset[str]:
    """Return the parts of an annotation outside of brackets: those of ``a | b[c | d]`` are two."""
    parts, depth, start = [], 0, 0
    for place, sign in enumerate(annotation):
        depth += (sign in "[(") - (sign in "])")
        if sign == "|" and depth == 0:
            parts.append(annotation[start:place].strip())
            start = place + 1
    return frozenset({*parts, annotation[start:].strip()})


def _item_annotations(annotation: str) -> list[str]:
    """Return the annotations of the items of each kind of row that an annotation has."""
    return [match[1] for kind in _alternatives(annotation) if (match := _ITEMS.match(kind))]
