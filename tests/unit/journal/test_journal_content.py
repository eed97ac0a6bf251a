import json
import os
import random
from collections import Counter
from dataclasses import replace

import pytest

from optrove.capture.recorder import Recorder
from optrove.errors import BadData, OptroveError, UnusableJournal
from optrove.journal import format as layout
from optrove.journal.calls import BLOCK_CALLS, calls_of, reasons_of, sketches_of
from optrove.journal.content import JournalContent
from optrove.journal.reader import JournalReader, find_journals
from optrove.journal.writer import Journal
from optrove.model.records import (
    CallOutcome,
    DeviceParameters,
    Environment,
    Phase,
    Run,
    RunKind,
    Scope,
    TestOutcome,
    TestResult,
)
from optrove.report.summary import summarize
from optrove.serializer.described import describe_case
from optrove.serializer.records import record_to_builtins
from tracing import fake_op, perform

RUN = Run(
    "a run",
    RunKind.TRACE,
    "test_it.py",
    Environment("1", "3.12", "Linux"),
    "2026-01-15T10:46:16.345678Z",
)
END = {"end": {"finished_at": "2026-01-15T10:47:16.345678Z", "exit_code": 1, "faults": {"a": 2}}}
TEST = TestResult("a run", "test_it.py::test_a", TestOutcome.PASSED)


class Unknown:
    """Something that no converter knows."""


def begin(directory):
    """Return a recorder and its journal, of a run."""
    journal = Journal(directory, 3, {"run": record_to_builtins(RUN)})
    left_out = {"fake.left": "why not"}.get
    return Recorder(journal, left_out=left_out), journal


def make_calls(recorder):
    """Make calls of all kinds."""
    outer = fake_op("fake.outer", composite=True)
    for number in (1, 1, 2):
        perform(recorder, outer, lambda a: perform(recorder, fake_op(), abs, a), number)
    device = DeviceParameters(mesh_shape=(1, 8), l1_small_size=100)
    recorder.set_scope(Scope("test_it.py::test_a", Phase.SETUP, "attention", "decode", device))
    for number in (1, 3, 1):
        perform(recorder, fake_op(), lambda a: (a, 2.5), number)
    perform(recorder, fake_op("fake.left"), abs, 1)
    with pytest.raises(TypeError):
        perform(recorder, fake_op(), abs, "text")
    perform(recorder, fake_op("fake.odd"), lambda a: None, Unknown())
    perform(recorder, fake_op("fake.bad", bind=lambda *_: 1 / 0), lambda a: None, Unknown())


@pytest.fixture
def lines(tmp_path):
    """The lines file of a journal with a bit of everything."""
    recorder, journal = begin(tmp_path)
    make_calls(recorder)
    journal.write({"test": record_to_builtins(TEST)})
    journal.write({"sketch": 4, "of": [{"at": "output", "count": 1}]})
    journal.write(END)
    journal.close()
    (path,) = find_journals(tmp_path)
    return path


@pytest.fixture
def calls(lines):
    """The calls file of the same journal."""
    return lines.with_suffix(layout.CALLS)


def everything(content):
    """Return all that a journal tells."""
    blocks = tuple(content.blocks())
    dictionary = content.dictionary()
    return (
        *(content.run, content.process, content.pid, content.tests, content.complete),
        *(content.size, content.calls, content.lost, content.faults, content.accounting),
        *(content.digest, dict(content.cases()), dict(content.scopes())),
        *(tuple(content.endings()), tuple(content.groups()), blocks, dictionary),
        *(tuple(calls_of(dictionary, blocks, "a run")), tuple(reasons_of(dictionary, blocks))),
        sketches_of(dictionary),
    )


def with_cases(reader):
    """Return the records of calls that have a case."""
    return [raw for raw in reader.raw_calls() if raw.kind in (layout.CASE, layout.OPAQUE)]


def assert_same_calls(content, reader):
    """Check that calls come back from blocks and dictionary as the reader gives them."""
    ids = {number: case.case_id for number, case in content.cases()}
    expected = [reader.call(raw, "a run", ids[raw.number]) for raw in with_cases(reader)]
    assert [*calls_of(content.dictionary(), content.blocks(), "a run")] == expected


