"""The norm over a row of chips, and the gated MLP whose columns a row of chips shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import deepseek_placement as place
import ttnn

from optrove.runconfig import (
    FromWeight,
    LinearConfig,
    Module,
    MulConfig,
    RMSNormPostAllGatherConfig,
    RMSNormPreAllGatherConfig,
    Weight,
    column_sharded,
    row_sharded,
    save_weights,
    sharded,
)

if TYPE_CHECKING:
    from pathlib import Path

    from deepseek_weights import DeepSeekConfig, StateDict


class SharedNorm(Module):
    """RMS norm of a hidden state of which each chip of a row has some columns."""

    @staticmethod
    def convert_weights(
        hf_config: DeepSeekConfig, state_dict: StateDict, output_path: Path, mesh_device: Any
    ) -> Any:
        """Write the scale, split like the hidden state."""
        assert state_dict["weight"].shape == (hf_config.hidden_size,)
        weight = place.norm_weight(state_dict["weight"], sharded(dim=2))
        return save_weights({"scale": {"weight": weight}}, output_path, mesh_device)

    @staticmethod
    def prefill_model_config(hf_config: DeepSeekConfig, mesh_device: Any) -> Any:
        """Return how statistics are made, gathered and used, in DRAM."""
        return _norm_config(hf_config, ttnn.DRAM_MEMORY_CONFIG)

    @staticmethod
    def decode_model_config(hf_config: DeepSeekConfig, mesh_device: Any) -> Any:
        """Return the same in L1."""
        return _norm_config(hf_config, ttnn.L1_MEMORY_CONFIG)

    def __init__(self, hf_config: DeepSeekConfig, mesh_device: Any) -> None:
        """There is nothing to prepare."""

    def forward(self, x: Any, cfg: Any, mesh_device: Any) -> Any:
        """Return the normalised columns of each chip."""
        statistics = ttnn.rms_norm_pre_all_gather(x, **cfg["statistics"])
        statistics = ttnn.all_gather(statistics, **cfg["gather"])
        return ttnn.rms_norm_post_all_gather(x, statistics, **cfg["scale"])


def _norm_config(hf_config: DeepSeekConfig, memory: Any) -> Any:
    return {
        "statistics": RMSNormPreAllGatherConfig(
            dtype=ttnn.bfloat16, compute_kernel_config=place.PRECISE
        ),
        "gather": place.gathered(memory),
        "scale": RMSNormPostAllGatherConfig(
            weight=FromWeight(dtype=ttnn.bfloat16, sharding=sharded(dim=2)),
            epsilon=hf_config.rms_norm_eps,
            memory_config=memory,
            compute_kernel_config=place.PRECISE,
        ),
    }


class MLP(Module):
    """The gated MLP of dense layers."""

    @staticmethod
    def width(hf_config: DeepSeekConfig) -> int:
        """Return how many columns there are inside, on all chips of a row."""
        return hf_config.intermediate_size

    @classmethod
    def convert_weights(
        cls, hf_config: DeepSeekConfig, state_dict: StateDict, output_path: Path, mesh_device: Any
    ) -> Any:
        """Write the matrices, of which each chip of a row gets its columns or rows."""
        names = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
        return save_weights(
            {
                name: {
                    "input_tensor_b": Weight(
                        state_dict[f"{projection}.weight"].T,
                        row_sharded() if name == "w2" else column_sharded(),
                    )
                }
                for name, projection in names.items()
            },
            output_path,
            mesh_device,
        )

    @classmethod
    def prefill_model_config(cls, hf_config: DeepSeekConfig, mesh_device: Any) -> Any:
        """Return the configurations of many tokens, in DRAM."""
        # The program_config of w1, w2 and w3 is dynamic: see __init__.
        return cls._config(hf_config, ttnn.DRAM_MEMORY_CONFIG, None, None)

    @classmethod
    def decode_model_config(cls, hf_config: DeepSeekConfig, mesh_device: Any) -> Any:
        """Return the configurations of one row of tiles, in L1."""
        inner = place.decode_matmul(cls.width(hf_config) // mesh_device.shape[1])
        outer = place.decode_matmul(hf_config.hidden_size)
        return cls._config(hf_config, ttnn.L1_MEMORY_CONFIG, inner, outer)

    @classmethod
    def _config(cls, hf_config: DeepSeekConfig, memory: Any, inner: Any, outer: Any) -> Any:
        hidden, width = hf_config.hidden_size, cls.width(hf_config)
        up = LinearConfig(
            input_tensor_b=FromWeight(shape=(hidden, width), sharding=column_sharded()),
            dtype=ttnn.bfloat16,
            memory_config=memory,
            program_config=inner,
            compute_kernel_config=place.PRECISE,
        )
        return {
            "gather": place.gathered(memory),
            "w1": up,
            "w3": up,
            "multiply": MulConfig(
                input_tensor_a_activations=[ttnn.UnaryOpType.SILU], memory_config=memory
            ),
            "w2": LinearConfig(
                input_tensor_b=FromWeight(shape=(width, hidden), sharding=row_sharded()),
                dtype=ttnn.bfloat16,
                memory_config=memory,
                program_config=outer,
                compute_kernel_config=place.PRECISE,
            ),
            "reduce": place.reduced(memory),
        }

    def __init__(self, hf_config: DeepSeekConfig, mesh_device: Any) -> None:
        """Prepare the programs of prefill, which depend on the number of tokens."""
        self._inner = self.width(hf_config) // mesh_device.shape[1]
        self._outer = hf_config.hidden_size

    def forward(self, x: Any, cfg: Any, mesh_device: Any) -> Any:
        """Return the columns of each chip, from the columns of each chip."""
        x = ttnn.all_gather(x, **cfg["gather"])
        return ttnn.reduce_scatter(self.partial(x, cfg), **cfg["reduce"])

    def partial(self, x: Any, cfg: Any) -> Any:
        """Return the contribution of each chip of a row, from a whole hidden state."""
        gate = ttnn.linear(x, **_program(x, cfg["w1"], self._inner), **cfg["w1"])
        up = ttnn.linear(x, **_program(x, cfg["w3"], self._inner), **cfg["w3"])
        wide = ttnn.mul(gate, up, **cfg["multiply"])
        return ttnn.linear(wide, **_program(wide, cfg["w2"], self._outer), **cfg["w2"])


class SharedExperts(MLP):
    """The experts that see every token: one MLP, of which the mixture gathers and reduces."""

    @staticmethod
    def width(hf_config: DeepSeekConfig) -> int:
        """Return how many columns all shared experts have together."""
        return hf_config.moe_intermediate_size * hf_config.n_shared_experts

    @classmethod
    def _config(cls, hf_config: DeepSeekConfig, memory: Any, inner: Any, outer: Any) -> Any:
        config = super()._config(hf_config, memory, inner, outer)
        return {name: config[name] for name in ("w1", "w3", "multiply", "w2")}


def _program(x: Any, config: LinearConfig, columns: int) -> dict[str, Any]:
    """Return the program for this many tokens, unless the configuration has one."""
    if "program_config" in config:
        return {}
    return {"program_config": place.prefill_matmul(x.shape[-2], columns)}
