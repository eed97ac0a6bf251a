"""Read Cases in our own form, ``identity.case_data``; parts that repeat are read once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from optrove.codec.decode import read_value
from optrove.codec.reading import check_name
from optrove.interop.documents import expected
from optrove.model.case import Case
from optrove.model.walk import key_step

if TYPE_CHECKING:
    from optrove.codec.text import Json
    from optrove.errors import Fault
    from optrove.model.values import Value

_MOST_KNOWN: Final = 8192


class CaseReader:
    """Reads the Cases of one file."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, Value] = {}

    def read(self, data: Json, path: str, faults: list[Fault]) -> Case | None:
        """Return the Case that ``data`` spells; None after noting its faults."""
        match data:
            case {"op": str(op), "arguments": dict(arguments), **rest} if not rest:
                before = len(faults)
                check_name(op, f"{path}.op", faults)
                named = []
                for name, item in arguments.items():
                    where = f"{path}.arguments{key_step(name)}"
                    check_name(name, where, faults)
                    named.append((name, self._value(item, where, faults)))
                return Case(op, tuple(named)) if len(faults) == before else None
        faults.append(expected('a Case: {"op": ..., "arguments": {...}}', path, data))
        return None

    def _value(self, data: Json, path: str, faults: list[Fault]) -> Value:
        if not isinstance(data, (dict, list)):
            return read_value(data, path, faults)
        text = json.dumps(data)
        known = self._known.get(text)
        if known is None:
            before = len(faults)
            known = read_value(data, path, faults)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            if len(faults) == before:
                self._known[text] = known
        return known