def test_a_journal_tells_what_it_is(lines):
    content = JournalContent(lines)
    assert (content.run, content.process, content.pid) == (RUN, 3, os.getpid())
    assert (content.calls, content.lost, content.complete) == (13, 0, True)
    assert content.size == lines.stat().st_size
    assert content.tests == (TEST,)
    assert content.faults == (("a", 2),)


def test_cases_are_those_that_were_recorded(lines):
    reader = JournalReader(lines)
    cases = dict(JournalContent(lines).cases())
    assert cases == {number: describe_case(reader.case(number)) for number in reader.case_numbers()}
    ops = Counter(case.op for case in cases.values())
    assert ops == Counter({"fake.outer": 2, "fake.add": 4, "fake.odd": 1})
    assert [case.replayable for case in cases.values()].count(False) == 1


def test_every_call_comes_back_from_blocks_and_dictionary(lines):
    content = JournalContent(lines)
    assert_same_calls(content, JournalReader(lines))
    whole = content.dictionary(), [*content.blocks()]
    assert [(index, why) for index, why, _ in reasons_of(*whole)] == [
        *((9, "filtered"), (12, "untraceable"))
    ]
    assert next(text for _, _, text in reasons_of(*whole)) == "why not"
    assert sketches_of(whole[0]) == {4: [{"at": "output", "count": 1}]}


def test_groups_count_every_call_once(lines):
    content, reader = JournalContent(lines), JournalReader(lines)
    expected = Counter()
    times = {}
    for raw in reader.raw_calls():
        case = raw.number if raw.kind in (layout.CASE, layout.OPAQUE) else 0
        key = (case, raw.scope, raw.ending, raw.outcome, raw.depth == 0)
        expected[key] += 1
        times.setdefault(key, []).append(raw.ended - raw.entered)
    groups = [*content.groups()]
    keys = [(g.case, g.scope, g.ending, g.outcome, g.outermost) for g in groups]
    assert dict(zip(keys, [group.count for group in groups], strict=True)) == expected
    assert {
        key: (group.total_ns, group.shortest_ns, group.longest_ns)
        for key, group in zip(keys, groups, strict=True)
    } == {key: (sum(found), min(found), max(found)) for key, found in times.items()}
    assert sum(group.count for group in groups) == content.calls
    assert len(groups) < content.calls


def test_scopes_and_endings_are_told_by_their_numbers(lines):
    content, reader = JournalContent(lines), JournalReader(lines)
    device = DeviceParameters((1, 8), l1_small_size=100)
    scope = Scope("test_it.py::test_a", Phase.SETUP, "attention", "decode", device)
    assert dict(content.scopes()) == {1: scope}
    endings = {(is_error, number): text for number, is_error, text in content.endings()}
    raised = [raw.ending for raw in reader.raw_calls() if raw.outcome is CallOutcome.RAISED]
    assert [endings[True, number] for number in raised] == [reader.error(raised[0])]
    assert '[{"$tuple":[1,2.5]}]' in endings.values()


def test_accounting_adds_up_and_is_that_of_the_summary(lines):
    accounting = JournalContent(lines).accounting
    assert accounting.adds_up()
    assert accounting == summarize([JournalReader(lines)]).accounting
    assert dict(accounting.filtered) == {"why not": 1}


def test_lost_calls_are_accounted_for(tmp_path):
    recorder, journal = begin(tmp_path)
    make_calls(recorder)
    journal.tell_lost(5)
    journal.close()
    content = JournalContent(*find_journals(tmp_path))
    assert (content.lost, content.calls, content.accounting.observed) == (5, 13, 18)
    assert content.accounting.adds_up()
    assert ("the journal could not be written", 5) in content.accounting.untraceable


def test_equal_journals_have_equal_digests_and_others_have_not(lines, calls):
    digest = JournalContent(lines).digest
    assert JournalContent(lines).digest == digest
    whole = lines.read_bytes(), calls.read_bytes()
    end = layout.HEADER_SIZE + 13 * layout.RECORD_SIZE
    (lines.parent / "copy").mkdir()
    copy = lines.parent / "copy" / lines.name
    copy.write_bytes(whole[0])
    copy.with_suffix(layout.CALLS).write_bytes(whole[1][:end])
    assert JournalContent(copy).digest == digest
    lines.write_bytes(whole[0] + b'{"site":99,"file":"a","line":1}\n')
    changed = JournalContent(lines).digest
    lines.write_bytes(whole[0] + b"{")
    torn = JournalContent(lines).digest
    lines.write_bytes(whole[0])
    calls.write_bytes(whole[1][: layout.HEADER_SIZE + 9 * layout.RECORD_SIZE])
    shorter = JournalContent(lines).digest
    assert len({digest, changed, torn, shorter}) == 4


