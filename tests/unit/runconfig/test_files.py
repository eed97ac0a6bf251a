import json

import pytest

from optrove.errors import BadConfig, BadData, BadTarget, UnusableWeights
from optrove.model.values import Struct
from optrove.runconfig import (
    LinearConfig,
    MulConfig,
    load_config,
    load_weight_config,
    save_config,
    save_configs,
)
from optrove.runconfig.files import read_inert


def test_a_config_comes_back_from_its_file(tmp_path):
    config = {"layers": {"0-31": {"w1": LinearConfig(transpose_b=True)}}, "mode": "decode"}
    save_config(config, tmp_path / "decode.json")
    assert load_config(tmp_path / "decode.json") == config
    text = (tmp_path / "decode.json").read_text()
    assert "transpose_a" not in text, "what is not given is not written"
    assert [path.name for path in tmp_path.iterdir()] == ["decode.json"]


def test_the_configs_of_both_modes_come_back_together(tmp_path):
    pair = {"prefill": {"mul": MulConfig()}, "decode": {"mul": MulConfig(dtype="x")}}
    save_configs(pair, tmp_path / "pair.json")
    assert load_config(tmp_path / "pair.json") == pair


def test_what_depends_on_the_run_is_refused_with_its_path(tmp_path):
    config = {
        "layers": {
            "0-3": {
                "w1": LinearConfig(program_config=lambda length: length),
                "w2": LinearConfig(activation=open),
                "w3": LinearConfig(memory_config="DRAM"),
            }
        },
        "scale": object(),
    }
    with pytest.raises(BadConfig) as caught:
        save_config(config, tmp_path / "config.json")
    assert [fault.path for fault in caught.value.faults] == [
        "layers.0-3.w1.program_config",
        "layers.0-3.w2.activation",
        "scale",
    ]
    assert "pass it in forward" in caught.value.faults[0].problem
    assert not (tmp_path / "config.json").exists()


def test_plain_json_is_read_and_nothing_of_ttnn_is_needed(tmp_path):
    memory = {"$struct": "ttnn.MemoryConfig", "fields": {"buffer_type": None}}
    linear = {
        "$struct": "python.dataclass:optrove.runconfig:LinearConfig",
        "fields": {"memory_config": memory},
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"w1": linear}))
    (config,) = read_inert(file).values()
    assert isinstance(config["w1"].memory_config, Struct)
    file.write_text(json.dumps({"prefill": {"w1": linear}, "decode": {"w1": linear}}))
    assert sorted(read_inert(file)) == ["decode", "prefill"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[]", "expected a JSON object"),
        ('{"format": "optrove-config", "version": 2}', "has version 2"),
        ('{"format": "optrove-config", "version": 1}', "was it cut off"),
    ],
)
def test_a_file_that_is_no_config_says_so(tmp_path, text, message):
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(BadTarget, match=message):
        load_config(file)
    with pytest.raises(BadTarget, match="cannot be read"):
        load_config(tmp_path / "none.json")


def test_faults_inside_a_file_are_all_named(tmp_path):
    file = tmp_path / "config.json"
    bad = {"$struct": "python.dataclass:optrove.runconfig:LinearConfig", "fields": {"colour": 1}}
    file.write_text(json.dumps({"w1": bad, "w2": {"$opaque": "function", "token": "1"}}))
    with pytest.raises(BadData) as caught:
        read_inert(file)
    assert len(caught.value.faults) == 2
    assert "colour" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "run convert_weights"),
        ("{", "choose another folder"),
        ('{"format": "other"}', "is not a list of weights"),
        ('{"format": "optrove-weights", "version": 7}', "its version is 7"),
        ('{"format": "optrove-weights", "version": 1, "source": null}', "is not a list of weights"),
    ],
)
def test_a_folder_without_a_list_of_weights_of_ours_says_so(tmp_path, text, message):
    if text is not None:
        (tmp_path / "weight_config.json").write_text(text)
    with pytest.raises(UnusableWeights, match=message):
        load_weight_config(tmp_path)


def weight_list(**changes):
    weight = {
        "key": ["w1", "input_tensor_b"],
        "path": "w1.input_tensor_b.tensorbin",
        "shape": [32, 32],
        "dtype": "ttnn.bfloat8_b",
        "layout": "TILE",
        "memory": None,
        "spread": [[8, 1]],
        "mesh_shape": [4, 8],
        "size": 10,
        "sha256": "0" * 64,
        "source": "s",
        "recipe": "r",
    }
    head = {"format": "optrove-weights", "version": 1, "ttnn": "0.81.1", "source": "model@1"}
    return json.dumps({**head, "weights": [{**weight, **changes}]})


def test_paths_are_relative_to_the_folder_and_never_lead_out_of_it(tmp_path):
    file = tmp_path / "weight_config.json"
    file.write_text(weight_list())
    weights = load_weight_config(tmp_path, source="model@1")
    assert str(weights["w1"]["input_tensor_b"]) == str(tmp_path / "w1.input_tensor_b.tensorbin")
    with pytest.raises(UnusableWeights, match="made from 'model@1', not from 'new'"):
        load_weight_config(tmp_path, source="new")
    for path in ("/etc/passwd", "../w1", "a/../../w1", ""):
        file.write_text(weight_list(path=path))
        with pytest.raises(UnusableWeights, match="leads out of the folder"):
            load_weight_config(tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"key": []}, {"shape": [-1]}, {"size": "10"}, {"sha256": "x"}, {"memory": 3}, {"dtype": 1}],
)
def test_a_list_with_a_wrong_part_is_refused_as_a_whole(tmp_path, change):
    (tmp_path / "weight_config.json").write_text(weight_list(**change))
    with pytest.raises(UnusableWeights, match="is not a list of weights"):
        load_weight_config(tmp_path)
