import copy
import json

import pytest

from faults import faults_of
from masters import (
    EVERYTHING,
    GALAXY,
    SHARDS,
    configuration,
    master,
    memory,
    old_tensor,
    semaphore,
    tensor,
)
from optrove.interop.master_reader import read_master
from optrove.interop.printed import core, core_range, core_ranges
from optrove.model.records import DeviceKind, RunKind
from optrove.model.trove import Machine
from optrove.model.values import (
    Bool,
    DeviceRef,
    Float,
    Handle,
    Int,
    List,
    Mapping,
    MeshPlacement,
    Null,
    Opaque,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    Tile,
)

CHIPS = tuple((row, column) for row in range(4) for column in range(8))


def read(document, *, strict=False):
    runs, fidelity = read_master(document, "master.json", strict=strict)
    assert fidelity.adds_up()
    return runs, fidelity


def read_arguments(arguments, **options):
    runs, fidelity = read(master(configuration(arguments)), **options)
    return dict(runs[0].cases[0].case.arguments), fidelity


def test_every_known_spelling_is_understood():
    found, fidelity = read_arguments(EVERYTHING, strict=True)
    assert fidelity.understood == fidelity.configurations == 1
    assert fidelity.verbatim == ()
    assert found.keys() == EVERYTHING.keys()
    assert found["batch_idx"] == Int(3)
    assert found["use_broadcast"] == Bool(value=True)
    assert found["epsilon"] == Float(1e-05)
    assert found["output"] == Null()
    assert found["mode"] == Text("bilinear")
    assert found["value"] == Float(float("-inf"))
    assert found["dtype"] == Symbol("ttnn.DataType", "BFLOAT16")
    assert found["activations"] == List((Symbol("ttnn.UnaryOpType", "SILU"),))
    assert found["device"] == DeviceRef("ttnn.MeshDevice", (4, 8), 0)
    entries = {(Text("a"), Int(1)), (Text("b"), List((Bool(value=True),)))}
    assert found["named"] == Mapping(frozenset(entries))
    program = dict(found["program_config"].fields)
    assert program["compute_with_storage_grid_size"] == core(4, 1)
    assert program["hop_cores"] == core_ranges(())
    assert program["fuse_batch"] == Bool(value=False)
    compute = dict(found["compute_kernel_config"].fields)
    assert found["compute_kernel_config"].type == "ttnn.WormholeComputeKernelConfig"
    assert compute["math_approx_mode"] == Bool(value=False)
    assert compute["math_fidelity"] == Symbol("ttnn.MathFidelity", "HiFi2")


def test_a_tensor_has_the_placement_that_ttnn_would_give_it():
    found, fidelity = read_arguments({"arg0": tensor((1, 1, 30, 50))})
    spec = found["arg0"]
    assert (spec.shape, spec.dtype) == ((1, 1, 30, 50), "ttnn.bfloat8_b")
    stored_in = spec.placement
    assert stored_in.padded_shape == (1, 1, 32, 64)
    assert stored_in.tile == Tile((32, 32), (16, 16))
    assert (stored_in.layout, stored_in.storage, stored_in.mesh_shape, stored_in.device) == (
        "TILE",
        "device",
        (4, 8),
        0,
    )
    assert stored_in.mesh == MeshPlacement((4, 8), (None, -1), CHIPS)
    assert {kind.partition(":")[0] for kind, _ in fidelity.notes} == {
        "padded shape and tile of a tensor",
        "chips of a tensor",
    }


@pytest.mark.parametrize(
    ("original", "padded"),
    [
        (tensor((7, 5), layout="ROW_MAJOR"), (7, 5)),
        (tensor((50,)), (32, 64)),
        (tensor((1, 1, 49, 1270), "BFLOAT16", "ROW_MAJOR"), (1, 1, 49, 1270)),
    ],
)
def test_padding_follows_the_layout(original, padded):
    found, _ = read_arguments({"arg0": original})
    assert found["arg0"].placement.padded_shape == padded


