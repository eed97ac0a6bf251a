import pytest

from drawn import drawn_lines
from optrove.model.ops import Amount, Counting, LeftOut
from optrove.model.records import TestOutcome, TestResult
from optrove.report.summary import LOST, summarize, summary_data, summary_document
from tracing import assert_adds_up, fake_op, perform, readers_in, start_recorder, summary_of


class Thing:
    """Of no known class."""


def record(directory, *numbers, **options):
    """Record calls with these arguments in a process of their own."""
    recorder, journal = start_recorder(directory, **options)
    form = fake_op(key=lambda arguments, keywords: None)
    for number in numbers:
        perform(recorder, form, lambda a: None, number)
    journal.close()
    return recorder


def test_nothing_recorded_adds_up_to_nothing():
    summary = summarize([])
    assert_adds_up(summary)
    assert (summary.calls, summary.cases, summary.processes, summary.ops) == (0, 0, 0, ())


def test_a_case_of_several_processes_is_stored_once(tmp_path):
    record(tmp_path, 1, 1, 2)
    record(tmp_path, 2, 3)
    summary = summary_of(tmp_path)
    assert (summary.processes, summary.unclosed) == (2, 2)
    assert (summary.calls, summary.cases) == (5, 3)
    assert (summary.accounting.stored, summary.accounting.deduplicated) == (3, 2)
    assert [(op.op, op.calls, op.cases) for op in summary.ops] == [("fake.add", 5, 3)]


def test_cases_that_were_there_before_are_not_new(tmp_path):
    record(tmp_path, 1, 1, 2)
    (reader,) = readers_in(tmp_path)
    known = {reader.case(1).case_id}
    summary = summarize([reader], known)
    assert_adds_up(summary)
    assert (summary.cases, summary.known_cases) == (2, 1)
    assert (summary.accounting.stored, summary.accounting.deduplicated) == (1, 2)


def test_what_nothing_is_known_about_is_neither_new_nor_known(tmp_path):
    record(tmp_path, Thing(), 1, Thing())
    summary = summary_of(tmp_path)
    assert (summary.cases, summary.known_cases) == (3, 0)
    assert summary.accounting.stored == 1
    ((reason, count),) = summary.accounting.untraceable
    assert "fake.add" in reason
    assert "Thing" in reason
    assert count == 2


def test_every_kind_of_call_is_counted_once(tmp_path):
    recorder, journal = start_recorder(
        tmp_path, left_out=lambda op: "left out" if op == "fake.left" else None
    )

    def broken(*_):
        raise LookupError

    perform(recorder, fake_op(), abs, 1)
    perform(recorder, fake_op(), abs, 1)
    perform(recorder, fake_op("fake.left"), abs, 1)
    perform(recorder, fake_op("fake.broken", bind=broken), abs, 1)
    with pytest.raises(TypeError):
        perform(recorder, fake_op(), abs, "text")
    recorder._lose(OSError("full"))
    journal.close()
    summary = summary_of(tmp_path)
    accounting = summary.accounting
    assert (accounting.observed, accounting.stored, accounting.deduplicated) == (6, 2, 1)
    assert accounting.filtered == (("left out", 1),)
    assert (LOST, 1) in accounting.untraceable
    assert len(accounting.untraceable) == 2
    assert [(op.op, op.calls, op.raised) for op in summary.ops] == [("fake.add", 3, 1)]
    assert summary.lost == 1


def test_inner_calls_and_data_movement_are_counted_separately(tmp_path):
    recorder, journal = start_recorder(tmp_path)
    inner, move = fake_op("fake.inner"), fake_op("ttnn.to_device", composite=True)

    def outer(number):
        perform(recorder, inner, abs, number)
        perform(recorder, fake_op(), abs, 1)

    for number in (1, 2, 2):
        perform(recorder, fake_op("fake.outer", composite=True), outer, number)
    perform(recorder, fake_op(), abs, 1)
    perform(recorder, move, outer, 3)
    journal.close()
    summary = summary_of(tmp_path)
    assert (summary.calls, summary.cases, summary.accounting.observed) == (4, 3, 13)
    assert summary.left == LeftOut(moving=Amount(1, 1, 1), nested=Amount(2, 3, 8))
    assert drawn_lines(summary_document(summary))[:7] == [
        "4 calls, 3 cases (3 new, 0 known)",
        "",
        "op          cases  calls  raised",
        "fake.outer      2      3",
        "fake.add        1      1",
        "",
        "left out: 1 call, 1 case of 1 op that only moves data (--all-ops counts them)",
    ]
    everything = Counting(all_ops=True, nested=True)
    data = summary_data(summary, everything)
    assert (data["calls"], data["cases"]) == (13, 7)
    assert sum(each["executed"] for each in data["ops"]) == 13
    assert data["left_out"]["nested"]["calls"] == 0
    assert (summary_data(summary)["calls"], summary_data(summary)["cases"]) == (4, 3)
    lines = drawn_lines(summary_document(summary, everything))
    assert lines[0] == "13 calls, 7 cases"
    assert "fake.inner          3      4" in lines
    assert not any(line.startswith("left out") for line in lines)


def test_results_of_tests_are_counted_by_outcome(tmp_path):
    from optrove.serializer.records import record_to_builtins

    _, journal = start_recorder(tmp_path)
    outcomes = [TestOutcome.PASSED, TestOutcome.PASSED, TestOutcome.FAILED]
    for number, outcome in enumerate(outcomes):
        result = TestResult(run_id="run", test_id=f"t.py::{number}", outcome=outcome)
        journal.write({"test": record_to_builtins(result)})
    journal.close()
    assert summary_of(tmp_path).tests == (("passed", 2), ("failed", 1))
