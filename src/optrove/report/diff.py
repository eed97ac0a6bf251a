"""Compare two collections of cases: added, removed, placed otherwise, called more or less often.

Two cases that compute the same (of one semantic id) in another place or way are one *changed* case,
paired so that as few arguments as possible differ. A case with a value that no converter knows is
never equal to another by its id; here it is compared by the type of that value.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from optrove.codec.described import case_of
from optrove.report.argument_changes import argument_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from optrove.model.trove import CaseRow

_TOKEN: Final = re.compile(r'("\$opaque":"(?:[^"\\]|\\.)*","token":)"(?:[^"\\]|\\.)*"')
_MOST_PAIRS: Final = 400
"""Of how many possible pairs the best are looked for; beyond, the most called are paired."""


class Kind(Enum):
    """How a case differs between A and B."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    RECOUNTED = "recounted"


@dataclass(frozen=True, slots=True)
class Counted:
    """A case of one side and how often it is called there.

    ``key`` is equal for cases that are the same; ``opaque`` tells that it is not the case_id.
    """

    key: str
    case_id: str
    semantic_id: str
    op: str
    calls: int
    opaque: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One case that differs; A or B is None where it is not there."""

    kind: Kind
    op: str
    a: Counted | None
    b: Counted | None


@dataclass(frozen=True, slots=True)
class OpChanges:
    """How the cases and calls of one op differ."""

    op: str
    added: int
    removed: int
    changed: int
    recounted: int
    calls_a: int
    calls_b: int


@dataclass(frozen=True, slots=True)
class Difference:
    """All in which two sides differ; ``opaque`` is how many cases were compared by type only."""

    changes: tuple[Change, ...]
    ops: tuple[OpChanges, ...]
    opaque: int = 0

    @property
    def is_equal(self) -> bool:
        """Tell whether nothing differs."""
        return not self.changes


def counted(rows: Iterable[CaseRow]) -> dict[str, Counted]:
    """Return the cases of one side by key."""
    found: dict[str, Counted] = {}
    for row in rows:
        blank = _TOKEN.sub(r'\1""', row.content)
        opaque = blank != row.content
        key = hashlib.sha256(blank.encode()).hexdigest() if opaque else row.case_id
        calls = row.calls + (found[key].calls if key in found else 0)
        found[key] = Counted(key, row.case_id, row.semantic_id, row.op, calls, opaque)
    return found


def compare(
    a: Mapping[str, Counted],
    b: Mapping[str, Counted],
    contents: Callable[[str], str],
    *,
    calls: bool = True,
) -> Difference:
    """Return in what A and B differ; ``contents`` gives the canonical JSON of a case by its id.

    Without ``calls``, a case that is merely called more or less often does not differ.
    """
    changes = _paired(a, b, contents)
    if calls:
        changes += [
            Change(Kind.RECOUNTED, a[key].op, a[key], b[key])
            for key in a.keys() & b.keys()
            if a[key].calls != b[key].calls
        ]
    ordered = sorted(changes, key=_order)
    both = {key for key in a.keys() & b.keys() if a[key].opaque}
    return Difference(tuple(ordered), _by_op(ordered, a, b), len(both))


def _paired(
    a: Mapping[str, Counted], b: Mapping[str, Counted], contents: Callable[[str], str]
) -> list[Change]:
    """Return what is on one side only, where possible as pairs that compute the same."""
    by_meaning: dict[tuple[str, str], tuple[list[Counted], list[Counted]]] = defaultdict(
        lambda: ([], [])
    )
    for side, (own, other) in enumerate(((a, b), (b, a))):
        for key in own.keys() - other.keys():
            by_meaning[own[key].op, own[key].semantic_id][side].append(own[key])
    changes = []
    for (op, _), (removed, added) in by_meaning.items():
        pairs = _pairs(removed, added, contents)
        changes += [Change(Kind.CHANGED, op, one, other) for one, other in pairs]
        paired = {each.key for pair in pairs for each in pair}
        changes += [Change(Kind.REMOVED, op, each, None) for each in removed if _out(each, paired)]
        changes += [Change(Kind.ADDED, op, None, each) for each in added if _out(each, paired)]
    return changes


def _out(case: Counted, paired: set[str]) -> bool:
    return case.key not in paired


def _pairs(
    removed: list[Counted], added: list[Counted], contents: Callable[[str], str]
) -> list[tuple[Counted, Counted]]:
    ours, theirs = (sorted(side, key=_most_called) for side in (removed, added))
    if min(len(ours), len(theirs)) == 0:
        return []
    if len(ours) * len(theirs) == 1 or len(ours) * len(theirs) > _MOST_PAIRS:
        return list(zip(ours, theirs, strict=False))
    cases = {each.key: case_of(contents(each.case_id)) for each in (*ours, *theirs)}
    possible = sorted(
        (len(argument_changes(cases[one.key], cases[other.key])), place, inner)
        for place, one in enumerate(ours)
        for inner, other in enumerate(theirs)
    )
    pairs: dict[int, int] = {}
    for _, place, inner in possible:
        if place not in pairs and inner not in pairs.values():
            pairs[place] = inner
    return [(ours[place], theirs[inner]) for place, inner in pairs.items()]


def _most_called(case: Counted) -> tuple[int, str]:
    return -case.calls, case.key


def _order(change: Change) -> tuple[str, int, int, str]:
    case = change.b or change.a
    calls, key = (0, "") if case is None else (case.calls, case.key)
    return change.op, list(Kind).index(change.kind), -calls, key


def _by_op(
    changes: Iterable[Change], a: Mapping[str, Counted], b: Mapping[str, Counted]
) -> tuple[OpChanges, ...]:
    """Return the ops that have changes, by name."""
    kinds = Counter((change.op, change.kind) for change in changes)
    calls_a, calls_b = (_calls(side) for side in (a, b))
    return tuple(
        OpChanges(
            op,
            added=kinds[op, Kind.ADDED],
            removed=kinds[op, Kind.REMOVED],
            changed=kinds[op, Kind.CHANGED],
            recounted=kinds[op, Kind.RECOUNTED],
            calls_a=calls_a[op],
            calls_b=calls_b[op],
        )
        for op in sorted({op for op, _ in kinds})
    )


def _calls(side: Mapping[str, Counted]) -> Counter[str]:
    calls: Counter[str] = Counter()
    for case in side.values():
        calls[case.op] += case.calls
    return calls
