"""Put paths together that differ in numbers only: ``layers.0-31.mlp.w1``."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from optrove.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterable


def gathered(paths: Iterable[str]) -> list[str]:
    """Return paths with runs of numbers written as ranges, in the order in which they came."""
    rows = [tuple(path.split(".")) for path in dict.fromkeys(paths)]
    longest = max(map(len, rows), default=0)
    # From the end: layers whose experts are the same ranges can be put together afterwards.
    for place in reversed(range(longest)):
        rows = _gathered_at(rows, place)
    return [".".join(row) for row in rows]


def gathered_faults(faults: Iterable[Fault]) -> list[Fault]:
    """Return faults with those put together that say the same about a range of layers."""
    by_problem: dict[str, list[str]] = {}
    for fault in faults:
        by_problem.setdefault(fault.problem, []).append(fault.path)
    return [
        Fault(path, problem) for problem, paths in by_problem.items() for path in gathered(paths)
    ]


def _gathered_at(rows: list[tuple[str, ...]], place: int) -> list[tuple[str, ...]]:
    found: dict[tuple[tuple[str, ...], ...], list[int]] = {}
    for row in rows:
        if place < len(row) and row[place].isdecimal():
            found.setdefault((row[:place], row[place + 1 :]), []).append(int(row[place]))
        else:
            found[(row,)] = []
    result: list[tuple[str, ...]] = []
    for key, numbers in found.items():
        if numbers:
            result.append((*key[0], _spelled(sorted(numbers)), *key[1]))
        else:
            result.append(key[0])
    return result


def _spelled(numbers: list[int]) -> str:
    """Return ``0-2,5`` for 0, 1, 2, 5."""
    runs = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        first, last = members[0], members[-1]
        runs.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(runs)