def test_row_major_shards_side_by_side_pad_the_last_dimension():
    shards = {
        "grid": [{"start": {"x": 0, "y": 0}, "end": {"x": 7, "y": 4}}],
        "shape": [49, 32],
        "orientation": "ShardOrientation.ROW_MAJOR",
    }
    stored_in = memory("WIDTH_SHARDED", "L1", shards)
    found, _ = read_arguments(
        {"arg0": tensor((1, 1, 49, 1270), "BFLOAT16", "ROW_MAJOR", stored_in)}
    )
    assert found["arg0"].placement.padded_shape == (1, 1, 49, 1280)


def test_shards_are_exact():
    found, _ = read_arguments({"memory_config": EVERYTHING["arg10"]["memory_config"]})
    shard = dict(dict(found["memory_config"].fields)["shard_spec"].fields)
    assert shard["grid"] == core_ranges(
        (core_range(core(1, 0), core(3, 0)), core_range(core(0, 2), core(0, 2)))
    )
    assert shard["shape"] == List((Int(32), Int(64)))
    assert shard["orientation"] == Symbol("ttnn.ShardOrientation", "ROW_MAJOR")


PRINTED_SHARDS = (
    'ShardSpec{grid=[{"start":{"x":0,"y":0},"end":{"x":7,"y":4}], shape=[49, 32], '
    "orientation=ShardOrientation::ROW_MAJOR}"
)
ND_SHARDS = (
    '{"shard_shape":[1, 32],"grid":[{"start":{"x":0,"y":0},"end":{"x":1,"y":0}}],'
    '"orientation":"ShardOrientation::ROW_MAJOR",'
    '"shard_distribution_strategy":"ShardDistributionStrategy::ROUND_ROBIN_1D"}'
)


@pytest.mark.parametrize(
    ("layout", "shards", "more", "given"),
    [
        ("INTERLEAVED", "std::nullopt", "", set()),
        ("WIDTH_SHARDED", PRINTED_SHARDS, "", {"shard_spec"}),
        ("WIDTH_SHARDED", PRINTED_SHARDS, "nd_shard_spec=std::nullopt,", {"shard_spec"}),
        ("ND_SHARDED", "std::nullopt", f"nd_shard_spec={ND_SHARDS},", {"nd_shard_spec"}),
    ],
)
def test_a_memory_configuration_may_be_the_text_that_ttnn_prints(layout, shards, more, given):
    by_nd = int("nd_shard_spec" in given)
    end = f",{more}created_with_nd_shard_spec={by_nd},per_core_allocation=0" if more else ""
    text = (
        f"MemoryConfig(memory_layout=TensorMemoryLayout::{layout},buffer_type=BufferType::L1,"
        f"shard_spec={shards}{end})"
    )
    written = {"arg0": tensor(stored_in=text), "m": {"type": "MemoryConfig", "value": text}}
    if "shard_spec" in given:
        written["by fields"] = memory(layout, "L1", shards)
    found, _ = read_arguments(written, strict=True)
    assert found["arg0"].placement.memory == found["m"] == found.get("by fields", found["m"])
    fields = dict(found["m"].fields)
    assert fields["memory_layout"] == Symbol("ttnn.TensorMemoryLayout", layout)
    specs = {name for name in ("shard_spec", "nd_shard_spec") if fields[name] != Null()}
    assert specs == given
    if "shard_spec" in given:
        grid = dict(fields["shard_spec"].fields)["grid"]
        assert grid == core_ranges((core_range(core(0, 0), core(7, 4)),))


