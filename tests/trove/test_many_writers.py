"""Many processes write to one trove at once; some of them are killed."""

import json
import subprocess
import sys

import pytest

import writing
from optrove.model.records import Query
from optrove.serializer.described import describe_case
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.trove import open_trove
from troves import content_of

PROCESSES, TURNS = 8, 4
KILLED, AT_ONCE = 40, 10


def ask(what, place, *numbers):
    """Let processes write; return what they reported."""
    name = str(place.path) if place.url is None else place.url
    command = [sys.executable, writing.__file__, what, name, *map(str, numbers)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


@pytest.mark.slow
def test_eight_processes_that_write_at_once_lose_nothing(place):
    assert ask("together", place, PROCESSES, TURNS) == [[0, TURNS]] * PROCESSES
    with open_reader(place) as reader:
        assert len(reader.runs()) == PROCESSES * TURNS
        assert reader.count(Query()) == 10 + PROCESSES * TURNS
        (most, *_) = reader.cases(Query(op="ttnn.shared"))
        assert most.calls == 10 * PROCESSES * TURNS


@pytest.mark.slow
def test_whenever_writers_are_killed_all_that_they_reported_is_there(tmp_path):
    place = place_of(str(tmp_path / "trove.db"))
    received = set()
    for first in range(0, KILLED, AT_ONCE):
        received |= {*map(tuple, ask("killed", place, first, AT_ONCE, 20260102 + first))}
        assert_holds(place, received)
    assert len(received) >= KILLED // 2


def assert_holds(place, received):
    with open_trove(place, create=True) as trove, trove.reader() as reader:
        runs = {row.run.id for row in reader.runs()}
        known = reader.known(describe_case(writing.own(*each)).case_id for each in received)
        (most, *_) = reader.cases(Query(op="ttnn.shared"))
    assert {f"run-{process}-{number}" for process, number in received} <= runs
    assert len(known) == len(received)
    # A run that was being written when its writer was killed is there as a whole, or not at all.
    assert most.calls == 10 * len(runs)
    assert len(content_of(place)["executions"]) == 11 * len(runs)


def test_two_writers_of_the_same_cases_take_turns(place):
    with open_trove(place, create=True) as one, open_trove(place, create=True) as other:
        for number in range(3):
            one.add_imported(writing.part_of("a", number))
            other.add_imported(writing.part_of("b", number))
        with one.reader() as reader:
            assert len(reader.runs()) == 6
            assert reader.count(Query(op="ttnn.shared")) == 10
