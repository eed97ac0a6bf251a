"""What optrove knows about ops of ttnn: one row for each op.

Ops without a row have the defaults: ttnn's golden function computes them, they write to nothing but
their outputs, and take their arguments by position.

Elsewhere is what is needed where no framework may be loaded: which ops only move data
(``model/ops.py``). The models of kernels are listed beside them (``shadow/hardware.py`` and
``matrix_kernels.py``), and functions that are no operations in ``frameworks/op_names.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from optrove.frameworks.ttnn.shadow.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    mesh_partition,
    reduce_scatter,
)
from optrove.frameworks.ttnn.shadow.golden_overrides import (
    Adapter,
    adaptive_average_pool,
    adaptive_max_pool,
    as_conv2d,
    average_pool,
    channels_first,
    channels_last,
    concat_heads,
    concat_heads_decode,
    count_of_experts,
    deformable_attention,
    dropout,
    experts_of_groups,
    fill_pages,
    gated_scores,
    gelu,
    integral_image,
    largest_first,
    latent_attention,
    max_pool,
    minimal_product,
    moving_average,
    multiply_heads,
    multiply_heads_of_cache,
    multiply_repeated,
    norm_of_sums,
    part,
    part_of_cache,
    places_of_largest,
    product_and_sum,
    product_in_chunks,
    product_only,
    ranked_router,
    reshape,
    root_mean_square_norm,
    root_mean_square_norm_with_activation,
    rotate,
    rotate_halves,
    rotate_halves_of_users,
    rotate_queries_and_keys,
    sample,
    sample_grid,
    scan,
    scatter,
    scores_of_groups,
    split_grouped_heads,
    split_heads,
    split_heads_decode,
    split_heads_of_falcon,
    split_heads_of_segformer,
    split_heads_of_shards,
    split_heads_of_vit,
    split_query_key_value,
    squares,
    squares_and_sums,
    sum_groups,
    sum_in_parts,
    sum_of_experts,
    sum_over,
    sums_and_squares,
    tanhshrink,
    transposed_convolution,
    unchanged,
    update_pages,
    update_two_caches,
    view,
    volume_convolution,
    volume_filters,
    weighted_experts,
    with_activation,
    with_bias_and_activation,
    with_edges,
    with_fitting_value,
    with_flat_weights,
    with_one_dimension,
    with_pages_as_seen,
    with_sums,
    with_sums_behind,
    with_table_of_rows,
)
from optrove.frameworks.ttnn.shadow.line_goldens import (
    cleared_padding,
    divided_layer_norm,
    divided_norm,
    gathered_and_product,
    gathered_in_place,
    gathered_product,
    parts_of_all,
    product_and_share,
    ring_attention,
    rotated_chunks,
    share_of_lists,
    written_chunks,
)
from optrove.frameworks.ttnn.shadow.weight_arguments import (
    WeightArgument,
    bias,
    filters,
    filters_of_length,
    filters_transposed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optrove.frameworks.ttnn.shadow.collectives import Collective
    from optrove.frameworks.ttnn.shadow.golden_overrides import GoldenOverride
    from optrove.frameworks.ttnn.shadow.line_goldens import LineGolden

MISSING: Final = "ttnn has no golden function"


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """What is known about one op.

    How its numbers are computed in torch: ``golden`` takes the place of ttnn's golden function,
    ``adapter`` changes the arguments of one, and ``fault`` says what is wrong with the op's own.
    ``line_golden`` computes all chips of a line at once; ``collective`` combines the parts of a
    line, ``collective_with_product`` also returns a product. ``idle`` are the arguments that it
    returns unchanged on chips that it does not run on, by place and name. Golden functions may
    need to know whether the first tensor is sharded, or how wide its shards are. ``ignored`` are
    arguments that ttnn's golden function ignores, though the device does not. Outputs of
    convolutions and pools are images, or their rows without the dimensions of a batch. Narrow
    floats are not widened where the meaning is in the bits, or where the kernel is closer to that.

    What it writes to, besides its outputs: parameters that it does not return, all of them only
    in training or only with another argument; an op that ``writes_nothing`` leaves its outputs as
    they were, and one that ``has_no_tensors`` returns cores, sizes or settings. An op that
    ``moves_only`` never changes a value, though its output may share the buffer of its input; one
    that ``passes_numbers_through`` must return exactly them. The result of one that
    ``is_constant`` does not depend on the numbers of its inputs.

    How it is called and recorded: ``returns_numbers`` of a tensor to Python, ``changes_tensor``
    changes what a tensor is, ``is_leaf`` is written in Python but calls no other op and is called
    often, ``takes_parts`` works with a tensor on one chip of a mesh, ``crashes_on_parts`` ends the
    process on a mock board when it runs on a part of a mesh, ``takes_names_only`` takes usual
    parameters in another order or by name only.

    Where models of its kernel agree with the kernel: with a program configuration in any shape,
    only on an architecture, or in less than 96 % of the bits.
    """

    golden: GoldenOverride | None = None
    adapter: Adapter | None = None
    fault: str | None = None
    line_golden: LineGolden | None = None
    collective: Collective | None = None
    collective_with_product: Collective | None = None
    has_no_dim: bool = False
    idle: tuple[tuple[int, str], ...] = ()
    needs_sharding: bool = False
    needs_shard_width: bool = False
    ignored: tuple[str, ...] = ()
    has_images_or_rows: bool = False
    keeps_narrow: bool = False
    keeps_blocks_narrow: bool = False
    weights: Mapping[str, WeightArgument] = field(default_factory=dict)
    writes: tuple[str, ...] = ()
    writes_in_training_only: bool = False
    writes_only_with: str | None = None
    writes_nothing: bool = False
    has_no_tensors: bool = False
    moves_only: bool = False
    passes_numbers_through: bool = False
    is_constant: bool = False
    returns_numbers: bool = False
    changes_tensor: bool = False
    is_leaf: bool = False
    takes_parts: bool = False
    crashes_on_parts: bool = False
    takes_names_only: bool = False
    kernel_rounds_weights: bool = False
    agrees_with_program: bool = False
    agrees_only_on: str | None = None
    differs_from_kernels: bool = False


OPS: Final[Mapping[str, Op]] = {
    "ttnn.Tensor.cpu": Op(passes_numbers_through=True),
    "ttnn.Tensor.deallocate": Op(changes_tensor=True),
    "ttnn.Tensor.item": Op(returns_numbers=True),
    "ttnn.Tensor.to": Op(passes_numbers_through=True),
    "ttnn.Tensor.to_list": Op(returns_numbers=True),
    "ttnn.Tensor.to_torch": Op(passes_numbers_through=True),
    "ttnn.Tensor.update_tensor_topology": Op(changes_tensor=True),
    "ttnn.acos": Op(keeps_narrow=True),
    "ttnn.acosh": Op(keeps_narrow=True),
    "ttnn.adaptive_avg_pool2d": Op(
        golden=adaptive_average_pool,
        fault="partial: needs a file of tt-metal's tests",
        has_images_or_rows=True,
    ),
    "ttnn.adaptive_max_pool2d": Op(
        golden=adaptive_max_pool,
        fault="partial: needs a file of tt-metal's tests",
        has_images_or_rows=True,
    ),
    "ttnn.all_broadcast": Op(line_golden=parts_of_all),
    "ttnn.all_gather": Op(collective=all_gather),
    "ttnn.all_reduce": Op(collective=all_reduce, has_no_dim=True),
    "ttnn.allocate_tensor_on_device": Op(writes_nothing=True),
    "ttnn.asin": Op(keeps_narrow=True),
    "ttnn.atanh": Op(keeps_narrow=True),
    "ttnn.avg_pool2d": Op(
        golden=average_pool,
        fault=(
            "wrong: if padding is given for four sides, it counts padding that "
            "count_include_pad=False leaves out; partial: needs a file of tt-metal's tests"
        ),
        has_images_or_rows=True,
    ),
    "ttnn.batch_norm": Op(writes=("running_mean", "running_var"), writes_in_training_only=True),
    "ttnn.bitcast": Op(keeps_narrow=True, moves_only=True),
    "ttnn.concat": Op(moves_only=True),
    "ttnn.conv1d": Op(
        adapter=Adapter("ttnn.conv2d", as_conv2d, with_activation),
        weights={
            "weight_tensor": WeightArgument(filters_of_length, channels=0, grouped=True),
            "bias_tensor": WeightArgument(bias, channels=-1),
        },
        takes_names_only=True,
        kernel_rounds_weights=True,
        differs_from_kernels=True,
    ),
    "ttnn.conv2d": Op(
        adapter=Adapter("ttnn.conv2d", with_edges, with_activation),
        fault="wrong: ignores padding_mode and parameters of activations",
        has_images_or_rows=True,
        weights={
            "weight_tensor": WeightArgument(filters, channels=0, grouped=True),
            "bias_tensor": WeightArgument(bias, channels=-1),
        },
        takes_names_only=True,
        kernel_rounds_weights=True,
        differs_from_kernels=True,
    ),
    "ttnn.conv_transpose2d": Op(
        golden=transposed_convolution,
        has_images_or_rows=True,
        weights={
            "weight_tensor": WeightArgument(filters_transposed, channels=1),
            "bias_tensor": WeightArgument(bias, channels=-1),
        },
        takes_names_only=True,
    ),
    "ttnn.deallocate": Op(changes_tensor=True, is_leaf=True, takes_parts=True),
    "ttnn.dump_tensor": Op(takes_parts=True),
    "ttnn.ema": Op(
        golden=moving_average, fault="wrong: begins with the first number, not with zero"
    ),
    "ttnn.embedding": Op(
        adapter=Adapter("ttnn.embedding", with_table_of_rows),
        fault="partial: takes a table of two dimensions only",
    ),
    "ttnn.empty": Op(writes_nothing=True),
    "ttnn.empty_like": Op(writes_nothing=True, is_constant=True),
    "ttnn.expand": Op(moves_only=True),
    "ttnn.experimental.all_gather_async": Op(collective=all_gather),
    "ttnn.experimental.all_gather_matmul_async": Op(collective_with_product=all_gather),
    "ttnn.experimental.all_gather_minimal_matmul_async": Op(line_golden=gathered_product),
    "ttnn.experimental.all_reduce_async": Op(collective=all_reduce, has_no_dim=True),
    "ttnn.experimental.all_to_all_async_generic": Op(collective=all_to_all),
    "ttnn.experimental.attn_matmul": Op(golden=multiply_heads),
    "ttnn.experimental.attn_matmul_from_cache": Op(golden=multiply_heads_of_cache),
    "ttnn.experimental.can_use_fused_msda_from_offsets_l1_value": Op(has_no_tensors=True),
    "ttnn.experimental.conv3d": Op(golden=volume_convolution, takes_names_only=True),
    "ttnn.experimental.convert_to_chw": Op(golden=channels_first),
    "ttnn.experimental.convert_to_hwc": Op(golden=channels_last),
    "ttnn.experimental.create_global_circular_buffer_for_matmul_1d": Op(has_no_tensors=True),
    "ttnn.experimental.create_global_circular_buffer_for_tensor_prefetcher": Op(
        has_no_tensors=True
    ),
    "ttnn.experimental.create_prefetcher_pipes_for_tensor_prefetcher": Op(has_no_tensors=True),
    "ttnn.experimental.create_qkv_heads": Op(golden=split_grouped_heads),
    "ttnn.experimental.deepseek_grouped_gate": Op(golden=experts_of_groups),
    "ttnn.experimental.deepseek_moe_fast_reduce_nc": Op(golden=sum_of_experts),
    "ttnn.experimental.deepseek_moe_reduce_scatter": Op(line_golden=share_of_lists),
    "ttnn.experimental.deepseek_prefill.masked_bincount": Op(golden=count_of_experts),
    "ttnn.experimental.deepseek_prefill.moe_grouped_topk": Op(
        golden=experts_of_groups, writes=("biased_scores",)
    ),
    "ttnn.experimental.deepseek_prefill.outbound_socket_service_sync": Op(takes_names_only=True),
    "ttnn.experimental.deepseek_prefill.post_combine_reduce": Op(golden=weighted_experts),
    "ttnn.experimental.deepseek_prefill.rotary_embedding_indexed": Op(line_golden=rotated_chunks),
    "ttnn.experimental.deepseek_prefill.update_padded_kv_cache": Op(line_golden=written_chunks),
    "ttnn.experimental.deepseek_prefill.zero_padded_kv_cache": Op(line_golden=cleared_padding),
    "ttnn.experimental.dit_fused_distributed_groupnorm_create_stats_buffer": Op(
        writes_nothing=True
    ),
    "ttnn.experimental.dit_fused_distributed_layernorm": Op(line_golden=divided_layer_norm),
    "ttnn.experimental.dit_fused_distributed_layernorm_create_stats_buffer": Op(
        writes_nothing=True
    ),
    "ttnn.experimental.dit_fused_distributed_rmsnorm": Op(line_golden=divided_norm),
    "ttnn.experimental.dit_fused_distributed_rmsnorm_create_stats_buffer": Op(writes_nothing=True),
    "ttnn.experimental.dit_layernorm_post_allgather": Op(golden=norm_of_sums),
    "ttnn.experimental.dit_layernorm_pre_allgather": Op(golden=sums_and_squares),
    "ttnn.experimental.dit_minimal_matmul_addcmul_fused": Op(golden=product_and_sum),
    "ttnn.experimental.dit_rms_norm_unary_fused": Op(golden=root_mean_square_norm_with_activation),
    "ttnn.experimental.dropout": Op(golden=dropout),
    "ttnn.experimental.fast_reduce_nc": Op(golden=sum_over),
    "ttnn.experimental.fast_reduce_nc_split": Op(golden=sum_in_parts),
    "ttnn.experimental.get_moe_combine_cores": Op(has_no_tensors=True),
    "ttnn.experimental.get_moe_tilize_drain_core": Op(has_no_tensors=True),
    "ttnn.experimental.get_moe_worker_mcast_bounding_box": Op(has_no_tensors=True),
    "ttnn.experimental.get_weight_core_shard_maps": Op(has_no_tensors=True),
    "ttnn.experimental.get_weight_mem_configs": Op(has_no_tensors=True),
    "ttnn.experimental.group_attn_matmul": Op(golden=multiply_heads),
    "ttnn.experimental.hc_sum_reduce": Op(golden=sum_groups),
    "ttnn.experimental.high_bw_all_gather": Op(line_golden=gathered_in_place),
    "ttnn.experimental.indexer_score_dsa": Op(golden=gated_scores),
    "ttnn.experimental.indexer_score_msa": Op(golden=scores_of_groups),
    "ttnn.experimental.intimg": Op(golden=integral_image),
    "ttnn.experimental.is_tensor_prefetcher_supported": Op(has_no_tensors=True),
    "ttnn.experimental.matmul_reduce_scatter_async": Op(collective_with_product=reduce_scatter),
    "ttnn.experimental.minimal_matmul": Op(golden=minimal_product),
    "ttnn.experimental.minimal_matmul_split": Op(golden=product_in_chunks),
    "ttnn.experimental.minimal_matmul_strided_reduce_scatter_async": Op(
        line_golden=product_and_share
    ),
    "ttnn.experimental.multi_scale_deformable_attn": Op(golden=deformable_attention),
    "ttnn.experimental.nlp_concat_heads": Op(golden=concat_heads),
    "ttnn.experimental.nlp_concat_heads_decode": Op(golden=concat_heads_decode),
    "ttnn.experimental.nlp_create_qkv_heads": Op(golden=split_heads),
    "ttnn.experimental.nlp_create_qkv_heads_decode": Op(golden=split_heads_decode),
    "ttnn.experimental.nlp_create_qkv_heads_falcon7b": Op(golden=split_heads_of_falcon),
    "ttnn.experimental.nlp_create_qkv_heads_segformer": Op(golden=split_heads_of_segformer),
    "ttnn.experimental.nlp_create_qkv_heads_vit": Op(golden=split_heads_of_vit),
    "ttnn.experimental.nlp_kv_cache_load_slice": Op(golden=part_of_cache),
    "ttnn.experimental.padded_slice": Op(golden=part),
    "ttnn.experimental.paged_fill_cache": Op(golden=fill_pages, idle=((0, "cache_tensor"),)),
    "ttnn.experimental.paged_fused_update_cache": Op(
        golden=update_two_caches,
        idle=((0, "cache_tensor1"), (2, "cache_tensor2")),
        crashes_on_parts=True,
    ),
    "ttnn.experimental.paged_update_cache": Op(
        golden=update_pages, idle=((0, "cache_tensor"),), crashes_on_parts=True
    ),
    "ttnn.experimental.prefix_scan": Op(golden=scan),
    "ttnn.experimental.prepare_conv3d_weights": Op(golden=volume_filters),
    "ttnn.experimental.prepare_generic_op": Op(has_no_tensors=True),
    "ttnn.experimental.quasar.conv2d": Op(takes_names_only=True),
    "ttnn.experimental.queue_tensor_prefetcher_request": Op(takes_names_only=True),
    "ttnn.experimental.reduce_scatter_minimal_async": Op(collective=reduce_scatter),
    "ttnn.experimental.reduce_scatter_minimal_async_create_intermediate_buffer": Op(
        writes_nothing=True
    ),
    "ttnn.experimental.reduce_scatter_minimal_direct_create_persistent_buffers": Op(
        writes_nothing=True
    ),
    "ttnn.experimental.reduce_scatter_minimal_direct_create_staging_buffer": Op(
        writes_nothing=True
    ),
    "ttnn.experimental.repeat_and_interleave_eltwise_mul": Op(golden=multiply_repeated),
    "ttnn.experimental.rotary_embedding": Op(
        golden=rotate_halves, fault="partial: rotates a single token only"
    ),
    "ttnn.experimental.rotary_embedding_hf": Op(golden=rotate_halves_of_users),
    "ttnn.experimental.rotary_embedding_llama": Op(golden=rotate),
    "ttnn.experimental.rotary_embedding_llama_fused_qk": Op(golden=rotate_queries_and_keys),
    "ttnn.experimental.split_query_key_value_and_split_heads": Op(
        golden=split_heads_of_shards,
        fault="partial: takes no four dimensions, which is all that the op takes",
        needs_shard_width=True,
    ),
    "ttnn.experimental.start_tensor_prefetcher": Op(has_no_tensors=True),
    "ttnn.experimental.stop_tensor_prefetcher": Op(has_no_tensors=True),
    "ttnn.experimental.strided_all_gather_minimal_matmul_async": Op(
        line_golden=gathered_and_product
    ),
    "ttnn.experimental.tensor_prefetcher_block_count_for_matmul_1d": Op(has_no_tensors=True),
    "ttnn.experimental.topk_large_indices": Op(golden=places_of_largest),
    "ttnn.experimental.topk_router_gpt": Op(golden=ranked_router),
    "ttnn.experimental.typecast": Op(golden=unchanged),
    "ttnn.experimental.view": Op(golden=view, moves_only=True),
    "ttnn.experimental.wait_for_cq_on_tensor_prefetcher": Op(has_no_tensors=True),
    "ttnn.from_device": Op(takes_parts=True),
    "ttnn.full_like": Op(is_constant=True),
    "ttnn.gelu": Op(
        golden=gelu,
        fault="partial: gives no numbers with fast_and_approximate_mode, NaN for infinity",
    ),
    "ttnn.generic_op": Op(writes=("io_tensors",)),
    "ttnn.grid_sample": Op(
        golden=sample_grid, fault="partial: needs a file of tt-metal's tests", keeps_narrow=True
    ),
    "ttnn.group_norm": Op(differs_from_kernels=True),
    "ttnn.indexed_fill": Op(takes_names_only=True),
    "ttnn.interleaved_to_sharded": Op(moves_only=True),
    "ttnn.interleaved_to_sharded_partial": Op(takes_names_only=True),
    "ttnn.layer_norm": Op(
        adapter=Adapter("ttnn.layer_norm", with_flat_weights),
        fault="partial: takes no weights in rows of 32",
    ),
    "ttnn.layer_norm_post_all_gather": Op(
        adapter=Adapter("ttnn.layer_norm_post_all_gather", with_sums_behind),
        fault="wrong: has sums for sharded inputs, not means",
        needs_sharding=True,
    ),
    "ttnn.layer_norm_pre_all_gather": Op(
        golden=squares_and_sums,
        fault="wrong: has sums for sharded inputs, not means",
        needs_sharding=True,
        writes=("input_tensor",),
        writes_only_with="residual_input_tensor",
    ),
    "ttnn.linear": Op(
        adapter=Adapter("ttnn.matmul", product_only, with_bias_and_activation),
        fault=(
            "wrong: ignores parameters of activations; partial: knows some activations only, "
            "and a bias of more dimensions than the output raises"
        ),
        ignored=("in0_column_offset",),
        agrees_with_program=True,
    ),
    "ttnn.logit": Op(keeps_narrow=True),
    "ttnn.manual_seed": Op(writes_nothing=True),
    "ttnn.matmul": Op(
        adapter=Adapter("ttnn.matmul", product_only, with_bias_and_activation),
        fault="wrong: ignores parameters of activations; partial: knows some activations only",
        agrees_with_program=True,
    ),
    "ttnn.max_pool2d": Op(
        golden=max_pool, fault="partial: needs a file of tt-metal's tests", has_images_or_rows=True
    ),
    "ttnn.mesh_partition": Op(collective=mesh_partition),
    "ttnn.moreh_clip_grad_norm": Op(writes=("inputs",)),
    "ttnn.moreh_nll_loss": Op(writes=("divisor_tensor",)),
    "ttnn.moreh_norm_backward": Op(takes_names_only=True),
    "ttnn.moreh_sum_backward": Op(takes_names_only=True),
    "ttnn.move": Op(moves_only=True),
    "ttnn.narrow": Op(moves_only=True),
    "ttnn.ones_like": Op(is_constant=True),
    "ttnn.pad": Op(
        adapter=Adapter("ttnn.pad", with_fitting_value),
        fault="partial: raises for values that the dtype cannot hold",
        moves_only=True,
    ),
    "ttnn.permute": Op(moves_only=True),
    "ttnn.reallocate": Op(moves_only=True),
    "ttnn.reduce_scatter": Op(collective=reduce_scatter),
    "ttnn.repeat": Op(moves_only=True),
    "ttnn.reshape": Op(
        golden=reshape, fault="partial: takes no keywords and no padded shape", moves_only=True
    ),
    "ttnn.reshape_on_device": Op(moves_only=True),
    "ttnn.reshard": Op(moves_only=True),
    "ttnn.rms_norm": Op(
        golden=root_mean_square_norm,
        fault=(
            "partial: takes no weights in rows of 32; up to ttnn 0.78 wrong: ignores bias and"
            " residual_input_tensor"
        ),
    ),
    "ttnn.rms_norm_post_all_gather": Op(
        adapter=Adapter("ttnn.rms_norm_post_all_gather", with_sums),
        fault="wrong: has sums for sharded inputs, not means",
        needs_sharding=True,
    ),
    "ttnn.rms_norm_pre_all_gather": Op(
        golden=squares,
        fault="wrong: has sums for sharded inputs, not means",
        needs_sharding=True,
        writes=("input_tensor",),
        writes_only_with="residual_input_tensor",
    ),
    "ttnn.sampling": Op(golden=sample, fault="wrong: has zeros only"),
    "ttnn.scatter": Op(golden=scatter, fault="wrong: ignores reduce"),
    "ttnn.sharded_to_interleaved": Op(moves_only=True),
    "ttnn.sharded_to_interleaved_partial": Op(takes_names_only=True),
    "ttnn.slice": Op(moves_only=True),
    "ttnn.softshrink": Op(keeps_narrow=True, keeps_blocks_narrow=True),
    "ttnn.squeeze": Op(moves_only=True),
    "ttnn.std": Op(
        adapter=Adapter("ttnn.std", with_one_dimension),
        fault="wrong: gives a tensor without dimensions back as it is",
    ),
    "ttnn.tanhshrink": Op(golden=tanhshrink, fault="wrong: loses all digits near zero"),
    "ttnn.test_hang_device_operation": Op(has_no_tensors=True),
    "ttnn.tilize": Op(moves_only=True),
    "ttnn.tilize_with_val_padding": Op(moves_only=True),
    "ttnn.tilize_with_zero_padding": Op(moves_only=True),
    "ttnn.to_dtype": Op(moves_only=True),
    "ttnn.to_layout": Op(moves_only=True),
    "ttnn.to_memory_config": Op(moves_only=True),
    "ttnn.to_torch": Op(passes_numbers_through=True, takes_parts=True),
    "ttnn.topk": Op(
        golden=largest_first,
        fault="wrong: without sorted=True it has another order than the device",
    ),
    "ttnn.transformer.attention_softmax": Op(keeps_narrow=True),
    "ttnn.transformer.attention_softmax_": Op(keeps_narrow=True),
    "ttnn.transformer.exp_ring_joint_scaled_dot_product_attention": Op(line_golden=ring_attention),
    "ttnn.transformer.flash_mla_prefill": Op(
        golden=latent_attention, fault="partial: needs memory for all scores of all heads"
    ),
    "ttnn.transformer.paged_flash_multi_latent_attention_decode": Op(
        adapter=Adapter(
            "ttnn.transformer.paged_flash_multi_latent_attention_decode", with_pages_as_seen
        ),
        fault=(
            "wrong: does not know that a cache seen with other pages is regrouped by tiles; "
            "partial: refuses page tables with empty entries"
        ),
    ),
    "ttnn.transformer.paged_scaled_dot_product_attention_decode": Op(
        adapter=Adapter(
            "ttnn.transformer.paged_scaled_dot_product_attention_decode", with_pages_as_seen
        ),
        fault=(
            "wrong: does not know that a cache seen with other pages is regrouped by tiles; "
            "partial: refuses page tables with empty entries"
        ),
    ),
    "ttnn.transformer.ring_joint_scaled_dot_product_attention": Op(line_golden=ring_attention),
    "ttnn.transformer.scaled_dot_product_attention": Op(agrees_only_on="wormhole_b0"),
    "ttnn.transformer.scaled_dot_product_attention_decode": Op(differs_from_kernels=True),
    "ttnn.transformer.split_query_key_value_and_split_heads": Op(
        golden=split_query_key_value,
        fault="wrong: does not know that the columns of a sharded input are grouped by head",
        needs_sharding=True,
    ),
    "ttnn.transpose": Op(moves_only=True),
    "ttnn.typecast": Op(moves_only=True),
    "ttnn.unsqueeze": Op(moves_only=True),
    "ttnn.unsqueeze_to_4D": Op(moves_only=True),
    "ttnn.untilize": Op(moves_only=True),
    "ttnn.untilize_with_unpadding": Op(moves_only=True),
    "ttnn.var": Op(
        adapter=Adapter("ttnn.var", with_one_dimension),
        fault="wrong: gives a tensor without dimensions back as it is",
    ),
    "ttnn.view": Op(moves_only=True),
    "ttnn.zeros_like": Op(is_constant=True),
}

_UNKNOWN: Final = Op()


def op_of(name: str) -> Op:
    """Return the row of an op; the defaults if it has none."""
    return OPS.get(name, _UNKNOWN)


def ops_with(fact: str) -> frozenset[str]:
    """Return the ops whose row has something for a field."""
    return frozenset(name for name, op in OPS.items() if getattr(op, fact))


def replaced_goldens() -> dict[str, str]:
    """Return why optrove computes ops itself or changes their arguments, by op."""
    replaced = ops_with("golden") | ops_with("adapter")
    return {name: OPS[name].fault or MISSING for name in sorted(replaced)}


_EXPERIMENTAL: Final = "ttnn.experimental"
_PREFILL: Final = f"{_EXPERIMENTAL}.deepseek_prefill"

# Why nothing computes ops that ttnn has no golden function for: the beginnings of their names.
WITHOUT_NUMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "it runs kernels that the program brings with it, in C++ for the device, which torch cannot "
    "compute": ("ttnn.generic_op",),
    "the data comes from, or goes to, where it cannot be seen: a socket, or part of a buffer": (
        *("ttnn.copy_host_to_device_tensor_partial", f"{_EXPERIMENTAL}.send_"),
        *(f"{_EXPERIMENTAL}.recv_", f"{_PREFILL}.inbound_", f"{_PREFILL}.outbound_"),
        f"{_EXPERIMENTAL}.queue_tensor_prefetcher_request",
    ),
    "tokens go to the chips of their experts, in an order and with padding of the kernels' own": (
        *(f"{_EXPERIMENTAL}.all_to_all_dispatch_metadata", f"{_EXPERIMENTAL}.moe_"),
        *(f"{_EXPERIMENTAL}.selective_reduce_combine", f"{_PREFILL}.combine"),
        *(f"{_PREFILL}.dispatch", f"{_PREFILL}.extract", f"{_PREFILL}.insert"),
        *(f"{_PREFILL}.hybrid_", f"{_PREFILL}.moe_", f"{_PREFILL}.offset_cumsum"),
        *(f"{_PREFILL}.unified_", f"{_PREFILL}.routed_", f"{_EXPERIMENTAL}.deepseek_moe_"),
    ),
    "its arguments or results are in a layout that only its kernels know": (
        *(f"{_EXPERIMENTAL}.deepseek.", f"{_EXPERIMENTAL}.prepare_w"),
        *(f"{_EXPERIMENTAL}.quantize_weights_via_host", f"{_EXPERIMENTAL}.matmul_decode"),
        *(f"{_EXPERIMENTAL}.add_shared_expert_weights", f"{_PREFILL}.pack_scaled_fp8_kv_cache"),
    ),
    "chips exchange their edges, or matrices while they multiply them": (
        *(f"{_EXPERIMENTAL}.neighbor_pad_", f"{_EXPERIMENTAL}.halo_scatter"),
        *(f"{_EXPERIMENTAL}.slice_reshard_async", f"{_EXPERIMENTAL}.llama_"),
        *(f"{_EXPERIMENTAL}.all_gather_concat", f"{_EXPERIMENTAL}.all_reduce_create_qkv_heads"),
        *(f"{_EXPERIMENTAL}.strided_", f"{_EXPERIMENTAL}.ring_", f"{_EXPERIMENTAL}.all_to_all_"),
        *(f"{_EXPERIMENTAL}.reduce_scatter_", f"{_EXPERIMENTAL}.all_gather_async_reversed"),
    ),
    "made for a test of ttnn itself": (f"{_EXPERIMENTAL}.test_",),
}
