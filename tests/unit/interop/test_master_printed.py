"""The first generation of master files, in which values are what C++ printed."""

import json

import pytest

from masters import (
    GALAXY,
    PRINTED_ND_SHARDS,
    PRINTED_SHARDS,
    master,
    printed_memory,
    printed_tensor,
    unparsed,
    unsupported,
)
from optrove.errors import BadData
from optrove.interop.master_reader import read_master
from optrove.interop.printed import core, core_range, core_ranges
from optrove.model.values import Bool, Float, Int, List, Null, Opaque, Struct, Symbol, Text, Tile

SHARDED = printed_memory("HEIGHT_SHARDED", PRINTED_SHARDS, PRINTED_ND_SHARDS)
COMPUTE = {
    "math_fidelity": "LoFi",
    "math_approx_mode": 1,
    "fp32_dest_acc_en": 0,
    "throttle_level": "ThrottleLevel::NO_THROTTLE",
}
PROGRAM = {
    "compute_with_storage_grid_size": {"x": 8, "y": 4},
    "in0_block_w": 2,
    "fuse_batch": 1,
    "fused_activation": "std::nullopt",
    "hop_cores": {},
}


def read(*configurations, strict=False, **metadata):
    document = master(*configurations, op="ttnn::pad", models=["test_net"], **metadata)
    runs, fidelity = read_master(document, "master.json", strict=strict)
    assert fidelity.adds_up()
    assert fidelity.format == "master v1"
    return runs, fidelity


def read_arguments(*arguments, **options):
    listed = [
        each if isinstance(each, dict) else {f"arg{place}": each}
        for place, each in enumerate(arguments)
    ]
    runs, fidelity = read(listed, **options)
    assert runs[0].cases[0].case.op == "ttnn.pad"
    return dict(runs[0].cases[0].case.arguments), fidelity


def test_text_is_read_as_what_cpp_printed():
    found, fidelity = read_arguments(
        "0", "-1.5", "nullopt", "DataType::BFLOAT8_B", "relu", "[1, 2]", strict=True
    )
    assert list(found.values()) == [
        Int(0),
        Float(-1.5),
        Null(),
        Symbol("ttnn.DataType", "BFLOAT8_B"),
        Text("relu"),
        List((Int(1), Int(2))),
    ]
    assert fidelity.understood == 1


def test_objects_are_named_by_their_class():
    found, _ = read_arguments(
        {"arg0": {"Shape": [1, 2]}},
        {"arg1": {"WormholeComputeKernelConfig": COMPUTE}},
        {"arg2": {"MatmulMultiCoreReuseMultiCast1DProgramConfig": PROGRAM}},
        {"arg3": {"MemoryConfig": json.loads(printed_memory())}},
        strict=True,
    )
    assert found["arg0"] == Struct("ttnn.Shape", (("shape", List((Int(1), Int(2)))),))
    compute = dict(found["arg1"].fields)
    assert compute["math_fidelity"] == Symbol("ttnn.MathFidelity", "LoFi")
    assert compute["math_approx_mode"] == Bool(value=True)
    program = dict(found["arg2"].fields)
    assert program["fuse_batch"] == Bool(value=True)
    assert program["fused_activation"] == Null()
    assert program["hop_cores"] == core_ranges(())
    assert program["compute_with_storage_grid_size"] == core(8, 4)
    assert dict(found["arg3"].fields)["shard_spec"] == Null()


def test_an_unparsed_element_gives_its_exact_shards():
    found, fidelity = read_arguments(unparsed("arg0", printed_tensor(SHARDED)), strict=True)
    memory = dict(found["arg0"].placement.memory.fields)
    shard = dict(memory["shard_spec"].fields)
    assert shard["grid"] == core_ranges(
        (core_range(core(0, 0), core(7, 5)), core_range(core(0, 6), core(0, 6)))
    )
    assert shard["shape"] == List((Int(64), Int(32)))
    # It follows from the other one, as the flag says.
    assert memory["nd_shard_spec"] == Null()
    assert ("UnparsedElement: parsed again", 1) in fidelity.notes


def test_shards_of_several_dimensions_count_where_the_memory_was_made_with_them():
    stored_in = printed_memory("HEIGHT_SHARDED", PRINTED_SHARDS, PRINTED_ND_SHARDS, by_nd=1)
    found, _ = read_arguments(unparsed("arg0", f'{{"MemoryConfig":{stored_in}}}'), strict=True)
    nd_shard = dict(dict(found["arg0"].fields)["nd_shard_spec"].fields)
    assert nd_shard["grid"] == core_ranges((core_range(core(0, 0), core(7, 5)),))
    assert nd_shard["shard_shape"].type == "ttnn.Shape"
    strategy = Symbol("ttnn.ShardDistributionStrategy", "ROUND_ROBIN_1D")
    assert nd_shard["shard_distribution_strategy"] == strategy


@pytest.mark.parametrize(
    ("original", "layout", "padded"),
    [
        (printed_tensor(printed_memory()), "TILE", (1, 1, 64, 32)),
        (printed_tensor(printed_memory(), alignment="[1]"), "ROW_MAJOR", (1, 1, 49, 24)),
        (printed_tensor(printed_memory(), alignment="[32]"), "ROW_MAJOR", (1, 1, 49, 32)),
        (printed_tensor(printed_memory(), alignment="[1]", dtype="BFLOAT8_B"), "TILE", None),
        (printed_tensor(printed_memory(), shape="[40]"), "TILE", (32, 64)),
        (printed_tensor(printed_memory(), alignment="[64, 32, 32]"), "TILE", (1, 1, 64, 32)),
    ],
)
def test_layout_and_padding_follow_from_the_alignment(original, layout, padded):
    found, fidelity = read_arguments({"arg0": json.loads(original)})
    stored_in = found["arg0"].placement
    assert stored_in.layout == layout
    assert stored_in.tile == (Tile((32, 32), (16, 16)) if layout == "TILE" else None)
    assert padded is None or stored_in.padded_shape == padded
    assert (stored_in.storage, stored_in.mesh, stored_in.mesh_shape) == ("device", None, None)
    assert any(kind.startswith("layout and storage") for kind, _ in fidelity.notes)


