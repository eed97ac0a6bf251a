"""Numbers that tests of real models need: each test is a fault that one of them has shown."""

from contextlib import suppress

import pytest
import torch

from optrove.errors import NoNumbers
from optrove.frameworks.ttnn.shadow.golden import ignored_argument
from optrove.frameworks.ttnn.shadow.golden_overrides import (
    ACTIVATIONS_WITH_MODES,
    activated,
    as_conv2d,
    average_pool,
    fill_pages,
    in_pages,
    latent_attention,
    max_pool,
    multiply_repeated,
    scatter,
    split_heads_of_shards,
    squares_and_sums,
    update_pages,
    with_sums_behind,
)

pytestmark = [pytest.mark.ttnn, pytest.mark.torch]


def test_executing_a_metal_trace_computes_it_from_its_present_inputs(ttnn, report, device, put):
    inputs, weights = put(torch.ones(64, 64)), put(torch.full((64, 64), 2.0))
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    total = ttnn.add(inputs, weights)
    viewed = ttnn.reshape(total, [1, 1, 64, 64])
    ttnn.deallocate(total)
    ttnn.multiply(inputs, 3.0, output_tensor=inputs)
    output = ttnn.matmul(viewed.reshape([64, 64]), weights)
    ttnn.end_trace_capture(device, trace, cq_id=0)
    assert (ttnn.to_torch(inputs) == 1).all()

    host = put(torch.full((64, 64), 0.5), device=None)
    ttnn.copy_host_to_device_tensor(host, inputs)
    for expected in (2.5, 3.5):  # the trace multiplies its input by three
        ttnn.execute_trace(device, trace, cq_id=0, blocking=False)
        assert (ttnn.to_torch(output) == expected * 128).all()
    ttnn.release_trace(device, trace)


def test_capturing_a_metal_trace_keeps_no_memory_of_tensors_that_are_dropped(
    ttnn, report, device, put
):
    inputs = put(torch.ones(1024, 1024), memory_config=ttnn.L1_MEMORY_CONFIG)
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    output = inputs
    for _ in range(60):  # together more than all L1
        output = ttnn.add(output, 1.0, memory_config=ttnn.L1_MEMORY_CONFIG)
    ttnn.end_trace_capture(device, trace, cq_id=0)
    ttnn.execute_trace(device, trace, cq_id=0)
    assert (ttnn.to_torch(output) == 61).all()


def test_other_views_keep_their_numbers_when_a_view_of_a_view_is_deallocated(ttnn, report, put):
    numbers = torch.randn(64, 64).bfloat16()
    view = ttnn.reshape(put(numbers), (1, 1, 64, 64))
    again = ttnn.reshape(view, (1, 64, 64))
    ttnn.deallocate(again)
    assert view.is_allocated()
    other = ttnn.add(view, 1.0)  # at the same address
    assert other.buffer_address() == view.buffer_address()
    assert torch.equal(ttnn.to_torch(view)[0, 0], numbers)


def read(ttnn, tensor):
    return ttnn.to_torch(tensor).float()


def near(actual, expected):
    expected = expected.float()
    assert actual.numel() == expected.numel()
    return torch.allclose(actual.reshape(expected.shape), expected, rtol=0.02, atol=0.05)


def test_sharded_columns_of_heads_are_grouped_by_head(ttnn, report, put):
    batch, places, heads, size = 2, 64, 4, 32
    fused = torch.randn(batch, places, heads * 3 * size).bfloat16()
    sharded = ttnn.create_sharded_memory_config(
        fused.shape, core_grid=ttnn.CoreGrid(x=4, y=2), strategy=ttnn.ShardStrategy.BLOCK
    )
    tall = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1)
    split = ttnn.transformer.split_query_key_value_and_split_heads
    outputs = split(put(fused, memory_config=sharded), num_heads=heads, memory_config=tall)
    rows = fused.reshape(batch, places, heads, 3, size).permute(3, 0, 2, 1, 4)
    expected = (rows[0], rows[1].transpose(-2, -1), rows[2])
    for output, part in zip(outputs, expected, strict=True):
        assert torch.equal(read(ttnn, output), part.float())

    outputs = split(put(fused), num_heads=heads)
    rows = fused.reshape(batch, places, 3, heads, size).permute(2, 0, 3, 1, 4)
    expected = (rows[0], rows[1].transpose(-2, -1), rows[2])
    for output, part in zip(outputs, expected, strict=True):
        assert torch.equal(read(ttnn, output), part.float())


def test_columns_of_heads_are_grouped_by_shard(ttnn, report, put, device):
    batch, places, heads, size = 2, 64, 4, 32
    parts = torch.randn(3, batch, places, heads, size).bfloat16()  # queries, keys, values
    grouped = parts.unflatten(3, (2, -1)).permute(1, 2, 3, 0, 4, 5)
    fused = put(grouped.reshape(batch, 1, places, -1), dtype=ttnn.bfloat8_b)
    sharded = ttnn.create_sharded_memory_config(
        fused.shape, ttnn.CoreGrid(x=2, y=batch), ttnn.ShardStrategy.BLOCK
    )
    found = ttnn.experimental.split_query_key_value_and_split_heads(
        ttnn.to_memory_config(fused, sharded),
        device.compute_with_storage_grid_size(),
        num_heads=heads,
        memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
    )
    query, key, value = parts.transpose(2, 3).float()
    expected = (query, key.transpose(-2, -1), value)
    assert all(near(read(ttnn, one), other) for one, other in zip(found, expected, strict=True))
    side_by_side = parts.permute(1, 2, 0, 3, 4).reshape(batch, 1, places, -1)
    for one, other in zip(
        split_heads_of_shards(side_by_side, num_heads=heads), expected, strict=True
    ):
        assert torch.equal(one.float(), other)


