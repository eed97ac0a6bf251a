"""Write what came of a run as JUnit XML, which CI systems show as tests.

What the operation did wrong is a failure, what the machine did is an error, and what was not
attempted or failed as expected is skipped, so that nothing that did not run looks green.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as Xml

from optrove.model.records import Outcome
from optrove.report.attempted import said
from optrove.report.causes import UNSAID
from optrove.report.results import XFAILED, took
from optrove.report.results_text import WORDS, title
from optrove.report.runs_text import SHORT_ID

if TYPE_CHECKING:
    from optrove.report.results import Result, RunResults, Waiting

_S: Final = 1e9
# What XML 1.0 cannot hold, not even escaped.
_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(found: RunResults) -> bytes:
    """Return a run as an XML file: a suite for each op, a test for each case."""
    root = Xml.Element("testsuites", name=_clean(title(found.run)))
    suites: dict[str, Xml.Element] = {}
    for each in found.results:
        _result(_suite(root, suites, each.op, found.run.started_at), each)
    for one in found.waiting:
        _waiting(_suite(root, suites, one.op, found.run.started_at), one)
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


def _result(suite: Xml.Element, result: Result) -> None:
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


def _waiting(suite: Xml.Element, one: Waiting) -> None:
    case = _case(suite, one.op, one.case_id, one.suite)
    case.set("time", "0")
    Xml.SubElement(case, "skipped", type="not_attempted", message="not attempted")


def _case(suite: Xml.Element, op: str, case_id: str, name: str | None) -> Xml.Element:
    whole = case_id[:SHORT_ID] if name is None else f"{name}[{case_id[:SHORT_ID]}]"
    return Xml.SubElement(suite, "testcase", classname=_clean(op), name=_clean(whole))


def _clean(text: str) -> str:
    """Return text that XML can hold; what it cannot is written as Python would."""
    return _FORBIDDEN.sub(lambda match: ascii(match[0])[1:-1], text)
