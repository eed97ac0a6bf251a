from optrove.report.facets import FamilyOrder

FAMILIES = (0, 1, 0, 2, 1, 1)
CALLS = (9, 8, 3, 2, 2, 2)
EVERY = 0b111111


def test_families_come_most_called_first_and_go_on_after_any_of_them():
    order = FamilyOrder(FAMILIES, CALLS)
    assert list(order.after(None, EVERY)) == [[0, 2], [1, 4, 5], [3]]
    assert list(order.after(0, EVERY)) == [[1, 4, 5], [3]]
    assert list(order.after(2, EVERY)) == []


def test_only_cases_of_the_set_are_in_them():
    order = FamilyOrder(FAMILIES, CALLS)
    assert list(order.after(None, 0b110100)) == [[2], [4, 5]]
    assert list(order.after(None, 0)) == []
    assert list(FamilyOrder((), ()).after(None, 0)) == []
