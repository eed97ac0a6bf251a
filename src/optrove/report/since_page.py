"""Show what has changed since the compared run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.report.causes import without_numbers
from optrove.report.page import BAD, GOOD, IDLE, ODD, Changes, Since, Tile
from optrove.report.releases import side_title
from optrove.report.runs_text import SHORT_ID
from optrove.report.tables import clipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.report.releases import Change, Comparison, Side

_MOST_ENTRIES: Final = 60
_MOST_IDS: Final = 6
_LONGEST: Final = 500


def since(a: Side, b: Side, found: Comparison) -> Since:
    """Return what has changed from the first to the second."""
    uncompared = {
        "not run in both": len(found.not_run),
        "on another kind of device": len(found.unlike),
        "only before": len(found.only_a),
        "only now": len(found.only_b),
    }
    told = ", ".join(f"{count:,} {what}" for what, count in uncompared.items() if count)
    tiles = (
        Tile("broken", f"{len(found.broken):,}", "", BAD if found.broken else ""),
        Tile("slower", f"{len(found.slower):,}", "", ODD if found.slower else ""),
        Tile("moved", f"{len(found.moved):,}", "", ODD if found.moved else ""),
        Tile("fixed", f"{len(found.fixed):,}", "", GOOD if found.fixed else ""),
        Tile("the same", f"{found.same:,}", f"{found.compared:,} compared"),
        Tile("not compared", f"{sum(uncompared.values()):,}", told, IDLE if told else ""),
    )
    groups = (
        _changes(BAD, "Broken", found.broken),
        _changes(ODD, "Slower", found.slower),
        _changes(ODD, "Moved", found.moved),
        _changes(GOOD, "Fixed", found.fixed),
    )
    changes = tuple(each for each in groups if each.entries)
    return Since(side_title(a), side_title(b), tiles, changes, tuple(_warnings(a, b)))


def _warnings(a: Side, b: Side) -> Iterator[str]:
    for what in ("board", "device"):
        before, after = getattr(a, what), getattr(b, what)
        if before != after:
            yield f"the {what} is not the same: {before}, {after}"


def _changes(kind: str, title: str, changes: Sequence[Change]) -> Changes:
    groups: dict[tuple[str, str], list[Change]] = {}
    for each in changes:
        groups.setdefault((each.before.op, without_numbers(each.text)), []).append(each)
    ranked = sorted(groups.values(), key=lambda group: -len(group))
    entries = tuple(
        (
            len(group),
            group[0].before.op,
            clipped(group[0].text, _LONGEST),
            tuple(each.before.case_id[:SHORT_ID] for each in group[:_MOST_IDS]),
        )
        for group in ranked[:_MOST_ENTRIES]
    )
    return Changes(kind, title, entries, max(len(ranked) - _MOST_ENTRIES, 0))
