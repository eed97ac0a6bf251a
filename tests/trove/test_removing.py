"""Removing a Run leaves the trove as if it had never been there."""

import pytest

from optrove.model.records import Query
from optrove.model.trove import Removed
from optrove.serializer.described import describe_case
from trove_rows import case, tensor
from troves import ENVIRONMENT, Program, attempt_of, content_of, imported, run_of

ADD = case("ttnn.add", a=tensor(32, 32), b=1.5)
MUL = case("ttnn.mul", a=tensor(32, 64), b=2)


def test_what_other_runs_use_stays(trove, place):
    trove.add_imported(imported("kept", (ADD, 2)))
    before = content_of(place)
    trove.add_imported(imported("gone", (ADD, 3), (MUL, 4)))
    assert trove.remove_run("gone") == Removed(runs=1, recordings=1, calls=7, cases=1)
    assert content_of(place) == before


def test_of_the_last_run_nothing_stays(trove, place, tmp_path):
    empty = content_of(place)
    program = Program(tmp_path / "journal", run_of("traced"))
    program.within("test_a")
    program.call("fake.add", 1, result=2)
    program.test("test_a")
    trove.add_journal(program.end())
    with trove.reader() as reader:
        (case_id,) = reader.find_case("")
    trove.add_attempts(run_of("traced"), [attempt_of(case_id, "traced")])
    assert trove.remove_run("traced") == Removed(1, 1, 1, 1)
    assert content_of(place) == empty


def test_a_run_that_is_not_there_is_not_removed(trove, place):
    trove.add_imported(imported("kept", ADD))
    before = content_of(place)
    assert trove.remove_run("other") == Removed(0, 0, 0, 0)
    assert content_of(place) == before


def test_a_case_that_was_attempted_stays_with_the_attempt(trove, place):
    trove.add_imported(imported("first", ADD, MUL))
    case_id = describe_case(ADD).case_id
    trove.add_attempts(run_of("replay"), [attempt_of(case_id, "replay")])
    assert trove.remove_run("first").cases == 1
    with trove.reader() as reader:
        assert reader.find_case("") == (case_id,)
        assert reader.count(Query()) == 0
    assert trove.remove_run("replay").cases == 1
    assert content_of(place)["environments"] == []


def test_what_was_removed_can_be_added_again(trove, place):
    trove.add_imported(imported("first", ADD, MUL))
    trove.add_imported(imported("second", MUL))
    before = content_of(place)
    trove.remove_run("first")
    trove.add_imported(imported("first", ADD, MUL))
    assert content_of(place) == before


@pytest.mark.parametrize("process", [0, 1])
def test_what_one_process_alone_has_used_goes_when_its_journal_is_replaced(
    trove, place, tmp_path, process
):
    """Two journals claim to be the same process; the complete one wins wholly."""
    killed = Program(tmp_path / "killed", run_of("run", environment=ENVIRONMENT), process)
    killed.within("test_killed")
    killed.call("fake.only_here", 1, result=2)
    killed.call("fake.both", 1)
    trove.add_journal(killed.stop())
    complete = Program(tmp_path / "complete", run_of("run"), process)
    complete.call("fake.both", 1)
    trove.add_journal(complete.end())
    with trove.reader() as reader:
        assert reader.op_names() == ("fake.both",)
    assert len(content_of(place)["scopes"]) == 0
