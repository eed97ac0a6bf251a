"""What the shadow must leave to ttnn, and what it must not make up."""

import os
import subprocess
import sys

import pytest
import torch

import optrove
from optrove.errors import NoNumbers
from optrove.frameworks.ttnn.probe.patching import SHADOW_ATTRIBUTE
from optrove.frameworks.ttnn.shadow import host_mirrors

pytestmark = [pytest.mark.ttnn, pytest.mark.torch]


@pytest.fixture(scope="module")
def grid(mesh, ttnn):
    """A part of the Galaxy with two axes."""
    submesh = mesh.create_submesh(ttnn.MeshShape(2, 4), ttnn.MeshCoordinate(2, 0))
    yield submesh
    ttnn.close_mesh_device(submesh)


@pytest.fixture
def spread(ttnn, grid):
    """Put numbers on the grid, split along the last dimension over all its chips."""

    def spread(numbers):
        split = ttnn.ShardTensorToMesh(grid, dim=3)
        keywords = {"layout": ttnn.TILE_LAYOUT, "device": grid, "mesh_mapper": split}
        return ttnn.from_torch(numbers, ttnn.float32, **keywords)

    return spread


@pytest.fixture
def joined(ttnn, grid):
    def joined(tensor):
        return ttnn.to_torch(tensor, mesh_composer=ttnn.ConcatMeshToTensor(grid, dim=3))

    return joined


MODES = """
import optrove
with optrove.mock_board("n150", shadow=True) as board:
    import torch, ttnn
    seen = []
    def hook(operation, arguments, keywords):
        seen.append(operation.python_fully_qualified_name)
    device = ttnn.open_device(device_id=0)
    with ttnn.register_pre_operation_hook(hook):
        ones = torch.ones(32, 32)
        a = ttnn.from_torch(ones, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        twice = a + a
        ttnn.add_(twice, 1.0)
        print(type(ttnn.add).__name__, int(ttnn.to_torch(a + a).sum()), int(twice.to_torch().sum()))
    from optrove.frameworks.ttnn.shadow.shadow import active_report
    print(dict(active_report().computed), dict(active_report().missing))
    print(seen)
    ttnn.close_device(device)
"""
CALLED = ["ttnn.from_torch", "ttnn.add", "ttnn.add_", "ttnn.add", "ttnn.to_torch"]


@pytest.mark.parametrize(
    ("overrides", "kind", "hooked"),
    [
        ("{}", "FastOperation", []),
        ('{"enable_fast_runtime_mode": false}', "Operation", CALLED),
        ('{"enable_logging": true}', "FastOperation", CALLED),
    ],
)
def test_every_runtime_mode_gives_the_same_numbers(run_python, overrides, kind, hooked):
    output = run_python(MODES, TTNN_CONFIG_OVERRIDES=overrides)
    numbers, counts, seen = output.splitlines()[-3:]
    assert numbers == f"{kind} 2048 3072"
    assert counts == "{'ttnn.add': 2, 'ttnn.add_': 1} {}"
    assert seen == str(hooked)


@pytest.mark.parametrize(
    ("collective", "dim", "axis"),
    [
        ("all_gather", 7, 1),
        ("all_gather", 3, 5),
        ("mesh_partition", 0, 1),
        ("reduce_scatter", 0, 1),
    ],
)
def test_ttnn_judges_a_wrong_collective(ttnn, report, spread, collective, dim, axis):
    tensor = spread(torch.ones(1, 1, 32, 8 * 128))
    with pytest.raises(RuntimeError, match=r"TT_FATAL|TT_THROW"):
        getattr(ttnn, collective)(tensor, dim, cluster_axis=axis)
    assert not report.computed
    assert not report.missing


def test_a_positional_cluster_axis_counts(ttnn, report, spread, joined):
    whole = torch.arange(32.0 * 8 * 128).reshape(1, 1, 32, 8 * 128)
    tensor = spread(whole)
    by_place = joined(ttnn.mesh_partition(tensor, 3, 1))
    assert torch.equal(by_place, joined(ttnn.mesh_partition(tensor, dim=3, cluster_axis=1)))
    expected = [part.chunk(4, dim=3)[chip % 4] for chip, part in enumerate(whole.chunk(8, dim=3))]
    assert torch.equal(by_place, torch.cat(expected, dim=3))


def test_every_overload_of_all_gather_async_is_known(ttnn, report, grid, spread, joined):
    whole = torch.arange(32.0 * 8 * 32).reshape(1, 1, 32, 8 * 32)
    tensor, line = spread(whole), ttnn.Topology.Linear
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(7, 7))])
    ready = [ttnn.create_global_semaphore(grid, cores, 0) for _ in range(2)]
    gather = ttnn.experimental.all_gather_async
    results = [
        gather(tensor, 3, 1, grid, line, ready),
        gather(tensor, None, 3, ready, cluster_axis=1, topology=line),
        gather(tensor, dim=3, multi_device_global_semaphore=ready, cluster_axis=1, topology=line),
    ]
    rows = [row.repeat(1, 1, 1, 4) for row in whole.chunk(2, dim=3)]
    for result in results:
        assert torch.equal(joined(result), torch.cat(rows, dim=3))


