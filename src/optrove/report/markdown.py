"""Draw what came of a run as Markdown, for the summary page of a CI job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from optrove.report.attempts_text import number
from optrove.report.board_text import percent
from optrove.report.causes import by_text
from optrove.report.commands import again_command
from optrove.report.results import summed
from optrove.report.results_text import WORDS, counted, spread_text, times_text, title
from optrove.report.runs_text import SHORT_ID
from optrove.report.tables import clipped, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.report.releases import Change, Comparison
    from optrove.report.results import OpResults, RunResults, Summary

_MOST_CAUSES: Final = 30
_MOST_OPS: Final = 50
_MOST_CHANGES: Final = 30
_MOST_NAMED: Final = 3
_LONGEST: Final = 300
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>()#+!|~$@&-])")
_WHITE: Final = re.compile(r"\s+")


def markdown(found: RunResults, store: str | None, changed: Comparison | None = None) -> str:
    """Return a run as Markdown; ``changed`` tells what is new since another run."""
    summary = summed(found)
    lines = [
        f"## {plain(title(found.run))}",
        "",
        *_total_lines(summary),
        *_change_parts(changed),
        *_cause_parts(summary, found, store),
        *_op_parts(summary.ops),
    ]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    whole = _WHITE.sub(" ", text).strip()
    return _SPECIAL.sub(r"\\\1", clipped(whole, _LONGEST))


def code(text: str) -> str:
    """Return text as code on one line, whatever quotes are in it."""
    whole = _WHITE.sub(" ", text).strip()
    fence = "`" * (max(map(len, re.findall("`+", whole)), default=0) + 1)
    gap = " " if len(fence) > 1 else ""
    # A bar ends a cell of a table even within code.
    return f"{fence}{gap}{whole}{gap}{fence}".replace("|", "\\|")


def _total_lines(summary: Summary) -> list[str]:
    share = (
        "no case ran" if summary.share is None else f"{percent(summary.share)} of those that ran"
    )
    lines = [f"**{counted(summary)}** ({share})"]
    if summary.views:
        told = ", ".join(f"{count:,} {WORDS[name]}" for name, count in summary.views.items())
        lines.append(f"- of suites that are to fail: {told}")
    if summary.pcc is not None:
        lines.append(f"- {spread_text('PCC', summary.pcc)}")
    if summary.times is not None:
        lines.append(f"- durations: {times_text(summary.times)}")
    return [lines[0], "", *lines[1:]]


def _change_parts(changed: Comparison | None) -> list[str]:
    if changed is None:
        return []
    kinds = {
        "broken": changed.broken,
        "slower": changed.slower,
        "moved": changed.moved,
        "fixed": changed.fixed,
    }
    told = ", ".join(f"{len(changes):,} {name}" for name, changes in kinds.items())
    lines = ["", f"### Compared: {told}, {changed.same:,} the same", ""]
    for name, changes in kinds.items():
        lines += _changes(name, changes)
    return lines


def _changes(name: str, changes: Sequence[Change]) -> Iterable[str]:
    for each in changes[:_MOST_CHANGES]:
        one = f"{code(each.before.op)} {code(each.before.case_id[:SHORT_ID])}"
        yield f"- {name}: {one}: {plain(each.text)}"
    if len(changes) > _MOST_CHANGES:
        yield f"- {len(changes) - _MOST_CHANGES:,} more {name}"


def _cause_parts(summary: Summary, found: RunResults, store: str | None) -> list[str]:
    groups = by_text(summary.causes)
    lines = ["", "### Failures by cause", "", "| cases | verdict | cause | ops | replay |"]
    lines += ["| --: | --- | --- | --- | --- |"]
    for group in groups[:_MOST_CAUSES]:
        first = group[0]
        example = first.example
        command = again_command(example.op, example.attempt, found.modules, store)
        ops = ", ".join(code(each.op) for each in group[:_MOST_NAMED])
        rest = len(group) - _MOST_NAMED
        more = f" and {rest:,} more" if rest > 0 else ""
        lines.append(
            f"| {sum(each.count for each in group):,} | {WORDS[first.outcome.value]} "
            f"| {plain(first.text)} | {ops}{more} | {code(command)} |"
        )
    if len(groups) > _MOST_CAUSES:
        lines += ["", f"{len(groups) - _MOST_CAUSES:,} more causes"]
    return lines if groups else []


def _op_parts(rows: Sequence[OpResults]) -> list[str]:
    shown = [row for row in rows if row.good < row.planned] or list(rows)
    lines = ["", f"<details><summary>{plural(len(rows), 'op')}</summary>", ""]
    lines += ["| op | cases | passed | PCC min |", "| --- | --: | --: | --: |"]
    lines += [
        f"| {code(row.op)} | {row.planned:,} | {row.good:,} "
        f"| {'' if row.pcc is None else number(row.pcc.least)} |"
        for row in shown[:_MOST_OPS]
    ]
    rest = len(rows) - len(shown[:_MOST_OPS])
    return [*lines, *(["", f"{rest:,} more"] if rest else []), "", "</details>"]