def test_shapes_that_differ_in_leading_ones(ttnn, report, put):
    rows, weights = torch.randn(32, 64).bfloat16(), torch.randn(64, 96).bfloat16()
    bias = torch.randn(96).bfloat16()
    output = ttnn.linear(
        put(rows), put(weights.reshape(1, 1, 64, 96)), bias=put(bias.reshape(1, 1, 1, 96))
    )
    assert near(read(ttnn, output), rows.float() @ weights.float() + bias.float())
    output = ttnn.linear(
        put(rows.reshape(1, 32, 64)), put(weights), bias=put(bias.reshape(1, 1, 1, 96))
    )
    assert near(read(ttnn, output), rows.float() @ weights.float() + bias.float())


def test_an_embedding_with_a_table_of_four_dimensions(ttnn, report, put):
    table = torch.randn(1, 1, 64, 32).bfloat16()
    rows = torch.randint(0, 64, (1, 32), dtype=torch.int32)
    places = put(rows, ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
    output = ttnn.embedding(places, put(table, layout=ttnn.ROW_MAJOR_LAYOUT))
    assert torch.equal(read(ttnn, output)[0], table[0, 0][rows[0].long()].float())


def test_layer_norm_with_rows_of_weights(ttnn, report, put):
    numbers = torch.randn(1, 1, 32, 48).bfloat16()
    weight, bias = torch.randn(48).bfloat16(), torch.randn(48).bfloat16()
    filled = [
        torch.nn.functional.pad(each, (0, 16)).reshape(1, 1, 2, 32) for each in (weight, bias)
    ]
    weights = [put(each, layout=ttnn.ROW_MAJOR_LAYOUT) for each in filled]
    output = ttnn.layer_norm(put(numbers), weight=weights[0], bias=weights[1], epsilon=1e-5)
    expected = torch.nn.functional.layer_norm(
        numbers.float(), (48,), weight.float(), bias.float(), 1e-5
    )
    assert near(read(ttnn, output), expected)


CONVOLUTIONS = """
import optrove
with optrove.mock_board("n150", shadow=True):
    import torch, ttnn
    device = ttnn.open_device(device_id=0, l1_small_size=16384)

    def put(numbers, **keywords):
        return ttnn.from_torch(numbers, ttnn.bfloat16, **keywords)

    def near(output, expected):
        actual = ttnn.to_torch(output).float().reshape(expected.shape)
        return torch.allclose(actual, expected, rtol=0.02, atol=0.1)

    numbers, filters = torch.randn(1, 64, 32).bfloat16(), torch.randn(32, 32, 3).bfloat16()
    bias = torch.randn(32).bfloat16()
    expected = torch.nn.functional.conv1d(
        numbers.float().transpose(1, 2), filters.float(), bias.float(), padding=1
    )
    sizes = {"device": device, "in_channels": 32, "out_channels": 32, "batch_size": 1}
    weights = put(filters), put(bias.reshape(1, 1, 1, 32))
    for _ in range(2):  # with plain weights, then with those that the op has prepared
        output, weights = ttnn.conv1d(
            input_tensor=put(numbers, device=device), weight_tensor=weights[0],
            bias_tensor=weights[1], input_length=64, kernel_size=3, padding=1,
            return_weights_and_bias=True, **sizes,
        )
        assert near(output, expected.transpose(1, 2))

    numbers, filters = torch.randn(1, 8, 8, 3).bfloat16(), torch.randn(32, 3, 3, 3).bfloat16()
    expected = torch.nn.functional.conv2d(
        numbers.float().permute(0, 3, 1, 2), filters.float(), padding=1
    )
    filled = torch.nn.functional.pad(numbers, (0, 5))  # channels that the filters do not have
    output = ttnn.conv2d(
        input_tensor=put(filled.reshape(1, 1, 64, 8), device=device), weight_tensor=put(filters),
        input_height=8, input_width=8, kernel_size=(3, 3), padding=(1, 1),
        **sizes | {"in_channels": 8},
    )
    assert near(output, expected.permute(0, 2, 3, 1))

    numbers, filters = torch.randn(1, 8, 8, 32).bfloat16(), torch.randn(32, 32, 3, 3).bfloat16()
    expected = torch.nn.functional.conv_transpose2d(
        numbers.float().permute(0, 3, 1, 2), filters.float(), stride=2, padding=1
    )
    output = ttnn.conv_transpose2d(
        input_tensor=put(numbers.reshape(1, 1, 64, 32), device=device), weight_tensor=put(filters),
        input_height=8, input_width=8, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), **sizes,
    )
    assert near(output, expected.permute(0, 2, 3, 1))

    pooled = ttnn.adaptive_avg_pool2d(
        put(numbers, device=device), 1, 8, 8, 32, [4, 4],
        dram_slice_config=ttnn.Op2DSliceConfig(num_slices=2, slice_type=ttnn.Op2DDRAMSliceHeight),
    )
    assert tuple(pooled.shape) == (1, 4, 4, 32)  # not the rows of the image, as without slices
    expected = torch.nn.functional.avg_pool2d(numbers.float().permute(0, 3, 1, 2), 2)
    assert near(pooled, expected.permute(0, 2, 3, 1))
    ttnn.close_device(device)
print("done")
"""


def test_convolutions_over_a_length_and_in_the_other_direction_and_pools_in_slices(run_python):
    assert run_python(CONVOLUTIONS) == "done\n"


@pytest.mark.parametrize(("groups", "block"), [(1, 32), (2, 32), (1, 0)])
def test_convolutions_of_volumes(ttnn, report, put, device, groups, block):
    numbers, bias = torch.randn(1, 64, 4, 6, 6).bfloat16(), torch.randn(32).bfloat16()
    filters = torch.randn(32, 64 // groups, 3, 3, 3).bfloat16() / 8
    weight = ttnn.experimental.prepare_conv3d_weights(
        weight_tensor=put(filters, layout=ttnn.ROW_MAJOR_LAYOUT, device=None),
        groups=groups,
        C_in_block=block,
        device=device,
    )
    output = ttnn.experimental.conv3d(
        input_tensor=put(numbers.permute(0, 2, 3, 4, 1), layout=ttnn.ROW_MAJOR_LAYOUT),
        weight_tensor=weight,
        bias_tensor=put(bias.reshape(1, -1)),
        device=device,
        config=ttnn.Conv3dConfig(C_in_block=block, compute_with_storage_grid_size=(8, 8)),
        dtype=ttnn.bfloat16,
        output_channels=32,
        kernel_size=(3, 3, 3),
        padding=(0, 1, 1),
        groups=groups,
    )
    expected = torch.nn.functional.conv3d(
        numbers.float(), filters.float(), bias.float(), padding=(0, 1, 1), groups=groups
    )
    assert near(read(ttnn, output), expected.permute(0, 2, 3, 4, 1))


def test_ops_of_models_without_a_golden_function(ttnn, report, device, put):
    a, b = torch.randn(1, 1, 64, 64).bfloat16(), torch.randn(1, 1, 64, 96).bfloat16()
    output = ttnn.experimental.minimal_matmul(put(a), put(b))
    assert near(read(ttnn, output), a.float() @ b.float())
    parts = torch.randn(1, 4, 64, 64).bfloat16()
    output = ttnn.experimental.fast_reduce_nc(put(parts), dims=[1])
    assert near(read(ttnn, output), parts.float().sum(1))
    cosines, sines = torch.randn(1, 1, 64, 64).bfloat16(), torch.randn(1, 1, 64, 64).bfloat16()
    output = ttnn.experimental.rotary_embedding(put(parts), put(cosines), put(sines))
    turned = torch.cat((-parts[..., 32:], parts[..., :32]), -1).float()
    assert near(read(ttnn, output), parts.float() * cosines.float() + turned * sines.float())
    assert not report.missing


def test_queries_and_keys_are_rotated_together(ttnn, report, device):
    users, size = 8, 64
    heads = [torch.randn(1, users, 32, size).bfloat16() for _ in range(2)]
    angles = [torch.randn(1, 2 * users, 32, size).bfloat16() for _ in range(2)]
    matrix = torch.zeros(32, 32)
    for place in range(0, 32, 2):
        matrix[place, place + 1], matrix[place + 1, place] = 1, -1

    def shards(numbers, first, last):
        rows = ttnn.CoreRangeSet(
            [ttnn.CoreRange(ttnn.CoreCoord(0, first), ttnn.CoreCoord(7, last))]
        )
        count = 8 * (last - first + 1)
        shape = [numbers.numel() // numbers.shape[-1] // count, numbers.shape[-1]]
        spec = ttnn.ShardSpec(rows, shape, ttnn.ShardOrientation.ROW_MAJOR)
        config = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, spec)
        tiles = {"layout": ttnn.TILE_LAYOUT, "device": device, "memory_config": config}
        return ttnn.from_torch(numbers, ttnn.bfloat16, **tiles)

    outputs = ttnn.experimental.rotary_embedding_llama_fused_qk(
        shards(heads[0], 0, 0),
        shards(heads[1], 1, 1),
        *(shards(each, 0, 1) for each in angles),
        shards(matrix.repeat(1, 1, 2 * users, 1), 0, 1),
    )
    for place, (output, numbers) in enumerate(zip(outputs, heads, strict=True)):
        mine = slice(place * users, (place + 1) * users)
        cosines, sines = (each[:, mine, :1].float() for each in angles)
        pairs = numbers.float().unflatten(-1, (-1, 2))
        turned = torch.stack((-pairs[..., 1], pairs[..., 0]), -1).flatten(-2)
        assert near(read(ttnn, output), numbers.float() * cosines + turned * sines)


def test_golden_functions_get_bfloat16_where_the_kernels_round_as_it_does(ttnn, report, put):
    numbers = torch.linspace(-4, 4, 64 * 64).reshape(64, 64).bfloat16()
    for dtype in (ttnn.bfloat16, ttnn.bfloat8_b):
        tensor = put(numbers, dtype)
        inputs = ttnn.to_torch(tensor).bfloat16()
        expected = torch.nn.functional.softshrink(inputs, 0.65)
        output = ttnn.to_torch(ttnn.softshrink(tensor, lambd=0.65)).bfloat16()
        assert torch.equal(output, ttnn.to_torch(put(expected, dtype)).bfloat16())
    output = ttnn.to_torch(ttnn.logit(put(numbers), eps=0.25))
    assert torch.equal(output, torch.logit(numbers, eps=0.25))


TRACER = """
import json, pathlib, sys
import optrove
with optrove.mock_board("n150", shadow=True):
    import torch, ttnn
    from ttnn import operation_tracer
    operation_tracer._ENABLE_TRACE = True
    operation_tracer._SERIALIZE_TENSOR_VALUES = True
    device = ttnn.open_device(device_id=0)
    tiles = {"layout": ttnn.TILE_LAYOUT, "device": device}
    ones = ttnn.from_torch(torch.ones(32, 32), ttnn.bfloat16, **tiles)
    total = ttnn.add(ones, ones)
    assert (ttnn.to_torch(total) == 2).all()
    ttnn.close_device(device)
found = [json.loads(path.read_text()) for path in pathlib.Path(sys.argv[1]).rglob("*add*.json")]
print(found[0]["return_value"]["values"][0][:2])
"""


def test_the_tracer_of_ttnn_reads_the_values_of_a_result_inside_the_call(run_python, tmp_path):
    variables = {
        "TTNN_CONFIG_OVERRIDES": '{"enable_fast_runtime_mode": false}',
        "TTNN_OPERATION_TRACE_DIR": str(tmp_path / "traced"),
    }
    assert run_python(TRACER, str(tmp_path / "traced"), **variables) == "[2.0, 2.0]\n"


def test_a_cache_is_written_on_the_chips_that_are_asked_for(ttnn, report, row):
    tiles = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": row}
    cache = ttnn.zeros([8, 1, 64, 64], **tiles)
    sharded = ttnn.create_sharded_memory_config(
        [1, 8, 32, 64], core_grid=ttnn.CoreGrid(x=8, y=1), strategy=ttnn.ShardStrategy.HEIGHT
    )
    tokens = ttnn.interleaved_to_sharded(ttnn.ones([1, 8, 32, 64], **tiles), sharded)
    ttnn.experimental.paged_update_cache(
        cache, tokens, update_idxs=[5] * 8, mesh_coords={ttnn.MeshCoordinate(0, 2)}
    )
    found = [ttnn.to_torch(each).float() for each in ttnn.get_device_tensors(cache)]
    assert [each.sum().item() for each in found] == [0, 0, 8 * 64, 0, 0, 0, 0, 0]
    assert (found[2][:, 0, 5] == 1).all()


def test_pages_of_a_cache_are_a_ring_and_have_the_view_of_the_caller():
    cache = torch.zeros(4, 1, 64, 128)
    tokens = torch.randn(1, 2, 32, 256)
    table = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32)
    places = torch.tensor([70, -1], dtype=torch.int32)
    found = update_pages(
        cache,
        tokens,
        update_idxs_tensor=places,
        page_table=table,
        block_size=32,
        cache_position_modulo=64,
    )
    expected = torch.zeros(4, 1, 32, 256)
    expected[0, 0, 6] = tokens[0, 0, 0]
    assert torch.equal(in_pages(found, 1, 32, 256), expected)
    # A row of a tile is a row of a tile in every view.
    assert torch.equal(found[0, 0, 6], tokens[0, 0, 0, :128])
    assert torch.equal(found[0, 0, 38], tokens[0, 0, 0, 128:])

    prompt = torch.randn(1, 1, 96, 128)
    found = fill_pages(torch.zeros(2, 1, 32, 128), prompt, table[:1], cache_position_modulo=64)
    assert torch.equal(found[0], prompt[0, :, 64:])
    assert torch.equal(found[1], prompt[0, :, 32:64])

    shared = update_pages(torch.zeros(1, 1, 32, 256), tokens, update_idxs=[3, 4], share_cache=True)
    assert torch.equal(shared[0, 0, 3:5], tokens[0, :, 0])


def test_chips_exchange_their_shares(ttnn, report, row):
    numbers = torch.randn(1, 64, 32, 256).bfloat16()
    tensor = ttnn.from_torch(
        numbers,
        ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        device=row,
        mesh_mapper=ttnn.ShardTensorToMesh(row, dim=1),
    )
    output = ttnn.experimental.all_to_all_async_generic(tensor, in_dim=1, out_dim=3, cluster_axis=1)
    parts = [ttnn.to_torch(each) for each in ttnn.get_device_tensors(output)]
    for part, expected in zip(parts, numbers.chunk(8, 3), strict=True):
        assert torch.equal(part, expected)


def test_padding_with_values_that_a_dtype_cannot_hold(ttnn, report, put):
    padding = [(0, 0), (0, 0), (0, 32), (0, 0)]
    ones = torch.ones(1, 1, 32, 32)
    for value, expected in ((3.5e38, torch.inf), (-1e39, -torch.inf), (-torch.inf, -torch.inf)):
        output = ttnn.to_torch(ttnn.pad(put(ones), padding, value=value))
        assert (output[:, :, 32:] == expected).all()
    output = ttnn.pad(put(ones.int(), ttnn.uint32), padding, value=-1)
    assert (ttnn.to_torch(output)[:, :, 32:].long() & 0xFFFFFFFF == 2**32 - 1).all()


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("count_include_pad", [False, True])
def test_pools_agree_with_torch_for_two_and_four_sides(ceil_mode, count_include_pad):
    images = torch.randn(2, 3, 10, 11)
    rows = images.permute(0, 2, 3, 1).reshape(1, 1, -1, 3)
    pool = torch.nn.functional.avg_pool2d
    expected = pool(images, 3, 2, 1, ceil_mode=ceil_mode, count_include_pad=count_include_pad)
    largest, places = torch.nn.functional.max_pool2d(
        images, 3, 2, 1, ceil_mode=ceil_mode, return_indices=True
    )
    sizes = (2, 10, 11, 3, (3, 3), (2, 2))
    for padding in ((1, 1), (1, 1, 1, 1)):
        options = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        found = average_pool(rows, *sizes, padding, **options)
        assert near(found, expected.permute(0, 2, 3, 1))
        both = max_pool(rows, *sizes, padding, ceil_mode=ceil_mode, return_indices=True)
        for one, other in zip(both, (largest, places), strict=True):
            assert torch.equal(one.flatten(), other.permute(0, 2, 3, 1).flatten())


def test_one_sided_padding_is_not_counted():
    found = average_pool(
        torch.ones(1, 1, 16, 1), 1, 4, 4, 1, (2, 2), (2, 2), (1, 1, 0, 0), count_include_pad=False
    )
    assert (found == 1).all()


def test_the_largest_numbers_are_sorted_in_any_case(ttnn, report, put):
    numbers = torch.randn(1, 1, 32, 64).bfloat16()
    values, _ = ttnn.topk(put(numbers), 32, dim=-1, largest=False, sorted=False)
    assert torch.equal(ttnn.to_torch(values), numbers.sort(-1).values[..., :32])


def test_numbers_are_combined_where_they_are_scattered():
    numbers, places = torch.ones(2, 4), torch.tensor([[0, 0], [3, 1]])
    source = torch.full((2, 2), 2.0)
    found = scatter(numbers, 1, places, source, reduce="add")
    assert found.tolist() == [[5, 1, 1, 1], [1, 3, 1, 3]]
    assert scatter(numbers, 1, places, source)[1].tolist() == [1, 2, 1, 2]


def test_an_argument_that_a_golden_function_ignores_is_known():
    assert ignored_argument("ttnn.linear", {"in0_column_offset": 32}) == "in0_column_offset"
    assert ignored_argument("ttnn.linear", {"in0_column_offset": 0}) is None


@pytest.mark.parametrize("name", ["multiply", "multiply_", "gt", "maximum"])
def test_activations_of_binary_ops_are_applied_before_and_after(ttnn, report, put, name):
    left, right = (torch.randn(32, 32).bfloat16() for _ in range(2))
    relu, negative = (
        ttnn.UnaryWithParam(getattr(ttnn.UnaryOpType, kind)) for kind in ("RELU", "NEG")
    )
    output = getattr(ttnn, name)(
        put(left),
        put(right),
        input_tensor_a_activations=[relu],
        input_tensor_b_activations=[negative],
        activations=[negative],
    )
    plain = getattr(torch, {"multiply_": "multiply"}.get(name, name))
    expected = -plain(left.relu(), -right).float()
    assert torch.equal(read(ttnn, output).float(), expected.bfloat16().float())


@pytest.mark.parametrize("is_sharded", [False, True])
def test_statistics_of_a_sharded_norm_are_means(is_sharded):
    rows = torch.randn(1, 1, 32, 64)
    stats = squares_and_sums(rows, is_sharded=is_sharded)
    total = (rows**2).sum(-1)
    assert torch.equal(stats[..., 32 * is_sharded], total / 64 if is_sharded else total)
    _, passed = with_sums_behind(rows, stats, is_sharded=is_sharded).arguments
    assert torch.allclose(passed[..., 0], total)
    assert torch.allclose(passed[..., 32], rows.sum(-1), atol=1e-4)


def test_a_convolution_repeats_the_edges_of_a_length(ttnn):
    numbers = torch.arange(1.0, 5.0).reshape(1, 1, 4, 1)
    call = as_conv2d(
        input_tensor=numbers,
        weight_tensor=torch.ones(1, 1, 3),
        batch_size=1,
        input_length=4,
        kernel_size=3,
        padding=1,
        conv_config=ttnn.Conv1dConfig(padding_mode=ttnn.PaddingMode.Replicate),
    )
    assert call.keywords["input_tensor"].flatten().tolist() == [1, 1, 2, 3, 4, 4]
    assert call.keywords["input_height"] == 6
    assert set(call.keywords["padding"]) == {0}


def test_an_output_argument_that_gets_other_memory_has_the_numbers_of_the_result(ttnn, report, put):
    numbers = torch.rand(3, 64, 32) + 0.5
    given = put(torch.zeros(3, 64, 32), dtype=ttnn.float32)
    before = given.buffer_unique_id()
    ttnn.cumprod(put(numbers, dtype=ttnn.float32), 0, out=given)
    assert given.buffer_unique_id() != before  # ttnn has assigned the result to it
    assert near(read(ttnn, given), numbers.cumprod(0))


def test_an_average_begins_with_zero(ttnn, report, put):
    numbers = torch.rand(1, 1, 32, 64)
    average = read(ttnn, ttnn.ema(put(numbers), alpha=0.25))
    assert near(average[..., 0], 0.75 * numbers[..., 0])
    assert near(average[..., 1], 0.25 * 0.75 * numbers[..., 0] + 0.75 * numbers[..., 1])


def test_a_sampler_draws_probable_indices(ttnn, report, put):
    def row(value, dtype):
        return put(torch.full((32,), value), dtype=dtype, layout=ttnn.ROW_MAJOR_LAYOUT)

    def draw(count, share, **seed):
        drawn = ttnn.sampling(
            scores,
            labels,
            k=row(count, ttnn.uint32),
            p=row(share, ttnn.bfloat16),
            temp=row(1.0, ttnn.bfloat16),
            **seed,
        )
        return ttnn.to_torch(drawn).flatten().tolist()

    numbers = torch.arange(64).expand(1, 1, 32, 64)
    scores = put(numbers / 8)
    labels = put(numbers + 100, dtype=ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT)
    assert draw(32, 0.0) == [163] * 32
    assert draw(1, 1.0) == [163] * 32
    assert set(draw(3, 1.0)) == {161, 162, 163}
    assert draw(32, 1.0, seed=7) == draw(32, 1.0, seed=7) != draw(32, 1.0, seed=8)


def test_dropped_numbers_depend_on_the_seed(ttnn, report, put):
    ones = put(torch.ones(1, 1, 64, 64))
    first, again, other = (
        read(ttnn, ttnn.experimental.dropout(ones, probability=0.25, scale=2.0, seed=seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert set(first.unique().tolist()) == {0.0, 2.0}
    assert 0.2 < (first == 0).float().mean() < 0.3


def test_random_ops_follow_their_seed_and_leave_the_program_its_own(ttnn, report, device, put):
    halves = put(torch.full((64, 64), 0.5))
    draws = (
        lambda seed: ttnn.rand((64, 64), device=device, seed=seed),
        lambda seed: ttnn.bernoulli(halves, seed=seed),
        lambda seed: ttnn.uniform(put(torch.zeros(64, 64)), 0.0, 1.0, seed),  # by place
    )
    torch.manual_seed(0)
    expected = torch.rand(4)
    torch.manual_seed(0)
    for draw in draws:
        first, again, other = (read(ttnn, draw(seed)) for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert not torch.equal(*(read(ttnn, draw(0)) for _ in range(2)))  # zero is no seed
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.filterwarnings("ignore:std")  # torch warns that it is unknown
def test_the_spread_of_a_single_number_is_unknown(ttnn, report, put):
    assert read(ttnn, ttnn.std(put(torch.tensor(0.5)))).isnan()


def test_sums_of_all_rows_above_and_columns_before(ttnn, report, put):
    numbers = torch.rand(1, 32, 64, 32)
    image = read(ttnn, ttnn.experimental.intimg(put(numbers, dtype=ttnn.float32)))
    assert near(image, numbers.cumsum(1).cumsum(2))


def test_attention_rounds_its_scores_after_the_mask(ttnn, report, put):
    scores = torch.full((1, 1, 32, 32), 1000.0).bfloat16()
    mask = torch.rand(1, 1, 32, 32).bfloat16()  # less than half a unit in the last place of 1000
    weights = ttnn.transformer.attention_softmax_(
        put(scores), head_size=None, attention_mask=put(mask), causal_mask=True
    )
    assert (read(ttnn, weights) == 1 / 32).all()


def test_a_cache_is_read_with_other_pages_and_with_empty_entries(ttnn, report, put):
    places, size = 32, 128
    alone = torch.randn(2, 1, places, size).bfloat16()
    shared = in_pages(alone, 1, 2 * places, size // 2)  # as another layer has allocated it
    table = put(
        torch.tensor([[0, -1], [1, -1]], dtype=torch.int32),
        dtype=ttnn.int32,
        layout=ttnn.ROW_MAJOR_LAYOUT,
    )
    answer = ttnn.transformer.paged_scaled_dot_product_attention_decode(
        put(torch.zeros(1, 2, 32, size)),
        *(put(shared), put(shared)),
        page_table_tensor=table,
        cur_pos_tensor=put(
            torch.tensor([7, 31], dtype=torch.int32),
            dtype=ttnn.int32,
            layout=ttnn.ROW_MAJOR_LAYOUT,
        ),
        paged_cache_geometry=ttnn.PagedCacheGeometryOverride(block_size=places, num_kv_heads=1),
    )
    averages = torch.stack([alone[0, 0, :8].float().mean(0), alone[1, 0].float().mean(0)])
    assert near(read(ttnn, answer)[0, :, 0], averages)


def test_values_that_are_a_part_of_the_keys():
    query, key = torch.randn(1, 4, 32, 64), torch.randn(1, 2, 32, 64)
    repeated = key.repeat_interleave(2, dim=1)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, repeated, repeated[..., :32], is_causal=True
    )
    assert near(latent_attention(query, key, 32), expected)
    assert near(latent_attention(query, key, input_tensor_v=key[..., :32]), expected)


def test_a_program_of_the_user_may_write_to_all_of_its_tensors(ttnn, report, put):
    tensors = [put(torch.ones(32, 32)) for _ in range(3)]
    first = ttnn.CoreCoord(0, 0)
    kernel = ttnn.KernelDescriptor(
        kernel_source="void kernel_main() {}",
        source_type=ttnn.KernelDescriptor.SourceType.SOURCE_CODE,
        core_ranges=ttnn.CoreRangeSet([ttnn.CoreRange(first, first)]),
        compile_time_args=[],
        config=ttnn.ReaderConfigDescriptor(),
    )
    ttnn.generic_op(tensors, ttnn.ProgramDescriptor(kernels=[kernel], semaphores=[], cbs=[]))
    for tensor in tensors:
        with pytest.raises(NoNumbers, match="generic_op"):
            ttnn.to_torch(tensor)


@pytest.mark.parametrize(
    ("kind", "parameters", "function"),
    [
        ("LEAKY_RELU", (0.5,), lambda numbers: torch.nn.functional.leaky_relu(numbers, 0.5)),
        ("HARDTANH", (-2.0, 2.0), lambda numbers: numbers.clamp(-2, 2)),
        ("RELU", (), torch.relu),
    ],
)
def test_activations_with_parameters(ttnn, report, put, kind, parameters, function):
    a, b = torch.randn(32, 64).bfloat16(), torch.randn(64, 32).bfloat16()
    kind = getattr(ttnn.UnaryOpType, kind)
    activation = ttnn.UnaryWithParam(kind, *parameters)
    product = ttnn.linear(put(a), put(b), activation=activation)
    assert near(read(ttnn, product), function(a.float() @ b.float()))


@pytest.mark.parametrize(
    ("rows", "bias"),
    [
        ((), (32,)),
        *(
            (rows, bias)
            for rows in ((1,), (32,))
            for bias in ((32,), (1, 32), (1, 1, 1, 32), (1, 32, 32))
        ),
    ],
)
def test_a_bias_of_any_shape(ttnn, report, put, rows, bias):
    a, b, c = (torch.randn(shape).bfloat16() for shape in ((*rows, 64), (64, 32), bias))
    expected = a.float() @ b.float() + c.float()
    assert near(read(ttnn, ttnn.linear(put(a), put(b), bias=put(c))), expected)


def test_tensors_without_elements_do_not_replace_each_other(ttnn, report, put):
    first, second = put(torch.zeros(0)), put(torch.zeros(0))
    assert tuple(ttnn.to_torch(ttnn.add(first, second)).shape) == (0,)


def test_tanhshrink_near_zero(ttnn, report, put):
    number = 2.0**-13
    output = read(ttnn, ttnn.tanhshrink(put(torch.full((32, 32), number), dtype=ttnn.float32)))
    assert torch.allclose(output, torch.tensor(number**3 / 3), rtol=1e-3, atol=0)


def test_block_floats_are_moved_between_tiles_when_they_are_reshaped(ttnn, report, put):
    numbers = torch.randn(1, 1, 9, 64)
    flat = put(numbers, dtype=ttnn.bfloat8_b)
    image = flat.reshape([1, 3, 3, 64])
    assert torch.equal(read(ttnn, image).reshape(numbers.shape), read(ttnn, flat))


GATHERED = """
import optrove
with optrove.mock_board("t3k", shadow=True):
    import torch, ttnn
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_RING)
    row = ttnn.open_mesh_device(ttnn.MeshShape(1, 8))
    parts, weights = torch.randn(1, 1, 32, 256), torch.randn(1, 1, 256, 256)
    split = ttnn.ShardTensorToMesh(row, dim=3)
    left, right = (
        ttnn.from_torch(each, ttnn.bfloat16, device=row, layout=ttnn.TILE_LAYOUT, mesh_mapper=split)
        for each in (parts, weights)
    )
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(7, 7))])
    gathered, product = ttnn.experimental.all_gather_matmul_async(
        left, right, persistent_output_buffer=None, dim=3, num_links=1,
        multi_device_global_semaphore=[
            ttnn.create_global_semaphore(row, cores, 0) for _ in range(2)
        ],
        all_gather_core_grid_offset=(0, 4),
        program_config=ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
            compute_with_storage_grid_size=(1, 1), in0_block_w=1, out_subblock_h=1,
            out_subblock_w=1, per_core_M=1, per_core_N=1, fuse_batch=True, mcast_in0=True,
        ),
    )
    compose = ttnn.ConcatMeshToTensor(row, dim=3)
    actual = ttnn.to_torch(gathered, mesh_composer=compose).float()
    assert torch.allclose(actual, parts.repeat(1, 1, 1, 8), atol=0.05)
    actual = ttnn.to_torch(product, mesh_composer=compose).float()
    assert torch.allclose(actual, parts @ weights, rtol=0.05, atol=0.5)
    ttnn.close_mesh_device(row)
print("done")
"""


def test_a_product_of_parts_that_are_gathered(run_python):
    assert run_python(GATHERED) == "done\n"


WITH_PARAMETERS = {
    "ADD_UNARY_SFPU": ((7,), lambda x: x + 7),
    "SUB_UNARY_SFPU": ((6,), lambda x: x - 6),
    "MUL_UNARY_SFPU": ((5,), lambda x: x * 5),
    "DIV_UNARY_SFPU": ((4,), lambda x: x / 4),
    "RSUB": ((4,), lambda x: 4 - x),
    "RDIV": ((4,), lambda x: 4 / x),
    "POWER": ((3,), lambda x: x**3),
    "RPOW": ((3,), lambda x: 3**x),
    "MAXIMUM": ((0.5,), lambda x: x.clamp(min=0.5)),
    "MINIMUM": ((0.5,), lambda x: x.clamp(max=0.5)),
    "UNARY_GT": ((0.5,), lambda x: (x > 0.5).float()),
    "UNARY_EQ": ((0.5,), lambda x: (x == 0.5).float()),
    "HEAVISIDE": ((0.25,), lambda x: torch.heaviside(x, torch.tensor(0.25))),
    "THRESHOLD": ((0.5, 9), lambda x: torch.where(x > 0.5, x, 9)),
    "SOFTSHRINK": ((0.75,), lambda x: x - x.clamp(-0.75, 0.75)),
    "HARDSHRINK": ((0.75,), lambda x: torch.where(x.abs() > 0.75, x, 0)),
    "FMOD": ((0.75,), lambda x: torch.fmod(x, 0.75)),
    "REMAINDER": ((0.75,), lambda x: torch.remainder(x, 0.75)),
    "CLAMP_TSS": ((-0.5, 0.75), lambda x: x.clamp(-0.5, 0.75)),
    "PRELU_SFPU": ((0.5,), lambda x: torch.where(x > 0, x, x / 2)),
    "SOFTCAP": ((2,), lambda x: 2 * torch.tanh(x / 2)),
    "FILL": ((3,), lambda x: torch.full_like(x, 3)),
}
"""Kinds of activations with parameters, and what they do to numbers."""


def test_activations_of_binary_ops_have_their_parameters(ttnn, report, put):
    numbers = torch.tensor([-2, -1, -0.5, 0, 0.5, 0.75, 1, 3]).repeat(32, 4)
    ones = put(torch.ones(32, 32), ttnn.float32)
    for name, (parameters, expected) in WITH_PARAMETERS.items():
        kind = getattr(ttnn.UnaryOpType, name)
        for activation in (ttnn.UnaryWithParam(kind, *map(float, parameters)), (kind, *parameters)):
            answer = activated(numbers.clone(), activation)
            assert torch.allclose(answer, expected(numbers)), name
    for name in ("ADD_UNARY_SFPU", "MUL_UNARY_SFPU", "POWER"):
        kind = getattr(ttnn.UnaryOpType, name)
        (parameter,), expected = WITH_PARAMETERS[name]
        left = put(numbers, ttnn.float32)
        after = ttnn.multiply(left, ones, activations=[ttnn.UnaryWithParam(kind, parameter)])
        before = ttnn.multiply(
            left, ones, input_tensor_a_activations=[ttnn.UnaryWithParam(kind, parameter)]
        )
        for output in (after, before):
            assert torch.allclose(ttnn.to_torch(output), expected(numbers)), name
    assert not report.missing


def test_no_activation_ignores_its_parameters(ttnn):
    """What is not known raises: an answer that does without the parameter would be wrong."""
    numbers = torch.tensor([-2, -0.25, 0, 0.25, 0.3, 0.5, 1.3, 30])
    silent = []
    for name, kind in ttnn.UnaryOpType.__members__.items():
        if name.lower() in ACTIVATIONS_WITH_MODES:
            continue
        answers = []
        for parameters in ((0.25,), (0.375,), (0.25, 0.3), (0.25, 0.35)):
            with suppress(ValueError, TypeError, RuntimeError):
                answers.append(activated(numbers, ttnn.UnaryWithParam(kind, *parameters)).tolist())
        if len(answers) > 1 and all(each == answers[0] for each in answers):
            silent.append(name)
    assert not silent


def test_a_convolution_of_single_pixels_takes_all_rows(ttnn, report, device):
    rows, filters = torch.randn(1, 1, 64, 32), torch.randn(64, 32, 1, 1)
    sizes = {"batch_size": 1, "input_height": 7, "input_width": 7}  # not 64
    output = ttnn.conv2d(
        input_tensor=ttnn.from_torch(rows, ttnn.bfloat16, device=device),
        weight_tensor=ttnn.from_torch(filters),
        device=device,
        in_channels=32,
        out_channels=64,
        kernel_size=(1, 1),
        stride=(1, 1),
        padding=(0, 0),
        **sizes,
    )
    assert near(read(ttnn, output), rows @ filters[..., 0, 0].T)
    assert not report.missing


def test_columns_that_were_repeated_before_are_not_repeated_again():
    narrow, wide = torch.randn(1, 1, 2, 32), torch.randn(1, 1, 2, 32 * 5120)
    hidden = torch.randn(1, 1, 2, 5120)
    repeated = narrow.repeat(1, 1, 1, 5120)
    one_by_one = hidden.repeat_interleave(32, dim=-1)
    assert torch.equal(multiply_repeated(narrow, hidden), repeated * one_by_one)
    assert torch.equal(multiply_repeated(wide, hidden), wide * one_by_one)
    assert torch.equal(multiply_repeated(narrow, wide), repeated * wide)


@pytest.mark.parametrize("dtype", ["uint32", "uint16", "bfloat16"])
def test_places_that_are_not_zero_are_found_in_every_dtype(ttnn, report, device, dtype):
    numbers = torch.tensor([0, 3, 0, 7] + [0] * 28).reshape(1, 1, 1, 32)
    numbers = numbers.to(torch.bfloat16 if dtype == "bfloat16" else torch.int32)
    tensor = ttnn.from_torch(numbers, getattr(ttnn, dtype), device=device)
    count, places = ttnn.nonzero(tensor)
    assert ttnn.to_torch(count).flatten()[0] == 2
    assert ttnn.to_torch(places).flatten()[:8].tolist() == [0, 0, 0, 1, 0, 0, 0, 3]


def test_grids_are_sampled_without_files_of_tt_metal(ttnn, report, device):
    images = torch.randn(1, 8, 8, 32).bfloat16()
    grid = torch.rand(1, 4, 8, 2) * 2.4 - 1.2  # some points are outside
    expected = torch.nn.functional.grid_sample(
        images.permute(0, 3, 1, 2).float(), grid, align_corners=False
    ).permute(0, 2, 3, 1)
    here = ttnn.from_torch(images, device=device)
    host = ttnn.from_torch(grid, ttnn.float32)
    plain = ttnn.grid_sample(here, ttnn.from_torch(grid, ttnn.float32, device=device))
    assert near(read(ttnn, plain), expected)
    packed = ttnn.from_torch(grid.reshape(1, 4, 4, 4), ttnn.float32, device=device)
    assert near(read(ttnn, ttnn.grid_sample(here, packed)), expected)
    channels = ttnn.grid_sample(here, packed, batch_output_channels=True)
    assert near(read(ttnn, channels), expected.reshape(1, 4, 4, 64))
    before = ttnn.prepare_grid_sample_grid(host, [1, 8, 8, 32], output_dtype=ttnn.bfloat16)
    computed = ttnn.grid_sample(here, ttnn.to_device(before, device), use_precomputed_grid=True)
    assert torch.allclose(read(ttnn, computed), expected, atol=0.05)
    assert not report.missing


def test_deformable_attention_weighs_the_points_of_each_query(ttnn, report, device):
    value = torch.randn(2, 8, 8, 32).bfloat16()
    grid = (torch.rand(2, 16 * 4, 1, 2) * 2 - 1).bfloat16()
    weights = torch.softmax(torch.randn(2, 16, 4), dim=-1).bfloat16()
    put = [ttnn.from_torch(each, device=device) for each in (value, grid, weights)]
    for align in (False, True):
        output = ttnn.experimental.multi_scale_deformable_attn(*put, align_corners=align)
        points = torch.nn.functional.grid_sample(
            value.permute(0, 3, 1, 2).float(), grid.float(), align_corners=align
        )
        sampled = points.squeeze(-1).mT.reshape(2, 16, 4, 32)
        assert near(read(ttnn, output), torch.einsum("nqpd,nqp->nqd", sampled, weights.float()))


def test_a_norm_is_followed_by_its_fused_activation(ttnn, report, put):
    rows, weight = torch.randn(1, 1, 32, 64), torch.randn(1, 64)
    norm = torch.nn.functional.rms_norm(rows, (64,), weight[0], eps=1e-5)
    for activation, expected in (
        (None, norm),
        ("silu", torch.nn.functional.silu(norm)),
        (ttnn.UnaryOpType.GELU, torch.nn.functional.gelu(norm)),
    ):
        output = ttnn.experimental.dit_rms_norm_unary_fused(
            put(rows), weight=put(weight), activation=activation
        )
        assert torch.allclose(read(ttnn, output), expected, atol=0.1, rtol=0.05)


def test_kernels_of_the_program_have_no_numbers_and_the_reason_says_so(ttnn, report, put):
    source, target = put(torch.ones(32, 32)), put(torch.ones(32, 32))
    core = ttnn.CoreCoord(0, 0)
    kernel = ttnn.KernelDescriptor(
        kernel_source="void kernel_main() {}",
        source_type=ttnn.KernelDescriptor.SourceType.SOURCE_CODE,
        core_ranges=ttnn.CoreRangeSet([ttnn.CoreRange(core, core)]),
        config=ttnn.ReaderConfigDescriptor(),
    )
    program = ttnn.ProgramDescriptor(kernels=[kernel], semaphores=[], cbs=[])
    output = ttnn.generic_op([source, target], program)
    with pytest.raises(NoNumbers, match="kernels that the program brings with it"):
        ttnn.to_torch(output)


def test_ops_for_other_hardware_compute_what_those_of_the_same_name_do(ttnn, report, put):
    quasar = getattr(ttnn.experimental, "quasar", None)
    if quasar is None:
        pytest.skip("this release of ttnn has no such ops")
    numbers = torch.randn(1, 1, 64, 64).bfloat16()
    view = quasar.reshape(put(numbers), (1, 2, 32, 64))
    assert torch.equal(ttnn.to_torch(view).flatten(), numbers.flatten())
    part = quasar.slice(put(numbers), (0, 0, 0, 0), (1, 1, 32, 64))
    assert torch.equal(ttnn.to_torch(part), numbers[:, :, :32])
    product = quasar.linear(put(numbers), put(numbers), activation="relu")
    expected = ttnn.linear(put(numbers), put(numbers), activation="relu")
    assert torch.equal(ttnn.to_torch(product), ttnn.to_torch(expected))


def test_an_activation_may_be_a_kind_with_its_parameters(ttnn, report, put):
    a, b = torch.randn(2, 64, 64).bfloat16()
    activation = (ttnn.UnaryOpType.GELU, False)
    output = ttnn.experimental.minimal_matmul(put(a), put(b), fused_activation=activation)
    expected = torch.nn.functional.gelu(a.float() @ b.float())
    assert torch.equal(read(ttnn, output), expected.bfloat16())
