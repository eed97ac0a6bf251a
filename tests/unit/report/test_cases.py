import pytest

from drawn import drawn_lines
from optrove.model.trove import Machine
from optrove.model.values import Int, List, Opaque, Set, Struct
from optrove.report.cases import (
    Varied,
    configuration_data,
    configuration_section,
    differing,
    families,
    family_data,
    family_section,
    heading,
    used_by,
    varied_text,
)
from optrove.serializer.described import describe_case
from trove_rows import case, configuration, memory, shard, tensor

SHARDED = memory("L1_HEIGHT_SHARDED", shard((224, 32), (7, 6)))
SIGMOID = case(
    "ttnn.sigmoid_accurate", input_tensor=tensor(1, 1, 12544, 32, dtype="bfloat8_b", where=SHARDED)
)
LLAMA = {"count": 90, "model": "llama", "board": "n300", "test_id": "test_a.py::test_decode"}
IMPORTED = {"count": 6, "source": "b.py", "machine": Machine("Wormhole", "n150")}


def test_a_configuration_reads_as_the_analyzer_of_tt_metal_shows_it():
    block = drawn_lines(configuration_section(configuration(SIGMOID, LLAMA, IMPORTED, number=3)))
    assert block == [
        f"Configuration 3: case {describe_case(SIGMOID).case_id[:12]}, 96 calls",
        "  used by: llama (n300), b.py (Wormhole n150)",
        "  input_tensor: Tensor(shape=[1, 1, 12544, 32], dtype=BFLOAT8_B,",
        "                       memory=L1_HEIGHT_SHARDED, shard(shard_shape=[224, 32],",
        "                       grid=[(0,0)->(7,6)], orientation=ROW_MAJOR))",
    ]


def test_the_heading_counts_what_is_shown_of_what_there_is():
    assert drawn_lines(heading("ttnn.add", cases=30, every=30)) == [
        "Operation: ttnn.add",
        "Configurations: 30",
    ]
    assert drawn_lines(heading("ttnn.add", cases=5, every=30))[1] == "Configurations: 5 of 30"


def test_a_case_that_cannot_be_replayed_says_where_and_why():
    strange = configuration(case("ttnn.add", a=Opaque("ttnn.Strange", "x1")), {"count": 1})
    lines = drawn_lines(configuration_section(strange))
    missing = "ttnn.Strange at $.arguments.a, no converter knows this type"
    assert f"  not recorded completely: {missing}" in lines
    assert "  a replay supplies these parts if it can" in lines


def test_a_case_that_raised_says_so_in_one_line():
    raised = configuration(case("ttnn.add", a=1), {"count": 1})
    error = "RuntimeError: no\nbacktrace"
    lines = drawn_lines(configuration_section(raised, raised=error))
    assert "  raised when recorded: RuntimeError: no" in lines
    assert configuration_data(raised, raised=error)["recorded_error"] == error
    assert not any("raised" in line for line in drawn_lines(configuration_section(raised)))


def test_many_models_are_counted_instead_of_listed():
    models = tuple((f"model-{number}", ()) for number in range(9))
    text = " ".join(line.strip() for line in drawn_lines(used_by(models)))
    assert text.startswith("used by: model-0, model-1")
    assert text.endswith("model-5, 3 more (optrove who lists all)")


def test_machines_get_both_hashes_the_arguments_and_the_executions():
    found = describe_case(SIGMOID)
    data = configuration_data(configuration(SIGMOID, LLAMA, IMPORTED))
    assert data["case_id"] == found.case_id
    assert data["semantic_id"] == found.semantic_id
    assert data["calls"] == 96
    assert data["models"] == ["b.py", "llama"]
    assert data["arguments"]["input_tensor"]["$tensor"]["shape"] == [1, 1, 12544, 32]
    first, second = data["executions"]
    assert (first["test"], first["count"], first["board"]) == (LLAMA["test_id"], 90, "n300")
    assert second["machine_info"]["device_series"] == "n150"
    assert second["outcome"] == "returned"


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
