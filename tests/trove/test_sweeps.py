"""The plan of a sweep is kept before anything is executed, and each of its cases is tried once."""

from dataclasses import replace

import pytest

from optrove.errors import BadData
from optrove.model.ops import is_listed
from optrove.model.pass_rates import PassRate
from optrove.model.records import DeviceKind, Outcome, Query, RunKind, Sweep, SweepModule
from optrove.model.trove import Added, PlannedCase, RunProgress, RunState
from optrove.serializer.described import describe_case
from optrove.trove.reader import open_reader
from optrove.trove.trove import open_trove
from trove_rows import case, tensor
from troves import attempt_of, content_of, imported, run_of

ADD = case("ttnn.add", a=tensor(32, 32), b=1.5)
VECTOR = case("sweep.add.xfail_wide", input_shape=[32, 32])
IDS = {one.op: describe_case(one).case_id for one in (ADD, VECTOR)}
ADD_ID, VECTOR_ID = IDS.values()
CASES = {VECTOR_ID: VECTOR}
PLAN = (
    PlannedCase(VECTOR_ID, DeviceKind.SHADOW, "t3k", "xfail_wide"),
    PlannedCase(ADD_ID, DeviceKind.MOCK, "n300"),
)
SWEEP = Sweep(
    targets=("add", "add.py"),
    filters=(("model", "llama"),),
    suite="xfail_wide",
    source="trove",
    modules=(SweepModule("add", "sweeps/add.py", "abc"),),
    device_kind=DeviceKind.MOCK,
    timeout_ns=5,
    order_seed=3,
    left_out=(("invalid: too wide", 2),),
)
RUN = run_of("sweep", kind=RunKind.SWEEP)


@pytest.fixture
def swept(trove):
    """A trove in which a sweep has begun."""
    trove.add_imported(imported("first", ADD))
    assert trove.add_sweep(RUN, SWEEP, PLAN, CASES) == Added(runs=1, cases_new=1, cases_known=1)
    return trove


def outcomes(reader):
    return {each.case_id: each.outcome for each in reader.attempts("sweep")}


def test_a_sweep_is_read_as_it_was_added(swept, place):
    before = content_of(place)
    assert swept.add_sweep(RUN, SWEEP, PLAN, CASES) == Added(cases_known=2)
    assert content_of(place) == before
    with swept.reader() as reader:
        assert reader.sweep("sweep") == SWEEP
        assert tuple(reader.planned("sweep")) == PLAN
        assert reader.attempted("sweep") == frozenset()
        assert reader.sweep("first") is None
        assert list(reader.planned("first")) == []
        assert [row.case_id for row in reader.cases_by_id([ADD_ID, "0" * 64, VECTOR_ID])] == [
            ADD_ID,
            VECTOR_ID,
        ]


def test_a_run_tells_how_far_its_sweep_is(swept):
    with swept.reader() as reader:
        (row,) = reader.runs("sweep")
        assert (row.planned, row.attempts, row.complete) == (2, (), False)
    swept.add_attempts(RUN, [attempt_of(ADD_ID, "sweep", notes=("one", "two"))])
    swept.add_attempts(RUN, [attempt_of(VECTOR_ID, "sweep", Outcome.REJECTED)])
    with swept.reader() as reader:
        (row,) = reader.runs("sweep")
        assert (row.planned, dict(row.attempts)) == (2, {"passed": 1, "rejected": 1})
        assert row.progress == RunProgress(RunState.UNKNOWN, 2, 2)
    swept.add_attempts(replace(RUN, finished_at="2026-01-02T03:05:00.000000Z"), ())
    with swept.reader() as reader:
        assert reader.runs("sweep")[0].complete
        assert reader.attempted("sweep") == {ADD_ID, VECTOR_ID}
        assert {each.notes for each in reader.attempts("sweep")} == {(), ("one", "two")}
        ((notes,),) = reader.connection.rows(
            "SELECT notes FROM attempts WHERE notes IS NOT NULL", {}
        )
        assert notes == "one\ntwo"
        assert reader.runs("first")[0].planned is None


def test_a_case_of_a_sweep_has_one_attempt_the_earliest(swept):
    first = attempt_of(ADD_ID, "sweep", started_at="2026-01-02T00:00:00Z")
    later = attempt_of(ADD_ID, "sweep", Outcome.HUNG, started_at="2026-01-03T00:00:00Z")
    latest = attempt_of(ADD_ID, "sweep", Outcome.RAISED, started_at="2026-01-04T00:00:00Z")
    assert swept.add_attempts(RUN, [latest, later]) == 1
    assert swept.add_attempts(RUN, [latest]) == 0
    with swept.reader() as reader:
        assert outcomes(reader) == {ADD_ID: Outcome.HUNG}
    assert swept.add_attempts(RUN, [first]) == 1
    with swept.reader() as reader:
        assert outcomes(reader) == {ADD_ID: Outcome.PASSED}


