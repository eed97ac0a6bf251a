"""Run configurations: weights, op configurations and execution of a model, each by itself.

    weight_config = MLP.convert_weights(hf_config, state_dict, Path("weights/mlp"), mesh_device)
    model_config = MLP.decode_model_config(hf_config, mesh_device)
    cfg = create_run_config(model_config, weight_config, mesh_device)
    output = MLP(hf_config, mesh_device).forward(x, cfg, mesh_device)

Definitions, ranges and JSON need no ttnn; weights do.
"""

from __future__ import annotations

from optrove.runconfig.attention_ops import (
    ConcatHeadsConfig,
    CreateHeadsConfig,
    FillCacheConfig,
    FlashMLAConfig,
    FlashMLADecodeConfig,
    PagedFillCacheConfig,
    PagedUpdateCacheConfig,
    RotaryEmbeddingConfig,
    SDPAConfig,
    SDPADecodeConfig,
    UpdateCacheConfig,
)
from optrove.runconfig.cache import WeightCache
from optrove.runconfig.create import create_run_config, create_run_configs
from optrove.runconfig.files import load_config, save_config, save_configs
from optrove.runconfig.module import Module
from optrove.runconfig.opconfig import OpConfig
from optrove.runconfig.ops import (
    AddConfig,
    AllGatherAsyncConfig,
    AllGatherConfig,
    AllReduceConfig,
    ConcatConfig,
    EmbeddingConfig,
    LayerNormConfig,
    LinearConfig,
    MatmulConfig,
    MulConfig,
    PermuteConfig,
    ReduceScatterAsyncConfig,
    ReduceScatterConfig,
    RepeatConfig,
    ReshapeConfig,
    ReshardConfig,
    RMSNormConfig,
    RMSNormPostAllGatherConfig,
    RMSNormPreAllGatherConfig,
    SliceConfig,
    SoftmaxConfig,
    SparseMatmulConfig,
    ToMemoryConfigConfig,
    TopKConfig,
    TypecastConfig,
)
from optrove.runconfig.placeholders import FromWeight, MeshDeviceStub
from optrove.runconfig.routing_ops import (
    GatherConfig,
    MeshPartitionConfig,
    ScatterConfig,
    SumConfig,
)
from optrove.runconfig.saving import save_weights
from optrove.runconfig.sharding import Sharding, column_sharded, replicated, row_sharded, sharded
from optrove.runconfig.weight_lists import load_weight_config
from optrove.runconfig.weights import SavedWeight, Weight

ConfigBase = OpConfig
"""As the documents of DeepSeek's code call it."""

__all__ = [
    "AddConfig",
    "AllGatherAsyncConfig",
    "AllGatherConfig",
    "AllReduceConfig",
    "ConcatConfig",
    "ConcatHeadsConfig",
    "ConfigBase",
    "CreateHeadsConfig",
    "EmbeddingConfig",
    "FillCacheConfig",
    "FlashMLAConfig",
    "FlashMLADecodeConfig",
    "FromWeight",
    "GatherConfig",
    "LayerNormConfig",
    "LinearConfig",
    "MatmulConfig",
    "MeshDeviceStub",
    "MeshPartitionConfig",
    "Module",
    "MulConfig",
    "OpConfig",
    "PagedFillCacheConfig",
    "PagedUpdateCacheConfig",
    "PermuteConfig",
    "RMSNormConfig",
    "RMSNormPostAllGatherConfig",
    "RMSNormPreAllGatherConfig",
    "ReduceScatterAsyncConfig",
    "ReduceScatterConfig",
    "RepeatConfig",
    "ReshapeConfig",
    "ReshardConfig",
    "RotaryEmbeddingConfig",
    "SDPAConfig",
    "SDPADecodeConfig",
    "SavedWeight",
    "ScatterConfig",
    "Sharding",
    "SliceConfig",
    "SoftmaxConfig",
    "SparseMatmulConfig",
    "SumConfig",
    "ToMemoryConfigConfig",
    "TopKConfig",
    "TypecastConfig",
    "UpdateCacheConfig",
    "Weight",
    "WeightCache",
    "column_sharded",
    "create_run_config",
    "create_run_configs",
    "load_config",
    "load_weight_config",
    "replicated",
    "row_sharded",
    "save_config",
    "save_configs",
    "save_weights",
    "sharded",
]
