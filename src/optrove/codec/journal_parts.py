"""The lines of a journal as Cases and outputs in the form of a trove, each value made once.

Lines are checked as they are read, since each defines a number before others use it; their JSON is
not kept. Cases are kept by the numbers of their arguments, and joined from their Parts when they
are asked for: a hundred thousand of them would not fit into memory otherwise.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

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
_MOST_TENSORS: Final = 30_000
"""How many Parts of tensors are kept, for the cases that are described next."""

TensorKey: TypeAlias = tuple[int, int, int, int | None]
Reference: TypeAlias = int | TensorKey | Part
"""A value by its number; a tensor by that, its identity, storage and device; or what is written."""


@dataclass(frozen=True, slots=True)
class NumberedCase:
    """A case by its references, in the order of names; ``opaque`` are the types of unknowns."""

    op: str
    arguments: tuple[tuple[str, Reference], ...]
    opaque: tuple[str, ...]


class JournalParts(JournalLines):
    """What the lines of one journal define, by their numbers."""

    def __init__(self, lines: Path) -> None:
        """Read the lines; BadData when they are none, UnusableJournal when they are not there."""
        self.cases: dict[int, NumberedCase] = {}
        self.outputs: dict[int, tuple[Reference, ...]] = {}
        self.plain: dict[str, dict[int, dict[str, Json]]] = {kind: {} for kind in FIELDS}
        """Sites, scopes, errors and reasons, as they are written."""
        self._written = WrittenParts()
        self._values: dict[int, Part | TensorParts] = {}
        self._tensors: dict[TensorKey, Part] = {}
        super().__init__(lines)

    def keep(self, kind: str, data: dict[str, Json]) -> None:
        """Describe what a line defines."""
        number = data[kind]
        if kind == "value":
            self._values[number] = self._value(data.get("is"))
        elif kind == "case":
            given = sorted(data["arguments"].items())
            arguments = tuple([(sys.intern(name), self._checked(each)) for name, each in given])
            op = sys.intern(data["op"])
            self.cases[number] = NumberedCase(op, arguments, _texts(data.get("opaque")))
        elif kind == "outputs":
            self.outputs[number] = tuple([self._checked(reference) for reference in data["are"]])
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

    def described(self, number: int) -> DescribedCase:
        """Return a case as a trove keeps it."""
        case = self.cases[number]
        return described(case.op, [(name, self._part(each)) for name, each in case.arguments])

    def output_text(self, number: int) -> str:
        """Return what a call gave as a list in canonical JSON."""
        return f"[{','.join([self._part(each).content for each in self.outputs[number]])}]"

    def _checked(self, given: Json) -> Reference:
        """Return what a reference means; BadData when that is nothing."""
        if type(given) is int:
            self._defined(given)
            return given
        if type(given) is dict and "is" in given:
            return self._written.part(given["is"])
        key = _tensor_key(given)
        if isinstance(self._defined(key[0]), Part):
            raise BadData((Fault("$", f"value {key[0]} is no tensor"),))
        return key

    def _part(self, reference: Reference) -> Part:
        if isinstance(reference, Part):
            return reference
        if isinstance(reference, int):
            value = self._values[reference]
            return value if isinstance(value, Part) else value.own()
        part = self._tensors.get(reference)
        if part is None:
            number, identity, storage, device = reference
            tensor = self._values[number]
            part = tensor if isinstance(tensor, Part) else tensor.part(identity, storage, device)
            if len(self._tensors) >= _MOST_TENSORS:
                self._tensors.clear()
            self._tensors[reference] = part
        return part

    def _defined(self, number: int) -> Part | TensorParts:
        value = self._values.get(number)
        if value is None:
            raise undefined("value", number)
        return value


def _tensor_key(given: Json) -> TensorKey:
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