def test_a_plan_with_an_unknown_case_is_refused_and_changes_nothing(trove, place):
    trove.add_imported(imported("first", ADD))
    before = content_of(place)
    with pytest.raises(BadData, match="planned, but is not in the trove"):
        trove.add_sweep(RUN, SWEEP, PLAN)
    assert content_of(place) == before


@pytest.mark.parametrize(
    ("outcome", "xfailed", "rate"),
    [
        (Outcome.REJECTED, 1, PassRate(2, 2)),
        (Outcome.PASSED, 0, PassRate(2, 2)),
        (Outcome.NOT_RUN, 0, PassRate(1, 1)),
    ],
)
def test_what_failed_as_expected_counts_as_passed(swept, outcome, xfailed, rate):
    swept.add_attempts(RUN, [attempt_of(ADD_ID, "sweep"), attempt_of(VECTOR_ID, "sweep", outcome)])
    with swept.reader() as reader:
        (row,) = reader.runs("sweep")
    assert (row.xfailed, row.pass_rate) == (xfailed, rate)


def test_vectors_are_listed_only_where_they_are_asked_for(swept):
    with swept.reader() as reader:
        assert [row.op for row in reader.ops(Query(data_movement=True))] == ["ttnn.add"]
        assert [row.op for row in reader.ops(Query(outermost_only=False))] == ["ttnn.add"]
        listed = reader.ops(Query(data_movement=True, vectors=True))
        assert [(row.op, row.cases, row.calls, is_listed(row.op)) for row in listed] == [
            ("ttnn.add", 1, 1, True),
            ("sweep.add.xfail_wide", 1, 0, False),
        ]
        assert reader.count(Query(op="sweep.*", data_movement=True)) == 1
        assert reader.count(Query(case_id=VECTOR_ID, data_movement=True)) == 1
        assert reader.op_names() == ("sweep.add.xfail_wide", "ttnn.add")


def test_a_sweep_travels_with_merges_and_goes_with_its_run(swept, place, new_place):
    swept.add_attempts(RUN, [attempt_of(VECTOR_ID, "sweep")])
    copy = new_place()
    with open_trove(copy, create=True) as other, open_reader(place) as reader:
        other.merge(reader)
        other.merge(reader)
        assert content_of(copy) == content_of(place)
        assert other.remove_run("sweep").cases == 1
        assert other.remove_run("first").cases == 1
        assert not any(content_of(copy).values())


def test_what_two_copies_of_a_trove_have_done_of_a_sweep_is_one_in_any_order(
    swept, place, new_place
):
    copies = new_place(), new_place(), new_place()
    with open_trove(copies[0], create=True) as other, open_reader(place) as reader:
        other.merge(reader)
        other.add_attempts(RUN, [attempt_of(ADD_ID, "sweep", started_at="2026-01-09T00:00:00Z")])
    swept.add_attempts(RUN, [attempt_of(ADD_ID, "sweep", Outcome.HUNG)])
    swept.add_attempts(RUN, [attempt_of(VECTOR_ID, "sweep")])
    for copy, order in zip(copies[1:], ((place, copies[0]), (copies[0], place)), strict=True):
        with open_trove(copy, create=True) as other:
            for source in order:
                with open_reader(source) as reader:
                    other.merge(reader)
        with open_reader(copy) as reader:
            assert outcomes(reader) == {ADD_ID: Outcome.HUNG, VECTOR_ID: Outcome.PASSED}
    assert content_of(copies[1]) == content_of(copies[2])


def test_an_attempt_that_a_budget_interrupted_gives_way_to_a_later_one(swept):
    late = attempt_of(ADD_ID, "sweep", Outcome.NOT_RUN, detail="budget: its time was over")
    assert swept.add_attempts(RUN, [late]) == 1
    with swept.reader() as reader:
        assert outcomes(reader) == {ADD_ID: Outcome.NOT_RUN}
        assert reader.attempted("sweep") == frozenset()
    assert swept.add_attempts(RUN, [attempt_of(ADD_ID, "sweep", Outcome.PASSED)]) == 1
    assert swept.add_attempts(RUN, [replace(late, seed=1)]) == 0
    with swept.reader() as reader:
        assert outcomes(reader) == {ADD_ID: Outcome.PASSED}
        assert reader.attempted("sweep") == {ADD_ID}
