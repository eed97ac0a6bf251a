"""JSON text to Python builtins and back, with the limits that keep it the same everywhere."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final, TypeAlias

from optrove.errors import BadData, Fault

Json: TypeAlias = Any
"""What ``json`` can write: None, bool, int, float, str, and lists and dicts of these."""

MAX_INT_BITS: Final = 2000
"""How large a whole number may be. Python refuses to read or write numbers in decimal beyond a
limit that the user may change, but never below 640 digits; 2000 bits stay within it (603)."""


def write(data: Json) -> str:
    """Return the one ASCII spelling of ``data``: sorted keys, no spaces."""
    return _ENCODER.encode(data)


def read(text: str | bytes) -> Json:
    """Return what ``text`` says; BadData when it is not valid JSON in UTF-8.

    Stricter than ``json.loads``: no NaN or Infinity, no object with the same key twice, no
    byte order mark, no encoding but UTF-8.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        return _DECODER.decode(decoded)
    except UnicodeDecodeError as error:
        raise _bad(f"not UTF-8 at byte {error.start}: {error.reason}; save it as UTF-8") from error
    except json.JSONDecodeError as error:
        raise _bad(
            f"not JSON at character {error.pos + 1}: {error.msg}; is the text complete?"
        ) from error
    except RecursionError as error:
        raise _bad("nested too deeply to be read; nothing that optrove writes is") from error
    except ValueError as error:
        raise _bad(f"not readable: {error}") from error


def _bad(problem: str) -> BadData:
    return BadData((Fault("$", problem),))


def _refuse_constant(name: str) -> Json:
    raise ValueError(f'{name} is not JSON; write {{"$float": "nan"}}, "inf" or "-inf"')


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"an object has the key {twice!a} twice; keep one of them")
    return found


# Made once: to make them anew for each text takes as long as a short text does.
_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=True, sort_keys=True, separators=(",", ":"), allow_nan=False
)
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique)