def test_a_tile_is_as_low_as_the_shards_of_its_tensor():
    for height, tile in ((16, 16), (1, 1), (24, 32), (64, 32)):
        stored_in = memory("HEIGHT_SHARDED", "L1", {**SHARDS, "shape": [height, 64]})
        found, fidelity = read_arguments({"arg0": tensor((1, 1, 17, 64), stored_in=stored_in)})
        placement = found["arg0"].placement
        assert placement.tile.shape == (tile, 32)
        assert placement.padded_shape[2] == -(-17 // tile) * tile
        assert any("by the height" in note for note, _ in fidelity.notes) == (tile < 32)


def test_an_absent_argument_is_left_out_and_an_object_may_be_its_text():
    written = {"dim": "__ABSENT__", "grid": "ttnn.CoreGrid(x=8, y=7)", "mode": "Bilinear(x)"}
    found, fidelity = read_arguments(written, strict=True)
    grid = Struct("ttnn.CoreGrid", (("x", Int(8)), ("y", Int(7))))
    assert found == {"grid": grid, "mode": Text("Bilinear(x)")}
    assert ("arguments that the file calls absent: left out", 1) in fidelity.notes


def test_a_tensor_without_a_distribution_or_storage_is_still_a_tensor():
    original = tensor(tensor_placement={"placement": "['PlacementReplicate']"})
    del original["storage_type"]
    found, fidelity = read_arguments({"arg0": original}, strict=True)
    placement = found["arg0"].placement
    assert (placement.storage, placement.mesh, placement.mesh_shape) == ("device", None, None)
    assert ("mesh of a tensor: not recorded, left empty", 1) in fidelity.notes


def test_chips_that_the_file_does_not_tell_are_left_empty():
    spread = {"placement": "['PlacementShard(0)']", "distribution_shape": "[8]"}
    original = tensor(tensor_placement={**spread, "mesh_device_shape": "[4, 8]"})
    found, fidelity = read_arguments({"arg0": original})
    assert found["arg0"].placement.mesh == MeshPlacement((8,), (0,), ())
    assert ("chips of a tensor: not recorded, left empty", 1) in fidelity.notes


def test_tensors_are_numbered_by_argument_whatever_the_order_in_the_file():
    found, _ = read_arguments(EVERYTHING)
    backwards, _ = read_arguments(dict(reversed(EVERYTHING.items())))
    assert backwards == found
    numbers = [found["arg0"], found["arg1"], *found["arg2"].items, found["arg10"]]
    assert [(spec.identity, spec.storage) for spec in numbers] == [(n, n) for n in range(5)]


def test_semaphores_are_distinguished_by_their_address_which_is_not_kept():
    found, _ = read_arguments(EVERYTHING)
    first, second = found["multi_device_global_semaphore"].items
    assert found["barrier_semaphore"] == second == Handle("ttnn.GlobalSemaphore", None, 0)
    assert first == Handle("ttnn.GlobalSemaphore", None, 1)
    other = {"a": semaphore(0x999)}
    runs, fidelity = read(
        master(configuration({"a": semaphore(1)}), configuration(other, number=2))
    )
    assert (fidelity.configurations, fidelity.cases) == (2, 1)
    assert sum(each.count for each in runs[0].cases) == 20


def test_semaphores_without_an_address_are_different():
    bare = {"type": "global_semaphore", "value": "<ttnn._ttnn.global_semaphore object>"}
    found, _ = read_arguments({"a": [bare, bare], "b": bare})
    handles = [*found["a"].items, found["b"]]
    assert [each.identity for each in handles] == [0, 1, 2]


def test_devices_are_distinguished_by_their_shape():
    spread = EVERYTHING["arg0"]["tensor_placement"]
    small = tensor(tensor_placement={**spread, "mesh_device_shape": "[1, 32]"})
    device = {**EVERYTHING["device"], "shape": [1, 32]}
    found, _ = read_arguments({"arg0": tensor(), "arg1": small, "device": device})
    assert found["arg0"].placement.device == 0
    assert found["arg1"].placement.device == found["device"].identity == 1


def test_a_run_is_made_for_each_source_and_machine():
    executions = [
        {"source": "a.py [HF_MODEL:meta/llama]", "machine_info": GALAXY, "count": 3},
        {"source": "b.py", "machine_info": {"board_type": "Wormhole"}, "count": 4},
        {"source": "b.py", "machine_info": {"board_type": "Wormhole"}, "count": 5},
    ]
    runs, _ = read(master(configuration({"arg0": 1}, executions=executions)))
    assert [(each.run.source, each.run.model) for each in runs] == [
        ("a.py [HF_MODEL:meta/llama]", "meta/llama"),
        ("b.py", None),
    ]
    assert [each.cases[0].count for each in runs] == [3, 9]
    run = runs[0].run
    assert run.kind is RunKind.IMPORT
    assert run.started_at == "2026-03-08T13:48:13.000000Z"
    where = run.environment
    assert (where.board, where.arch, where.device_count) == ("galaxy", "wormhole_b0", 32)
    assert where.device.mesh_shape == (4, 8)
    assert where.device_kind is DeviceKind.HARDWARE
    assert runs[0].machine == Machine("Wormhole", "tt-galaxy-wh", 32, 32, (4, 8), (3, 1, 2))
    assert run.accounting.adds_up()


def test_the_same_content_is_the_same_run_and_other_content_another():
    document = master(configuration(EVERYTHING))
    (first,), _ = read(document)
    (again,), _ = read(json.loads(json.dumps(document, sort_keys=True)))
    assert again.run == first.run
    changed = copy.deepcopy(document)
    changed["operations"]["ttnn.linear"]["configurations"][0]["executions"][0]["count"] = 11
    (other,), _ = read(changed)
    assert other.run.id != first.run.id


def test_what_has_no_known_spelling_is_kept_counted_and_reported_with_its_path():
    arguments = {
        "arg0": tensor(stored_in=memory("WIDTH_SHARDED", "L1", "ShardSpec<odd>")),
        "arg1": {"type": "Mystery", "value": "<object at 0x7f>"},
        "arg2": [1, {"type": "Mystery", "value": "<object at 0x7f>"}],
        "program_config": {"type": "OddProgramConfig", "a": {"op_type": 999, "param": []}},
        "half": {"type": "ttnn.Tensor", "shape": [2, 3], "dtype": "bfloat16"},
        "wrong": {"type": "Shape", "value": "MeshShape([1])"},
    }
    found, fidelity = read_arguments(arguments)
    mystery = Opaque("Mystery", "<object at 0x7f>")
    assert found["arg1"] == mystery
    assert found["arg2"] == List((Int(1), mystery))
    memory_fields = dict(found["arg0"].placement.memory.fields)
    assert memory_fields["shard_spec"] == Opaque("ShardSpec", "ShardSpec<odd>")
    assert found["program_config"].type == "ttnn.OddProgramConfig"
    assert found["half"].type == "ttnn.Tensor"
    assert found["wrong"] == Opaque("Shape", "MeshShape([1])")
    assert (fidelity.partly, fidelity.understood) == (1, 0)
    kept = {each.kind: (each.count, each.path) for each in fidelity.verbatim}
    before = '$.operations["ttnn.linear"].configurations[0].arguments'
    assert kept["Mystery"] == (2, f"{before}.arg1")
    assert kept["ShardSpec"] == (1, f"{before}.arg0.memory_config.shard_spec")
    assert kept["a"] == (1, f"{before}.program_config.a")


def test_strict_reading_refuses_what_would_be_kept():
    document = master(configuration({"a": 1, "b": {"type": "Odd", "value": "<x>"}}))
    path = '$.operations["ttnn.linear"].configurations[0].arguments.b'
    assert "Odd has no known form" in faults_of(read, document, strict=True)[path]


def test_equal_hashes_with_other_arguments_are_two_configurations():
    """The hash is that of normalized arguments, which another build of ttnn writes otherwise."""
    document = master(configuration({"a": 1}), configuration({"a": 2}))
    (run,), fidelity = read(document, strict=True)
    assert [dict(each.case.arguments)["a"] for each in run.cases] == [Int(1), Int(2)]
    assert (fidelity.configurations, fidelity.cases) == (2, 2)
    assert [kind for kind, _ in fidelity.notes] == [
        "configurations with the config_hash of another one and other arguments: kept"
    ]


def test_a_configuration_that_is_there_twice_is_counted_twice_and_noted():
    runs, fidelity = read(master(configuration({"a": 1}), configuration({"a": 1})))
    assert runs[0].cases[0].count == 20
    assert ("configurations with the same config_hash and content", 1) in fidelity.notes


def test_a_configuration_without_executions_is_kept():
    runs, _ = read(master(configuration({"a": 1}, executions=[])))
    assert [(each.run.source, each.cases[0].count) for each in runs] == [("unknown", 0)]


TRACE = {"source": "a.py", "machine_info": GALAXY, "count": 1}


def test_what_a_file_says_about_an_execution_is_its_provenance():
    machine = {**GALAXY, "tt_kmd": "2.3.0", "tt_smi": "3.0.25", "tt_firmware": ["19.2", "19.3"]}
    execution = {
        **TRACE,
        "machine_info": machine,
        "trace_uid": "t1",
        "pytest_args": None,
        "trace_run_ids": [3, 7],
    }
    (imported,), fidelity = read(
        master(configuration({"a": 1}, executions=[execution], sweep_source_hash="x"))
    )
    assert imported.run.provenance == (
        ("pytest_args", "null"),
        ("trace_run_ids", "[3, 7]"),
        ("trace_uid", '"t1"'),
    )
    assert imported.machine.data() == machine
    assert json.loads(imported.cases[0].configuration)["sweep_source_hash"] == "x"
    assert fidelity.notes == ()


def test_two_traces_of_one_source_and_machine_are_two_runs():
    executions = [{**TRACE, "trace_uid": "t1"}, {**TRACE, "trace_uid": "t2", "count": 5}]
    runs, _ = read(master(configuration({"a": 1}, executions=executions)))
    counts = {dict(each.run.provenance)["trace_uid"]: each.cases[0].count for each in runs}
    assert counts == {'"t1"': 1, '"t2"': 5}


def test_the_time_and_the_commit_of_a_reconstructed_file_are_read():
    document = master(configuration({"a": 1}, executions=[TRACE]))
    document["metadata"] = {
        "traced_at": "2026-05-06 07:08:09.120000",
        "tt_metal_sha": "0123abcd",
        "trace_uid": "t9",
    }
    (imported,), _ = read(document)
    assert imported.run.started_at == "2026-05-06T07:08:09.120000Z"
    assert imported.run.environment.git_sha == "0123abcd"
    assert imported.run.provenance == (("trace_uid", '"t9"'),)


@pytest.mark.parametrize("source", [None, [], ["models/demo.py"]])
def test_a_source_that_is_not_written_is_the_model_of_the_file(source):
    document = master(configuration({"a": 1}, executions=[{**TRACE, "source": source}]))
    (imported,), _ = read(document)
    assert imported.run.source == "models/demo.py"


def test_contexts_are_executions():
    context = {"source": ["a.py"], "machine_info": GALAXY}
    config = configuration({"a": 1}, contexts=[context])
    del config["executions"]
    (imported,), _ = read(master(config))
    assert (imported.run.source, imported.cases[0].count) == ("a.py", 1)


def test_an_execution_of_several_sources_counts_for_each():
    context = {"source": ["a.py", "b.py [HF_MODEL:m]"], "machine_info": GALAXY, "count": 3}
    runs, _ = read(master(configuration({"a": 1}, executions=[context])))
    found = [(each.run.source, each.run.model, each.cases[0].count) for each in runs]
    assert found == [("a.py", None, 3), ("b.py [HF_MODEL:m]", "m", 3)]


def test_a_mesh_may_be_written_as_text():
    execution = {**TRACE, "machine_info": {"mesh_device_shape": "[2, 1]", "board_type": "Wormhole"}}
    (imported,), _ = read(master(configuration({"a": 1}, executions=[execution])))
    assert imported.run.environment.device.mesh_shape == (2, 1)


def test_one_bad_configuration_costs_that_one_and_is_named():
    document = master(configuration({"a": 1}), 3, configuration({"a": 2}, executions=[1], number=2))
    (imported,), fidelity = read(document)
    assert len(imported.cases) == 1
    assert (fidelity.configurations, fidelity.understood, fidelity.refused) == (3, 1, 2)
    assert [path for path, _ in fidelity.refusals] == [
        '$.operations["ttnn.linear"].configurations[1]',
        '$.operations["ttnn.linear"].configurations[2].executions[0]',
    ]
    assert len(faults_of(read, document, strict=True)) == 2


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ({"transpose_mcast": False}, "MatmulMultiCoreReuseMultiCastProgramConfig"),
        ({"fuse_batch": True, "mcast_in0": 1}, "MatmulMultiCoreReuseMultiCast1DProgramConfig"),
        ({}, "MatmulMultiCoreReuseProgramConfig"),
        (None, "MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig"),
    ],
)
def test_the_class_of_a_program_configuration_without_type_follows_from_its_fields(written, kind):
    fields = {"in0_block_w": 1, "per_core_M": 2, "per_core_N": 3}
    if written is not None:
        fields |= {"compute_with_storage_grid_size": {"x": 8, "y": 4}, **written}
    found, fidelity = read_arguments({"program_config": fields}, strict=True)
    config = found["program_config"]
    assert config.type == f"ttnn.{kind}"
    assert {name for name, _ in config.fields} == fields.keys()
    assert [note for note, _ in fidelity.notes] == [
        "class of a program configuration: not recorded, by its fields"
    ]


