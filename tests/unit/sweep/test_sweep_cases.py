"""Which recorded cases a sweep takes, and what it says about the others."""

import pytest

from optrove.errors import NotFound
from optrove.replay.planning import cases_named
from optrove.sweep.planning import MOVING, MOVING_AND_NESTED, NESTED, recorded_cases
from optrove.trove.place import place_of
from optrove.trove.query import Asked
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
    found = recorded_cases(reader, names, Asked(**asked))
    return {each.op for each in found.vectors}, dict(found.left_out)


@pytest.mark.parametrize("names", [(), ("*",)])
def test_nothing_and_a_star_mean_the_same_and_the_rest_can_be_added(reader, names):
    left = {MOVING_AND_NESTED: 3, NESTED: 1}
    assert chosen(reader, *names) == (COMPUTING, left)
    assert chosen(reader, *names, all_ops=True) == (COMPUTING | MOVED, {NESTED: 2})
    nested = COMPUTING | {"fake.inner"}
    assert chosen(reader, *names, nested=True) == (nested, {MOVING: 3})
    every = recorded_cases(reader, names, Asked(all_ops=True, nested=True))
    assert ({each.op for each in every.vectors}, every.left_out) == (nested | MOVED, ())
    assert len(every.vectors) == len(recorded_cases(reader, names, Asked()).vectors) + 4


def test_the_most_called_case_comes_first(reader):
    found = recorded_cases(reader, (), Asked())
    assert [(each.op, each.calls) for each in found.vectors] == [
        ("fake.relu", 3),
        ("fake.outer", 2),
    ]


def test_whoever_names_an_op_that_moves_data_gets_it_besides(reader):
    ops, left = chosen(reader, "to_device", "*")
    assert ops == COMPUTING | {"ttnn.to_device"}
    assert left == {MOVING: 1, NESTED: 2}


def test_vectors_are_for_their_module_and_no_pattern_means_them(reader):
    assert chosen(reader, "*e*")[0] == COMPUTING
    found, _ = cases_named(reader, Asked("*", all_ops=True), every=True)
    assert "sweep.mine.nightly" not in {each.op for each in found}
    found, _ = cases_named(reader, Asked("sweep.mine.*"), every=True)
    assert {each.op for each in found} == {"sweep.mine.nightly"}


def test_filters_that_leave_nothing_are_an_error(reader):
    with pytest.raises(NotFound, match="no such case; list the ops"):
        recorded_cases(reader, (), Asked(dtype="float32"))


def test_where_all_is_left_out_the_error_says_how_to_get_it(tmp_path):
    place = place_of(str(tmp_path / "trove.db"))
    with open_trove(place, create=True) as trove:
        trove.add_imported(imported("m", case("ttnn.to_device", a=1)))
    with (
        open_reader(place) as reader,
        pytest.raises(NotFound, match=r"there are 1 of data-movement ops \(--all-ops adds them\)"),
    ):
        recorded_cases(reader, (), Asked())