@pytest.mark.parametrize("way", ["no end", "torn", "unfinished"])
def test_a_journal_that_did_not_end_in_order_is_not_complete(lines, calls, way):
    whole = lines.read_bytes()
    if way == "no end":
        lines.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    elif way == "torn":
        lines.write_bytes(whole + b'{"site": 99, "fi')
    else:
        records = bytearray(calls.read_bytes())
        # The last word of the third record: its outcome.
        place = layout.HEADER_SIZE + 3 * layout.RECORD_SIZE - 4
        records[place : place + 4] = bytes(4)
        calls.write_bytes(records)
    content = JournalContent(lines)
    assert not content.complete
    assert content.calls == 13
    assert content.size == lines.stat().st_size
    assert_same_calls(content, JournalReader(lines))
    unfinished = [g for g in content.groups() if g.outcome is CallOutcome.UNFINISHED]
    times = [(g.total_ns, g.shortest_ns, g.longest_ns, g.ending) for g in unfinished]
    assert times == ([(0, None, None, 0)] if way == "unfinished" else [])


def test_a_place_that_was_taken_and_never_used_is_no_call(lines, calls):
    records = bytearray(calls.read_bytes())
    for unused in (0, 4, 5, 9):
        place = layout.HEADER_SIZE + unused * layout.RECORD_SIZE + 16
        records[place : place + 8] = bytes(8)
    calls.write_bytes(records)
    content = JournalContent(lines)
    assert content.calls == 9
    assert [(block.first, block.count) for block in content.blocks()] == [(1, 3), (6, 3), (10, 3)]
    assert_same_calls(content, JournalReader(lines))


def test_a_journal_without_calls_is_read(tmp_path):
    _, journal = begin(tmp_path)
    journal.close()
    content = JournalContent(*find_journals(tmp_path))
    assert (content.calls, [*content.blocks()], [*content.groups()]) == (0, [], [])
    assert content.accounting.observed == 0
    assert [*calls_of(content.dictionary(), content.blocks(), "a run")] == []


def test_a_journal_that_is_being_written_is_read_as_it_was(tmp_path):
    recorder, journal = begin(tmp_path)
    perform(recorder, fake_op(), abs, -1)
    content = JournalContent(*find_journals(tmp_path))

    def look(a):
        return everything(content)

    # In flight while it is looked at, and with cases and results that come later.
    first = perform(recorder, fake_op("fake.later"), look, -2)
    make_calls(recorder)
    assert everything(content) == first
    assert (content.calls, content.complete) == (1, False)
    later = JournalContent(*find_journals(tmp_path))
    journal.write(END)
    journal.close()
    assert (later.calls, later.complete) == (15, True)


def test_calls_that_end_while_they_are_read_have_their_results(tmp_path):
    recorder, journal = begin(tmp_path)

    def meanwhile(a):
        return JournalContent(*find_journals(tmp_path))

    content = perform(recorder, fake_op(result_key=lambda *_: None), meanwhile, 1)
    (call,) = calls_of(content.dictionary(), content.blocks(), "a run")
    assert call.outcome is CallOutcome.RETURNED
    assert len(call.outputs) == 1
    journal.close()


@pytest.mark.slow
def test_more_calls_than_a_block_holds_are_in_several(tmp_path):
    recorder, journal = begin(tmp_path)
    form = fake_op()
    for number in range(BLOCK_CALLS + 10):
        perform(recorder, form, abs, number % 3)
    journal.close()
    content = JournalContent(*find_journals(tmp_path))
    assert [(each.first, each.count) for each in content.blocks()] == [
        *((0, BLOCK_CALLS), (BLOCK_CALLS, 10))
    ]
    assert [group.count for group in content.groups()] == [21849, 21849, 21848]
    indices = [call.op_index for call in calls_of(content.dictionary(), content.blocks(), "r")]
    assert indices == [*range(BLOCK_CALLS + 10)]


