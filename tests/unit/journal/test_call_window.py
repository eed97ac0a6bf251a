import zlib

import pytest

from optrove.errors import BadData
from optrove.journal import calls
from optrove.journal.calls import calls_of, calls_within
from optrove.model.records import CallOutcome
from troves import Program


def recorded(directory, count):
    program = Program(directory)
    for number in range(count):
        program.call("ttnn.op", number % 7)
    program.call("ttnn.bad", result=ArithmeticError("no"))
    content = program.end()
    return content.dictionary(), content.blocks


@pytest.mark.parametrize("piece", [1, 7, 2**20])
def test_a_few_calls_are_those_that_all_of_them_begin_with(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(calls, "_PIECE_BYTES", piece)
    dictionary, (block,) = recorded(tmp_path, 40)
    every = list(calls_of(dictionary, [block], "run"))
    for first, most in ((0, 5), (20, 100), (41, 3), (0, 0)):
        seen = calls_within(dictionary, block, first, most)
        expected = [call for call in every if call.op_index >= first][:most]
        assert [(call.op_index, call.case_id, call.took_ns) for call in seen] == [
            (call.op_index, call.case_id, call.duration_ns) for call in expected
        ]
    assert seen == ()
    assert calls_within(dictionary, block, 40, 1)[0].outcome is CallOutcome.RAISED


def test_a_table_of_cases_may_be_in_any_order(tmp_path):
    dictionary, (block,) = recorded(tmp_path, 40)
    content = zlib.decompress(dictionary)
    begin = content.index(b',"cases":{') + len(b',"cases":{')
    end = content.index(b"}", begin)
    turned = b",".join(reversed(content[begin:end].split(b",")))
    assert turned != content[begin:end]
    other = zlib.compress(content[:begin] + turned + content[end:])
    assert calls_within(other, block, 0, 40) == calls_within(dictionary, block, 0, 40)


@pytest.mark.parametrize(
    "dictionary",
    [
        b"",
        b"nonsense",
        zlib.compress(b"{}"),
        zlib.compress(b'{"version":1,"cases":{"1":"ab"'),
        zlib.compress(b'{"version":1,"cases":{}}'),
        zlib.compress(b"x" * 5_000_000),
    ],
)
def test_a_bad_dictionary_is_named(tmp_path, dictionary):
    _, (block,) = recorded(tmp_path, 3)
    with pytest.raises(BadData, match="dictionary of calls"):
        calls_within(dictionary, block, 0, 2)
