"""Range patterns: ``"0-31"`` and ``"10"`` as keys of a configuration, and their expansion.

Layers may be in several ranges, as long as no entry is given by two of them. The layers of an
expanded configuration share their parts; the caller copies what it changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import combinations
from typing import Any, Final, TypeAlias

from optrove.errors import Fault
from optrove.model.values import key_step
from optrove.runconfig.opconfig import OpConfig

Tree: TypeAlias = Any
"""Nested dictionaries and lists, with op configurations or other values at their ends."""

MAX_ENTRIES: Final = 2_000_000
"""How many entries a configuration may have when it is expanded."""

MAX_DEPTH: Final = 64

_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class Expanded:
    """A configuration without ranges: numbers are keys; ``entries`` counts its ends.

    ``is_whole`` is False if a part was left out because it would have been too large.
    """

    tree: Tree
    entries: int
    faults: list[Fault]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class _Range:
    key: str
    numbers: range
    tree: Tree

    def shared(self, other: _Range) -> range:
        first = max(self.numbers.start, other.numbers.start)
        return range(first, max(first, min(self.numbers.stop, other.numbers.stop)))


def expand(config: Tree, path: str = "") -> Expanded:
    """Return a configuration with its ranges expanded, and the faults of the ranges."""
    expansion = _Expansion()
    tree, entries = expansion.expand(config, path, 0)
    return Expanded(tree, entries, expansion.faults, expansion.is_whole)


def step(path: str, key: Any) -> str:
    """Return a path that is one key longer: ``model.layers.3.mlp``."""
    text = key if type(key) is int else _key_text(str(key))
    return f"{path}.{text}" if path else str(text)


@lru_cache(maxsize=4096)
def _key_text(key: str) -> str:
    return key if _RANGE.fullmatch(key) else key_step(key).removeprefix(".")


def is_inner(tree: Tree) -> bool:
    """Return whether a part of a configuration has entries, rather than being one."""
    if isinstance(tree, OpConfig):
        return False
    if isinstance(tree, Mapping):
        return True
    # Other lists are arguments, such as those of activations.
    return type(tree) is list and any(isinstance(item, Mapping) for item in tree)


def children(tree: Tree) -> Iterable[tuple[Any, Tree]]:
    """Return the entries of an inner part of an expanded configuration, by key or index."""
    return enumerate(tree) if isinstance(tree, list) else tree.items()


def ends(tree: Tree, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every entry of an expanded configuration with its path."""
    if not is_inner(tree):
        yield path, tree
        return
    for key, child in children(tree):
        yield from ends(child, step(path, key))


class _Expansion:
    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.is_whole = True

    def expand(self, tree: Tree, path: str, depth: int) -> tuple[Tree, int]:
        if not is_inner(tree):
            return tree, 1
        if depth >= MAX_DEPTH:
            self.is_whole = False
            self._fault(path, f"nested more than {MAX_DEPTH} levels deep; does it hold itself?")
            return {}, 0
        if isinstance(tree, list):
            pairs = [self.expand(item, step(path, i), depth + 1) for i, item in enumerate(tree)]
            return [child for child, _ in pairs], sum(count for _, count in pairs)
        return self._mapping(tree, path, depth)

    def _mapping(self, tree: Mapping[Any, Tree], path: str, depth: int) -> tuple[Tree, int]:
        named: dict[Any, Tree] = {}
        ranges: list[_Range] = []
        entries = 0
        for key, child in tree.items():
            numbers = self._numbers(key, path)
            expanded, count = self.expand(child, step(path, key), depth + 1)
            if numbers is None:
                named[key] = expanded
            else:
                ranges.append(_Range(str(key), numbers, expanded))
            entries += count * (1 if numbers is None else len(numbers))
        if entries > MAX_ENTRIES:
            self.is_whole = False
            self._fault(path, f"expands to more than {MAX_ENTRIES:,} entries; mind its ranges")
            return named, 0
        self._refuse_overlaps(ranges, path)
        return {**_numbered(ranges), **named}, entries

    def _numbers(self, key: Any, path: str) -> range | None:
        """Return the numbers that a key stands for; None if it is a name."""
        if type(key) is int and key >= 0:
            return range(key, key + 1)
        if type(key) is not str:
            self._fault(path, f"the key {key!r} is neither a name nor a number")
            return None
        match = _RANGE.fullmatch(key)
        if match is None:
            return None
        first = int(match[1])
        last = int(match[2] or match[1])
        if last < first:
            self._fault(step(path, key), f'the range ends before it begins; write "{last}-{first}"')
        return range(first, last + 1)

    def _refuse_overlaps(self, ranges: list[_Range], path: str) -> None:
        for a, b in combinations(ranges, 2):
            shared = a.shared(b)
            if not shared:
                continue
            for rest in _given_twice(a.tree, b.tree, ""):
                numbers = range_text(shared.start, shared.stop - 1)
                place = step(path, numbers) + (f".{rest}" if rest else "")
                self._fault(
                    place,
                    f'given by "{a.key}" and by "{b.key}"; ranges may overlap only where no entry '
                    f"is in both: take it out of one of them",
                )

    def _fault(self, path: str, problem: str) -> None:
        self.faults.append(Fault(path or "the configuration", problem))


def _numbered(ranges: list[_Range]) -> dict[int, Tree]:
    found: dict[int, list[int]] = {}
    for place, each in enumerate(ranges):
        for number in each.numbers:
            found.setdefault(number, []).append(place)
    merged: dict[tuple[int, ...], Tree] = {}
    result = {}
    for number in sorted(found):
        places = tuple(found[number])
        if places not in merged:
            merged[places] = reduce(_joined, [ranges[place].tree for place in places])
        result[number] = merged[places]
    return result


def _joined(a: Tree, b: Tree) -> Tree:
    if not (_is_mapping(a) and _is_mapping(b)):
        return a
    joined = dict(a)
    for key, child in b.items():
        joined[key] = _joined(joined[key], child) if key in joined else child
    return joined


def _given_twice(a: Tree, b: Tree, path: str) -> Iterator[str]:
    if not (_is_mapping(a) and _is_mapping(b)):
        yield path
        return
    for key in a:
        if key in b:
            yield from _given_twice(a[key], b[key], step(path, key))


def _is_mapping(tree: Tree) -> bool:
    return isinstance(tree, Mapping) and not isinstance(tree, OpConfig)


def range_text(first: int, last: int) -> str:
    """Return ``3-7``, or ``3`` if both are 3."""
    return str(first) if first == last else f"{first}-{last}"