def test_files_that_are_not_there_are_said_to_be(lines, calls):
    calls.unlink()
    with pytest.raises(UnusableJournal, match="cannot be read"):
        JournalContent(lines)
    calls.write_bytes(b"something else")
    with pytest.raises(BadData, match="does not begin as one"):
        JournalContent(lines)
    lines.unlink()
    with pytest.raises(OptroveError):
        JournalContent(lines)


def test_a_journal_that_does_not_name_its_run_is_refused_when_that_is_asked(tmp_path):
    Journal(tmp_path, 0).close()
    content = JournalContent(*find_journals(tmp_path))
    with pytest.raises(BadData, match="does not tell of which run"):
        content.run  # noqa: B018 - the look is the point


@pytest.mark.parametrize("kind", ["case", "outputs", "site", "scope", "error", "reason"])
def test_calls_that_refer_to_what_is_not_defined_are_bad_data(lines, kind):
    kept = [
        text
        for text in lines.read_text().splitlines(keepends=True)
        if not isinstance(json.loads(text).get(kind), int)
    ]
    lines.write_text("".join(kept))
    with pytest.raises(BadData, match=f"refers to {kind} [0-9]+, which it does not define"):
        everything(JournalContent(lines))


@pytest.mark.parametrize(
    ("place", "number"),
    [(16, 2**63), (24, 3), (24, 50), (32, 1), (32, 2**64 - 1)],
    ids=["entered too late", "within itself", "within a later one", "no end", "endless"],
)
def test_records_that_cannot_be_are_bad_data(lines, calls, place, number):
    records = bytearray(calls.read_bytes())
    at = layout.HEADER_SIZE + 2 * layout.RECORD_SIZE + place
    layout.PARENT.pack_into(records, at, number)
    calls.write_bytes(records)
    with pytest.raises(BadData):
        everything(JournalContent(lines))


JUNK = (None, True, 0, -1, 1, 2.5, "", "text", [], [1], {}, {"is": 1}, {"t": 1}, 1 << 70)


def damaged(data, chance):
    """Return JSON with one of its parts replaced or taken away."""
    if isinstance(data, (dict, list)) and data and chance.random() < 0.8:
        copy = dict(data) if isinstance(data, dict) else list(data)
        place = chance.choice(list(copy) if isinstance(copy, dict) else range(len(copy)))
        if chance.random() < 0.2:
            del copy[place]
        else:
            copy[place] = damaged(copy[place], chance)
        return copy
    return chance.choice(JUNK)


@pytest.mark.slow
def test_damaged_lines_are_bad_data_and_nothing_worse(lines):
    chance = random.Random(1)  # noqa: S311 - damage, not secrets
    whole = lines.read_text().splitlines()
    refused = 0
    for _ in range(400):
        place = chance.randrange(len(whole))
        text = json.dumps(damaged(json.loads(whole[place]), chance))
        lines.write_text("\n".join([*whole[:place], text, *whole[place + 1 :], ""]))
        try:
            everything(JournalContent(lines))
        except OptroveError:
            refused += 1
    assert refused > 100


@pytest.mark.slow
def test_damaged_calls_are_bad_data_and_nothing_worse(lines, calls):
    chance = random.Random(2)  # noqa: S311 - damage, not secrets
    whole = calls.read_bytes()[: layout.HEADER_SIZE + 16 * layout.RECORD_SIZE]
    refused = 0
    for _ in range(400):
        content = bytearray(whole)
        place = layout.HEADER_SIZE + chance.randrange(13 * layout.RECORD_SIZE)
        content[place] = chance.randrange(256)
        calls.write_bytes(content)
        try:
            everything(JournalContent(lines))
        except OptroveError:
            refused += 1
    assert refused > 20


def test_what_a_trove_hands_back_damaged_is_bad_data(lines):
    content = JournalContent(lines)
    (block,) = content.blocks()
    dictionary = content.dictionary()
    for bad in (
        replace(block, count=block.count + 1),
        replace(block, count=0),
        replace(block, count=10**9),
        replace(block, content=block.content[:20]),
        replace(block, content=b"nothing"),
    ):
        with pytest.raises(BadData):
            [*calls_of(dictionary, [bad], "a run")]
    for bad in (b"", b"nothing", dictionary[:50]):
        with pytest.raises(BadData):
            [*calls_of(bad, [block], "a run")]
