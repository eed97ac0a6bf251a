import json
import random

import pytest

from optrove.errors import BadData, OptroveError, UnusableJournal
from optrove.journal import format as layout
from optrove.journal.reader import JournalReader, find_journals
from optrove.model.values import Int, Text
from optrove.report.summary import summarize
from tracing import fake_op, perform, readers_in, seen_in, start_recorder


@pytest.fixture
def lines(tmp_path):
    """The lines file of a journal with a bit of everything."""
    recorder, journal = start_recorder(
        tmp_path, left_out=lambda op: "why not" if op == "fake.left" else None
    )
    outer = fake_op("fake.outer", composite=True)
    perform(recorder, outer, lambda a: perform(recorder, fake_op(), abs, a), 1)
    perform(recorder, fake_op("fake.left"), abs, 1)
    perform(recorder, fake_op(), lambda a: [a, 2.5], 2)
    with pytest.raises(TypeError):
        perform(recorder, fake_op(), abs, "text")
    end = {"finished_at": "2026-01-15T10:46:16.345678Z", "exit_code": 1, "faults": {"a": 2}}
    journal.write({"end": end})
    journal.close()
    (path,) = find_journals(tmp_path)
    return path


@pytest.fixture
def calls(lines):
    """The calls file of the same journal."""
    return lines.with_suffix(layout.CALLS)


def read_all(lines):
    """Read everything that there is."""
    reader = JournalReader(lines)
    seen = seen_in(reader)
    summarize([reader])
    return seen


def test_a_whole_journal_reads_well(lines):
    assert [seen.op for seen in read_all(lines)] == [
        *("fake.outer", "fake.add", None, "fake.add", "fake.add")
    ]
    reader = JournalReader(lines)
    assert not reader.torn
    assert (reader.ending.exit_code, reader.ending.faults) == (1, (("a", 2),))
    moments = [seen.call.started_at for seen in read_all(lines)]
    assert moments == sorted(moments)
    assert moments[0].endswith("Z")


@pytest.mark.parametrize("kept", [1, 7, 30])
def test_a_torn_last_line_is_left_out_and_said(lines, kept):
    whole = lines.read_bytes()
    lines.write_bytes(whole + b'{"site": 99, "file": "a", "line": 1234567}'[:kept])
    assert JournalReader(lines).torn
    assert len(read_all(lines)) == 5


def test_a_calls_file_that_was_cut_off_gives_what_is_left(lines, calls):
    whole = calls.read_bytes()
    calls.write_bytes(whole[: layout.HEADER_SIZE + 2 * layout.RECORD_SIZE + 20])
    assert len(read_all(lines)) == 2
    calls.write_bytes(whole[: layout.HEADER_SIZE])
    assert read_all(lines) == []


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"{}\n", b"[1]\n", b"not json\n", b"\xff\xfe\n", b'{"format": "a"}\n']
)
def test_what_is_no_journal_is_refused(lines, content):
    lines.write_bytes(content)
    with pytest.raises(BadData, match=r"line 1: expected the header|not JSON|not UTF-8"):
        JournalReader(lines)


@pytest.mark.parametrize("content", [b"", b"optrove", b"something else" * 1000])
def test_calls_that_are_none_are_refused(lines, calls, content):
    calls.write_bytes(content)
    with pytest.raises(BadData, match="does not begin as one"):
        read_all(lines)


def test_a_newer_journal_is_left_to_a_newer_optrove(lines):
    header, *rest = lines.read_text().splitlines(keepends=True)
    newer = json.dumps(json.loads(header) | {"version": layout.VERSION + 1})
    lines.write_text("".join([newer, "\n", *rest]))
    with pytest.raises(BadData, match="version 2, this optrove reads 1; read it with the optrove"):
        JournalReader(lines)


def test_files_that_are_not_there_are_said_to_be(lines, calls):
    calls.unlink()
    reader = JournalReader(lines)
    with pytest.raises(UnusableJournal, match="cannot be read"):
        [*reader.raw_calls()]
    with pytest.raises(UnusableJournal, match="cannot be read"):
        reader.lost()
    lines.unlink()
    with pytest.raises(UnusableJournal, match="cannot be read"):
        JournalReader(lines)


def test_a_call_of_a_case_that_is_not_defined_is_bad_data(lines):
    kept = [text for text in lines.read_text().splitlines(keepends=True) if '"case"' not in text]
    lines.write_text("".join(kept))
    with pytest.raises(BadData, match="refers to case 1, which it does not define"):
        read_all(lines)


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
            read_all(lines)
        except OptroveError:
            refused += 1
    assert refused > 100


@pytest.mark.slow
def test_damaged_calls_are_bad_data_and_nothing_worse(lines, calls):
    chance = random.Random(2)  # noqa: S311 - damage, not secrets
    whole = calls.read_bytes()[: layout.HEADER_SIZE + 8 * layout.RECORD_SIZE]
    refused = 0
    for _ in range(400):
        content = bytearray(whole)
        place = layout.HEADER_SIZE + chance.randrange(5 * layout.RECORD_SIZE)
        content[place] = chance.randrange(256)
        calls.write_bytes(content)
        try:
            read_all(lines)
        except OptroveError:
            refused += 1
    assert refused > 20


def test_a_journal_can_be_read_while_it_is_written(tmp_path):
    recorder, journal = start_recorder(tmp_path)
    perform(recorder, fake_op(), lambda a: a, 1)
    (reader,) = readers_in(tmp_path)
    perform(recorder, fake_op(), str, 2)
    assert [reader.call(raw, "", "").outputs for raw in reader.raw_calls()] == [
        (Int(1),),
        (Text("2"),),
    ]
    assert [reader.op(raw.number) for raw in reader.raw_calls()] == ["fake.add"] * 2
    journal.close()
