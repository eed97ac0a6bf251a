"""Find where two values differ, whatever form they have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from operator import eq
from typing import Any, Final, TypeAlias

from optrove.model.values import key_step


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
"""Stands for a part that one of the two values does not have."""

Parts: TypeAlias = tuple[object, Mapping[Any, Any]]
"""The kind of a value, and its parts by name or index."""


def path_step(key: str | int) -> str:
    """Return the step of a path to a part: ``.name``, ``["odd name"]`` or ``[index]``."""
    return key_step(key) if isinstance(key, str) else f"[{key}]"


def differences(
    old: Any,
    new: Any,
    parts: Callable[[Any], Parts | None],
    *,
    path: str = "",
    step: Callable[[Any], str] = path_step,
    is_equal: Callable[[Any, Any], bool] = eq,
) -> list[tuple[str, Any, Any]]:
    """Return path, old part and new part of every place where two values differ.

    ``parts`` takes a value apart; it returns None for one that is compared as a whole. Two values
    of the same kind are compared part by part, all others as a whole.
    """
    found: list[tuple[str, Any, Any]] = []

    def compare(old: Any, new: Any, path: str) -> None:
        olds, news = parts(old), parts(new)
        if olds is None or news is None or olds[0] != news[0]:
            if not is_equal(old, new):
                found.append((path, old, new))
            return
        for key in olds[1] if olds[1].keys() == news[1].keys() else {**olds[1], **news[1]}:
            one, other = olds[1].get(key, ABSENT), news[1].get(key, ABSENT)
            if one is not other:
                compare(one, other, path + step(key))

    compare(old, new, path)
    return found


def json_parts(data: Any) -> Parts | None:
    """Return the parts of a JSON object or list; lists of different lengths are never alike."""
    if isinstance(data, dict):
        return dict, data
    return (len(data), dict(enumerate(data))) if isinstance(data, list) else None


def is_same_json(old: Any, new: Any) -> bool:
    """Return whether two JSON values are the same, where 1, 1.0 and true are three values."""
    # The first comparison is quick and sees most differences; the second one distinguishes those.
    return old == new and repr(old) == repr(new)
