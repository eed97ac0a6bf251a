"""Order the families among the cases of one op, most called first, and find the cases of each."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Group: TypeAlias = list[int]
"""The cases of one family, by their numbers, most called first."""


class FamilyOrder:
    """The families of numbered cases: made once, so that a page of them takes no search."""

    __slots__ = ("_begins", "_members", "_order", "_rank")

    def __init__(self, families: Sequence[int], calls: Sequence[int]) -> None:
        """Take the family and the calls of each case; families are numbered from zero."""
        count = max(families, default=-1) + 1
        totals = [0] * count
        sizes = [0] * count
        for family, called in zip(families, calls, strict=True):
            totals[family] += called
            sizes[family] += 1
        self._begins = array("l", [0])
        for size in sizes:
            self._begins.append(self._begins[-1] + size)
        self._members = array("l", sorted(range(len(families)), key=families.__getitem__))
        # Families are numbered by their first cases, which are most called: so are equal ones.
        self._order = array("l", sorted(range(count), key=lambda family: -totals[family]))
        self._rank = array("l", [0] * count)
        for rank, family in enumerate(self._order):
            self._rank[family] = rank

    def after(self, family: int | None, cases: int) -> Iterator[Group]:
        """Yield the families from after one on, each with those of its cases that are in a set."""
        chosen = cases.to_bytes(len(self._members) // 8 + 1, "little")
        begin = 0 if family is None else self._rank[family] + 1
        for place in range(begin, len(self._order)):
            following = self._order[place]
            members = self._members[self._begins[following] : self._begins[following + 1]]
            group = [each for each in members if chosen[each >> 3] >> (each & 7) & 1]
            if group:
                yield group
