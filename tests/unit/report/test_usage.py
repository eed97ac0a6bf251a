from drawn import drawn_lines
from optrove.report.usage import (
    groups,
    groups_data,
    groups_document,
    usage_data,
    usage_document,
    usage_of,
)
from optrove.serializer.described import describe_case
from trove_rows import case, configuration, memory, tensor


def matmul(weights="bfloat8_b", where="DRAM_INTERLEAVED", rows=32):
    return case(
        "ttnn.matmul",
        input_tensor_a=tensor(1, 1, rows, 64),
        input_tensor_b=tensor(64, 64, dtype=weights, where=memory(where), number=1),
    )


DECODE = {"model": "llama", "test_id": "test_llama.py::test_decode", "board": "n300"}
PREFILL = {"model": "llama", "test_id": "test_llama.py::test_prefill", "board": "t3k"}
CONFIGURATIONS = (
    configuration(matmul(), {"count": 100, **DECODE}, {"count": 20, **PREFILL}),
    configuration(matmul(where="L1_WIDTH_SHARDED"), {"count": 30, **DECODE}),
    configuration(matmul("bfloat16"), {"count": 4, "source": "resnet.py"}),
)


def with_facts():
    cases = (matmul(), matmul(where="L1_WIDTH_SHARDED"), matmul("bfloat16"))
    return zip(CONFIGURATIONS, (describe_case(each).tensors for each in cases), strict=True)


def test_models_are_listed_with_their_tests_boards_and_counts():
    assert drawn_lines(usage_document(usage_of(CONFIGURATIONS))) == [
        "ttnn.matmul: 3 cases, 154 calls",
        "",
        "calls  cases  board     model, and its tests",
        "  150      2  n300 t3k  llama",
        "  130      2  n300        test_llama.py::test_decode",
        "   20      1  t3k         test_llama.py::test_prefill",
        "    4      1            resnet.py",
        "",
        "2 models",
    ]


def test_machines_get_one_row_per_model_source_test_and_board():
    rows = usage_data(usage_of(CONFIGURATIONS))
    assert rows[0] == {
        "op": "ttnn.matmul",
        "model": "llama",
        "source": "demo.py",
        "test": "test_llama.py::test_decode",
        "board": "n300",
        "calls": 130,
        "cases": 2,
    }
    assert [row["calls"] for row in rows] == [130, 20, 4]
    assert rows[-1]["board"] is None


def test_calls_are_grouped_by_the_memory_of_one_argument():
    found = groups(with_facts(), "memory", "input_tensor_b")
    assert drawn_lines(groups_document(found, "memory")) == [
        "calls  cases  models  memory",
        "  124      2       2  DRAM_INTERLEAVED",
        "   30      1       1  L1_WIDTH_SHARDED",
    ]


def test_without_an_argument_all_tensors_of_a_case_make_its_group():
    assert groups_data(groups(with_facts(), "dtype"), "dtype") == [
        {
            "dtype": "input_tensor_a=bfloat16, input_tensor_b=bfloat8_b",
            "calls": 150,
            "cases": 2,
            "models": ["llama"],
        },
        {
            "dtype": "input_tensor_a=bfloat16, input_tensor_b=bfloat16",
            "calls": 4,
            "cases": 1,
            "models": ["resnet.py"],
        },
    ]


def test_groups_of_tensors_add_up_to_all_calls():
    for by in ("dtype", "layout", "memory", "mesh", "shape"):
        assert sum(group.calls for group in groups(with_facts(), by)) == 154


def test_calls_are_grouped_by_who_made_them():
    by_test = {group.value: group.calls for group in groups(with_facts(), "test")}
    assert by_test["test_llama.py::test_decode"] == 130
    assert by_test["(none)"] == 4
    by_model = groups(with_facts(), "model")
    assert [(group.value, group.cases) for group in by_model] == [("llama", 2), ("resnet.py", 1)]


def test_equal_tensors_of_a_list_are_counted():
    one = case("ttnn.concat", tensors=[tensor(32, 32, number=number) for number in range(3)])
    pairs = [(configuration(one, {"count": 1}), describe_case(one).tensors)]
    (group,) = groups(pairs, "shape", "tensors")
    assert group.value == "32x32 (3 times)"
    (group,) = groups(pairs, "shape", "no_such_argument")
    assert group.value == "(none)"


def test_a_test_that_calls_several_ops_is_one_line_of_the_table():
    add = case("ttnn.add", a=tensor(32, 32), b=1)
    both = (*CONFIGURATIONS, configuration(add, {"count": 6, **DECODE}))
    lines = drawn_lines(usage_document(usage_of(both)))
    assert lines[:2] == ["ttnn.matmul: 3 cases, 154 calls", "ttnn.add: 1 case, 6 calls"]
    assert "  136      3  n300        test_llama.py::test_decode" in lines
    assert [row["op"] for row in usage_data(usage_of(both))].count("ttnn.add") == 1
