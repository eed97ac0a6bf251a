"""Keep of every case what came of its last attempt, on each board and on any."""

from __future__ import annotations

from array import array
from typing import Final

from optrove.model.records import Outcome

ANY_BOARD: Final = ""
"""Stands for whichever board was the last."""

_OUTCOMES: Final = tuple(outcome.value for outcome in Outcome)
_CODES: Final = {outcome: code for code, outcome in enumerate(_OUTCOMES, start=1)}
_UNKNOWN: Final = len(_OUTCOMES) + 1
_DIGITS: Final = tuple(
    bytes(b"01"[code == each] for each in range(256)) for code in range(_UNKNOWN)
)
"""Of each code, what makes it the digit 1 and all others 0."""


class LastTried:
    """The last attempts at the cases of one op, by their numbers."""

    __slots__ = ("_boards", "_sets", "_size")

    def __init__(self, size: int) -> None:
        """Begin with no attempts at this many cases."""
        self._size = size
        self._boards: dict[str, tuple[bytearray, array[int]]] = {}
        self._sets: dict[str, dict[str, int]] = {}

    def add(self, number: int, board: str, outcome: str, key: int) -> None:
        """Take in an attempt, which is later than all before."""
        for name in (ANY_BOARD, board):
            if name not in self._boards:
                self._boards[name] = (bytearray(self._size), array("q", bytes(8 * self._size)))
            codes, keys = self._boards[name]
            codes[number] = _CODES.get(outcome, _UNKNOWN)
            keys[number] = key
            self._sets.pop(name, None)

    def boards(self) -> tuple[str, ...]:
        """Return the boards on which something was tried, sorted."""
        return tuple(sorted(name for name in self._boards if name != ANY_BOARD))

    def outcomes(self, board: str = ANY_BOARD) -> dict[str, int]:
        """Return the sets of cases by what came of their last attempt."""
        found = self._sets.get(board)
        if found is None:
            found = self._sets[board] = self._gathered(board)
        return found

    def tried(self, board: str = ANY_BOARD) -> int:
        """Return the set of cases that were tried."""
        every = 0
        for cases in self.outcomes(board).values():
            every |= cases
        return every

    def last(self, number: int, board: str = ANY_BOARD) -> tuple[str, int] | None:
        """Return outcome and key of the last attempt at a case; None if there was none."""
        if board not in self._boards:
            return None
        codes, keys = self._boards[board]
        code = codes[number]
        return (_OUTCOMES[code - 1], keys[number]) if 0 < code < _UNKNOWN else None

    def _gathered(self, board: str) -> dict[str, int]:
        if board not in self._boards:
            return {}
        codes, _ = self._boards[board]
        # The last case is the first digit of the number.
        backwards = bytes(reversed(codes))
        present = sorted(code for code in set(codes) if 0 < code < _UNKNOWN)
        return {_OUTCOMES[code - 1]: int(backwards.translate(_DIGITS[code]), 2) for code in present}
