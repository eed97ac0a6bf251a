"""Which recorded cases a sweep takes, and what it says about the others."""

import pytest

from optrove.errors import NotFound
from optrove.model.records import DeviceKind, Job, Sweep
from optrove.replay.planning import PlannedJob, cases_named
from optrove.sweep.planning import (
    BEYOND,
    MOVING,
    MOVING_AND_NESTED,
    NESTED,
    limited,
    recorded_cases,
    sample_size,
)
from optrove.sweep.vectors import SweepPlan
from optrove.trove.place import place_of
from optrove.trove.query import CaseFilters
from optrove.trove.reader import open_reader
from optrove.trove.trove import open_trove
from trove_rows import case
from troves import Program, imported

COMPUTING = {"fake.outer", "fake.relu"}
MOVED = {"ttnn.from_device", "ttnn.to_device"}


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A trove with ops that compute and that move data, called by a model and by other ops."""
    directory = tmp_path_factory.mktemp("trove")
    program = Program(directory / "journals")
    for _ in range(3):
        program.call("fake.relu", 1)
    program.call("fake.outer", 1, result=lambda: program.call("fake.inner", 2))
    program.call("fake.outer", 1, result=lambda: program.call("ttnn.to_device", 2))
    program.call("ttnn.from_device", 1)
    program.call("ttnn.to_device", 1)
    with open_trove(place_of(str(directory / "trove.db")), create=True) as trove:
        trove.add_journal(program.end())
        trove.add_imported(imported("v", case("sweep.mine.nightly", a=1)))
    with open_reader(place_of(str(directory / "trove.db"))) as opened:
        yield opened


def chosen(reader, *names, **asked):
    """Return the ops of the cases that are chosen, and what is left out."""
    found = recorded_cases(reader, names, CaseFilters(**asked))
    return {each.op for each in found.vectors}, dict(found.left_out)


@pytest.mark.parametrize("names", [(), ("*",)])
def test_nothing_and_a_star_mean_the_same_and_the_rest_can_be_added(reader, names):
    left = {MOVING_AND_NESTED: 3, NESTED: 1}
    assert chosen(reader, *names) == (COMPUTING, left)
    assert chosen(reader, *names, all_ops=True) == (COMPUTING | MOVED, {NESTED: 2})
    nested = COMPUTING | {"fake.inner"}
    assert chosen(reader, *names, nested=True) == (nested, {MOVING: 3})
    every = recorded_cases(reader, names, CaseFilters(all_ops=True, nested=True))
    assert ({each.op for each in every.vectors}, every.left_out) == (nested | MOVED, ())
    assert len(every.vectors) == len(recorded_cases(reader, names, CaseFilters()).vectors) + 4


def test_the_most_called_case_comes_first(reader):
    found = recorded_cases(reader, (), CaseFilters())
    assert [(each.op, each.calls) for each in found.vectors] == [
        ("fake.relu", 3),
        ("fake.outer", 2),
    ]


def test_an_op_that_moves_data_is_included_if_it_is_named(reader):
    ops, left = chosen(reader, "to_device", "*")
    assert ops == COMPUTING | {"ttnn.to_device"}
    assert left == {MOVING: 1, NESTED: 2}


def test_vectors_are_for_their_module_and_no_pattern_means_them(reader):
    assert chosen(reader, "*e*")[0] == COMPUTING
    found, _ = cases_named(reader, CaseFilters("*", all_ops=True), every=True)
    assert "sweep.mine.nightly" not in {each.op for each in found}
    found, _ = cases_named(reader, CaseFilters("sweep.mine.*"), every=True)
    assert {each.op for each in found} == {"sweep.mine.nightly"}


def test_filters_that_leave_nothing_are_an_error(reader):
    with pytest.raises(NotFound, match="no such case; list the ops"):
        recorded_cases(reader, (), CaseFilters(dtype="float32"))


def test_where_all_is_left_out_the_error_says_how_to_get_it(tmp_path):
    place = place_of(str(tmp_path / "trove.db"))
    with open_trove(place, create=True) as trove:
        trove.add_imported(imported("m", case("ttnn.to_device", a=1)))
    with (
        open_reader(place) as reader,
        pytest.raises(NotFound, match=r"left out: 1 that only move data \(--all-ops adds them\)"),
    ):
        recorded_cases(reader, (), CaseFilters())


def plan(count, suite=None):
    """Return a plan of so many cases: of an op, or of a module."""
    cases = [case("sweep.mine.s" if suite else "ttnn.add", a=number) for number in range(count)]
    return SweepPlan(
        tuple(PlannedJob(Job(one, DeviceKind.HOST), str(one), suite=suite) for one in cases)
    )


def numbers(part):
    return [dict(each.job.case.arguments)["a"].value for each in part.vectors]


def test_a_limit_is_divided_among_parts_and_takes_the_first_cases_or_a_sample_of_vectors():
    ops, module = limited([plan(100), plan(100, "nightly")], 10, 3)
    assert numbers(ops) == [0, 1, 2, 3, 4]
    assert len(numbers(module)) == 5
    assert numbers(module) == sorted(numbers(module)) != [0, 1, 2, 3, 4]
    assert (ops.left_out, module.left_out) == (((BEYOND, 95),), ((BEYOND, 95),))
    few, many = limited([plan(2), plan(100)], 10, 3)
    assert (len(few.vectors), len(many.vectors), few.left_out) == (2, 8, ())
    assert [len(each.vectors) for each in limited([plan(5), plan(5)], 1, 0)] == [1, 0]


@pytest.mark.parametrize(
    ("sweep", "size"),
    [
        (Sweep(), None),
        (Sweep(filters=(("limit", "7"),), budget_ns=10**9), 7),
        (Sweep(budget_ns=10**9), 1000),
        (Sweep(budget_ns=3600 * 10**9), 720_000),
        (Sweep(filters=(("vector_id", "00"),), budget_ns=10**9), None),
    ],
)
def test_a_module_makes_no_more_vectors_than_a_sweep_can_execute(sweep, size):
    assert sample_size(sweep) == size
