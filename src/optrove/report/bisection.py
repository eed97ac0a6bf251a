"""The changes that a bisection over releases has found, as a document and as data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from optrove.report.document import Item, Items, Paragraph, Section
from optrove.report.wording import SHORT_ID, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.report.document import Node
    from optrove.report.releases import Judged
    from optrove.serializer.text import Json


@dataclass(frozen=True, slots=True)
class Boundary:
    """The two releases between which the result of a case changed.

    ``untested`` are releases between them with which the case could not run. ``confirmed`` says
    whether a second test of both showed the same.
    """

    last_good: str
    first_bad: str
    before: Judged
    after: Judged
    kind: str
    text: str
    worse: bool
    untested: tuple[str, ...] = ()
    confirmed: bool | None = None

    @property
    def case_id(self) -> str:
        """The id of the case."""
        return self.after.case_id


@dataclass(frozen=True, slots=True)
class Bisection:
    """The result of a bisection: ``tested`` counts the executions with each release."""

    package: str
    releases: tuple[str, ...]
    tested: tuple[tuple[str, int], ...]
    boundaries: tuple[Boundary, ...]
    unchanged: int
    not_run: tuple[Judged, ...]


def bisection_document(found: Bisection) -> Iterator[Node]:
    """Yield the changes, by the pair of releases."""
    first, last = found.releases[0], found.releases[-1]
    changed = len(found.boundaries)
    parts = [f"{changed:,} changed", f"{found.unchanged:,} unchanged"]
    if found.not_run:
        parts.append(f"{len(found.not_run):,} did not run with both")
    total = plural(changed + found.unchanged + len(found.not_run), "case")
    yield Paragraph(f"{found.package} {first} to {last}: {total}, {', '.join(parts)}")
    order = {version: place for place, version in enumerate(found.releases)}
    ranked = sorted(
        found.boundaries,
        key=lambda each: (order[each.first_bad], order[each.last_good], _summary(each)),
    )
    for (good, bad), group in groupby(ranked, key=lambda each: (each.last_good, each.first_bad)):
        items = []
        for text, alike in groupby(group, key=_summary):
            cases = list(alike)
            items.append(Item(len(cases), f"{text} (such as {cases[0].case_id[:SHORT_ID]})"))
        yield Section(f"{found.package} {good} -> {bad}", (Items(tuple(items)),))
    causes = sorted({each.cause or "" for each in found.not_run})
    for cause in causes[:3]:
        yield Paragraph(f"did not run: {cause.splitlines()[0] if cause else 'no reason recorded'}")
    tested = ", ".join(version for version, _ in found.tested)
    yield Paragraph(f"tested {len(found.tested):,} of {len(found.releases):,} releases: {tested}")


def _summary(boundary: Boundary) -> str:
    text = f"{boundary.after.op} {boundary.kind}: {boundary.text}"
    if boundary.untested:
        text += f" (not testable: {', '.join(boundary.untested)})"
    return text if boundary.confirmed else f"{text}; a second test differed"


def bisection_data(found: Bisection) -> dict[str, Json]:
    """Return a bisection; ``optrove.cli.replay`` describes the keys."""
    return {
        "package": found.package,
        "releases": list(found.releases),
        "tested": dict(found.tested),
        "unchanged": found.unchanged,
        "changed": [
            {
                "op": each.after.op,
                "case_id": each.case_id,
                "last_good": each.last_good,
                "first_bad": each.first_bad,
                "untested": list(each.untested),
                "before": {"outcome": each.before.outcome.value, "cause": each.before.cause},
                "after": {"outcome": each.after.outcome.value, "cause": each.after.cause},
                "change": each.text,
                "kind": each.kind,
                "worse": each.worse,
                "confirmed": each.confirmed,
            }
            for each in found.boundaries
        ],
        "not_run": [
            {"op": each.op, "case_id": each.case_id, "cause": each.cause} for each in found.not_run
        ],
    }
