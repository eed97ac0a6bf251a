"""JSON text, its limits, and readers of typed parts that note faults with their paths.

A reader takes the data, its path and the list of faults. When the data is wrong it adds to the
list and returns a harmless value, so that reading goes on and finds the other faults too. The
caller raises BadData at the end if the list is not empty.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from optrove.errors import BadData, Fault
from optrove.model.values import key_step

Json: TypeAlias = Any
"""None, bool, int, float, str, and lists and dicts of these."""

MAX_INT_BITS: Final = 2000
"""The limit for whole numbers. Python refuses to read or write decimal numbers beyond a limit
that the user may lower to 640 digits; 2000 bits have 603."""


_LOOKED_AT: Final = 4096
_OF_TEXT: Final = b"\t\n\v\f\r" + bytes(range(0x20, 0x100))
"""All bytes but control characters, which no text in any encoding of one byte has."""


def write(data: Json) -> str:
    """Return the one ASCII spelling of ``data``: sorted keys, no spaces."""
    return _ENCODER.encode(data)


def read(text: str | bytes) -> Json:
    """Return the data that ``text`` spells; BadData when it is not valid JSON in UTF-8.

    Stricter than ``json.loads``: no NaN or Infinity, no object with the same key twice, no
    byte order mark, no encoding but UTF-8.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        return _DECODER.decode(decoded)
    except UnicodeDecodeError as error:
        raise BadData.at("$", not_text(error)) from error
    except json.JSONDecodeError as error:
        raise BadData.at(
            "$", f"not JSON at character {error.pos + 1}: {error.msg}; is the text complete?"
        ) from error
    except RecursionError as error:
        raise BadData.at(
            "$", "nested too deeply to be read; nothing that optrove writes is"
        ) from error
    except ValueError as error:
        raise BadData.at("$", f"not readable: {error}") from error


def not_text(error: UnicodeDecodeError) -> str:
    """Return what is wrong with bytes that are not UTF-8: another encoding, or no text at all."""
    data = error.object
    if data.startswith((BOM_UTF16_BE, BOM_UTF16_LE)):
        return "text in UTF-16; save it as UTF-8"
    if data[:_LOOKED_AT].translate(None, _OF_TEXT):
        return "a binary file and no text; is this the right file?"
    return f"not UTF-8 at byte {error.start}: {error.reason}; save it as UTF-8"


def _refuse_constant(name: str) -> Json:
    raise ValueError(f'{name} is not JSON; write {{"$float": "nan"}}, "inf" or "-inf"')


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"an object has the key {twice!a} twice; keep one of them")
    return found


# Created once: creating them takes as long as encoding a short text.
_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=True, sort_keys=True, separators=(",", ":"), allow_nan=False
)
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique)


Faults: TypeAlias = list[Fault]
T = TypeVar("T")
Reader: TypeAlias = Callable[[Json, str, Faults], T]

_MAX_CHARS = 60
_USUAL = 1 << 62


def found(data: Json) -> str:
    """Return a short description of ``data`` for an error message."""
    kinds = {type(None): "null", dict: "an object", list: "a list"}
    kind = kinds.get(type(data))
    if kind is not None:
        return kind
    if type(data) is int and data.bit_length() > MAX_INT_BITS:
        return f"a number of {data.bit_length()} bits"
    if type(data) in (bool, int, float, str):
        text = ascii(data if type(data) is not str else data[:_MAX_CHARS])
        return text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + "..."
    return f"a Python object of type {type(data).__name__}"


def read_text(data: Json, path: str, faults: Faults) -> str:
    """Read a string of any content."""
    if type(data) is str:
        return data
    faults.append(Fault(path, f"expected a string, found {found(data)}"))
    return ""


def read_name(data: Json, path: str, faults: Faults) -> str:
    """Read a name: a string of valid Unicode."""
    text = read_text(data, path, faults)
    check_name(text, path, faults)
    return text


