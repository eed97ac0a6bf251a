"""What is added to a trove can be read again, once, whatever it was."""

from dataclasses import replace

import pytest

from optrove.errors import BadData
from optrove.journal.reader import JournalReader
from optrove.model.case import Case
from optrove.model.ops import Counting
from optrove.model.records import CallOutcome, Phase, Query, TestOutcome
from optrove.model.trove import Added, Machine
from optrove.model.values import Int, Opaque, Text
from optrove.serializer.described import case_of, describe_case
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.trove import open_trove
from trove_rows import case, tensor
from troves import FINISHED, Program, attempt_of, content_of, imported, run_of

ADD = case("ttnn.add", input_tensor_a=tensor(32, 32), input_tensor_b=1.5)
MUL = case("ttnn.mul", input_tensor_a=tensor(32, 64), input_tensor_b=2)
EVERYTHING = Query(outermost_only=False, data_movement=True)
ALL_CALLS = Counting(all_ops=True, nested=True)


def ids(*cases):
    return [describe_case(each).case_id for each in cases]


def traced(directory, run_id="run", process=0):
    """Trace a small program: nested calls, a test, an error, and calls that are the same."""
    program = Program(directory, run_of(run_id, model="small"), process)
    program.call("fake.add", 1, 2, result=3)
    program.within("test_a.py::test_one", module="layers.0", mode="decode")
    for _ in range(3):
        program.call("fake.add", 1, 2, result=3)
    program.call("fake.outer", 7, result=lambda: program.call("fake.add", 1, 2, result=3))
    program.call("fake.divide", 1, 0, result=ZeroDivisionError("division by zero\0"))
    program.test("test_a.py::test_one")
    program.test("test_a.py::test_two", TestOutcome.SKIPPED)
    return program


def test_an_import_is_read_as_it_was_added(trove):
    machine = Machine("Wormhole", "tt-galaxy-wh", 32, 32, (4, 8), (0, 1))
    record = imported("first", (ADD, 3), (MUL, 4), (ADD, 2), machine=machine, model="llama")
    assert trove.add_imported(record) == Added(1, 1, 9, cases_new=2, cases_known=0)
    with trove.reader() as reader:
        rows = list(reader.cases(Query()))
        (run,) = reader.runs(counting=ALL_CALLS)
        executions = list(reader.executions(ids(MUL, ADD)))
        tensors = reader.tensors(ids(ADD))
    assert [case_of(row.content) for row in rows] == [ADD, MUL]
    assert [row.calls for row in rows] == [5, 4]
    assert [row.case_id for row in rows] == ids(ADD, MUL)
    assert (run.run, run.machine, run.calls, run.cases) == (record.run, machine, 9, 2)
    assert [(row.case_id, row.count) for row in executions] == [
        (ids(MUL)[0], 4),
        (ids(ADD)[0], 5),
    ]
    first = executions[0]
    assert (first.source, first.model, first.board) == ("first.py", "llama", "n300")
    assert (first.machine, first.outermost, first.total_ns) == (machine, True, None)
    assert tensors == {ids(ADD)[0]: describe_case(ADD).tensors}


def test_a_journal_is_read_as_it_was_traced(trove, tmp_path):
    journal = traced(tmp_path / "journal").end()
    added = trove.add_journal(journal)
    assert added == Added(1, 1, 7, cases_new=3, cases_known=0)
    with trove.reader() as reader:
        (run,) = reader.runs(counting=ALL_CALLS)
        rows = {row.op: row for row in reader.cases(EVERYTHING)}
        executions = list(reader.executions([rows["fake.add"].case_id]))
        (failed,) = reader.executions([rows["fake.divide"].case_id])
        calls = list(reader.calls("run"))
        tests = list(reader.tests("run"))
        assert reader.holds("run", 0) == (journal.size, 7)
        assert reader.holds("run", 1) is None
    assert run.run.finished_at == FINISHED
    assert run.machine == Machine(board_type="n300", mesh_device_shape=(1, 2))
    assert (run.calls, run.cases, run.complete) == (7, 3, True)
    assert run.tests == (("passed", 1), ("skipped", 1))
    assert [test.test_id for test in tests] == ["test_a.py::test_one", "test_a.py::test_two"]
    assert {op: row.calls for op, row in rows.items()} == {
        "fake.add": 5,
        "fake.outer": 1,
        "fake.divide": 1,
    }
    assert [(row.count, row.outermost, row.test_id) for row in executions] == [
        (3, True, "test_a.py::test_one"),
        (1, True, None),
        (1, False, "test_a.py::test_one"),
    ]
    assert (executions[0].phase, executions[0].module) == (Phase.CALL, "layers.0")
    assert (executions[0].mode, executions[0].outputs) == ("decode", "[3]")
    assert executions[0].total_ns > 0
    assert (failed.outcome, failed.outputs) == (CallOutcome.RAISED, None)
    assert "division by zero\0" in failed.error
    assert [call.op_index for call in calls] == list(range(7))
    assert calls[5].parent == 4
    assert calls[6].outcome is CallOutcome.RAISED


@pytest.mark.parametrize("kind", ["import", "journal"])
def test_adding_the_same_again_changes_nothing(trove, place, tmp_path, kind):
    journal = traced(tmp_path / "journal").end()

    def add():
        if kind == "import":
            return trove.add_imported(imported("first", (ADD, 3), MUL))
        return trove.add_journal(JournalReader(journal.path))

    first = add()
    before = content_of(place)
    assert add() == Added(cases_known=first.cases_new)
    assert content_of(place) == before


