"""Troves of every version must open for ever.

Each file is the dump of a trove, as ``sqlite3.Connection.iterdump`` gives it, with a traced run, an
imported one and attempts; from version 2 on with a sweep and calls of a run configuration, too;
from version 4 on with the processes that executed the sweep.
"""

import sqlite3
from pathlib import Path

import pytest

from optrove.model.records import CallOutcome, Outcome, Query
from optrove.model.trove import Added, RunState
from optrove.serializer.described import case_of, describe_case
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.trove import open_trove
from troves import content_of

FILES = sorted(Path(__file__).parent.glob("trove-*.sql"))
EVERYTHING = Query(outermost_only=False, data_movement=True)
LATER = {"configured", "swept"}
"""Runs that troves of version 1 do not have."""


@pytest.fixture(params=FILES, ids=[path.name for path in FILES])
def place(request, tmp_path):
    path = tmp_path / "trove.db"
    connection = sqlite3.connect(path)
    connection.executescript(request.param.read_text(encoding="utf-8"))
    connection.close()
    return place_of(str(path))


def test_all_that_it_holds_can_be_read(place):
    with open_reader(place) as reader:
        ops = {row.op: (row.cases, row.calls) for row in reader.ops(EVERYTHING)}
        assert ops.pop("ttnn.linear", (1, 2)) == (1, 2)
        assert ops == {
            "fake.add": (1, 3),
            "fake.divide": (1, 1),
            "fake.outer": (1, 1),
            "ttnn.add": (1, 3),
            "ttnn.matmul": (1, 4),
        }
        runs = [row.run.id for row in reader.runs() if row.run.id not in LATER]
        assert runs == ["imported", "replayed", "traced"]
        rows = list(reader.cases(EVERYTHING))
        executions = list(reader.executions([row.case_id for row in rows]))
        calls = list(reader.calls("traced"))
        assert [test.outcome.value for test in reader.tests("traced")] == ["passed", "skipped"]
        outcomes = {attempt.outcome for attempt in reader.attempts("replayed")}
    assert len([each for each in executions if each.run_id not in LATER]) == 7
    assert outcomes == {Outcome.PASSED, Outcome.OUT_OF_MEMORY}
    assert [call.op_index for call in calls] == [0, 1, 2, 3, 4]
    assert calls[-1].outcome is CallOutcome.RAISED
    assert {call.call_site.file for call in calls} == {"model.py"}


def test_its_cases_have_the_ids_that_they_always_had(place):
    with open_reader(place) as reader:
        for row in reader.cases(EVERYTHING):
            described = describe_case(case_of(row.content))
            assert described.case_id == row.case_id
            assert described.semantic_id == row.semantic_id
            assert described.family_id == row.family_id
            assert reader.tensors([row.case_id]) == {row.case_id: described.tensors}


def test_it_can_be_merged_and_changed(place, tmp_path):
    copy = place_of(str(tmp_path / "copy.db"))
    with open_reader(place) as reader:
        runs = [row.run.id for row in reader.runs()]
    expected = Added(3, 2, 12, cases_new=5, attempts=2)
    if set(runs) > LATER:
        expected = Added(5, 3, 14, cases_new=7, attempts=4)
    with open_trove(copy, create=True) as trove, open_reader(place) as reader:
        assert trove.merge(reader) == expected
    assert content_of(copy) == content_of(place)
    with open_trove(place, create=False) as trove:
        for run in runs:
            assert trove.remove_run(run).runs == 1
    assert not any(content_of(place).values())


@pytest.mark.parametrize("place", FILES[1:], ids=[path.name for path in FILES[1:]], indirect=True)
def test_its_sweep_can_be_read_and_continued(place):
    with open_reader(place) as reader:
        sweep, planned = reader.sweep("swept"), list(reader.planned("swept"))
        attempts = {each.case_id: each for each in reader.attempts("swept")}
        row = reader.runs("swept")[0]
    assert sweep.left_out == (("invalid: too wide", 2),)
    assert sweep.modules[0].path == "sweeps/add.py"
    assert [each.suite for each in planned] == ["xfail_wide", None, None]
    assert attempts[planned[0].case_id].outcome is Outcome.REJECTED
    assert attempts[planned[1].case_id].notes == ("a mask was supplied",)
    assert (row.planned, row.complete) == (3, False)
    assert row.progress.state is RunState.UNKNOWN
    assert row.progress.alive_at in (None, "2026-01-03T03:04:08.000000Z")
