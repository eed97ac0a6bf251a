import pytest

from drawn import drawn_lines
from optrove.model.values import Int, List, Set, Struct
from optrove.report.cases import (
    Varied,
    differing,
    families,
    family_data,
    family_section,
    varied_text,
)
from trove_rows import case, configuration, tensor


def fill(index, **changes):
    arguments = {"cache": tensor(256, 1, 32, 576), "batch_idx": index, **changes}
    return case("ttnn.experimental.paged_fill_cache", **arguments)


def called(*cases, count=2):
    return [configuration(each, {"count": count, "model": "deepseek"}) for each in cases]


def coordinate(x, y):
    return Struct("ttnn.MeshCoordinate", (("coords", List((Int(x), Int(y)))),))


def test_calls_that_differ_in_an_index_are_one_family_with_a_range():
    (family,) = families(called(*map(fill, range(128))))
    assert (family.cases, family.calls) == (128, 256)
    lines = drawn_lines(family_section(family))
    assert lines[0].startswith("Family 1: 128 configurations, 256 calls, such as case ")
    assert "  used by: deepseek" in lines
    assert "  batch_idx: 128 values 0..127" in lines


def test_the_family_that_is_called_most_comes_first():
    other = case("ttnn.experimental.paged_fill_cache", cache=tensor(1, 1, 32, 32), batch_idx=0)
    found = families([*called(fill(0), fill(1)), *called(other, count=50)])
    assert [(family.number, family.calls) for family in found] == [(1, 50), (2, 4)]
    assert found[0].varied == ()


def test_what_varies_within_a_list_is_reported_by_its_place():
    (family,) = families(
        called(*(fill(0, begins=[0, 0, start, 0], ends=(1, start + 1)) for start in (0, 32, 64)))
    )
    lines = drawn_lines(family_section(family))
    assert "  begins: [0, 0, 0, 0]" in lines
    assert "    begins[2]: 3 values 0, 32, 64" in lines
    assert "    ends[1]: 3 values 1, 33, 65" in lines
    assert "  batch_idx: 0" in lines


def test_a_set_of_coordinates_varies_as_a_whole():
    sets = [Set(frozenset({coordinate(0, y)})) for y in range(6)]
    sets.append(Set(frozenset({coordinate(0, 0), coordinate(0, 1)})))
    (family,) = families(called(*(fill(0, mesh_coords=each) for each in sets)))
    (line,) = [line for line in drawn_lines(family_section(family)) if "mesh_coords" in line]
    assert line.startswith("  mesh_coords: 7 values, such as {MeshCoordinate(coords=[0, 0])")


def test_machines_get_every_value_in_order():
    (family,) = families(called(fill(10), fill(9), fill(1)))
    data = family_data(family)
    assert data["varies"] == {"batch_idx": [1, 9, 10]}
    assert data["cases"] == 3
    assert data["example"]["arguments"]["batch_idx"] in (1, 9, 10)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((1, 2), "2 values 1, 2"),
        ((0, 1, 2, 3, 9), "5 values 0..9"),
        ((0.5, 0.25, 1.0, 2.0, 4.0), "5 values 0.25..4.0"),
        (("gelu", "relu"), "2 values, 'gelu', 'relu'"),
        (("a", "b", "c", "d", "e"), "5 values, such as 'a', 'b', 'c', 'd'"),
        ((False, True), "2 values, False, True"),
        ((1.0, {"$float": "inf"}), "2 values, 1.0, inf"),
    ],
)
def test_values_are_listed_or_given_as_a_range(values, text):
    assert varied_text(Varied("x", values)) == text


def test_zero_and_minus_zero_differ_although_they_are_equal():
    assert list(differing({"x": 0.0}, {"x": -0.0})) == [("x", 0.0, -0.0)]
    assert list(differing({"x": [1, 2]}, {"x": [1, 2]})) == []


def test_an_odd_name_of_an_argument_is_found_again():
    cases = [case("ttnn.add", **{"odd name": number}) for number in range(6)]
    (family,) = families(called(*cases))
    assert "  odd name: 6 values 0..5" in drawn_lines(family_section(family))
