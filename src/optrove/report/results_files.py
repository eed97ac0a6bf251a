"""Results as files for other tools: tt-metal's ``results_export``, and JUnit XML.

A wrong operation is a failure, a fault of the machine is an error, and every other case without a
result is skipped: not attempted, declined by its module, lost by its recording, failed as expected.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as Xml

from optrove.model.causes import without_numbers
from optrove.model.exit_codes import Reason, reason_of
from optrove.model.ops import VECTORS, is_vector
from optrove.model.records import NOT_ATTEMPTED, Outcome
from optrove.report.attempts import UNSAID, WORDS, XFAILED, XPASSED, measurement_data
from optrove.report.results import title, took
from optrove.report.wording import SHORT_ID
from optrove.serializer.text import read

if TYPE_CHECKING:
    from optrove.model.records import AttemptedCase, Run
    from optrove.model.trove import PlannedCase
    from optrove.report.results import RunResults
    from optrove.serializer.text import Json


_STATUSES: Final = {
    Outcome.PASSED.value: "PASS",
    Outcome.NUMERICS.value: "FAIL_ASSERT_EXCEPTION",
    Outcome.WRONG_SPEC.value: "FAIL_ASSERT_EXCEPTION",
    Outcome.REJECTED.value: "FAIL_ASSERT_EXCEPTION",
    Outcome.COMPILE_FAILED.value: "FAIL_ASSERT_EXCEPTION",
    Outcome.RAISED.value: "FAIL_ASSERT_EXCEPTION",
    Outcome.OUT_OF_MEMORY.value: "FAIL_L1_OUT_OF_MEM",
    Outcome.HUNG.value: "FAIL_CRASH_HANG",
    Outcome.CRASHED.value: "FAIL_CRASH_HANG",
    Outcome.NOT_RUN.value: "NOT_RUN",
    NOT_ATTEMPTED: "NOT_RUN",
    XFAILED: "XFAIL",
    XPASSED: "XPASS",
}
"""The status of tt-metal for each outcome."""

_TRACED: Final = "model_traced"
_MS: Final = 1e6


def exported(found: RunResults) -> list[Json]:
    """Return an object for each case of a run; unattempted cases come last.

    The keys are tt-metal's, except for ``outcome`` and ``measurements``.
    """
    done = [_result(found.run, each) for each in found.results]
    return [*done, *(_waiting(found.run, each) for each in found.waiting)]


def sweep_names(op: str, suite: str | None) -> tuple[str, str]:
    """Return the names of the sweep and the suite of a case in such files."""
    if not is_vector(op):
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


def _result(run: Run, result: AttemptedCase) -> Json:
    attempt = result.attempt
    failed = attempt.outcome is not Outcome.PASSED
    time = took(attempt)
    cause = attempt.cause
    return {
        **_head(run, result.op, attempt.case_id, result.suite),
        "status": f"TestStatus.{_STATUSES[result.view]}",
        "message": cause,
        "exception": attempt.detail if failed else None,
        "error_signature": _signature(cause) if failed else None,
        "e2e_perf": None if time is None else time / _MS,
        "device_perf": None,
        "start_time_ts": attempt.started_at,
        "original_vector_data": _arguments(result.content),
        "outcome": attempt.outcome.value,
        "measurements": [measurement_data(each) for each in attempt.measurements],
    }


def _waiting(run: Run, case: PlannedCase) -> Json:
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
    """Return a hash that is equal for equal failures, whatever the numbers."""
    if cause is None:
        return None
    return hashlib.sha256(without_numbers(cause).encode(errors="replace")).hexdigest()[:16]


_TAGS: Final = {Reason.FAILED: "failure", Reason.NOT_RUN: "error"}
_S: Final = 1e9
# XML 1.0 cannot hold these, not even escaped.
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


def _junit_result(suite: Xml.Element, result: AttemptedCase) -> None:
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
    cause = attempt.cause or UNSAID
    if result.view == XFAILED:
        message = _clean(f"{WORDS[XFAILED]}: {cause}")
        Xml.SubElement(case, "skipped", type="xfail", message=message)
        return
    reason = reason_of(result)
    tag = "skipped" if reason is None else _TAGS.get(reason, "skipped")
    words = _clean(f"{WORDS[attempt.counted_as]}: {cause}")
    failure = Xml.SubElement(case, tag, type=attempt.counted_as, message=words)
    failure.text = _clean(attempt.detail or cause)


def _junit_waiting(suite: Xml.Element, one: PlannedCase) -> None:
    case = _case(suite, one.op, one.case_id, one.suite)
    case.set("time", "0")
    Xml.SubElement(case, "skipped", type="not_attempted", message="not attempted")


def _case(suite: Xml.Element, op: str, case_id: str, name: str | None) -> Xml.Element:
    whole = case_id[:SHORT_ID] if name is None else f"{name}[{case_id[:SHORT_ID]}]"
    return Xml.SubElement(suite, "testcase", classname=_clean(op), name=_clean(whole))


def _clean(text: str) -> str:
    """Return text that XML can hold; other characters are escaped as in Python."""
    return _FORBIDDEN.sub(lambda match: ascii(match[0])[1:-1], text)
