"""Many processes write to one trove at once; some of them are killed."""

import random
import subprocess
import sys
import time

import pytest

import writing
from optrove.codec.described import describe_case
from optrove.model.records import Query
from optrove.store.place import place_of
from optrove.store.reader import open_reader
from optrove.store.trove import open_trove
from troves import content_of

PROCESSES, TURNS = 8, 4
KILLED = 40


def start(place, process, turns):
    name = str(place.path) if place.url is None else place.url
    return subprocess.Popen(
        [sys.executable, writing.__file__, name, str(process), str(turns)],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_eight_processes_that_write_at_once_lose_nothing(place):
    started = [start(place, process, TURNS) for process in range(PROCESSES)]
    told = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0] * PROCESSES
    assert all(len(lines.splitlines()) == TURNS for lines in told)
    with open_reader(place) as reader:
        assert len(reader.runs()) == PROCESSES * TURNS
        assert reader.count(Query()) == 10 + PROCESSES * TURNS
        (most, *_) = reader.cases(Query(op="ttnn.shared"))
        assert most.calls == 10 * PROCESSES * TURNS


@pytest.mark.slow
def test_whenever_writers_are_killed_all_that_they_told_of_is_there(tmp_path):
    chance = random.Random(20260102)  # noqa: S311 - moments, not secrets
    place = place_of(str(tmp_path / "trove.db"))
    told = set()
    for first in range(0, KILLED, 2):
        # Few turns, so that the trove stays small; more than they live for.
        writers = {process: start(place, process, 40) for process in (first, first + 1)}
        for process, writer in writers.items():
            if process % 2:
                # Not before it writes at all, which takes most of its time.
                told.add((process, int(writer.stdout.readline())))
            time.sleep(chance.uniform(0, 0.05 if process % 2 else 0.5))
            writer.kill()
            told |= {(process, int(line)) for line in writer.communicate()[0].splitlines()}
        if first % 10 == 0:
            assert_holds(place, told)
    assert_holds(place, told)
    assert len(told) >= KILLED // 2


def assert_holds(place, told):
    with open_trove(place, create=True) as trove, trove.reader() as reader:
        if not told:
            return
        runs = {row.run.id for row in reader.runs()}
        known = reader.known(describe_case(writing.own(str(one), n)).case_id for one, n in told)
        (most, *_) = reader.cases(Query(op="ttnn.shared"))
    assert {f"run-{process}-{number}" for process, number in told} <= runs
    assert len(known) == len(told)
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
