from optrove.report.facets import numbers_in
from optrove.report.tried import LastTried


def sets(last, *board):
    return {name: list(numbers_in(cases)) for name, cases in last.outcomes(*board).items()}


def test_the_last_attempt_on_a_board_and_on_any_board_counts():
    last = LastTried(10)
    assert (last.boards(), sets(last), last.last(3)) == ((), {}, None)
    last.add(3, "n150", "raised", 1)
    last.add(4, "n150", "passed", 2)
    last.add(3, "t3k", "passed", 3)
    assert last.boards() == ("n150", "t3k")
    assert sets(last) == {"passed": [3, 4]}
    assert sets(last, "n150") == {"passed": [4], "raised": [3]}
    last.add(3, "n150", "passed", 4)
    assert sets(last, "n150") == {"passed": [3, 4]}
    assert last.last(3) == ("passed", 4)
    assert last.last(3, "t3k") == ("passed", 3)
    assert last.last(3, "galaxy") is None
    assert list(numbers_in(last.tried("t3k"))) == [3]


def test_an_outcome_of_a_later_version_is_not_mistaken_for_another():
    last = LastTried(2)
    last.add(0, "n150", "levitated", 1)
    assert (sets(last), last.last(0)) == ({}, None)