def test_a_journal_that_has_grown_takes_the_place_of_what_was_read_before(trove, place, tmp_path):
    program = traced(tmp_path / "journal")
    assert trove.add_journal(program.content).calls == 7
    with trove.reader() as reader:
        assert not reader.runs()[0].complete
    program.call("fake.late", 1)
    assert trove.add_journal(program.content) == Added(0, 1, 1, cases_new=1, cases_known=3)
    ended = program.end()
    assert trove.add_journal(ended) == Added(0, 1, 0, cases_new=0, cases_known=4)
    with trove.reader() as reader:
        (run,) = reader.runs(counting=ALL_CALLS)
        assert (run.calls, run.cases, run.complete) == (8, 4, True)
    assert_same_as_if_added_alone(place, tmp_path, ended)


def assert_same_as_if_added_alone(place, tmp_path, journal):
    alone = place_of(str(tmp_path / "alone.db"))
    with open_trove(alone, create=True) as other:
        other.add_journal(journal)
    assert content_of(place) == content_of(alone)


def test_an_earlier_state_of_a_journal_does_not_undo_a_later_one(trove, place, tmp_path):
    program = traced(tmp_path / "journal")
    early = program.content
    assert early.calls == 7
    program.call("fake.late", 1)
    trove.add_journal(program.end())
    before = content_of(place)
    trove.add_journal(early)
    assert content_of(place) == before


def test_processes_of_one_run_are_counted_together(trove, tmp_path):
    for process in range(3):
        trove.add_journal(traced(tmp_path / "journal", process=process).end())
    with trove.reader() as reader:
        (run,) = reader.runs(counting=ALL_CALLS)
        assert (run.calls, run.cases) == (21, 3)
        assert run.tests == (("passed", 3), ("skipped", 3))
        assert {call.process for call in reader.calls("run")} == {0, 1, 2}
        (row,) = reader.cases(Query(op="fake.add"))
        assert row.calls == 12


def test_a_call_that_was_going_on_when_its_process_died_is_kept_as_unfinished(trove, tmp_path):
    program = Program(tmp_path / "journal")
    program.call("fake.hang", 1, result=lambda: trove.add_journal(program.content))
    with trove.reader() as reader:
        (row,) = reader.cases(Query())
        (execution,) = reader.executions([row.case_id])
        (run,) = reader.runs(counting=ALL_CALLS)
    program.stop()
    assert (execution.outcome, execution.count) == (CallOutcome.UNFINISHED, 1)
    assert not run.complete


def test_text_that_no_database_takes_is_kept(trove):
    strange = Case("odd\0op", (("a\0b", Text("\ud800\0")), ("c", Opaque("t\0", "\0"))))
    trove.add_imported(imported("first\0", strange, source="s\ud800ource\0", model="\0"))
    with trove.reader() as reader:
        (row,) = reader.cases(Query())
        assert case_of(row.content) == strange
        assert row.op == "odd\\x00op"
        assert not row.replayable
        assert reader.runs()[0].run.source == "s\ud800ource\0"


def test_an_empty_import_is_a_run_without_cases(trove):
    assert trove.add_imported(imported("empty")) == Added(runs=1, recordings=1)
    with trove.reader() as reader:
        (run,) = reader.runs(counting=ALL_CALLS)
        assert (run.calls, run.cases, reader.ops(Query())) == (0, 0, ())


def test_what_is_added_together_is_added_as_a_whole_or_not_at_all(trove, place):
    with trove.together():
        trove.add_imported(imported("first", ADD))
        trove.add_imported(imported("second", MUL))
    before = content_of(place)
    assert len(before["runs"]) == 2
    with pytest.raises(BadData):
        add_and_fail(trove)
    assert content_of(place) == before
    trove.add_imported(imported("third", ADD))
    assert len(content_of(place)["runs"]) == 3


def add_and_fail(trove):
    with trove.together():
        trove.add_imported(imported("third", ADD))
        trove.remove_run("first")
        trove.add_attempts(run_of("replay"), [attempt_of("0" * 64)])


def test_a_journal_that_cannot_be_read_leaves_the_trove_as_it_was(trove, place, tmp_path):
    trove.add_imported(imported("first", ADD))
    before = content_of(place)
    journal = traced(tmp_path / "journal").end()
    lines = journal.path.read_text().splitlines(keepends=True)
    journal.path.write_text("".join(line for line in lines if '"case"' not in line))
    with pytest.raises(BadData):
        trove.add_journal(JournalReader(journal.path))
    assert content_of(place) == before


def test_of_two_accounts_of_a_run_the_finished_one_is_kept(trove, place):
    begun = imported("run", ADD)
    ended = replace(begun, run=replace(begun.run, finished_at=FINISHED, exit_code=1))
    for each in (begun, ended, begun):
        trove.add_imported(each)
    with open_reader(place) as reader:
        assert reader.runs()[0].run == ended.run


def test_numbers_beyond_what_a_database_counts_are_kept_in_cases(trove):
    huge = Case("ttnn.add", (("a", Int(2**200)),))
    trove.add_imported(imported("first", huge))
    with trove.reader() as reader:
        assert [case_of(row.content) for row in reader.cases(Query())] == [huge]
