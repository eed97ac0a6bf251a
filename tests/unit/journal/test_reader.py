import json
import os
import random
import sys
from collections import Counter
from dataclasses import replace

import pytest

from optrove.capture.recorder import Recorder
from optrove.errors import BadData, OptroveError, UnusableJournal
from optrove.journal import format as layout
from optrove.journal import reader as module
from optrove.journal.calls import BLOCK_CALLS, calls_of
from optrove.journal.format import find_journals
from optrove.journal.reader import JournalReader
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
from optrove.model.values import Text
from optrove.report.summary import summarize
from optrove.serializer.described import case_of, describe_case
from optrove.serializer.records import record_to_builtins
from optrove.trove.recordings import journal_recording
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


def everything(reader):
    """Return all that a journal tells."""
    cases = {number: reader.case(number) for number in reader.case_ids()}
    return (
        *(reader.run, reader.process, reader.pid, reader.tests, reader.complete),
        *(reader.size, reader.calls, reader.lost, reader.ending, summarize([reader])),
        *(reader.digest, cases, dict(reader.scopes())),
        *(tuple(reader.endings()), dict(reader.tallies), reader.blocks, reader.dictionary()),
        *(tuple(reader.calls_with_case()), tuple(reader.in_flight())),
        *(tuple(reader.config_calls()), dict(reader.sketches)),
    )


def records_of(lines):
    """Return the records of the calls that had begun as they are in the file, by op_index."""
    content = lines.with_suffix(layout.CALLS).read_bytes()[layout.HEADER_SIZE :]
    whole = content[: len(content) - len(content) % layout.RECORD_SIZE]
    records = enumerate(layout.RECORD.iter_unpack(whole))
    return {op_index: record for op_index, record in records if record[3]}


def assert_calls_are_those_of_the_file(reader):
    """Check that calls come back from blocks and dictionary as the records and lines say."""
    given = [json.loads(text) for text in reader.path.read_text().splitlines() if text[-1:] == "}"]
    sites = {0: None} | {line["site"]: line["line"] for line in given if "site" in line}
    scopes = {0: None} | {line["scope"]: line.get("test_id") for line in given if "scope" in line}
    expected = []
    for op_index, record in records_of(reader.path).items():
        word, site, scope, entered, parent, ended, ending, outcome = record
        if layout.kind_of(word) in (layout.CASE, layout.OPAQUE):
            case_id = reader.case(layout.number_of(word)).case_id
            took = ended - entered if outcome else None
            expected.append(
                (
                    *(op_index, case_id, layout.depth_of(word), parent - 1 if parent else None),
                    *(took, layout.OUTCOMES[outcome], sites[site], scopes[scope]),
                    bool(outcome and ending),
                )
            )
    assert [
        (
            *(call.op_index, call.case_id, call.depth, call.parent, call.duration_ns),
            *(call.outcome, call.call_site and call.call_site.line, call.test_id),
            bool(call.outputs or call.error),
        )
        for call in reader.calls_with_case()
    ] == expected


def test_a_journal_tells_what_it_is(lines):
    reader = JournalReader(lines)
    assert (reader.run, reader.process, reader.pid) == (RUN, 3, os.getpid())
    assert (reader.calls, reader.lost, reader.complete) == (13, 0, True)
    assert reader.size == lines.stat().st_size
    assert reader.tests == (TEST,)
    assert (reader.ending.exit_code, reader.ending.faults) == (1, (("a", 2),))
    assert not reader.torn


def test_cases_are_those_that_were_recorded(lines):
    reader = JournalReader(lines)
    cases = {number: reader.case(number) for number in reader.case_ids()}
    assert cases == {number: describe_case(case_of(case.content)) for number, case in cases.items()}
    assert [case.op for case in cases.values()] == [reader.op(number) for number in cases]
    ops = Counter(case.op for case in cases.values())
    assert ops == Counter({"fake.outer": 2, "fake.add": 4, "fake.odd": 1})
    assert [case.replayable for case in cases.values()].count(False) == 1


def test_every_call_comes_back_from_blocks_and_dictionary(lines):
    reader = JournalReader(lines)
    assert_calls_are_those_of_the_file(reader)
    calls = [*reader.calls_with_case()]
    assert [call.started_at for call in calls] == sorted(call.started_at for call in calls)
    assert all(call.started_at.endswith("Z") for call in calls)


def test_tallies_count_every_call_once(lines):
    reader = JournalReader(lines)
    expected = {}
    for word, _, scope, entered, _, ended, ending, outcome in records_of(lines).values():
        if layout.kind_of(word) in (layout.CASE, layout.OPAQUE):
            expected.setdefault((word, scope, ending, outcome), []).append(ended - entered)
    groups = {key: tally for key, tally in reader.tallies.items() if layout.has_case(key[0])}
    assert groups == {
        key: (len(took), sum(took), min(took), max(took)) for key, took in expected.items()
    }
    assert sum(tally.calls for tally in reader.tallies.values()) == reader.calls
    assert len(groups) < reader.calls


