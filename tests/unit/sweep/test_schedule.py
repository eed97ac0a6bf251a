"""What is executed has an order, and the first portions come before the others."""

from optrove.sweep.grouping import most_called_first, portions, shuffled


def test_a_seed_gives_the_same_order_every_time_and_keeps_all():
    items = list(range(50))
    assert shuffled(items, 7) == shuffled(items, 7) != shuffled(items, 8)
    assert sorted(shuffled(items, 7)) == items


def test_the_most_called_come_first_and_others_keep_their_order():
    calls = {"a": None, "b": 3, "c": 9, "d": None, "e": 3}
    assert most_called_first(list(calls), calls.get) == ["c", "b", "e", "a", "d"]


def test_portions_grow_and_are_all_of_it():
    items = list(range(100))
    found = list(portions(items, first=5))
    assert [len(each) for each in found] == [5, 20, 75]
    assert [item for each in found for item in each] == items
    assert list(portions([])) == []