def test_collectives_take_their_input_by_name(ttnn, report, spread, joined):
    whole = torch.randn(1, 1, 32, 8 * 32)
    result = joined(ttnn.all_reduce(input_tensor=spread(whole), cluster_axis=0))
    total = whole[..., :128] + whole[..., 128:]
    assert torch.allclose(result, total.repeat(1, 1, 1, 2), atol=1e-5)


def test_an_op_that_talks_between_chips_unasked_is_not_computed_chip_by_chip(
    ttnn, report, spread, monkeypatch
):
    broadcast = ttnn.broadcast
    monkeypatch.setattr(broadcast, "golden_function", lambda tensor, *_, **__: tensor)
    sender = ttnn.MeshCoordinate(0, 0)
    result = broadcast(spread(torch.ones(1, 1, 32, 8 * 32)), sender, cluster_axis=1)
    with pytest.raises(NoNumbers, match="talks between chips"):
        ttnn.to_torch(ttnn.get_device_tensors(result)[0])


def wrong_calls(ttnn, tensor, host, device):
    """Calls that ttnn refuses, each by its name."""
    return {
        "copy": lambda: ttnn.copy(tensor),
        "copy an int": lambda: ttnn.copy(tensor, 5),
        "to_device": ttnn.to_device,
        "to_device of an int": lambda: ttnn.to_device(5, device),
        "to_device with more": lambda: ttnn.to_device(host, device, wrong=1),
        "from_device": ttnn.from_device,
        "from_device of an int": lambda: ttnn.from_device(5),
        "from_device with more": lambda: ttnn.from_device(tensor, wrong=1),
        "cpu with more": lambda: tensor.cpu(wrong=1),
        "deallocate": ttnn.deallocate,
        "host to device": lambda: ttnn.copy_host_to_device_tensor(host),
        "device to host": lambda: ttnn.copy_device_to_host_tensor(tensor),
        "device tensors": ttnn.get_device_tensors,
        "combine": ttnn.combine_device_tensors,
        "to_torch": ttnn.to_torch,
        "from_torch": lambda: ttnn.from_torch(device=device),
    }


def test_ttnn_answers_wrong_calls_as_without_the_shadow(ttnn, device, put):
    def answers():
        calls = wrong_calls(ttnn, put(torch.ones(32, 32)), host, device)
        for name, call in calls.items():
            with pytest.raises(TypeError) as caught:
                call()
            yield name, str(caught.value)

    host = put(torch.ones(32, 32), device=None)
    plain = dict(answers())
    with optrove.mock_board("galaxy", shadow=True):
        assert dict(answers()) == plain


def test_numbers_come_from_a_file_named_by_keyword(ttnn, report, device, put, tmp_path):
    path = tmp_path / "ones.tensorbin"
    ttnn.dump_tensor(file_name=path, tensor=put(torch.ones(32, 32)))
    assert ttnn.to_torch(ttnn.load_tensor(file_name=path, device=device)).sum() == 1024


def test_parts_of_chips_join_again(ttnn, report, grid, spread, joined):
    whole = torch.randn(1, 1, 32, 8 * 32)
    parts = ttnn.get_device_tensors(spread(whole))
    assert torch.equal(ttnn.to_torch(parts[5]), whole[..., 160:192])
    again = ttnn.combine_device_tensors(tensors=parts)
    assert [part.to_list() for part in ttnn.get_device_tensors(again)] == [
        part.tolist() for part in whole.chunk(8, dim=3)
    ]
    composer = ttnn.ConcatMeshToTensor(grid, dim=3)
    assert torch.equal(ttnn.aggregate_tensor(spread(whole), composer).to_torch(), whole)


def test_reading_a_deallocated_tensor_says_so(ttnn, report, put):
    tensor = put(torch.ones(32, 32))
    ttnn.deallocate(tensor)
    moved = put(torch.ones(32, 32), memory_config=ttnn.L1_MEMORY_CONFIG)
    assert ttnn.to_torch(ttnn.move(moved)).sum() == 1024
    for dead in (tensor, moved):
        for read in (ttnn.to_torch, ttnn.Tensor.to_list, ttnn.Tensor.cpu, ttnn.from_device):
            with pytest.raises(NoNumbers, match="it was deallocated"):
                read(dead)
        assert "not allocated" in repr(dead)


