"""What the names in printed ttnn objects mean, as far as the text itself does not tell.

Names of fields are those of ttnn 0.78 to 0.81; each means the same in every class that has it.
"""

from __future__ import annotations

from typing import Final

BOOLEANS: Final = frozenset(
    {
        "bcast_batch",
        "bfp8_pack_precise",
        "config_tensors_in_dram",
        "deallocate_activation",
        "dst_full_sync_en",
        "enable_act_double_buffer",
        "enable_activation_reuse",
        "enable_fp32_operand_split",
        "enable_kernel_stride_folding",
        "enable_split_reader",
        "enable_subblock_padding",
        "enable_weights_double_buffer",
        "exp_approx_mode",
        "force_split_reader",
        "fp32_dest_acc_en",
        "full_inner_dim",
        "fuse_batch",
        "gather_in0",
        "in_place",
        "inplace",
        "legacy_reduction",
        "legacy_rsqrt",
        "math_approx_mode",
        "mcast_in0",
        "override_output_sharding_config",
        "override_sharding_config",
        "packer_l1_acc",
        "per_core_allocation",
        "range_lockstep_allocation",
        "reallocate_halo_output",
        "reshard_if_not_optimal",
        "segmented_accumulation",
        "stream_in1",
        "transpose_mcast",
        "transpose_shards",
        "untilize_out",
        "use_welford",
    }
)
"""Fields that are true or false, which C++ prints as 1 and 0."""

ENUMERATIONS: Final = {
    "buffer_type": "BufferType",
    "math_fidelity": "MathFidelity",
    "matmul_math_fidelity": "MathFidelity",
    "memory_layout": "TensorMemoryLayout",
    "orientation": "ShardOrientation",
    "shard_distribution_strategy": "ShardDistributionStrategy",
    "throttle_level": "ThrottleLevel",
}
"""Fields that hold a member of an enumeration, whose name is sometimes left out."""

CORE_RANGES: Final = frozenset({"allowed_worker_cores", "hop_cores", "sub_core_grids"})
"""Fields that hold a set of core ranges, which is printed as an empty list or object if empty."""

ROWS: Final = {"Shape": "shape", "MeshShape": "shape", "MeshCoordinate": "coords"}
"""The field of classes that are printed as ``Name([...])``."""

SINGLES: Final = {"SubDeviceId": "id", "PlacementShard": "dim"}
"""The field of classes that are printed as ``Name(1)``."""

HANDLES: Final = {
    "global_semaphore": "ttnn.GlobalSemaphore",
    "global_circular_buffer": "ttnn.GlobalCircularBuffer",
}
"""What the classes of runtime objects are called that ttnn prints by their address only."""

COMPUTE_CONFIG: Final = "ttnn.WormholeComputeKernelConfig"
"""The one class of compute configurations, whatever the board; master files leave its name out."""

NULLS: Final = frozenset({"None", "nullopt", "std::nullopt"})