def test_a_fused_activation_is_read_by_its_number():
    config = {
        "type": "MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig",
        "fused_activation": {"op_type": 58, "param": [1]},
        "in0_block_w": 1,
    }
    found, fidelity = read_arguments({"program_config": config}, strict=True)
    activation = dict(dict(found["program_config"].fields)["fused_activation"].fields)
    assert activation == {
        "op_type": Symbol("ttnn.UnaryOpType", "SILU"),
        "params": List((Float(1.0),)),
    }
    assert ("recorded as a number" in fidelity.notes[0][0]) is True


CONFIGURATION = '$.operations["ttnn.linear"].configurations[0]'


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"operations": []}, "$.operations"),
        ({"operations": {"ttnn.add": []}}, '$.operations["ttnn.add"]'),
        (master(3), CONFIGURATION),
        (master({"executions": []}), CONFIGURATION),
        (master(configuration(3)), f"{CONFIGURATION}.arguments"),
        (master(configuration({}, executions={})), f"{CONFIGURATION}.executions"),
        (master(configuration({}, executions=[1])), f"{CONFIGURATION}.executions[0]"),
        (
            master(configuration({}, executions=[{"source": 1}])),
            f"{CONFIGURATION}.executions[0].source",
        ),
        (
            master(configuration({}, executions=[{"source": "a", "count": "many"}])),
            f"{CONFIGURATION}.executions[0].count",
        ),
        (master(configuration({"\ud800": 1})), f"{CONFIGURATION}.arguments"),
        (master(configuration({}, optrove={"op": "a"})), f"{CONFIGURATION}.optrove"),
    ],
)
def test_a_wrong_shape_is_an_error_with_its_path(document, path):
    assert path in faults_of(read, document)


