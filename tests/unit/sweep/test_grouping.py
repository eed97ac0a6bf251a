from optrove.sweep.grouping import Needs, file_stem, grouped


def test_groups_are_named_as_files_are_and_the_largest_comes_first():
    needs = [Needs("galaxy", (4, 8)), Needs(), Needs("galaxy", (4, 8)), Needs("n300", None)]
    groups = grouped(range(4), lambda number: needs[number])
    assert [each.members for each in groups] == [(0, 2), (1,), (3,)]
    assert [each.needs.suffix for each in groups] == [".hw_galaxy.mesh_4x8", "", ".hw_n300"]


def test_names_from_data_stay_within_the_directory():
    assert "/" not in file_stem("../../etc/passwd")
    assert "/" not in Needs("../up").suffix
