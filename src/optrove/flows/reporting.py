"""Write a run as an HTML page: what came of its cases, or what was called in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from optrove.errors import BadTarget
from optrove.flows.outcomes import EXECUTED, results_of, run_meant, traced_in
from optrove.flows.releases import compared_with
from optrove.flows.runs import now
from optrove.flows.stores import reading
from optrove.report.html import html
from optrove.report.results_page import results_page
from optrove.report.runs_text import moment
from optrove.report.traced_page import traced_page
from optrove.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.flows.stores import Recovered
    from optrove.model.records import Run
    from optrove.report.page import Page
    from optrove.store.reader import TroveReader


@dataclass(frozen=True, slots=True)
class Report:
    """A run, and the page about it as HTML."""

    run: Run
    html: str


def report_of(
    name: str | None,
    compare: str | None,
    store: str | None,
    tell: Callable[[Recovered], object] = lambda _: None,
) -> Report:
    """Return the report of a run; of the newest one where none is named.

    ``compare`` is an earlier result, by whatever name; NotFound and NotComparable when there is
    nothing to report, or nothing to compare.
    """
    with reading(store, tell) as reader:
        run = _meant(reader, name)
        if run.kind not in EXECUTED:
            if compare is not None:
                raise BadTarget(
                    f"run {run.id[:12]} is of the kind {run.kind.value!r}, and has no results to "
                    f"compare; compare what was called with: optrove diff {compare} {run.id[:12]}"
                )
            return Report(run, _drawn(traced_page(traced_in(reader, run))))
        found = results_of(reader, run)
    compared = None if compare is None else compared_with(compare, found, store, tell)
    return Report(run, _drawn(results_page(found, store, compared)))


def _meant(reader: TroveReader, name: str | None) -> Run:
    runs = reader.runs() if name is None else ()
    if runs and not any(row.run.kind in EXECUTED for row in runs):
        return runs[0].run
    return run_meant(reader, name)


def _drawn(page: Page) -> str:
    return html(replace(page, made=f"optrove {__version__}, {moment(now())} UTC"))
