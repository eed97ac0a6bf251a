"""Read whole JSON documents that other programs wrote, and speak about what is wrong in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from optrove.codec.reading import found
from optrove.errors import BadData, Fault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.codec.text import Json

MOST_FAULTS: Final = 100
"""How many faults of one file are listed."""


def parse(text: bytes) -> Json:
    """Return what a document says; BadData with the line and column when it is not JSON.

    Unlike ``codec.text.read`` this takes NaN and Infinity, which Python's own ``json`` writes. A
    key that an object has twice is refused, since one of its values would be lost.
    """
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise bad("$", f"not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise bad("$", f"not JSON at {where}: {error.msg}; is the file complete?") from error
    except RecursionError as error:
        raise bad("$", "nested too deeply to be read; is this the right file?") from error
    except ValueError as error:
        raise bad("$", f"not readable: {error}") from error


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"an object has the key {twice!a} twice; keep one of them")
    return made


def bad(path: str, problem: str) -> BadData:
    """Return the error with this one fault."""
    return BadData((Fault(path, problem),))


def bad_data(faults: Iterable[Fault]) -> BadData:
    """Return the error with these faults; of very many only the first, and how many more."""
    listed = tuple(faults)
    if len(listed) > MOST_FAULTS:
        rest = Fault("$", f"{len(listed) - MOST_FAULTS} more faults are not listed")
        listed = (*listed[:MOST_FAULTS], rest)
    return BadData(listed)


def expected(what: str, path: str, data: Json) -> Fault:
    """Return the fault of ``data`` that should have been something else."""
    return Fault(path, f"expected {what}, found {found(data)}")
