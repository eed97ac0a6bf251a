from drawn import drawn_lines
from optrove.model.trove import Machine
from optrove.model.values import Opaque
from optrove.report.cases import (
    configuration_data,
    configuration_section,
    heading,
    used_by,
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
    assert "  a replay supplies such parts where it can, and notes it" in lines


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
