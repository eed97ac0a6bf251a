"""The loader of traced configurations, as far as it needs no framework."""

import json
import logging

import pytest

from masters import configuration, master, memory, printed_memory, printed_tensor, tensor, unparsed
from optrove.errors import NotFound, NoTrove
from optrove.replay.sweep_module import executing
from optrove.sweep import MasterConfigLoader, unpack_binary_traced_config, unpack_traced_config
from small_trove import LLAMA_IMPORT, RESNET_IMPORT, make_trove


def names(path, op, **how):
    return MasterConfigLoader(path).get_suite_parameters(op, **how).get("traced_config_name", [])


@pytest.fixture
def version_2(tmp_path):
    relu = [
        configuration({"input_tensor": tensor(shape), "memory_config": stored_in}, number=number)
        for number, (shape, stored_in) in enumerate(
            [((32, 32), memory()), ((32, 32), memory(buffer="L1")), ((64, 32), memory())], start=1
        )
    ]
    path = tmp_path / "v2.json"
    path.write_text(json.dumps(master(*relu, op="ttnn.relu")))
    return path


@pytest.fixture
def version_1(tmp_path):
    first = printed_tensor(printed_memory(), dtype="BFLOAT8_B")
    path = tmp_path / "v1.json"
    configurations = [[unparsed("arg0", first), {"arg1": "nullopt"}]]
    path.write_text(
        json.dumps({"operations": {"ttnn::sigmoid": {"configurations": configurations}}})
    )
    return path


def test_masters_of_both_generations_give_names(version_1, version_2, caplog):
    with caplog.at_level(logging.INFO, "optrove"):
        assert names(version_1, "ttnn::sigmoid") == [
            "ttnn.sigmoid(1x1x49x24 bfloat8_b TILE L1_INTERLEAVED)"
        ]
        assert names(version_2, "relu") == [
            "ttnn.relu(32x32 bfloat8_b TILE DRAM_INTERLEAVED on 4x8) -> DRAM_INTERLEAVED",
            "ttnn.relu(64x32 bfloat8_b TILE DRAM_INTERLEAVED on 4x8) -> DRAM_INTERLEAVED",
        ]
    assert caplog.messages == [
        "ttnn.sigmoid: 1 traced, 1 distinct",
        "ttnn.relu: 3 traced, 2 distinct",
    ]


def test_the_variable_says_where_they_are_and_else_the_usual_trove(
    version_2, tmp_path, monkeypatch
):
    make_trove(tmp_path / "trove.db", LLAMA_IMPORT, RESNET_IMPORT)
    monkeypatch.setenv("OPTROVE_STORE", str(tmp_path / "trove.db"))
    monkeypatch.delenv("TTNN_MASTER_JSON_PATH", raising=False)
    assert len(names(None, "matmul")) == 3
    assert len(names(None, "paged_fill_cache")) == 1
    monkeypatch.setenv("TTNN_MASTER_JSON_PATH", str(version_2))
    assert len(names(None, "relu")) == 2
    assert len(names(tmp_path / "trove.db", "matmul")) == 3


def test_an_op_that_was_never_traced_gives_nothing_and_a_warning(version_2, caplog):
    assert MasterConfigLoader(version_2).get_suite_parameters("rellu") == {}
    assert caplog.messages == [
        f"no configurations of 'rellu' were traced in {version_2}; the nearest: ttnn.relu"
    ]


def test_no_trove_is_an_error_unless_vectors_are_there_already(tmp_path, caplog):
    with pytest.raises(NoTrove):
        names(tmp_path / "none.db", "add")
    token = executing.set(True)
    try:
        assert names(tmp_path / "none.db", "add") == []
    finally:
        executing.reset(token)
    assert "none.db" in caplog.text


def test_a_name_with_another_number_of_tensors_says_what_to_use(version_2):
    (name, *_) = names(version_2, "relu")
    with pytest.raises(NotFound, match="has 1; use unpack_traced_config"):
        unpack_binary_traced_config(name)
    with pytest.raises(NotFound, match="not the name of a traced configuration"):
        unpack_traced_config("traced_0")