def test_all_faults_are_reported_at_once():
    document = master(3, configuration({}, executions=1), configuration(2, number=3))
    assert len(faults_of(read, document)) == 3


def test_odd_but_valid_json_never_stops_the_reader():
    odd = [2**3000, float("nan"), "\ud800", {"$x": 1}, {"x": 1}, {"x": "1", "y": 2}, {}, [[[]]]]
    odd += [{"type": 5}, {"type": "a b", "c": 1}, {"Tensor": 3}, {"OddConfig": 3}, {"type": "Tile"}]
    odd += [{"type": "ttnn.Tensor"}, {"type": "torch.Tensor", "shape": [1], "dtype": None}]
    odd += [tensor(memory_config=3), tensor(original_shape=[-1]), tensor(tensor_placement={})]
    runs, fidelity = read(master(configuration({f"arg{n}": item for n, item in enumerate(odd)})))
    assert fidelity.partly == 1
    assert len(runs[0].cases[0].case.arguments) == len(odd)


def test_members_of_lists_have_the_same_form_as_alone():
    found, _ = read_arguments({"arg0": [old_tensor()], "arg1": old_tensor()})
    inside, alone = found["arg0"].items[0], found["arg1"]
    assert inside.placement == alone.placement
    assert isinstance(alone, TensorSpec)
    assert alone.placement.mesh.placements == (2, None)


def test_a_struct_of_the_file_is_a_struct_of_ttnn():
    found, _ = read_arguments({"shape": EVERYTHING["shape"]})
    assert found["shape"] == Struct("ttnn.Shape", (("shape", List(tuple(map(Int, (1, 1, 8, 1))))),))
