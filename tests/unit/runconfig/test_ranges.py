import pytest

from optrove.errors import BadConfig
from optrove.runconfig import LinearConfig, MeshDeviceStub, SoftmaxConfig, create_run_config
from optrove.runconfig.checking import gathered
from optrove.runconfig.ranges import MAX_ENTRIES, ends, expand

STUB = MeshDeviceStub((1, 1))


def run(config, weights=None):
    return create_run_config(config, weights or {}, STUB)


def faults(config, weights=None):
    with pytest.raises(BadConfig) as caught:
        run(config, weights)
    return [str(fault) for fault in caught.value.faults]


def dram():
    return LinearConfig(memory_config="DRAM")


def test_the_ranges_of_the_design_expand_to_layers():
    cfg = run(
        {
            "model": {
                "layers": {
                    "0-31": {"mlp": {"w1": {"memory_config": "L1", "program_config": "1D"}}},
                    "0-15": {"attention": {"wq": {"memory_config": "DRAM"}}},
                    "16-31": {"attention": {"wq": {"memory_config": "L1"}}},
                    "10": {"mlp": {"experts": {"special_config": "custom"}}},
                }
            }
        }
    )
    layers = cfg["model"]["layers"]
    assert list(layers) == list(range(32))
    assert layers[15]["attention"]["wq"] == {"memory_config": "DRAM"}
    assert layers[16]["attention"]["wq"] == {"memory_config": "L1"}
    assert [number for number, layer in layers.items() if "experts" in layer["mlp"]] == [10]
    assert all(layer["mlp"]["w1"]["program_config"] == "1D" for layer in layers.values())


def test_every_layer_has_instances_and_dictionaries_of_its_own():
    shared = dram()
    cfg = run({"layers": {"0-2": {"w1": shared, "plain": {"memory_config": "L1"}}}})
    layers = cfg["layers"]
    assert len({id(layer["w1"]) for layer in layers.values()} | {id(shared)}) == 4
    assert len({id(layer["plain"]) for layer in layers.values()}) == 3
    assert layers[0]["w1"] == shared


def test_two_keys_that_give_the_same_entry_are_both_named():
    (fault,) = faults(
        {
            "model": {
                "layers": {
                    "0-31": {"mlp": {"w1": dram(), "w2": dram()}},
                    "16-40": {"mlp": {"w1": dram()}},
                }
            }
        }
    )
    assert fault.startswith('model.layers.16-31.mlp.w1: given by "0-31" and by "16-40"')


def test_an_entry_and_something_within_it_overlap_as_well():
    found = faults({"0-3": {"w1": dram()}, "2": {"w1": {"memory_config": "L1"}}})
    assert found[0].startswith('2.w1: given by "0-3" and by "2"')


def test_numbers_may_be_keys_and_ranges_stand_beside_names():
    cfg = run({"layers": {0: {"w1": dram()}, "1-2": {"w1": dram()}, "norm": SoftmaxConfig(dim=3)}})
    assert list(cfg["layers"]) == [0, 1, 2, "norm"]
    assert 'given by "0" and by "0-1"' in faults({0: {"w1": dram()}, "0-1": {"w1": dram()}})[0]


def test_ranges_nest():
    cfg = run({"layers": {"3-60": {"experts": {"0-255": {"w1": dram()}}}}})
    assert len(cfg["layers"]) == 58
    assert len(cfg["layers"][60]["experts"]) == 256


def test_lists_of_layers_stay_lists_and_lists_of_arguments_stay_arguments():
    activations = ["SILU"]
    cfg = run({"layers": [{"w1": dram()}, {"mul": {"activations": activations}}]})
    assert cfg["layers"][1]["mul"]["activations"] is activations
    assert cfg["layers"][0]["w1"] == dram()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"layers": {"5-3": {"w1": dram()}}}, "layers.5-3: the range ends before it begins"),
        ({"layers": {-1: {"w1": dram()}}}, "the key -1 is neither a name nor a number"),
        ({None: {}}, "the key None is neither a name nor a number"),
        ({"0-999999999": {"w1": dram()}}, f"more than {MAX_ENTRIES:,} entries"),
        ({"0-99999": {"0-99999": {"w1": dram()}}}, f"more than {MAX_ENTRIES:,} entries"),
    ],
)
def test_bad_keys_are_named(config, message):
    assert message in faults(config)[0]


def test_a_config_that_holds_itself_is_a_fault():
    config = {}
    config["again"] = config
    assert "levels deep" in faults(config)[0]


def test_faults_of_many_layers_are_put_together():
    paths = [f"layers.{layer}.experts.{e}.w1" for layer in range(3, 61) for e in range(256)]
    assert gathered([*paths, "norm"]) == ["layers.3-60.experts.0-255.w1", "norm"]
    assert gathered(["a.1", "a.2", "a.4", "b.1"]) == ["a.1-2,4", "b.1"]


def test_ends_have_paths_that_can_be_read():
    tree = expand({"model": {"layers": {"0-1": {"odd name": dram()}}}}).tree
    assert [path for path, _ in ends(tree)] == [
        'model.layers.0.["odd name"]',
        'model.layers.1.["odd name"]',
    ]


def test_weights_where_the_model_has_none_are_all_named():
    found = faults(
        {"layers": {"0-7": {"w1": dram()}}, "mode": "decode"},
        {"layers": {"0-9": {"w1": {"input_tensor_b": "no/such/file"}}}, "mode": {"x": "y"}},
    )
    assert found[0] == "mode: given by the model configuration and by the weights; keep one"
    assert found[1].startswith("layers.8-9.w1.input_tensor_b: a weight is given for it, but")
    assert found[2].startswith("layers.0-7.w1.input_tensor_b: there is no file")


def test_a_missing_file_is_named_with_every_layer_that_wants_it():
    (found,) = faults(
        {"layers": {"0-7": {"w1": dram()}}},
        {"layers": {"0-7": {"w1": {"input_tensor_b": "no/such/file"}}}},
    )
    assert found.startswith("layers.0-7.w1.input_tensor_b: there is no file no/such/file")
