"""Trace a block of code and look at every call of it; or drive a recorder by hand."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass

import optrove
from optrove.capture.recorder import Recorder
from optrove.frameworks.probe_protocol import ObservedOp
from optrove.journal import format as layout
from optrove.journal.calls import Dictionary, unpack
from optrove.journal.format import find_journals
from optrove.journal.reader import JournalReader
from optrove.journal.writer import Journal
from optrove.report.summary import summarize
from optrove.serializer.described import case_of
from optrove.tracing.recorded import summarize_directory

KINDS = {
    layout.CASE: "case",
    layout.OPAQUE: "opaque",
    layout.FILTERED: "filtered",
    layout.UNTRACEABLE: "untraceable",
}


@dataclass(frozen=True)
class Seen:
    """One recorded call with its case; ``reason`` stands where there is no case."""

    op: str | None
    kind: str
    number: int
    case: object
    hash: str | None
    call: object
    reason: str | None

    @property
    def line(self):
        return self.call.call_site and self.call.call_site.line

    @property
    def file(self):
        return self.call.call_site and self.call.call_site.file

    @property
    def outcome(self):
        return self.call.outcome.value

    @property
    def arguments(self):
        return dict(self.case.arguments)

    def __getitem__(self, name):
        """Return an argument by its name."""
        return self.arguments[name]

    def __getattr__(self, name):
        """Return a fact of the call: its outputs, parent, depth and so on."""
        return getattr(self.call, name)


def seen_in(reader):
    """Return all calls of one journal."""
    known = Dictionary(reader.dictionary()), WithoutCases(reader.dictionary())
    rows = (row for block in reader.blocks for row in unpack(block).rows())
    return [_seen(reader, *known, *row) for row in rows]


class WithoutCases(Dictionary):
    """Gives calls that were filtered or could not be described."""

    def _case(self, number):
        return ""


def _seen(reader, known, without, op_index, row):
    number, kind = layout.number_of(row[0]), KINDS[layout.kind_of(row[0])]
    if kind in ("filtered", "untraceable"):
        call = without.call(op_index, row, "run")
        return Seen(None, kind, number, None, None, call, reader.reason(number))
    call = known.call(op_index, row, "run")
    case = case_in(reader, number)
    return Seen(case.op, kind, number, case, call.case_id, call, None)


def case_in(reader, number):
    """Return a case of a journal by its number."""
    return case_of(reader.case(number).content)


def readers_in(directory):
    """Return readers of all journals below a directory, the oldest first."""
    places = sorted({path.parent for path in directory.rglob(f"*{layout.LINES}")})
    return [JournalReader(path) for place in places for path in find_journals(place)]


class Traced:
    """What a trace has recorded; good while it goes on as well."""

    def __init__(self, trace):
        self._trace = trace
        self._kept = None

    @property
    def directory(self):
        return self._trace.directory

    def keep(self):
        """Remember all calls, since journals go when the trove has them."""
        self._kept = self.calls

    @property
    def calls(self):
        if self._kept is not None:
            return self._kept
        return [seen for reader in readers_in(self.directory) for seen in seen_in(reader)]

    @property
    def ops(self):
        return [seen.op for seen in self.calls]

    @property
    def summary(self):
        summary = self._trace.summary()
        assert_adds_up(summary)
        return summary

    def of(self, op):
        """Return the calls of one op."""
        return [seen for seen in self.calls if seen.op == op]


@contextmanager
def tracing(tmp_path, **options):
    """Trace the block, and check at its end that all is accounted for and nothing went wrong."""
    with optrove.trace(tmp_path / "trove.db", **options) as trace:
        traced = Traced(trace)
        try:
            yield traced
        finally:
            traced.keep()
    assert traced.summary.faults == ()
    assert traced.summary.lost == 0
    assert traced.summary.unclosed == 0


def assert_adds_up(summary):
    """Check that every observed call is accounted for exactly once, in every way of counting."""
    if isinstance(summary, dict):
        assert_data_adds_up(summary)
        return
    accounting = summary.accounting
    assert accounting.adds_up(), accounting
    left = summary.left.moving.calls + summary.left.nested.calls
    recorded = sum(each.calls + each.nested_calls for each in summary.ops)
    assert summary.calls + left == recorded <= accounting.observed
    assert min(accounting.stored, accounting.deduplicated, accounting.observed) >= 0
    assert sum(each.cases for each in summary.ops if not each.hidden) == summary.cases


def assert_data_adds_up(data):
    """Check the same of what ``optrove trace --json`` prints."""
    sums = data["accounting"]
    filtered, untraceable = (sum(sums[name].values()) for name in ("filtered", "untraceable"))
    assert sums["observed"] == sums["new"] + sums["repeated"] + filtered + untraceable
    left = sum(each["calls"] for each in data["left_out"].values())
    recorded = sum(op["executed"] + op["nested"] for op in data["ops"])
    assert data["calls"] + left == recorded <= sums["observed"]
    assert sum(op["unique"] for op in data["ops"] if not op["hidden"]) == data["cases"]
    assert data["new_cases"] + data["known_cases"] == data["cases"]


def fake_op(op="fake.add", *, composite=False, key=None, result_key=None, bind=None):
    """Return an operation whose arguments are plain and its parameters a, b, c ..."""

    def by_letter(arguments, keywords):
        return {**dict(zip("abcdefgh", arguments, strict=False)), **keywords}

    def by_value(arguments, keywords):
        given = (*arguments, *keywords.values())
        if any(type(each) is not int and type(each) is not str for each in given):
            return None
        return (op, arguments, tuple(keywords.items()))

    return ObservedOp(
        op,
        bind or by_letter,
        key or by_value,
        result_key or (lambda known, result, call: result),
        composite=composite,
    )


def perform(recorder, observed, function, *arguments, **keywords):
    """Call a function as a probe does, from the caller's line."""
    entered = recorder.begin(observed, arguments, keywords, sys._getframe(1))
    try:
        result = function(*arguments, **keywords)
    except BaseException as error:
        recorder.fail(entered, error)
        raise
    recorder.end(entered, result)
    return result


def start_recorder(directory, **options):
    """Return a recorder with a journal of its own, and the journal."""
    journal = Journal(directory, 0)
    return Recorder(journal, **options), journal


def summary_of(directory):
    """Return the summary of a directory's journals, which adds up."""
    summary = summarize(readers_in(directory))
    assert_adds_up(summary)
    return summary


def journals(directory):
    """Return the readers of all journals below a directory; their summaries must add up."""
    files = sorted(directory.rglob("*.lines"))
    for each in {file.parent for file in files}:
        assert_adds_up(summarize_directory(each))
    return [JournalReader(file) for file in files]