def test_scopes_and_endings_are_known_by_their_numbers(lines):
    reader = JournalReader(lines)
    device = DeviceParameters((1, 8), l1_small_size=100)
    scope = Scope("test_it.py::test_a", Phase.SETUP, "attention", "decode", device)
    assert dict(reader.scopes()) == {1: scope}
    endings = {(is_error, number): text for number, is_error, text in reader.endings()}
    (raised,) = [ending for _, _, ending, outcome in reader.tallies if outcome == layout.RAISED]
    assert endings[True, raised].startswith("TypeError: ")
    assert '[{"$tuple":[1,2.5]}]' in endings.values()


def test_the_summary_adds_up(lines):
    accounting = summarize([JournalReader(lines)]).accounting
    assert accounting.adds_up()
    assert accounting.observed == 13
    assert dict(accounting.filtered) == {"why not": 1}


def test_lost_calls_are_accounted_for(tmp_path):
    recorder, journal = begin(tmp_path)
    make_calls(recorder)
    journal.store_lost(5)
    journal.close()
    reader = JournalReader(*find_journals(tmp_path))
    accounting = summarize([reader]).accounting
    assert (reader.lost, reader.calls, accounting.observed) == (5, 13, 18)
    assert accounting.adds_up()
    assert ("the journal could not be written", 5) in accounting.untraceable


def test_equal_journals_have_equal_digests_and_others_have_not(lines, calls):
    digest = JournalReader(lines).digest
    assert JournalReader(lines).digest == digest
    whole = lines.read_bytes(), calls.read_bytes()
    end = layout.HEADER_SIZE + 13 * layout.RECORD_SIZE
    (lines.parent / "copy").mkdir()
    copy = lines.parent / "copy" / lines.name
    copy.write_bytes(whole[0])
    copy.with_suffix(layout.CALLS).write_bytes(whole[1][:end])
    assert JournalReader(copy).digest == digest
    lines.write_bytes(whole[0] + b'{"site":99,"file":"a","line":1}\n')
    changed = JournalReader(lines).digest
    lines.write_bytes(whole[0] + b"{")
    torn = JournalReader(lines).digest
    lines.write_bytes(whole[0])
    calls.write_bytes(whole[1][: layout.HEADER_SIZE + 9 * layout.RECORD_SIZE])
    shorter = JournalReader(lines).digest
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
    reader = JournalReader(lines)
    assert not reader.complete
    assert reader.calls == 13
    assert reader.size == lines.stat().st_size
    assert_calls_are_those_of_the_file(reader)
    times = [
        (tally.total_ns, ending)
        for (*_, ending, outcome), tally in reader.tallies.items()
        if not outcome
    ]
    assert times == ([(0, 0)] if way == "unfinished" else [])
    assert [call.op_index for call, _ in reader.in_flight()] == ([2] if times else [])


def test_a_place_that_was_taken_and_never_used_is_no_call(lines, calls):
    records = bytearray(calls.read_bytes())
    for unused in (0, 4, 5, 9):
        place = layout.HEADER_SIZE + unused * layout.RECORD_SIZE + 16
        records[place : place + 8] = bytes(8)
    calls.write_bytes(records)
    reader = JournalReader(lines)
    assert reader.calls == 9
    assert [(block.first, block.count) for block in reader.blocks] == [(1, 3), (6, 3), (10, 3)]
    assert_calls_are_those_of_the_file(reader)


def test_a_journal_without_calls_is_read(tmp_path):
    _, journal = begin(tmp_path)
    journal.close()
    reader = JournalReader(*find_journals(tmp_path))
    assert (reader.calls, reader.blocks, dict(reader.tallies)) == (0, (), {})
    assert summarize([reader]).accounting.observed == 0
    assert [*reader.calls_with_case()] == []


def test_a_journal_that_is_being_written_is_read_as_it_was(tmp_path):
    recorder, journal = begin(tmp_path)
    perform(recorder, fake_op(), abs, -1)
    reader = JournalReader(*find_journals(tmp_path))

    def look(a):
        return everything(reader)

    # In flight while it is looked at, and with cases and results that come later.
    first = perform(recorder, fake_op("fake.later"), look, -2)
    make_calls(recorder)
    assert everything(reader) == first
    assert (reader.calls, reader.complete) == (1, False)
    journal.write(END)
    journal.close()
    later = JournalReader(*find_journals(tmp_path))
    assert (later.calls, later.complete) == (15, True)


