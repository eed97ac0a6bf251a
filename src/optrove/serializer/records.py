"""Records to JSON-able builtins and back, checked strictly and with every fault named.

cattrs does the walking. What it would silently turn into something else (``"3"`` into 3, a string
into a tuple of letters) is refused by the hooks here. Fields that have their default value are
left out, so the defaults are part of the format: changing one needs a new version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar, cast, get_args, get_origin

from cattrs import BaseValidationError, ClassValidationError, Converter, IterableValidationError
from cattrs.errors import ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn

from optrove.errors import BadData, Fault
from optrove.model.case import Case, NamedValues
from optrove.model.records import Attempt, Call, Job, Plan, Query, Run, Sweep, TestResult
from optrove.model.values import Float, Value, key_step
from optrove.serializer.text import (
    Faults,
    Json,
    Reader,
    check_name,
    found,
    read_bool,
    read_integer,
    read_text,
)
from optrove.serializer.wire import encode, read_value

Record: TypeAlias = Case | Run | TestResult | Call | Job | Plan | Attempt | Query | Sweep
R = TypeVar("R")

KINDS: Final[dict[str, type[Any]]] = {
    "case": Case,
    "run": Run,
    "test_result": TestResult,
    "call": Call,
    "job": Job,
    "plan": Plan,
    "attempt": Attempt,
    "query": Query,
}
"""What each record is called where it is written."""

KIND_OF: Final[dict[type[Any], str]] = {record: kind for kind, record in KINDS.items()}

_Hook: TypeAlias = Callable[[Json, Any], Any]


def record_to_builtins(record: Record) -> dict[str, Json]:
    """Return ``record`` as JSON-able builtins."""
    return cast("dict[str, Json]", _converter().unstructure(record))


def record_from_builtins(data: Json, kind: type[R]) -> R:
    """Return the record of ``kind`` that ``data`` spells; BadData names every fault."""
    try:
        return _converter().structure(data, kind)
    except (BadData, BaseValidationError) as error:
        raise BadData(tuple(_faults(error, "$"))) from error


def _faults(error: Exception, path: str) -> Iterator[Fault]:
    """Yield the faults that cattrs has collected, each with its full path."""
    if isinstance(error, ClassValidationError):
        named, others = error.group_exceptions()
        for each, note in named:
            yield from _faults(each, path + key_step(note.name))
        for other in others:
            yield from _faults(other, path)
    elif isinstance(error, IterableValidationError):
        indexed, others = error.group_exceptions()
        for each, place in indexed:
            yield from _faults(each, f"{path}[{place.index}]")
        for other in others:
            yield from _faults(other, path)
    elif isinstance(error, BadData):
        # Hooks see a part of the record and say where within it the fault is.
        yield from (Fault(path + fault.path[1:], fault.problem) for fault in error.faults)
    else:
        yield Fault(path, _problem(error))


def _problem(error: Exception) -> str:
    if isinstance(error, KeyError):
        return "missing"
    if isinstance(error, ForbiddenExtraKeysError):
        known = ", ".join(field.name for field in fields(error.cl))
        extra = ", ".join(found(key) for key in sorted(error.extra_fields))
        return f"unknown key {extra}; known here: {known}"
    return str(error)


@cache
def _converter() -> Converter:
    converter = Converter(detailed_validation=True)
    converter.register_structure_hook_factory(_is_record, lambda kind: _read_class(converter, kind))
    converter.register_unstructure_hook_factory(
        _is_record,
        lambda kind: make_dict_unstructure_fn(kind, converter, _cattrs_omit_if_default=True),
    )
    for kind, reader in ((str, read_text), (bool, read_bool), (int, read_integer)):
        converter.register_structure_hook(kind, _checked(reader))
    converter.register_structure_hook(float, _checked(_read_float))
    converter.register_unstructure_hook(float, lambda number: encode(Float(number)))
    converter.register_structure_hook_func(_is_enum, _read_enum)
    converter.register_structure_hook_factory(_is_tuple, lambda kind: _read_tuple(converter, kind))
    converter.register_unstructure_hook_factory(
        _is_tuple, lambda kind: _write_tuple(converter, kind)
    )
    converter.register_structure_hook_func(_is_named_values, _checked(_read_named_values))
    converter.register_unstructure_hook_func(
        _is_named_values, lambda named: {name: encode(value) for name, value in named}
    )
    converter.register_structure_hook_func(lambda kind: kind == Value, _checked(read_value))
    converter.register_unstructure_hook_func(lambda kind: kind == Value, encode)
    return converter


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _is_named_values(kind: Any) -> bool:
    return bool(kind == NamedValues)


def _checked(reader: Reader[Any]) -> _Hook:
    """Return a cattrs hook that reads with ``reader`` and raises what it notes."""

    def hook(data: Json, _: Any) -> Any:
        faults: Faults = []
        result = reader(data, "$", faults)
        if faults:
            raise BadData(tuple(faults))
        return result

    return hook


def _read_float(data: Json, path: str, faults: Faults) -> float:
    value = read_value(data, path, faults) if type(data) in (float, dict) else None
    if isinstance(value, Float):
        return value.value
    if not faults:
        faults.append(Fault(path, f"expected a floating-point number, found {found(data)}"))
    return 0.0


def _read_named_values(data: Json, path: str, faults: Faults) -> NamedValues:
    if type(data) is not dict:
        faults.append(Fault(path, f"expected an object, found {found(data)}"))
        return ()
    named = []
    for key, item in data.items():
        name = read_text(key, path, faults)
        where = path + key_step(name)
        check_name(name, where, faults)
        named.append((name, read_value(item, where, faults)))
    return tuple(named)


def _read_enum(data: Json, kind: type[Enum]) -> Enum:
    members = {member.value: member for member in kind}
    if type(data) is not str or data not in members:
        known = ", ".join(members)
        raise BadData((Fault("$", f"expected one of {known}; found {found(data)}"),))
    return members[data]


def _read_class(converter: Converter, kind: type[Any]) -> _Hook:
    read_fields = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True)

    def hook(data: Json, _: Any) -> Any:
        if type(data) is not dict or not all(type(key) is str for key in data):
            raise BadData((Fault("$", f"expected an object, found {found(data)}"),))
        return read_fields(data, kind)

    return hook


def _item_kinds(kind: Any) -> tuple[Any, ...] | None:
    """Return the kinds of a tuple with a fixed number of items; None for one of any length."""
    kinds = get_args(kind)
    return None if kinds[-1] is Ellipsis else kinds


def _read_tuple(converter: Converter, kind: Any) -> _Hook:
    fixed = _item_kinds(kind)

    def hook(data: Json, _: Any) -> tuple[Any, ...]:
        if type(data) is not list:
            raise BadData((Fault("$", f"expected a list, found {found(data)}"),))
        if fixed is not None and len(data) != len(fixed):
            raise BadData((Fault("$", f"expected {len(fixed)} items, found {len(data)}"),))
        kinds = fixed or (get_args(kind)[0],) * len(data)
        faults: Faults = []
        pairs = enumerate(zip(data, kinds, strict=True))
        items = [_read_item(converter, item, f"$[{index}]", faults) for index, item in pairs]
        if faults:
            raise BadData(tuple(faults))
        return tuple(items)

    return hook


def _read_item(converter: Converter, item: tuple[Json, Any], path: str, faults: Faults) -> Any:
    try:
        return converter.structure(*item)
    except (BadData, BaseValidationError) as error:
        faults.extend(_faults(error, path))
        return None


def _write_tuple(converter: Converter, kind: Any) -> Callable[[Any], list[Json]]:
    fixed = _item_kinds(kind)

    def hook(items: tuple[Any, ...]) -> list[Json]:
        kinds = fixed or (get_args(kind)[0],) * len(items)
        return [
            converter.unstructure(item, item_kind)
            for item, item_kind in zip(items, kinds, strict=True)
        ]

    return hook
