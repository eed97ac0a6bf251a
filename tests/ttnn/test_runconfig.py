import gc
import json
import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import optrove
from faults import faults_of
from optrove.errors import BadConfig, UnusableWeights
from optrove.runconfig import (
    AllReduceConfig,
    FromWeight,
    LinearConfig,
    MeshDeviceStub,
    Module,
    MulConfig,
    OpConfig,
    Sharding,
    SliceConfig,
    Weight,
    WeightCache,
    column_sharded,
    create_run_config,
    create_run_configs,
    load_weight_config,
    replicated,
    row_sharded,
    save_config,
    save_weights,
)
from optrove.runconfig.opconfig import names_of
from optrove.runconfig.ops import OP_CONFIGS

pytestmark = pytest.mark.ttnn

HF_CONFIG = SimpleNamespace(hidden_size=256, intermediate_size=512)


@dataclass
class SpecialConfig(OpConfig):
    config: object = None


@pytest.fixture(scope="module")
def mesh(all_chips):
    return all_chips


@pytest.fixture(scope="module")
def mlp_class(ttnn):
    """The module of the design document's example, on all columns of the mesh."""

    class MLP1D(Module):
        @staticmethod
        def convert_weights(hf_config, state_dict, output_path, mesh_device):
            def weight(name, sharding):
                return {"input_tensor_b": Weight(state_dict[f"{name}.weight"].T, sharding)}

            return save_weights(
                {
                    "w1": weight("w1", column_sharded()),
                    "w2": weight("w2", row_sharded()),
                    "w3": weight("w3", column_sharded()),
                },
                output_path,
                mesh_device,
            )

        @staticmethod
        def prefill_model_config(hf_config, mesh_device):
            dram = ttnn.DRAM_MEMORY_CONFIG
            return {
                # program_config is dynamic - see __init__ for details
                "w1": LinearConfig(memory_config=dram),
                "w2": LinearConfig(memory_config=dram),
                "w3": LinearConfig(memory_config=dram),
                "mul_activation": MulConfig(
                    memory_config=dram,
                    input_tensor_a_activations=[ttnn.UnaryOpType.SILU],
                ),
                "all_reduce": AllReduceConfig(
                    cluster_axis=1,
                    topology=ttnn.Topology.Linear,
                    dtype=ttnn.bfloat8_b,
                    dim=3,
                    num_reduce_scatter_links=1,
                    num_all_gather_links=1,
                    use_composite=True,
                ),
                "mode": "prefill",
            }

        @staticmethod
        def decode_model_config(hf_config, mesh_device):
            config = MLP1D.prefill_model_config(hf_config, mesh_device)
            l1 = {
                name: LinearConfig(memory_config=ttnn.L1_MEMORY_CONFIG)
                for name in ("w1", "w2", "w3")
            }
            return {**config, **l1, "mode": "decode"}

        def __init__(self, hf_config, mesh_device):
            self.w1_grid = lambda seq_len: ttnn.CoreGrid(x=8, y=max(1, min(8, seq_len // 32)))

        def forward(self, x, cfg, mesh_device):
            grid = self.w1_grid(x.shape[2]) if cfg.get("mode") == "prefill" else None
            gate = ttnn.linear(x, core_grid=grid, **cfg["w1"])
            both = ttnn.mul(gate, ttnn.linear(x, **cfg["w3"]), **cfg["mul_activation"])
            scatter, gather = cfg["all_reduce"].parts()
            partial = ttnn.linear(both, **cfg["w2"])
            return ttnn.all_gather(ttnn.reduce_scatter(partial, **scatter), **gather)

    return MLP1D


@pytest.fixture(scope="module")
def state_dict():
    random = np.random.default_rng(0)
    hidden, wide = HF_CONFIG.hidden_size, HF_CONFIG.intermediate_size
    shapes = {"w1": (wide, hidden), "w2": (hidden, wide), "w3": (wide, hidden)}
    return {
        f"{name}.weight": random.standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def weight_config(mlp_class, state_dict, folder, mesh):
    return mlp_class.convert_weights(HF_CONFIG, state_dict, folder / "mlp", mesh)


@pytest.fixture
def activations(ttnn, mesh):
    mapper = ttnn.replicate_tensor_to_mesh_mapper(mesh)
    array = np.random.default_rng(1).standard_normal((1, 1, 64, 256)).astype(np.float32)
    host = ttnn.Tensor(array, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)
    return ttnn.to_device(host, mesh)


def test_the_example_of_the_design_runs_in_both_modes(
    ttnn, mlp_class, weight_config, mesh, activations
):
    for model_config in (
        mlp_class.prefill_model_config(HF_CONFIG, mesh),
        mlp_class.decode_model_config(HF_CONFIG, mesh),
    ):
        cfg = create_run_config(model_config, weight_config, mesh)
        mlp = mlp_class(HF_CONFIG, mesh)
        output = mlp.forward(activations, cfg, mesh)
        assert tuple(output.shape) == (1, 1, 64, 256)
        assert cfg["w1"].memory_config == model_config["w1"].memory_config
        assert model_config["w1"].input_tensor_b is None


def test_weights_are_bfloat8_tiles_in_dram_split_as_asked_and_named_like_their_key(
    ttnn, weight_config, folder, mesh
):
    saved = weight_config["w1"]["input_tensor_b"]
    assert Path(saved).name == "w1.input_tensor_b.tensorbin"
    cfg = create_run_config(
        {"w1": LinearConfig(), "w2": LinearConfig(), "w3": LinearConfig()}, weight_config, mesh
    )
    for name, part in (("w1", (256, 64)), ("w2", (64, 256))):
        tensor = cfg[name].input_tensor_b
        assert tuple(tensor.shape) == part
        assert tensor.dtype == ttnn.bfloat8_b
        assert tensor.layout == ttnn.TILE_LAYOUT
        assert tensor.memory_config() == ttnn.DRAM_MEMORY_CONFIG
    assert saved.facts.shape == (256, 512)


@pytest.mark.parametrize("layers", [1, 61])
def test_ranges_expand_to_layers_that_share_weights_but_no_instance(
    ttnn, weight_config, mesh, layers
):
    last = layers - 1
    dram, l1 = ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG
    half = last // 2
    attention = {f"0-{half}": dram} | ({f"{half + 1}-{last}": l1} if layers > 1 else {})
    special = object()
    config = {
        "model": {
            "layers": {
                f"0-{last}": {"mlp": {"w1": LinearConfig(memory_config=dram)}},
                str(half): {"mlp": {"special_layer": SpecialConfig(config=special)}},
            }
        }
    }
    for key, memory in attention.items():
        config["model"]["layers"].setdefault(key, {})["attention"] = {
            "wq": LinearConfig(memory_config=memory)
        }
    w1, wq = weight_config["w1"]["input_tensor_b"], weight_config["w3"]["input_tensor_b"]
    weights = {
        "model": {
            "layers": {
                f"0-{last}": {
                    "mlp": {"w1": {"input_tensor_b": str(w1)}},
                    "attention": {"wq": {"input_tensor_b": wq}},
                }
            }
        }
    }
    cache = WeightCache()
    cfg = create_run_config(config, weights, mesh, cache=cache)
    found = cfg["model"]["layers"]
    assert list(found) == list(range(layers))
    assert cache.loads == 2
    assert len({id(layer["mlp"]["w1"]) for layer in found.values()}) == layers
    assert len({id(layer["mlp"]["w1"].input_tensor_b) for layer in found.values()}) == 1
    assert found[half]["mlp"]["special_layer"].config is special
    assert found[last]["attention"]["wq"].memory_config == (l1 if layers > 1 else dram)


def test_prefill_and_decode_hold_each_weight_once_and_let_it_go(mlp_class, weight_config, mesh):
    models = {
        "prefill": mlp_class.prefill_model_config(HF_CONFIG, mesh),
        "decode": mlp_class.decode_model_config(HF_CONFIG, mesh),
    }
    cache = WeightCache()
    cfg = create_run_configs(models, weight_config, mesh, cache=cache)
    assert cache.loads == 3
    assert cfg["prefill"]["w1"].input_tensor_b is cfg["decode"]["w1"].input_tensor_b
    again = create_run_config(models["decode"], weight_config, mesh, cache=cache)
    assert cache.loads == 3
    del cfg, again
    gc.collect()
    assert len(cache) == 0


def test_every_fault_is_named_at_once_with_its_path(ttnn, weight_config, mesh):
    w1 = weight_config["w1"]["input_tensor_b"]
    config = {
        "layers": {
            "0-3": {
                "expected": LinearConfig(input_tensor_b=FromWeight(shape=(1, 2))),
                "missing": LinearConfig(input_tensor_b=FromWeight()),
                "stub": LinearConfig(input_tensor_b=FromWeight(mesh_device=MeshDeviceStub((2, 4)))),
                "both": LinearConfig(input_tensor_b=3),
                "slice": SliceConfig(starts=[0], slice_end=[1]),
                "misnamed": LinearConfig(),
            }
        }
    }
    entry = {"input_tensor_b": w1}
    weights = {
        "layers": {
            "0-3": {
                "expected": entry,
                "stub": entry,
                "both": entry,
                "misnamed": {"weight": w1},
                "unused": entry,
            }
        }
    }
    config["layers"]["2"] = {"missing": LinearConfig()}
    found = faults_of(lambda: create_run_config(config, weights, mesh))
    assert 'given by "0-3" and by "2"' in found.pop("layers.2.missing")
    assert "its shape is 256x512" in found.pop("layers.0-3.expected.input_tensor_b")
    assert "does convert_weights write it" in found.pop("layers.0-3.missing.input_tensor_b")
    assert "2x4 mesh, this one is 4x8" in found.pop("layers.0-3.stub.input_tensor_b")
    assert "keep one" in found.pop("layers.0-3.both.input_tensor_b")
    assert "does not take" in found.pop("layers.0-3.slice")
    assert "no such field" in found.pop("layers.0-3.misnamed.weight")
    assert "no such entry" in found.pop("layers.0-3.unused.input_tensor_b")
    assert not found


def test_a_weight_that_is_not_as_expected_is_named_with_the_difference(ttnn, weight_config, mesh):
    expected = FromWeight(
        shape=(256, 256), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, sharding=row_sharded()
    )
    config = {"w1": LinearConfig(input_tensor_b=expected)}
    weights = {"w1": weight_config["w1"]}
    with pytest.raises(BadConfig) as caught:
        create_run_config(config, weights, mesh)
    text = str(caught.value)
    assert "its shape is 256x512, not 256x256 as expected" in text
    assert "its dtype is ttnn.bfloat8_b, not ttnn.bfloat16 as expected" in text
    assert "split: dimension 1 in 8 parts, but expected split: dimension 0 in 8 parts" in text
    assert "layout" not in text


def test_a_folder_of_weights_can_be_moved_and_every_damage_is_named(
    ttnn, mlp_class, state_dict, mesh, tmp_path
):
    mlp_class.convert_weights(HF_CONFIG, state_dict, tmp_path / "before", mesh)
    folder = tmp_path / "after"
    (tmp_path / "before").rename(folder)
    weights = load_weight_config(folder)
    config = {name: LinearConfig() for name in ("w1", "w2", "w3")}
    create_run_config(config, weights, mesh)
    first, second, third = (Path(weights[name]["input_tensor_b"]) for name in config)
    first.write_bytes(first.read_bytes()[:-1])
    second.unlink()
    third.write_bytes(bytes(len(third.read_bytes())))
    found = faults_of(lambda: create_run_config(config, weights, mesh))
    assert "it is incomplete" in found["w1.input_tensor_b"]
    assert "there is no file" in found["w2.input_tensor_b"]
    assert "was changed after it was written" in found["w3.input_tensor_b"]
    unverified = faults_of(
        lambda: create_run_config({"w3": config["w3"]}, {"w3": {"input_tensor_b": third}}, mesh)
    )
    assert "ttnn cannot load" in unverified["w3.input_tensor_b"]


def test_only_what_changed_is_written_again(state_dict, mesh, tmp_path, caplog):
    def written(sharding=None, dtype=None, scale=1.0):
        tensor = state_dict["w1.weight"] * np.float32(scale)
        weights = {
            "w1": {"input_tensor_b": Weight(tensor, sharding or replicated(), dtype)},
            "w2": {"input_tensor_b": Weight(state_dict["w2.weight"])},
        }
        caplog.clear()
        with caplog.at_level("INFO", "optrove.runconfig"):
            config = save_weights(weights, tmp_path, mesh)
        return config["w1"]["input_tensor_b"], caplog.messages[-1]

    import ttnn as loaded

    first, logged = written()
    assert "2 of them written" in logged
    assert written() == (first, logged.replace("2 of them", "0 of them"))
    for change in ({"scale": 2.0}, {"dtype": loaded.bfloat16}, {"sharding": column_sharded()}):
        other, logged = written(**change)
        assert "1 of them written" in logged
        assert other.recipe != first.recipe
    Path(first.path).write_bytes(b"torn")
    assert "1 of them written" in written(sharding=column_sharded())[1]


def test_weights_of_another_mesh_are_refused(ttnn, weight_config, mesh):
    part = mesh.create_submesh(ttnn.MeshShape(1, 8))
    found = faults_of(
        lambda: create_run_config({"w1": LinearConfig()}, {"w1": weight_config["w1"]}, part)
    )
    ttnn.close_mesh_device(part)
    assert "written for a 4x8 mesh, this one is 1x8" in found["w1.input_tensor_b"]


def test_a_weight_that_cannot_be_split_or_named_is_refused_before_anything_is_written(
    mesh, tmp_path
):
    odd = np.zeros((32, 100), np.float32)
    weights = {
        "w1": {"input_tensor_b": Weight(odd, column_sharded())},
        "../w2": {"input_tensor_b": Weight(odd)},
        "w3": {"input_tensor_b": [1.0]},
        "w4": {"input_tensor_b": Weight(odd, Sharding(axis0=0, axis1=0))},
    }
    found = faults_of(lambda: save_weights(weights, tmp_path / "new", mesh))
    assert "cannot be split into 8 equal parts" in found["w1.input_tensor_b"]
    assert "file name" in found["../w2.input_tensor_b"]
    assert "expected a Weight" in found["w3.input_tensor_b"]
    assert "along both axes" in found["w4.input_tensor_b"]
    assert not (tmp_path / "new").exists()
    with pytest.raises(UnusableWeights, match="an open mesh device"):
        save_weights({}, tmp_path, MeshDeviceStub((4, 8)))


def test_every_field_of_every_op_config_is_an_argument_of_its_ops(ttnn):
    from optrove.frameworks.ttnn.execute.invoking import OpParameters

    parameters = OpParameters(ttnn)
    strange = {}
    for kind in OP_CONFIGS:
        for name in names_of(kind):
            filled = kind(**{name: 1})
            if not filled.unchecked():
                problem = parameters.problem(kind.ops, frozenset({name}))
                if problem:
                    strange[f"{kind.__name__}.{name}"] = problem
    assert strange == {}


def test_static_configs_round_trip_with_live_objects(ttnn, mlp_class, mesh):
    config = mlp_class.prefill_model_config(HF_CONFIG, mesh)
    text = json.dumps(optrove.to_jsonable(config))
    again = optrove.from_jsonable(json.loads(text))
    assert again == config
    assert again["w1"].memory_config == ttnn.DRAM_MEMORY_CONFIG


def test_the_mesh_takes_the_place_of_its_stub(ttnn, mesh):
    from optrove.runconfig import AllGatherAsyncConfig

    config = {"gather": AllGatherAsyncConfig(mesh_device=MeshDeviceStub((4, 8)), dim=3)}
    assert create_run_config(config, {}, mesh)["gather"]["mesh_device"] is mesh
    assert math.prod(config["gather"].mesh_device.shape) == 32


def test_the_check_command_finds_wrong_arguments_and_damaged_weights(
    ttnn, mlp_class, state_dict, mesh, tmp_path
):
    from click.testing import CliRunner

    from optrove.cli.configure import COMMANDS
    from optrove.cli.main import Commands

    root = Commands(commands={command.name: command for command in COMMANDS})
    folder, file = tmp_path / "weights", tmp_path / "config.json"
    weights = mlp_class.convert_weights(HF_CONFIG, state_dict, folder, mesh)
    config = mlp_class.decode_model_config(HF_CONFIG, mesh)
    config["w1"] = LinearConfig(input_tensor_b=FromWeight(dtype=ttnn.bfloat8_b, shape=(256, 512)))

    def check(*words):
        done = CliRunner().invoke(root, ["config", "check", str(file), "--json", *words])
        (logged,) = json.loads(done.stdout)
        assert logged["signatures"]
        return done.exit_code, {each["path"]: each["problem"] for each in logged["faults"]}

    save_config(config, file)
    assert check() == (0, {})
    assert check("--weights", str(folder)) == (0, {})
    Path(weights["w2"]["input_tensor_b"]).write_bytes(b"torn")
    config["w1"] = LinearConfig(input_tensor_b=FromWeight(dtype=ttnn.bfloat16))
    config["slice"] = SliceConfig(starts=[0], slice_end=[1])
    del config["w3"]
    save_config(config, file)
    code, found = check("--weights", str(folder))
    assert code == 1
    assert "does not take" in found["slice"]
    assert "it is incomplete" in found["w2.input_tensor_b"]
    assert "no such entry" in found["w3.input_tensor_b"]
    assert "not ttnn.bfloat16 as expected" in found["w1.input_tensor_b"]


def test_traced_calls_know_the_entry_that_their_arguments_came_from(
    ttnn, mlp_class, weight_config, mesh, activations, tmp_path
):
    from optrove.report.usage import config_groups
    from optrove.trove.opening import reading
    from optrove.trove.query import CaseFilters, configurations, select, with_configs

    model = {"model": {"layers": {"0-1": mlp_class.decode_model_config(HF_CONFIG, mesh)}}}
    weights = {"model": {"layers": {"0-1": weight_config}}}
    trove = tmp_path / "trove.db"
    with optrove.trace(trove):
        cfg = create_run_config(model, weights, mesh)
        mlp = mlp_class(HF_CONFIG, mesh)
        hidden = activations
        for _ in range(3):
            for layer in cfg["model"]["layers"].values():
                hidden = mlp.forward(hidden, layer, mesh)
        ttnn.linear(hidden, cfg["model"]["layers"][0]["w1"].input_tensor_b)
        bad = {"slice": SliceConfig(starts=[0], slice_end=[1])}
        assert "does not take" in faults_of(lambda: create_run_config(bad, {}, mesh))["slice"]
        dict(**cfg["model"]["layers"][0]["w1"])  # unpacked, and then something else is called
        ttnn.relu(hidden)
    assert optrove.to_jsonable(cfg["model"]["layers"][0]["mul_activation"]) == optrove.to_jsonable(
        model["model"]["layers"]["0-1"]["mul_activation"]
    )

    def calls(op):
        with reading(str(trove)) as reader:
            (answer,) = select(reader, CaseFilters(name=op))
            found = configurations(reader, answer.query, by_run=True)
            groups = config_groups(with_configs(reader, found))
        return {group.value: group.calls for group in groups}

    layers = [f"model.layers.{number}" for number in (0, 1)]
    linears = {f"{layer}.{name}": 3 for layer in layers for name in ("w1", "w2", "w3")}
    assert calls("linear") == {**linears, "(none)": 1}
    assert calls("reduce_scatter") == {f"{layer}.all_reduce": 3 for layer in layers}
    assert calls("all_gather") == {f"{layer}.all_reduce": 3 for layer in layers}
    assert calls("multiply") == {f"{layer}.mul_activation": 3 for layer in layers}
    assert calls("relu") == {"(none)": 1}