def test_calls_that_end_while_they_are_read_have_their_results(tmp_path, monkeypatch):
    recorder, journal = begin(tmp_path)
    entered = recorder.begin(fake_op(), (1,), {}, sys._getframe())

    class Lines(module._Lines):
        def __init__(self, path):
            super().__init__(path)
            recorder.end(entered, "a result")

    monkeypatch.setattr(module, "_Lines", Lines)
    (call,) = JournalReader(*find_journals(tmp_path)).calls_with_case()
    assert call.outcome is CallOutcome.RETURNED
    assert call.outputs == (Text("a result"),)
    journal.close()


@pytest.mark.slow
def test_more_calls_than_a_block_holds_are_in_several(tmp_path):
    recorder, journal = begin(tmp_path)
    form = fake_op()
    for number in range(BLOCK_CALLS + 10):
        perform(recorder, form, abs, number % 3)
    journal.close()
    reader = JournalReader(*find_journals(tmp_path))
    assert [(each.first, each.count) for each in reader.blocks] == [
        *((0, BLOCK_CALLS), (BLOCK_CALLS, 10))
    ]
    assert [tally.calls for tally in reader.tallies.values()] == [21849, 21849, 21848]
    indices = [call.op_index for call in reader.calls_with_case()]
    assert indices == [*range(BLOCK_CALLS + 10)]


def test_files_that_are_not_there_are_said_to_be(lines, calls):
    calls.unlink()
    with pytest.raises(UnusableJournal, match="cannot be read"):
        JournalReader(lines)
    calls.write_bytes(b"something else")
    with pytest.raises(BadData, match="has no header"):
        JournalReader(lines)
    lines.unlink()
    with pytest.raises(OptroveError):
        JournalReader(lines)


def test_a_journal_that_does_not_name_its_run_is_refused_by_a_trove(tmp_path):
    Journal(tmp_path, 0).close()
    reader = JournalReader(*find_journals(tmp_path))
    assert reader.run is None
    with pytest.raises(BadData, match="does not name its run"):
        journal_recording(reader)


@pytest.mark.parametrize("kind", ["case", "outputs", "site", "scope", "error", "reason"])
def test_calls_that_refer_to_what_is_not_defined_are_bad_data(lines, kind):
    kept = [
        text
        for text in lines.read_text().splitlines(keepends=True)
        if not isinstance(json.loads(text).get(kind), int)
    ]
    lines.write_text("".join(kept))
    with pytest.raises(BadData, match=f"refers to {kind} [0-9]+, which it does not define"):
        everything(JournalReader(lines))


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
        everything(JournalReader(lines))


@pytest.mark.parametrize("kept", [1, 7, 30])
def test_a_torn_last_line_is_left_out_and_said(lines, kept):
    whole = lines.read_bytes()
    lines.write_bytes(whole + b'{"site": 99, "file": "a", "line": 1234567}'[:kept])
    assert JournalReader(lines).torn
    assert JournalReader(lines).calls == 13


def test_a_calls_file_that_was_cut_off_gives_what_is_left(lines, calls):
    whole = calls.read_bytes()
    calls.write_bytes(whole[: layout.HEADER_SIZE + 2 * layout.RECORD_SIZE + 20])
    assert JournalReader(lines).calls == 2
    calls.write_bytes(whole[: layout.HEADER_SIZE])
    assert JournalReader(lines).calls == 0


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"{}\n", b"[1]\n", b"not json\n", b"\xff\xfe\n", b'{"format": "a"}\n']
)
def test_what_is_no_journal_is_refused(lines, content):
    lines.write_bytes(content)
    with pytest.raises(BadData, match=r"line 1: expected the header|not JSON|not UTF-8|UTF-16"):
        JournalReader(lines)


@pytest.mark.parametrize("content", [b"", b"optrove", b"something else" * 1000])
def test_a_file_without_calls_is_refused(lines, calls, content):
    calls.write_bytes(content)
    with pytest.raises(BadData, match="has no header"):
        JournalReader(lines)


def test_a_newer_journal_is_left_to_a_newer_optrove(lines):
    header, *rest = lines.read_text().splitlines(keepends=True)
    newer = json.dumps(json.loads(header) | {"version": layout.VERSION + 1})
    lines.write_text("".join([newer, "\n", *rest]))
    with pytest.raises(BadData, match="version 2, this optrove reads 1; read it with the optrove"):
        JournalReader(lines)


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
            everything(JournalReader(lines))
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
            everything(JournalReader(lines))
        except OptroveError:
            refused += 1
    assert refused > 20


def test_what_a_trove_hands_back_damaged_is_bad_data(lines):
    reader = JournalReader(lines)
    (block,) = reader.blocks
    dictionary = reader.dictionary()
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


@pytest.mark.parametrize("suffix", [".lines", ".calls", ".other"])
def test_a_journal_of_which_a_part_hangs_is_none(lines, suffix):
    part = lines.with_suffix(suffix)
    part.unlink(missing_ok=True)
    os.mkfifo(part)
    assert find_journals(lines.parent) == ()