def check_name(text: str, path: str, faults: Faults) -> None:
    """Note a fault when ``text`` holds a surrogate, which no name does."""
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        faults.append(Fault(path, f"the name {found(text)} is not valid Unicode"))


def read_bool(data: Json, path: str, faults: Faults) -> bool:
    """Read true or false, and nothing that Python would take for them."""
    if type(data) is bool:
        return data
    faults.append(Fault(path, f"expected true or false, found {found(data)}"))
    return False


def read_integer(data: Json, path: str, faults: Faults) -> int:
    """Read a whole number within the limit."""
    if type(data) is not int:
        faults.append(Fault(path, f"expected a whole number, found {found(data)}"))
        return 0
    if data.bit_length() > MAX_INT_BITS:
        faults.append(Fault(path, f"{found(data)}; the limit is {MAX_INT_BITS} bits"))
        return 0
    return data


def read_count(data: Json, path: str, faults: Faults) -> int:
    """Read a whole number that is not negative."""
    number = read_integer(data, path, faults)
    if number < 0:
        faults.append(Fault(path, f"expected zero or more, found {number}"))
    return number


def read_items(data: Json, path: str, faults: Faults, item: Reader[T]) -> tuple[T, ...]:
    """Read a list whose items are all read by ``item``."""
    if type(data) is not list:
        faults.append(Fault(path, f"expected a list, found {found(data)}"))
        return ()
    return tuple([item(each, f"{path}[{index}]", faults) for index, each in enumerate(data)])


def read_counts(data: Json, path: str, faults: Faults) -> tuple[int, ...]:
    """Read a list of whole numbers that are not negative."""
    # Shapes and coordinates are the bulk of what is read, and are hardly ever wrong.
    if type(data) is list and all(type(each) is int and 0 <= each <= _USUAL for each in data):
        return tuple(data)
    return read_items(data, path, faults, read_count)


def list_of(item: Reader[T]) -> Reader[tuple[T, ...]]:
    """Return a reader of lists whose items are all read by ``item``."""
    return lambda data, path, faults: read_items(data, path, faults, item)


def pair_of(item: Reader[T]) -> Reader[tuple[T, ...]]:
    """Return a reader of lists of exactly two items."""

    def read_pair(data: Json, path: str, faults: Faults) -> tuple[T, ...]:
        items = read_items(data, path, faults, item)
        if type(data) is list and len(items) != len(("first", "second")):
            faults.append(Fault(path, f"expected two items, found {len(items)}"))
        return items

    return read_pair


def optional(item: Reader[T]) -> Reader[T | None]:
    """Return a reader that takes null, or data for ``item``."""
    return lambda data, path, faults: None if data is None else item(data, path, faults)


def read_object(
    data: Json, path: str, faults: Faults, readers: Mapping[str, Reader[Any]]
) -> dict[str, Any] | None:
    """Read an object that has exactly the keys of ``readers``; None when its keys differ."""
    if type(data) is not dict:
        faults.append(Fault(path, f"expected an object, found {found(data)}"))
        return None
    if data.keys() != readers.keys():
        check_keys(data, path, faults, readers.keys())
        present = {key: reader for key, reader in readers.items() if key in data}
        for key, reader in present.items():
            reader(data[key], path + key_step(key), faults)
        return None
    return {key: reader(data[key], path + key_step(key), faults) for key, reader in readers.items()}


def check_keys(data: dict[Any, Json], path: str, faults: Faults, expected: Collection[str]) -> None:
    """Note missing and unknown keys of ``data``."""
    missing = [key for key in expected if key not in data]
    if missing:
        faults.append(Fault(path, f"missing {', '.join(missing)}"))
    extra = [found(key) for key in data if key not in expected]
    if extra:
        known = ", ".join(expected)
        faults.append(Fault(path, f"unknown key {', '.join(extra)}; known here: {known}"))
