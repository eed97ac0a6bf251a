from dataclasses import FrozenInstanceError, dataclass

import pytest

import optrove
from optrove.runconfig import (
    AllReduceConfig,
    ConfigBase,
    FromWeight,
    LinearConfig,
    MeshDeviceStub,
    Module,
    MulConfig,
    OpConfig,
    column_sharded,
)
from optrove.runconfig.ops import KNOWN


@dataclass
class SpecialConfig(ConfigBase):
    config: object = None
    size: int = 0


def called(*arguments, **keywords):
    return arguments, keywords


def test_a_config_unpacks_without_the_fields_that_are_not_given():
    config = LinearConfig(memory_config="DRAM", transpose_b=False)
    assert called("x", **config) == (("x",), {"memory_config": "DRAM", "transpose_b": False})


def test_a_forward_pass_adds_dynamic_arguments_beside_the_config():
    config = LinearConfig(memory_config="DRAM")
    assert called(program_config=8, **config)[1] == {"memory_config": "DRAM", "program_config": 8}
    with pytest.raises(TypeError, match="multiple values"):
        called(memory_config="L1", **config)


def test_a_config_is_read_like_a_dictionary():
    config = MulConfig(memory_config="L1", input_tensor_a_activations=["SILU"])
    assert list(config) == ["memory_config", "input_tensor_a_activations"]
    assert config["memory_config"] == "L1"
    assert config.get("dtype") is None
    assert "dtype" not in config
    assert len(config) == 2
    for name in ("dtype", "ops", "keys", "no_such_field"):
        with pytest.raises(KeyError):
            config[name]


def test_a_config_cannot_be_changed_nor_hold_an_argument_that_its_op_does_not_have():
    config = LinearConfig(memory_config="DRAM")
    with pytest.raises(FrozenInstanceError):
        config.memory_config = "L1"
    with pytest.raises(TypeError, match="no_such_argument"):
        LinearConfig(no_such_argument=1)


def test_own_dataclasses_serve_as_configs_too():
    special = SpecialConfig(config="custom")
    assert called(**special)[1] == {"config": "custom", "size": 0}
    assert special.ops == ()


def test_configs_are_equal_when_their_fields_are():
    assert LinearConfig(memory_config="DRAM") == LinearConfig(memory_config="DRAM")
    assert LinearConfig(memory_config="DRAM") != LinearConfig(memory_config="L1")
    assert LinearConfig() != MulConfig()
    assert LinearConfig() != {}


def test_a_config_shows_what_is_given():
    shown = repr(LinearConfig(memory_config="DRAM"))
    assert shown == "LinearConfig(memory_config='DRAM')"


def test_an_all_reduce_that_the_model_composes_has_two_parts():
    config = AllReduceConfig(
        cluster_axis=0, dim=3, num_reduce_scatter_links=1, num_all_gather_links=2, num_links=4
    )
    scatter, gather = config.parts()
    assert dict(scatter) == {"dim": 3, "cluster_axis": 0, "num_links": 1}
    assert dict(gather) == {"dim": 3, "cluster_axis": 0, "num_links": 2}


@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: kind.__name__)
def test_every_class_round_trips_through_json(kind):
    given = {"mesh_shape": (4, 8)} if kind is MeshDeviceStub else {}
    config = kind(**given)
    data = optrove.to_jsonable({"entry": config})
    assert data["entry"]["$struct"] == f"python.dataclass:optrove.runconfig:{kind.__name__}"
    assert optrove.from_jsonable(data) == {"entry": config}


def test_placeholders_round_trip_within_configs():
    weight = FromWeight(
        shape=(1, 32), sharding=column_sharded(), mesh_device=MeshDeviceStub([4, 8])
    )
    config = {"w1": LinearConfig(input_tensor_b=weight, dtype=None)}
    assert optrove.from_jsonable(optrove.to_jsonable(config)) == config
    assert config["w1"].input_tensor_b.mesh_device.shape == (4, 8)


def test_own_classes_are_built_when_the_caller_names_them():
    data = optrove.to_jsonable(SpecialConfig(config=3))
    assert optrove.from_jsonable(data, types=[SpecialConfig]) == SpecialConfig(config=3)


def test_a_module_has_all_five_parts():
    class Incomplete(Module):
        def forward(self, x, cfg, mesh_device):
            return x

    with pytest.raises(TypeError, match="convert_weights"):
        Incomplete(None, None)
    assert issubclass(ConfigBase, OpConfig)
