"""Find the line of user code that made a call, and its number.

Frames of the frameworks and of optrove itself do not count: a call that an operator or a
composite op made on behalf of the user belongs to the user's line.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.model.records import CallSite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

    from optrove.capture.numbering import Numbering

INTERNAL: Final = frozenset({"ttnn", "torch"})


class Sites:
    """The sites of one journal, by the id of a code object and the place of an instruction.

    ``by_code`` has None for code that is not the user's. By id, as hashing a code object takes
    long; all of them are kept, so that no other object gets their ids.
    """

    def __init__(self, numbering: Numbering) -> None:
        self.by_code: dict[int, dict[int, int] | None] = {}
        self._numbering = numbering
        self._kept: dict[int, CodeType] = {}
        self._own = (f"{Path(__file__).parents[1]}/", "<frozen")

    def number(self, frame: FrameType) -> int:
        """Return the number of the nearest user's line at or above ``frame``; 0 if none is."""
        users, instructions = self._nearest(frame)
        if users is None or instructions is None:
            return 0
        number = instructions.get(users.f_lasti)
        if number is None:
            site = _site(users)
            number = instructions[users.f_lasti] = self._numbering.site(site.file, site.line)
        return number

    def locate(self, frame: FrameType) -> CallSite | None:
        """Return the nearest user's line at or above ``frame``."""
        users, _ = self._nearest(frame)
        return None if users is None else _site(users)

    def _nearest(self, frame: FrameType | None) -> tuple[FrameType | None, dict[int, int] | None]:
        """Return the nearest frame of the user, and the sites in its code."""
        while frame is not None:
            number = id(frame.f_code)
            if number not in self._kept:
                self._learn(frame.f_code, frame)
            instructions = self.by_code[number]
            if instructions is not None:
                return frame, instructions
            frame = frame.f_back
        return None, None

    def clear(self) -> None:
        """Forget all sites, since their numbers belong to another journal."""
        self.by_code.clear()
        self._kept.clear()

    def _learn(self, code: CodeType, frame: FrameType) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        internal = module.partition(".")[0] in INTERNAL
        # By its file as well: ttnn gives some of its modules names such as ``core``.
        internal = internal or code.co_filename.startswith((*self._own, *_directories()))
        self.by_code[id(code)] = None if internal else {}
        self._kept[id(code)] = code


def _directories() -> Iterator[str]:
    """Yield where the code of the frameworks lies that have been imported."""
    for name in INTERNAL:
        file = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(file, str):
            yield f"{Path(file).parent}/"


def _site(frame: FrameType) -> CallSite:
    return CallSite(frame.f_code.co_filename, frame.f_lineno or frame.f_code.co_firstlineno)
