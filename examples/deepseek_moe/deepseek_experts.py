"""The mixture of experts: a gate that chooses, and experts that are spread over all chips.

Tokens of all rows go to all chips. Each chip lets its own experts see all of them and weighs what
they give with what the gate has chosen, mostly zero; the sum over all chips is the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import deepseek_placement as place
import numpy as np
import ttnn
from deepseek_mlp import SharedExperts
from deepseek_weights import part

from optrove.runconfig import (
    AddConfig,
    FromWeight,
    GatherConfig,
    LinearConfig,
    MeshPartitionConfig,
    Module,
    MulConfig,
    PermuteConfig,
    RepeatConfig,
    ScatterConfig,
    Sharding,
    SumConfig,
    TopKConfig,
    Weight,
    save_weights,
)

if TYPE_CHECKING:
    from pathlib import Path

    from deepseek_weights import DeepSeekConfig, StateDict

ON_ALL_CHIPS = Sharding(axis0=0, axis1=1)
BEST_OF_GROUP = 2  # a group of experts counts by the sum of its best ones


class Gate(Module):
    """Choose experts for each token: first groups of them, then the best in those groups."""

    @staticmethod
    def convert_weights(
        hf_config: DeepSeekConfig, state_dict: StateDict, output_path: Path, mesh_device: Any
    ) -> Any:
        """Write the gate in bfloat16, on every chip: choices are sensitive to rounding."""
        bias = state_dict["e_score_correction_bias"].reshape(1, 1, 1, -1)
        weights = {
            "logits": {"input_tensor_b": Weight(state_dict["weight"].T, dtype=ttnn.bfloat16)},
            "correct": {"input_tensor_b": Weight(bias, dtype=ttnn.bfloat16)},
        }
        return save_weights(weights, output_path, mesh_device)

    @staticmethod
    def prefill_model_config(hf_config: DeepSeekConfig, mesh_device: Any) -> Any:
        """Return the configurations in DRAM."""
        return _gate_config(hf_config, ttnn.DRAM_MEMORY_CONFIG)

    @staticmethod
    def decode_model_config(hf_config: DeepSeekConfig, mesh_device: Any) -> Any:
        """Return the configurations in L1."""
        return _gate_config(hf_config, ttnn.L1_MEMORY_CONFIG)

    def __init__(self, hf_config: DeepSeekConfig, mesh_device: Any) -> None:
        """Keep the sizes."""
        self._config = hf_config

    def forward(self, x: Any, cfg: Any, mesh_device: Any) -> Any:
        """Return the weight of every expert for each token, zero where it was not chosen."""
        scores = ttnn.sigmoid(ttnn.linear(x, **cfg["logits"]))
        corrected = ttnn.add(scores, **cfg["correct"])
        _, experts = ttnn.topk(self._in_best_groups(corrected, cfg), **cfg["best_experts"])
        chosen = ttnn.gather(scores, index=experts, **cfg["chosen"])
        share = ttnn.div(chosen, ttnn.sum(chosen, **cfg["total"]))
        share = ttnn.mul(share, **cfg["scale"])
        return ttnn.scatter(
            ttnn.zeros_like(scores), index=experts, src=share, **cfg["spread_experts"]
        )

    def _in_best_groups(self, corrected: Any, cfg: Any) -> Any:
        """Return the scores of experts in the best groups, zero for all others."""
        tokens, experts = corrected.shape[-2], corrected.shape[-1]
        groups = self._config.n_group
        grouped = ttnn.reshape(corrected, (1, tokens, groups, experts // groups))
        best, _ = ttnn.topk(grouped, **cfg["best_of_group"])
        sums = ttnn.reshape(ttnn.sum(best, **cfg["total"]), (1, 1, tokens, groups))
        values, chosen = ttnn.topk(sums, **cfg["best_groups"])
        mask = ttnn.scatter(
            ttnn.zeros_like(sums),
            index=chosen,
            src=ttnn.ones_like(values),
            **cfg["spread_groups"],
        )
        masked = ttnn.mul(grouped, ttnn.reshape(mask, (1, tokens, groups, 1)), **cfg["mask"])
        return ttnn.reshape(masked, (1, 1, tokens, experts))


def _gate_config(hf_config: DeepSeekConfig, memory: Any) -> Any:
    hidden, experts = hf_config.hidden_size, hf_config.n_routed_experts

    def best(count: int) -> TopKConfig:
        return TopKConfig(k=count, dim=3, largest=True, sorted=True, memory_config=memory)

    return {
        "logits": LinearConfig(
            input_tensor_b=FromWeight(shape=(hidden, experts), dtype=ttnn.bfloat16),
            dtype=ttnn.bfloat16,
            memory_config=memory,
            compute_kernel_config=place.PRECISE,
        ),
        "correct": AddConfig(input_tensor_b=FromWeight(), memory_config=memory),
        "best_of_group": best(BEST_OF_GROUP),
        "best_groups": best(hf_config.topk_group),
        "spread_groups": ScatterConfig(dim=3, memory_config=memory),
        "mask": MulConfig(memory_config=memory),
        "best_experts": best(hf_config.num_experts_per_tok),
        "chosen": GatherConfig(dim=3, memory_config=memory),
        "total": SumConfig(dim=3, keepdim=True, memory_config=memory),
        "scale": MulConfig(input_tensor_b=hf_config.routed_scaling_factor, memory_config=memory),
        "spread_experts": ScatterConfig(dim=3, memory_config=memory),
    }


class MixtureOfExperts(Module):
    """The MLP of all but the first layers."""

    @staticmethod
    def convert_weights(
        hf_config: DeepSeekConfig, state_dict: StateDict, output_path: Path, mesh_device: Any
    ) -> Any:
        """Write the gate, the shared experts, and the others so that each chip gets its own."""
        rows = mesh_device.shape[0]

        def stacked(projection: str) -> Weight:
            matrices = [
                state_dict[f"experts.{expert}.{projection}.weight"].T
                for expert in range(hf_config.n_routed_experts)
            ]
            stack = np.stack(matrices)
            return Weight(stack.reshape(rows, -1, *stack.shape[1:]), ON_ALL_CHIPS)

        names = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
        routed = {name: {"input_tensor_b": stacked(names[name])} for name in names}
        return {
            "gate": Gate.convert_weights(
                hf_config, part(state_dict, "gate"), output_path / "gate", mesh_device
            ),
            "shared": SharedExperts.convert_weights(
                hf_config, part(state_dict, "shared_experts"), output_path / "shared", mesh_device
            ),
            "routed": save_weights(routed, output_path / "routed", mesh_device),
        }

    @staticmethod
    def prefill_model_config(hf_config: DeepSeekConfig, mesh_device: Any) -> Any:
        """Return the configurations of many tokens, in DRAM."""
        return {
            "gate": Gate.prefill_model_config(hf_config, mesh_device),
            "shared": SharedExperts.prefill_model_config(hf_config, mesh_device),
            **_mixture_config(hf_config, mesh_device, ttnn.DRAM_MEMORY_CONFIG),
        }

    @staticmethod
    def decode_model_config(hf_config: DeepSeekConfig, mesh_device: Any) -> Any:
        """Return the configurations of one tile of tokens from each row, in L1."""
        return {
            "gate": Gate.decode_model_config(hf_config, mesh_device),
            "shared": SharedExperts.decode_model_config(hf_config, mesh_device),
            **_mixture_config(hf_config, mesh_device, ttnn.L1_MEMORY_CONFIG),
        }

    def __init__(self, hf_config: DeepSeekConfig, mesh_device: Any) -> None:
        """Prepare the parts."""
        self._gate = Gate(hf_config, mesh_device)
        self._shared = SharedExperts(hf_config, mesh_device)

    def forward(self, x: Any, cfg: Any, mesh_device: Any) -> Any:
        """Return the columns of each chip, from the columns of each chip."""
        x = ttnn.all_gather(x, **cfg["gather"])
        weights = self._gate.forward(x, cfg["gate"], mesh_device)
        routed = self._routed(x, weights, cfg)
        total = ttnn.add(routed, self._shared.partial(x, cfg["shared"]), **cfg["add_shared"])
        return ttnn.reduce_scatter(total, **cfg["reduce"])

    def _routed(self, x: Any, weights: Any, cfg: Any) -> Any:
        """Return the sums of the experts of each column of chips, for the tokens of each row."""
        every = ttnn.all_gather(x, **cfg["gather_rows"])
        weights = ttnn.permute(ttnn.all_gather(weights, **cfg["gather_rows"]), **cfg["by_expert"])
        for name in ("keep_row", "keep_column"):
            weights = ttnn.mesh_partition(weights, **cfg[name])
        experts = cfg["routed"]
        every = ttnn.repeat(every, **experts["repeat"])
        gate = ttnn.linear(every, **experts["w1"])
        up = ttnn.linear(every, **experts["w3"])
        wide = ttnn.mul(gate, up, **experts["multiply"])
        weighed = ttnn.mul(ttnn.linear(wide, **experts["w2"]), weights, **experts["weigh"])
        return ttnn.reduce_scatter(ttnn.sum(weighed, **experts["sum"]), **cfg["reduce_rows"])


def _mixture_config(hf_config: DeepSeekConfig, mesh_device: Any, memory: Any) -> Any:
    hidden, width = hf_config.hidden_size, hf_config.moe_intermediate_size
    rows, columns = mesh_device.shape
    own = hf_config.n_routed_experts // (rows * columns)
    line = place.ROWS_OF_CHIPS

    def linear(inputs: int, outputs: int) -> LinearConfig:
        shape = (rows, columns * own, inputs, outputs)
        return LinearConfig(
            input_tensor_b=FromWeight(shape=shape, dtype=ttnn.bfloat8_b, sharding=ON_ALL_CHIPS),
            dtype=ttnn.bfloat16,
            memory_config=memory,
            compute_kernel_config=place.PRECISE,
        )

    return {
        "gather": place.gathered(memory),
        "gather_rows": place.gathered(memory, dim=2, axis=line),
        "by_expert": PermuteConfig(dims=(0, 3, 2, 1), memory_config=memory),
        "keep_row": MeshPartitionConfig(dim=1, cluster_axis=line, memory_config=memory),
        "keep_column": MeshPartitionConfig(
            dim=1, cluster_axis=place.CHIPS_OF_A_ROW, memory_config=memory
        ),
        "routed": {
            "repeat": RepeatConfig(repeat_dims=(1, own, 1, 1), memory_config=memory),
            "w1": linear(hidden, width),
            "w3": linear(hidden, width),
            "multiply": MulConfig(
                input_tensor_a_activations=[ttnn.UnaryOpType.SILU], memory_config=memory
            ),
            "w2": linear(width, hidden),
            "weigh": MulConfig(memory_config=memory),
            "sum": SumConfig(dim=1, keepdim=True, memory_config=memory),
        },
        "reduce_rows": place.reduced(memory, dim=2, axis=line),
        "add_shared": AddConfig(memory_config=memory),
        "reduce": place.reduced(memory),
    }
