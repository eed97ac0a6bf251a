"""Capsules of ttnn: any layout, dtype and mesh, on boards with numbers."""

import pytest

from commands import ask

pytestmark = [pytest.mark.ttnn, pytest.mark.torch]

PROGRAM = """
import torch, ttnn

ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))

def put(numbers, dtype=ttnn.bfloat16, mapper=None, **keywords):
    keywords = {"layout": ttnn.TILE_LAYOUT, "device": mesh} | keywords
    return ttnn.from_torch(numbers, dtype=dtype, mesh_mapper=mapper, **keywords)

torch.manual_seed(0)
for scale in (1.0, 300.0):
    x = torch.randn(1, 1, 64, 128) * scale
    sharded = put(x, mapper=ttnn.ShardTensorToMesh(mesh, dim=-1))
    ttnn.gelu(sharded)
    blocks = put(x, ttnn.bfloat8_b)
    ttnn.add(blocks, blocks)
    rows = put(x, layout=ttnn.ROW_MAJOR_LAYOUT)
    ttnn.to_layout(rows, ttnn.TILE_LAYOUT)
    grid = ttnn.CoreGrid(y=2, x=1)
    memory = ttnn.create_sharded_memory_config(
        (1, 1, 64, 128), core_grid=grid, strategy=ttnn.ShardStrategy.HEIGHT
    )
    in_l1 = ttnn.to_memory_config(put(x), memory)
    ttnn.multiply(in_l1, in_l1)
    ttnn.deallocate(in_l1)
ids = put(torch.randint(0, 8, (1, 32)), ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
ttnn.embedding(ids, put(torch.randn(8, 64), layout=ttnn.ROW_MAJOR_LAYOUT))
ttnn.close_mesh_device(mesh)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A trove with capsules of all calls of a program on two chips."""
    directory = tmp_path_factory.mktemp("capsules")
    script = directory / "program.py"
    script.write_text(PROGRAM)
    path = directory / "trove.db"
    answer = ask(
        *("trace", script, "--board", "n300", "--shadow", "--capsule", "all"),
        *("--store", path, "--json"),
    )
    assert answer["capsules"]["omitted"] == {}
    assert answer["capsules"]["kept"] > 10
    return path


def test_every_case_passes_with_its_recorded_values(store):
    answer = ask(
        *("replay", "*", "--all", "--all-ops", "--device", "shadow", "--values", "capsule"),
        *("--store", store, "--json"),
    )
    assert set(answer["counts"]) == {"passed"}
    noted = [case for case in answer["cases"] if any("values of" in n for n in case["notes"])]
    assert {"ttnn.gelu", "ttnn.add", "ttnn.multiply", "ttnn.embedding"} <= {
        case["op"] for case in noted
    }


def test_a_plain_mock_board_has_no_values_to_keep(tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import ttnn")
    words = ("trace", script, "--board", "n150", "--capsule", "all", "--store", tmp_path / "t.db")
    assert "add --shadow" in ask(*words, exit_code=2)
