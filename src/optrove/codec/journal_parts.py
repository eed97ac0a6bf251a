"""The lines of a journal as Cases and outputs in the form of a trove, each value made once.

Lines are described as they are read, since each defines a number before others use it; their JSON
is not kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.codec.described import described
from optrove.codec.journal_lines import FIELDS, JournalLines, undefined
from optrove.codec.parts import Part, TensorParts, WrittenParts
from optrove.codec.reading import found
from optrove.errors import BadData, Fault

if TYPE_CHECKING:
    from pathlib import Path

    from optrove.codec.text import Json
    from optrove.model.trove import DescribedCase

_MAX_NUMBER: Final = 2**31


@dataclass(frozen=True, slots=True)
class CaseParts:
    """A case by its parts, in the order of their names; ``opaque`` are the types of unknowns."""

    op: str
    arguments: tuple[tuple[str, Part], ...]
    opaque: tuple[str, ...]

    def described(self) -> DescribedCase:
        """Return the case as a trove keeps it."""
        return described(self.op, self.arguments)


class JournalParts(JournalLines):
    """What the lines of one journal define, by their numbers."""

    def __init__(self, lines: Path) -> None:
        """Read the lines; BadData when they are none, UnusableJournal when they are not there."""
        self.cases: dict[int, CaseParts] = {}
        self.outputs: dict[int, tuple[Part, ...]] = {}
        self.plain: dict[str, dict[int, dict[str, Json]]] = {kind: {} for kind in FIELDS}
        """Sites, scopes, errors and reasons, as they are written."""
        self._written = WrittenParts()
        self._values: dict[int, Part | TensorParts] = {}
        self._tensors: dict[tuple[int, int, int, int | None], Part] = {}
        super().__init__(lines)

    def keep(self, kind: str, data: dict[str, Json]) -> None:
        """Describe what a line defines."""
        number = data[kind]
        if kind == "value":
            self._values[number] = self._value(data.get("is"))
        elif kind == "case":
            given = sorted(data["arguments"].items())
            arguments = tuple([(name, self._part(reference)) for name, reference in given])
            self.cases[number] = CaseParts(data["op"], arguments, _texts(data.get("opaque")))
        elif kind == "outputs":
            self.outputs[number] = tuple([self._part(reference) for reference in data["are"]])
        else:
            self.plain[kind][number] = data

    def defines(self, kind: str, number: int) -> bool:
        """Tell whether there is such a number."""
        if kind == "case":
            return number in self.cases
        return number in (self.outputs if kind == "outputs" else self.plain[kind])

    def _value(self, data: Json) -> Part | TensorParts:
        if type(data) is dict and "$tensor" in data:
            return self._written.tensor(data)
        return self._written.part(data)

    def _part(self, given: Json) -> Part:
        """Return the Part that a reference means; BadData when it is none."""
        if type(given) is int:
            value = self._defined(given)
            return value if isinstance(value, Part) else value.own()
        if type(given) is dict and "is" in given:
            return self._written.part(given["is"])
        key = _tensor_key(given)
        part = self._tensors.get(key)
        if part is None:
            number, identity, storage, device = key
            tensor = self._defined(number)
            if isinstance(tensor, Part):
                raise BadData((Fault("$", f"value {number} is no tensor"),))
            part = self._tensors[key] = tensor.part(identity, storage, device)
        return part

    def _defined(self, number: int) -> Part | TensorParts:
        value = self._values.get(number)
        if value is None:
            raise undefined("value", number)
        return value


def _tensor_key(given: Json) -> tuple[int, int, int, int | None]:
    if type(given) is not dict:
        raise BadData((Fault("$", f"expected a reference, found {found(given)}"),))
    device = given.get("d")
    numbers = (given.get("t"), given.get("i"), given.get("s"), 0 if device is None else device)
    for number in numbers:
        if type(number) is not int or not 0 <= number < _MAX_NUMBER:
            raise BadData((Fault("$", f"a reference with {found(number)} for a number"),))
    return given["t"], given["i"], given["s"], device


def _texts(data: Json) -> tuple[str, ...]:
    return () if data is None else tuple(map(str, data))
