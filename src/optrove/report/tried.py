"""Keep of every case what came of its last attempt, wherever, and on each kind of each board."""

from __future__ import annotations

from array import array
from typing import Final, TypeAlias

from optrove.model.records import Outcome

Ground: TypeAlias = tuple[str, str]
"""Where something was tried: a board, and the kind of device that it was: hw, mock, shadow."""

ANYWHERE: Final[Ground] = ("", "")
"""Stands for wherever it was tried last."""

_OUTCOMES: Final = tuple(outcome.value for outcome in Outcome)
_CODES: Final = {outcome: code for code, outcome in enumerate(_OUTCOMES, start=1)}
_UNKNOWN: Final = len(_OUTCOMES) + 1
_DIGITS: Final = tuple(
    bytes(b"01"[code == each] for each in range(256)) for code in range(_UNKNOWN)
)
"""Of each code, what makes it the digit 1 and all others 0."""


class LastTried:
    """The last attempts at the cases of one op, by their numbers."""

    __slots__ = ("_grounds", "_sets", "_size")

    def __init__(self, size: int) -> None:
        """Begin with no attempts at this many cases."""
        self._size = size
        self._grounds: dict[Ground, tuple[bytearray, array[int]]] = {}
        self._sets: dict[Ground, dict[str, int]] = {}

    def add(self, number: int, ground: Ground, outcome: str, key: int) -> None:
        """Take in an attempt, which is later than all before."""
        for where in (ANYWHERE, ground):
            if where not in self._grounds:
                self._grounds[where] = (bytearray(self._size), array("q", bytes(8 * self._size)))
            codes, keys = self._grounds[where]
            codes[number] = _CODES.get(outcome, _UNKNOWN)
            keys[number] = key
            self._sets.pop(where, None)

    def grounds(self) -> tuple[Ground, ...]:
        """Return where something was tried, sorted."""
        return tuple(sorted(where for where in self._grounds if where != ANYWHERE))

    def outcomes(self, ground: Ground = ANYWHERE) -> dict[str, int]:
        """Return the sets of cases by what came of their last attempt."""
        found = self._sets.get(ground)
        if found is None:
            found = self._sets[ground] = self._gathered(ground)
        return found

    def tried(self, ground: Ground = ANYWHERE) -> int:
        """Return the set of cases that were tried."""
        every = 0
        for cases in self.outcomes(ground).values():
            every |= cases
        return every

    def last(self, number: int, ground: Ground = ANYWHERE) -> tuple[str, int] | None:
        """Return outcome and key of the last attempt at a case; None if there was none."""
        if ground not in self._grounds:
            return None
        codes, keys = self._grounds[ground]
        code = codes[number]
        return (_OUTCOMES[code - 1], keys[number]) if 0 < code < _UNKNOWN else None

    def _gathered(self, ground: Ground) -> dict[str, int]:
        if ground not in self._grounds:
            return {}
        codes, _ = self._grounds[ground]
        # The last case is the first digit of the number.
        backwards = bytes(reversed(codes))
        present = sorted(code for code in set(codes) if 0 < code < _UNKNOWN)
        return {_OUTCOMES[code - 1]: int(backwards.translate(_DIGITS[code]), 2) for code in present}
