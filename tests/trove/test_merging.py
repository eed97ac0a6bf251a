"""Troves can be merged in any order, across kinds of databases."""

import pytest

from optrove.model.trove import Added
from optrove.serializer.described import describe_case
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.trove import open_trove
from trove_rows import case, tensor
from troves import Program, attempt_of, content_of, imported, run_of

ADD = case("ttnn.add", a=tensor(32, 32), b=1.5)
MUL = case("ttnn.mul", a=tensor(32, 64), b=2)


def make(place, *parts):
    with open_trove(place, create=True) as trove:
        for part in parts:
            part(trove)
    return place


def merged(place, *others):
    with open_trove(place, create=True) as trove:
        for other in others:
            with open_reader(other) as reader:
                trove.merge(reader)
    return content_of(place)


@pytest.fixture
def one(new_place, tmp_path):
    """A trove with a trace, its test, an import, and an attempt."""
    program = Program(tmp_path / "one", run_of("traced", model="small"))
    program.within("test_a", device=None)
    for number in range(5):
        program.call("fake.add", number % 2, result=number)
    program.test("test_a")
    journal = program.end()
    return make(
        new_place(),
        lambda trove: trove.add_journal(journal),
        lambda trove: trove.add_imported(imported("both", (ADD, 2))),
        lambda trove: trove.add_attempts(
            run_of("replay"), [attempt_of(describe_case(ADD).case_id, "replay")]
        ),
    )


@pytest.fixture
def other(new_place, tmp_path):
    """A trove with an earlier state of the same trace, and another import."""
    program = Program(tmp_path / "other", run_of("traced", model="small"))
    program.call("fake.only_in_the_lesser", 1)
    lesser = program.stop()
    return make(
        new_place(),
        lambda trove: trove.add_journal(lesser),
        lambda trove: trove.add_imported(imported("both", (ADD, 2))),
        lambda trove: trove.add_imported(imported("other", (ADD, 1), (MUL, 4))),
    )


def test_merging_into_an_empty_trove_copies_everything(one, new_place):
    place = new_place()
    with open_trove(place, create=True) as trove, open_reader(one) as reader:
        assert trove.merge(reader) == Added(3, 2, 7, cases_new=3, attempts=1)
        assert trove.merge(reader) == Added(cases_known=3)
    assert content_of(place) == content_of(one)
    with open_reader(place) as copy, open_reader(one) as original:
        assert list(copy.calls("traced")) == list(original.calls("traced"))
        assert list(copy.attempts("replay")) == list(original.attempts("replay"))
        assert len(list(copy.calls("traced"))) == 5


def test_the_order_of_merging_does_not_matter(one, other, new_place):
    assert merged(new_place(), one, other) == merged(new_place(), other, one, other)


def test_the_greater_of_two_recordings_of_a_process_is_kept_wholly(one, other, new_place):
    place = new_place()
    merged(place, other, one)
    with open_reader(place) as reader:
        assert "fake.only_in_the_lesser" not in reader.op_names()
        assert reader.runs("traced")[0].complete


def test_a_trove_merged_into_itself_is_the_same(one):
    before = content_of(one)
    assert merged(one, one) == before


def test_merging_crosses_from_one_kind_of_database_to_the_other(one, new_place, tmp_path):
    file = place_of(str(tmp_path / "crossing.db"))
    assert merged(file, one) == content_of(one)
    back = new_place()
    assert merged(back, file) == content_of(one)


def test_merging_what_has_an_attempt_of_a_case_that_no_run_here_has(one, new_place):
    with open_trove(one, create=False) as trove:
        trove.remove_run("both")
    place = new_place()
    with open_trove(place, create=True) as trove, open_reader(one) as reader:
        assert trove.merge(reader).cases_new == 3
    assert content_of(place) == content_of(one)
