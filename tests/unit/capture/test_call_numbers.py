from threading import Thread

from optrove.capture.sinks import CallNumbers


def test_the_calls_of_each_test_are_numbered_from_zero():
    numbers = CallNumbers()
    tests = ["a", "a", None, "b", None, "a"]
    found = [numbers.begin(index, None, test) for index, test in enumerate(tests)]
    assert found == [(number, None) for number in (0, 1, 0, 0, 1, 2)]


def test_inner_calls_are_numbered_after_the_call_that_made_them():
    numbers = CallNumbers()
    parents = {10: None, 11: 10, 12: 11, 13: 11, 14: 10, 15: 14}
    found = [numbers.begin(index, parent, "a") for index, parent in parents.items()]
    assert found == [(0, None), (1, 0), (2, 1), (3, 1), (4, 0), (5, 4)]
    for index in parents:
        numbers.end(index)
    assert numbers.begin(16, None, "a") == (6, None)


def test_a_call_that_sinks_do_not_get_has_a_number_only_if_it_makes_one_that_they_get():
    numbers = CallNumbers()
    assert numbers.begin(0, None, "a", counts=False) == (None, None)
    numbers.end(0)
    assert numbers.begin(1, None, "a", counts=False) == (None, None)
    assert numbers.begin(2, 1, "a", counts=False) == (None, None)
    assert numbers.begin(3, 2, "a") == (2, 1)
    assert numbers.begin(4, 2, "a") == (3, 1)


def test_calls_of_several_threads_never_share_a_number():
    numbers, found = CallNumbers(), []

    def work(start):
        for index in range(start, start + 300, 3):
            outer, _ = numbers.begin(index, None, "a")
            middle, its_parent = numbers.begin(index + 1, index, "a")
            inner, parent = numbers.begin(index + 2, index + 1, "a")
            assert (its_parent, parent) == (outer, middle)
            found.extend([inner, middle, outer])

    threads = [Thread(target=work, args=(start,)) for start in range(0, 1200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(1200))
