"""Results as files: tt-metal's ``results_export``, JUnit XML, Markdown.

What the operation did wrong is a failure, what the machine did is an error, and what was not
attempted or failed as expected is skipped, so that nothing that did not run looks green.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as Xml

from optrove.model.ops import VECTORS
from optrove.model.records import Outcome
from optrove.report.attempts import again_command, measurement_data, number, said
from optrove.report.boards import percent
from optrove.report.causes import UNSAID, by_text, without_numbers
from optrove.report.results import (
    WORDS,
    XFAILED,
    XPASSED,
    counted,
    spread_text,
    summed,
    times_text,
    title,
    took,
)
from optrove.report.runs import SHORT_ID
from optrove.report.tables import clipped, plural
from optrove.serializer.text import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.model.records import Run
    from optrove.report.releases import Change, Comparison
    from optrove.report.results import OpResults, Result, RunResults, Summary, Waiting
    from optrove.serializer.text import Json


_STATUSES: Final = {
    Outcome.PASSED.value: "PASS",
    Outcome.NUMERICS.value: "FAIL_ASSERT_EXCEPTION",
    Outcome.WRONG_SPEC.value: "FAIL_ASSERT_EXCEPTION",
    Outcome.REJECTED.value: "FAIL_ASSERT_EXCEPTION",
    Outcome.RAISED.value: "FAIL_ASSERT_EXCEPTION",
    Outcome.OUT_OF_MEMORY.value: "FAIL_L1_OUT_OF_MEM",
    Outcome.HUNG.value: "FAIL_CRASH_HANG",
    Outcome.CRASHED.value: "FAIL_CRASH_HANG",
    Outcome.NOT_RUN.value: "NOT_RUN",
    XFAILED: "XFAIL",
    XPASSED: "XPASS",
}
"""What tt-metal calls what came of a vector."""

_TRACED: Final = "model_traced"
_MS: Final = 1e6


def exported(found: RunResults) -> list[Json]:
    """Return an object for each case of a run, those that were not attempted last.

    The keys are tt-metal's; ``outcome`` and ``measurements`` are ours besides.
    """
    done = [_result(found.run, each) for each in found.results]
    return [*done, *(_waiting(found.run, each) for each in found.waiting)]


def sweep_names(op: str, suite: str | None) -> tuple[str, str]:
    """Return the names of the sweep and of the suite that a case belongs to in such files."""
    if not op.startswith(VECTORS):
        return op, suite or _TRACED
    module, _, last = op.removeprefix(VECTORS).rpartition(".")
    return module, suite or last


def _head(run: Run, op: str, case_id: str, suite: str | None) -> dict[str, Json]:
    sweep, named = sweep_names(op, suite)
    return {
        "sweep_name": sweep,
        "suite_name": named,
        "vector_id": case_id,
        "input_hash": case_id,
        "timestamp": run.started_at,
        "host": run.environment.host,
        "git_hash": run.environment.git_sha or "unknown",
        "device": run.environment.board,
    }


def _result(run: Run, result: Result) -> Json:
    attempt = result.attempt
    failed = attempt.outcome is not Outcome.PASSED
    time = took(attempt)
    parts = said(attempt)
    return {
        **_head(run, result.op, attempt.case_id, result.suite),
        "status": f"TestStatus.{_STATUSES[result.view]}",
        "message": parts.cause,
        "exception": attempt.detail if failed else None,
        "error_signature": _signature(parts.cause) if failed else None,
        "e2e_perf": None if time is None else time / _MS,
        "device_perf": None,
        "start_time_ts": attempt.started_at,
        "original_vector_data": _arguments(result.content),
        "outcome": attempt.outcome.value,
        "measurements": [measurement_data(each) for each in attempt.measurements],
    }


def _waiting(run: Run, case: Waiting) -> Json:
    return {
        **_head(run, case.op, case.case_id, case.suite),
        "status": "TestStatus.NOT_RUN",
        "message": "not attempted",
        "outcome": None,
    }


def _arguments(content: str) -> Json:
    data = read(content)
    return data.get("arguments") if isinstance(data, dict) else None


def _signature(cause: str | None) -> str | None:
    """Return what is equal for what failed alike, whatever the numbers."""
    if cause is None:
        return None
    return hashlib.sha256(without_numbers(cause).encode(errors="replace")).hexdigest()[:16]


_S: Final = 1e9
# What XML 1.0 cannot hold, not even escaped.
_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(found: RunResults) -> bytes:
    """Return a run as an XML file: a suite for each op, a test for each case."""
    root = Xml.Element("testsuites", name=_clean(title(found.run)))
    suites: dict[str, Xml.Element] = {}
    for each in found.results:
        _junit_result(_suite(root, suites, each.op, found.run.started_at), each)
    for one in found.waiting:
        _junit_waiting(_suite(root, suites, one.op, found.run.started_at), one)
    for suite in suites.values():
        _sum(suite, list(suite))
    _sum(root, [case for suite in suites.values() for case in suite])
    Xml.indent(root)
    whole: bytes = Xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return whole


def _suite(root: Xml.Element, suites: dict[str, Xml.Element], op: str, at: str) -> Xml.Element:
    if op not in suites:
        suites[op] = Xml.SubElement(root, "testsuite", name=_clean(op), timestamp=_clean(at))
    return suites[op]


def _sum(element: Xml.Element, cases: list[Xml.Element]) -> None:
    counts = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    element.set("tests", str(len(cases)))
    for name, tag in counts.items():
        element.set(name, str(sum(case.find(tag) is not None for case in cases)))
    element.set("time", f"{sum(float(case.get('time', 0)) for case in cases):.6f}")


def _junit_result(suite: Xml.Element, result: Result) -> None:
    attempt = result.attempt
    case = _case(suite, result.op, attempt.case_id, result.suite)
    case.set("time", f"{(took(attempt) or 0) / _S:.6f}")
    if attempt.measurements:
        properties = Xml.SubElement(case, "properties")
        for each in attempt.measurements:
            output = "" if each.output is None else f"[{each.output}]"
            name, value = _clean(f"{each.name}{output}"), repr(each.value)
            Xml.SubElement(properties, "property", name=name, value=value)
    if attempt.outcome is Outcome.PASSED:
        return
    cause = said(attempt).cause or UNSAID
    if result.view == XFAILED:
        message = _clean(f"{WORDS[XFAILED]}: {cause}")
        Xml.SubElement(case, "skipped", type="xfail", message=message)
        return
    tag = "failure" if result.ran else "error"
    words = _clean(f"{WORDS[attempt.outcome.value]}: {cause}")
    told = Xml.SubElement(case, tag, type=attempt.outcome.value, message=words)
    told.text = _clean(attempt.detail or cause)


def _junit_waiting(suite: Xml.Element, one: Waiting) -> None:
    case = _case(suite, one.op, one.case_id, one.suite)
    case.set("time", "0")
    Xml.SubElement(case, "skipped", type="not_attempted", message="not attempted")


def _case(suite: Xml.Element, op: str, case_id: str, name: str | None) -> Xml.Element:
    whole = case_id[:SHORT_ID] if name is None else f"{name}[{case_id[:SHORT_ID]}]"
    return Xml.SubElement(suite, "testcase", classname=_clean(op), name=_clean(whole))


def _clean(text: str) -> str:
    """Return text that XML can hold; what it cannot is written as Python would."""
    return _FORBIDDEN.sub(lambda match: ascii(match[0])[1:-1], text)


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
