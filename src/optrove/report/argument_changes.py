"""Tell in which parts the arguments of two cases differ, each part as text for people."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, get_args

from optrove.model.values import List, Mapping, Struct, TensorSpec, Text, Tuple, Value
from optrove.model.walk import key_step
from optrove.report.describe import drawn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.model.case import Case

NOT_GIVEN: Final = "(not given)"

# They are drawn in a few letters, so that their parts would tell less than the whole.
_WHOLE: Final = frozenset({"ttnn.CoreCoord", "ttnn.CoreRange", "ttnn.CoreRangeSet", "ttnn.Shape"})
_KINDS: Final = get_args(Value)


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """A part of the arguments that differs, and how it reads in the one and the other."""

    path: str
    a: str
    b: str


def argument_changes(a: Case, b: Case) -> tuple[ArgumentChange, ...]:
    """Return every part that differs, in the order of the arguments' names."""
    return tuple(_between(dict(a.arguments), dict(b.arguments), ""))


def _between(a: dict[str, Any], b: dict[str, Any], path: str) -> Iterator[ArgumentChange]:
    for name in sorted(a.keys() | b.keys()):
        step = name if name.startswith("[") else key_step(name)
        here = (path + step).removeprefix(".")
        if name not in a or name not in b:
            texts = (_text(side[name]) if name in side else NOT_GIVEN for side in (a, b))
            yield ArgumentChange(here, *texts)
        elif a[name] != b[name]:
            yield from _within(a[name], b[name], here)


def _within(a: Any, b: Any, path: str) -> Iterator[ArgumentChange]:
    ours, theirs = _parts(a), _parts(b)
    if type(a) is not type(b) or ours is None or theirs is None:
        yield ArgumentChange(path, _text(a), _text(b))
    else:
        yield from _between(ours, theirs, path)


def _parts(value: Any) -> dict[str, Any] | None:
    """Return the named parts of a value; None if it is compared as a whole."""
    match value:
        case TensorSpec():
            rest = {"shape": value.shape, "dtype": value.dtype, "identity": value.identity}
            return {**rest, "storage_number": value.storage, **_fields(value.placement)}
        case Struct(type_name, named):
            # A name for the type as well, so that two classes never look like one.
            return None if type_name in _WHOLE else {"type": type_name, **dict(named)}
        case List(items) | Tuple(items):
            return {f"[{place}]": item for place, item in enumerate(items)}
        case Mapping(items) if all(isinstance(key, Text) for key, _ in items):
            return {key.value: item for key, item in items if isinstance(key, Text)}
        case _ if is_dataclass(value) and not isinstance(value, _KINDS):
            return _fields(value)
        case _:
            return None


def _fields(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _text(part: Any) -> str:
    if isinstance(part, _KINDS):
        return drawn(part)
    if is_dataclass(part):
        inside = ", ".join(f"{name}={_text(item)}" for name, item in _fields(part).items())
        return f"{type(part).__name__}({inside})"
    return str(list(part)) if isinstance(part, tuple) else str(part)
