"""Ops over many chips, with what the fabric needs, are recorded so that they can be made again."""

import pytest

from optrove.model.case import obstacles
from optrove.model.values import Handle
from tracing import tracing

pytestmark = pytest.mark.ttnn


def zeros(ttnn, mesh, *shape):
    return ttnn.zeros(shape, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)


def cores(ttnn):
    return ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(7, 7))})


def test_collective_ops_on_the_whole_mesh(tmp_path, ttnn, all_chips):
    a = zeros(ttnn, all_chips, 1, 1, 32, 256)
    with tracing(tmp_path) as traced:
        for _ in range(3):
            ttnn.all_gather(a, dim=3, cluster_axis=1)
            ttnn.reduce_scatter(a, dim=3, cluster_axis=1)
    assert traced.ops == ["ttnn.all_gather", "ttnn.reduce_scatter"] * 3
    assert len({call.hash for call in traced.calls}) == 2
    for call in traced.calls:
        assert call["input_tensor"].placement.mesh_shape == (4, 8)
        assert not obstacles(call.case)
        assert call.outcome == "returned"
    assert [each.shape for each in traced.calls[0].call.outputs] == [(1, 1, 32, 2048)]


def test_semaphores_made_meanwhile_are_recorded_with_their_recipe(tmp_path, ttnn, row):
    with tracing(tmp_path) as traced:
        a = zeros(ttnn, row, 1, 1, 32, 256)
        two = [ttnn.create_global_semaphore(row, cores(ttnn), 0) for _ in range(2)]
        barrier = ttnn.create_global_semaphore(row, cores(ttnn), 0)
        for _ in range(3):
            ttnn.experimental.all_gather_async(
                a,
                dim=3,
                multi_device_global_semaphore=two,
                barrier_semaphore=barrier,
                num_links=1,
                topology=ttnn.Topology.Linear,
            )
    calls = traced.of("ttnn.experimental.all_gather_async")
    assert [call.outcome for call in calls] == ["returned"] * 3
    assert len({call.hash for call in calls}) == 1
    case = calls[0].case
    assert not obstacles(case)
    semaphores = [*calls[0]["multi_device_global_semaphore"].items, calls[0]["barrier_semaphore"]]
    assert all(isinstance(each, Handle) and each.recipe is not None for each in semaphores)
    assert len({each.identity for each in semaphores}) == 3


def test_semaphores_made_before_are_counted_as_not_replayable(tmp_path, ttnn, row):
    a = zeros(ttnn, row, 1, 1, 32, 256)
    two = [ttnn.create_global_semaphore(row, cores(ttnn), 0) for _ in range(2)]
    with tracing(tmp_path) as traced:
        for _ in range(2):
            ttnn.experimental.all_gather_async(
                a,
                dim=3,
                multi_device_global_semaphore=two,
                num_links=1,
                topology=ttnn.Topology.Linear,
            )
    calls = traced.of("ttnn.experimental.all_gather_async")
    assert [call.outcome for call in calls] == ["returned"] * 2
    assert [call.kind for call in calls] == ["case"] * 2
    assert all(obstacles(call.case) for call in calls)


def test_which_of_two_meshes_a_tensor_is_on_makes_no_difference(tmp_path, ttnn, mesh, row):
    other = mesh.create_submesh(ttnn.MeshShape(1, 8), ttnn.MeshCoordinate(3, 0))
    half = mesh.create_submesh(ttnn.MeshShape(1, 4), ttnn.MeshCoordinate(0, 0))
    tensors = [zeros(ttnn, part, 32, 32) for part in (row, other, half)]
    with tracing(tmp_path) as traced:
        for tensor in tensors * 2:
            ttnn.relu(tensor)
    hashes = [call.hash for call in traced.calls]
    assert hashes[:3] == hashes[3:]
    assert hashes[0] == hashes[1] != hashes[2]
    ttnn.close_mesh_device(other)
    ttnn.close_mesh_device(half)


def test_an_argument_that_gets_another_topology_is_recorded_as_it_was_and_as_it_is(
    tmp_path, ttnn, all_chips
):
    def spread(shape, dtype, layout):
        return ttnn.allocate_tensor_on_device(
            ttnn.Shape(shape), dtype, layout, all_chips, ttnn.DRAM_MEMORY_CONFIG
        )

    rows = ttnn.TensorTopology(
        ttnn.MeshShape(4, 8),
        [ttnn.PlacementShard(0), ttnn.PlacementReplicate()],
        [ttnn.MeshCoordinate(row, column) for row in range(4) for column in range(8)],
    )
    keys = spread((1, 1, 32, 32), ttnn.bfloat16, ttnn.TILE_LAYOUT)
    keys.update_tensor_topology(rows)
    pages = spread((1, 2), ttnn.int32, ttnn.ROW_MAJOR_LAYOUT)
    with tracing(tmp_path) as traced:
        for _ in range(2):
            cache = spread((2, 1, 32, 32), ttnn.bfloat16, ttnn.TILE_LAYOUT)
            for _ in range(2):
                ttnn.experimental.paged_fill_cache(cache, keys, pages, batch_idx=0)
    calls = traced.of("ttnn.experimental.paged_fill_cache")
    given = [call["cache_tensor"].placement.mesh.placements for call in calls]
    assert given == [(None, None), (0, None)] * 2
    for call in calls:
        assert call.call.outputs[0].placement.mesh.placements == (0, None)
