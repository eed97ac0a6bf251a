import zlib

import pytest

from optrove.errors import BadData
from optrove.journal.calls import calls_of, calls_within
from optrove.model.records import CallOutcome
from troves import Program


def recorded(directory, calls):
    program = Program(directory)
    for number in range(calls):
        program.call("ttnn.op", number % 7)
    program.call("ttnn.bad", result=ArithmeticError("no"))
    content = program.end()
    return content.dictionary(), content.blocks


def test_a_few_calls_are_those_that_all_of_them_begin_with(tmp_path):
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
