from optrove.report.facets import LastTried, numbers_in

N150, T3K = ("n150", "shadow"), ("t3k", "mock")


def sets(last, *ground):
    return {name: list(numbers_in(cases)) for name, cases in last.outcomes(*ground).items()}


def test_the_last_attempt_on_a_board_of_a_kind_and_anywhere_counts():
    last = LastTried(10)
    assert (last.grounds(), sets(last), last.last(3)) == ((), {}, None)
    last.add(3, N150, "raised", 1)
    last.add(4, N150, "passed", 2)
    last.add(3, T3K, "passed", 3)
    assert last.grounds() == (N150, T3K)
    assert sets(last) == {"passed": [3, 4]}
    assert sets(last, N150) == {"passed": [4], "raised": [3]}
    last.add(3, N150, "passed", 4)
    assert sets(last, N150) == {"passed": [3, 4]}
    assert last.last(3) == ("passed", 4)
    assert last.last(3, T3K) == ("passed", 3)
    assert last.last(3, ("n150", "mock")) is None
    assert list(numbers_in(last.tried(T3K))) == [3]


def test_an_outcome_of_a_later_version_is_not_mistaken_for_another():
    last = LastTried(2)
    last.add(0, N150, "levitated", 1)
    assert (sets(last), last.last(0)) == ({}, None)
