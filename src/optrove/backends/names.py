"""The names of classes and functions, and whether a name leads back to its owner.

Two different objects must never be recorded as one. A name stands for a class or function only
while the module that it names holds that very object under it; a wrapper that took over the name
of what it wraps, a class made within a function and one that was defined anew have none.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

_UNKNOWN: Final = "?"
# What ``type`` itself says, since a metaclass may answer anything, or raise.
_MODULE: Final = type.__dict__["__module__"]
_PATH: Final = type.__dict__["__qualname__"]
_CONTENT: Final = type.__dict__["__dict__"]


@dataclass(frozen=True, slots=True)
class Name:
    """Where a class or function says it is: a module, and the path within that module."""

    module: str
    path: str

    def spelled(self, separator: str) -> str:
        """Return module and path as one name, in valid Unicode."""
        text = f"{self.module}{separator}{self.path}"
        return text.encode("utf-8", "backslashreplace").decode("utf-8")

    def leads_to(self, live: Any) -> bool:
        """Tell whether this is where ``live`` is found; imports nothing, runs no code of others."""
        module = sys.modules.get(self.module)
        if not issubclass(type(module), ModuleType):
            return False
        space: Any = vars(module)
        found: Any = None
        for step in self.path.split("."):
            found = None if space is None else space.get(step)
            space = _CONTENT.__get__(found) if issubclass(type(found), type) else None
        return (found.__func__ if type(found) is staticmethod else found) is live


def class_name(kind: type) -> Name:
    """Return the name of a class; never raises."""
    return Name(_text(_MODULE.__get__(kind)), _text(_PATH.__get__(kind)))


def function_name(live: Any) -> Name:
    """Return the name of a function."""
    return Name(_text(live.__module__), _text(live.__qualname__))


def is_readable(name: str) -> bool:
    """Tell whether ``name`` is valid Unicode, which data can hold as a name."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _text(part: Any) -> str:
    return part if type(part) is str else _UNKNOWN