def test_values_that_cpp_could_not_print_are_kept_by_their_type():
    kind = "ttsl::SmallVector<std::array<unsigned int, 2ul>, 8ul> "
    found, fidelity = read_arguments("1", unsupported(kind), unsupported("std::nullopt_t const"))
    assert found["arg1"] == Opaque(kind.strip(), unsupported(kind))
    assert found["arg2"] == Null()
    (kept,) = fidelity.verbatim
    assert (kept.kind, kept.count) == (kind.strip(), 1)
    assert kept.path == '$.operations["ttnn::pad"].configurations[0][1].arg1'
    assert fidelity.partly == 1


def test_an_element_that_cannot_be_parsed_is_the_argument_of_its_place():
    broken = {"UnparsedElement": {"error": "odd", "element_info": '{"arg1": <what>}'}}
    found, fidelity = read_arguments("1", broken)
    assert found["arg1"] == Opaque("UnparsedElement", '{"arg1": <what>}')
    assert fidelity.verbatim[0].kind == "UnparsedElement"


def test_a_list_comes_from_the_model_of_the_file_and_counts_once():
    runs, fidelity = read([{"arg0": "1"}], [{"arg0": "2"}])
    (imported,) = runs
    assert (imported.run.source, imported.run.model) == ("test_net", "test_net")
    assert [each.count for each in imported.cases] == [1, 1]
    assert ("executions: no count recorded, one each", 2) in fidelity.notes


def test_later_files_tell_sources_and_machines():
    arguments = [{"arg0": "1"}]
    runs, fidelity = read(
        {"arguments": arguments, "source": "a.py [HF_MODEL:m]", "machine_info": GALAXY},
        {"arguments": arguments, "source": ["b.py", "c.py"], "machine_info": [GALAXY]},
        {"arguments": arguments, "source": "d.py", "machine_info": [GALAXY, {"card_count": 1}]},
        {"arguments": arguments, "source": ["e.py", "f.py"], "machine_info": [GALAXY, {}]},
        {"arguments": arguments, "source": "g.py"},
    )
    found = [(each.run.source, each.run.model, each.machine.card_count) for each in runs]
    assert sorted(found, key=str) == [
        ("a.py [HF_MODEL:m]", "m", 32),
        ("b.py", None, 32),
        ("c.py", None, 32),
        ("d.py", None, 1),
        ("d.py", None, 32),
        ("e.py", None, None),
        ("f.py", None, None),
        ("g.py", None, None),
    ]
    note = "machine_info: several sources and machines, not assigned to each other"
    assert (note, 1) in fidelity.notes


def test_named_arguments_of_the_old_spelling_are_read_by_name():
    original = json.loads(printed_tensor(printed_memory()))
    executions = [{"source": "a.py", "count": 4}]
    runs, _ = read({"arguments": {"x": original, "dim": "-1"}, "executions": executions})
    found = dict(runs[0].cases[0].case.arguments)
    assert found["dim"] == Int(-1)
    assert found["x"].shape == (1, 1, 49, 24)
    assert runs[0].cases[0].count == 4


@pytest.mark.parametrize(
    "configuration",
    [
        [3],
        [{"arg0": "1", "arg1": "2"}],
        [{"arg0": "1"}, {"arg0": "2"}],
        [{"UnparsedElement": {"error": "x"}}],
        {"arguments": [{"arg0": "1"}], "source": 5},
    ],
)
def test_wrong_shapes_are_errors(configuration):
    with pytest.raises(BadData) as caught:
        read(configuration)
    assert caught.value.faults[0].path.startswith('$.operations["ttnn::pad"].configurations[0]')


def test_a_list_of_tensors_in_quotes_that_are_not_escaped_is_read():
    one = json.loads(printed_tensor(printed_memory()))["Tensor"]
    listed = json.dumps([one, one])
    element = {"UnparsedElement": {"error": "x", "element_info": f'{{"arg0": "{listed}"}}'}}
    found, fidelity = read_arguments(element, listed, strict=True)
    assert [each.shape for each in found["arg0"].items] == [found["arg0"].items[0].shape] * 2
    assert [each.placement for each in found["arg1"].items] == [
        each.placement for each in found["arg0"].items
    ]
    assert ("UnparsedElement: parsed again", 1) in fidelity.notes


def test_a_grid_without_brackets_and_words_without_quotes_are_read():
    text = (
        '{"arg0":{"SDPAProgramConfig":{"compute_grid":8,8,"q_chunk_size":64,"k_chunk_size":128,'
        '"exp_approx_mode":0,"sub_core_grids":std::nullopt}}}'
    )
    found, _ = read_arguments(
        {"UnparsedElement": {"error": "x", "element_info": text}}, strict=True
    )
    config = found["arg0"]
    assert config.type == "ttnn.SDPAProgramConfig"
    assert dict(config.fields) == {
        "compute_with_storage_grid_size": core(8, 8),
        "q_chunk_size": Int(64),
        "k_chunk_size": Int(128),
        "exp_approx_mode": Bool(value=False),
        "sub_core_grids": Null(),
    }
