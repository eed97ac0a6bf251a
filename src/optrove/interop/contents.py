"""The canonical text of Cases and its hash, for many Cases whose arguments repeat."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from optrove.codec.text import write
from optrove.codec.wire import encode

if TYPE_CHECKING:
    from optrove.model.case import Case
    from optrove.model.values import Value

_MOST_KNOWN: Final = 8192


class Contents:
    """Writes Cases as ``identity.placement_hash`` sees them; arguments that repeat only once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Value, str] = {}

    def arguments(self, case: Case) -> str:
        """Return the JSON of the arguments; BadData for what no reader would accept."""
        return f"{{{','.join([f'{write(n)}:{self._text(value)}' for n, value in case.arguments])}}}"

    def case_id(self, case: Case) -> str:
        """Return the placement hash of a Case."""
        return case_id(case.op, self.arguments(case))

    def _text(self, value: Value) -> str:
        text = self._known.get(value)
        if text is None:
            text = write(encode(value))
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[value] = text
        return text


def case_id(op: str, arguments: str) -> str:
    """Return the placement hash of the Case of this op and the JSON of its arguments."""
    content = f'{{"arguments":{arguments},"op":{write(op)}}}'
    return sha256(content.encode("ascii")).hexdigest()