def test_ttnn_judges_an_op_on_a_deallocated_tensor(ttnn, report, put):
    tensor = put(torch.ones(32, 32))
    ttnn.deallocate(tensor)
    with pytest.raises(RuntimeError, match="TT_FATAL"):
        ttnn.add(tensor, tensor)
    assert not report.missing


def test_running_statistics_are_not_stale_after_training(ttnn, report, put):
    batch = put(torch.randn(2, 3, 32, 32))
    mean, variance = put(torch.zeros(1, 3, 1, 1)), put(torch.ones(1, 3, 1, 1))
    statistics = {"running_mean": mean, "running_var": variance}
    ttnn.batch_norm(batch, **statistics)
    assert ttnn.to_torch(mean).tolist() == torch.zeros(1, 3, 1, 1).tolist()
    assert ttnn.to_torch(variance).tolist() == torch.ones(1, 3, 1, 1).tolist()
    for _ in range(2):
        result = ttnn.batch_norm(batch, training=True, **statistics)
        assert ttnn.to_torch(result).mean().abs() < 1e-3
    for tensor in statistics.values():
        with pytest.raises(NoNumbers, match=r"ttnn.batch_norm: it wrote to this argument"):
            ttnn.to_torch(tensor)


def test_clipped_gradients_are_not_stale(ttnn, report, put):
    gradients = [put(torch.ones(1, 1, 32, 32)) for _ in range(2)]
    ttnn.moreh_clip_grad_norm(gradients, 1.0)
    with pytest.raises(NoNumbers, match="it wrote to this argument"):
        ttnn.to_torch(gradients[1])


def test_a_cache_has_the_numbers_that_the_op_returns(ttnn, report, put):
    cache = put(torch.zeros(2, 1, 64, 32))
    ttnn.fill_cache(cache, put(torch.ones(1, 1, 32, 32)), 1)
    filled = ttnn.to_torch(cache)
    assert filled[1, 0, :32].sum() == filled.sum() == 1024


def test_numbers_of_dropped_tensors_are_dropped(ttnn, report, device, monkeypatch):
    monkeypatch.setattr(host_mirrors, "SWEEP_BYTES", 0)
    mirrors = getattr(ttnn, SHADOW_ATTRIBUTE).mirrors
    tiles = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": device}
    kept = ttnn.ones([64, 64], **tiles)
    sizes = []
    for width in range(32, 32 * 20, 32):  # of different sizes, at different addresses
        other = ttnn.zeros([64, width], **tiles)
        wide = ttnn.concat([kept, other], 1)
        sizes.append(len(mirrors))
        del other, wide
    assert sizes[-1] <= sizes[1]
    assert (ttnn.to_torch(kept) == 1).all()


def test_numbers_on_a_closed_device_are_dropped(ttnn, report, mesh):
    mirrors = getattr(ttnn, SHADOW_ATTRIBUTE).mirrors
    before = len(mirrors)
    submesh = mesh.create_submesh(ttnn.MeshShape(1, 1), ttnn.MeshCoordinate(3, 7))
    kept = ttnn.ones([64, 64], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=submesh)
    assert len(mirrors) > before
    ttnn.close_mesh_device(submesh)
    assert len(mirrors) == before
    with pytest.raises(NoNumbers, match="closed"):
        ttnn.to_torch(kept)


def test_the_padding_of_tiles_has_no_numbers(ttnn, report, put):
    filled = ttnn.fill_implicit_tile_padding(put(torch.ones(17, 17)), 3.0)
    with pytest.raises(NoNumbers, match="padding"):
        filled.to_torch_with_padded_shape()
    whole = put(torch.ones(32, 32))
    assert (whole.to_torch_with_padded_shape() == 1).all()


def test_free_memory_is_given_back(ttnn, report, device, monkeypatch):
    monkeypatch.setattr(host_mirrors, "SWEEP_BYTES", 0)
    mirrors, calls = getattr(ttnn, SHADOW_ATTRIBUTE).mirrors, []
    monkeypatch.setattr(mirrors, "_trim", calls.append)
    for _ in range(2 * host_mirrors.SWEEPS_PER_TRIM):
        ttnn.zeros([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    assert len(calls) >= 2


@pytest.mark.parametrize(("chosen", "policy"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_of_torch_sleep_while_they_wait_unless_the_user_decides(chosen, policy):
    script = """
import os
before = os.environ.get("OMP_WAIT_POLICY")
import optrove
with optrove.mock_board("n150", shadow=True):
    assert os.environ.get("OMP_WAIT_POLICY") == before
os._exit(0)
"""
    variables = {name: text for name, text in os.environ.items() if name != "OMP_WAIT_POLICY"}
    variables |= {"OMP_DISPLAY_ENV": "TRUE"} | ({"OMP_WAIT_POLICY": chosen} if chosen else {})
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"OMP_WAIT_POLICY = '{policy}'" in done.stderr
