"""A small DeepSeek in ttnn on a 4x8 mesh: prefill place by place, decode for all users.

Rows of chips have users of their own; the chips of a row have columns of the hidden state, heads
and vocabulary; experts are spread over all chips.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import deepseek_placement as place
import numpy as np
import ttnn
from deepseek_attention import LatentAttention, Step
from deepseek_experts import MixtureOfExperts
from deepseek_mlp import MLP, SharedNorm
from deepseek_weights import MESH, PLACES, TAKEN, make_page_table, part, rope_tables

from optrove.runconfig import (
    AddConfig,
    EmbeddingConfig,
    FromWeight,
    LinearConfig,
    Module,
    ReshardConfig,
    Weight,
    column_sharded,
    save_weights,
    sharded,
)

if TYPE_CHECKING:
    from pathlib import Path

    from deepseek_weights import DeepSeekConfig, StateDict

BY_ROW = sharded(dim=0, axis=place.ROWS_OF_CHIPS)
NOBODY = -1  # the position of an empty place


class DeepSeek(Module):
    """The whole model with its caches: ``prefill`` and ``decode``."""

    @staticmethod
    def convert_weights(
        hf_config: DeepSeekConfig, state_dict: StateDict, output_path: Path, mesh_device: Any
    ) -> Any:
        """Write all weights, those of each layer into a folder of its own."""

        def converted(kind: type[Module], name: str, *folder: str) -> Any:
            weights = part(state_dict, name)
            return kind.convert_weights(
                hf_config, weights, output_path.joinpath(*folder), mesh_device
            )

        def layer(number: int) -> dict[str, Any]:
            name, folder = f"model.layers.{number}", ("layers", str(number))
            return {
                "attention_norm": converted(
                    SharedNorm, f"{name}.input_layernorm", *folder, "attention_norm"
                ),
                "attention": converted(LatentAttention, f"{name}.self_attn", *folder, "attention"),
                "mlp_norm": converted(
                    SharedNorm, f"{name}.post_attention_layernorm", *folder, "mlp_norm"
                ),
                "mlp": converted(_mlp_of(hf_config, number), f"{name}.mlp", *folder, "mlp"),
            }

        table, head = state_dict["model.embed_tokens.weight"], state_dict["lm_head.weight"].T
        rest = {
            "embedding": {
                "weight": Weight(table, column_sharded(), ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT)
            },
            "head": {"input_tensor_b": Weight(head, column_sharded())},
        }
        return {
            **save_weights(rest, output_path / "ends", mesh_device),
            "layers": {number: layer(number) for number in range(hf_config.num_hidden_layers)},
            "norm": converted(SharedNorm, "model.norm", "norm"),
        }

    @staticmethod
    def prefill_model_config(hf_config: DeepSeekConfig, mesh_device: Any) -> Any:
        """Return the configurations of prompts."""
        parts = {
            kind: kind.prefill_model_config(hf_config, mesh_device)
            for kind in (SharedNorm, LatentAttention, MLP, MixtureOfExperts)
        }
        return _config(hf_config, parts, ttnn.DRAM_MEMORY_CONFIG)

    @staticmethod
    def decode_model_config(hf_config: DeepSeekConfig, mesh_device: Any) -> Any:
        """Return the configurations of single tokens."""
        parts = {
            kind: kind.decode_model_config(hf_config, mesh_device)
            for kind in (SharedNorm, LatentAttention, MLP, MixtureOfExperts)
        }
        return {
            **_config(hf_config, parts, ttnn.L1_MEMORY_CONFIG),
            "shard_angles": ReshardConfig(memory_config=place.by_place(hf_config.qk_rope_head_dim)),
        }

    def __init__(self, hf_config: DeepSeekConfig, mesh_device: Any) -> None:
        """Make the caches, the page table and the tables of rope."""
        self._config, self._mesh = hf_config, mesh_device
        self._norm = SharedNorm(hf_config, mesh_device)
        self._layers = [
            (
                LatentAttention(hf_config, mesh_device),
                _mlp_of(hf_config, number)(hf_config, mesh_device),
            )
            for number in range(hf_config.num_hidden_layers)
        ]
        self._page_table = self._by_row(make_page_table().reshape(MESH[0] * PLACES, -1))
        self._angles = [
            place.on_mesh(table, mesh_device, ttnn.bfloat16) for table in rope_tables(hf_config)
        ]
        rotation = _rotation()
        self._rotation = place.on_mesh(
            rotation, mesh_device, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT
        )
        self._rotation_by_place = place.on_mesh(
            np.tile(rotation, (1, 1, PLACES, 1)),
            mesh_device,
            ttnn.bfloat16,
            layout=ttnn.TILE_LAYOUT,
            memory=place.by_place(place.TILE),
        )

    def prefill(self, prompts: list[np.ndarray], taken: int, cfg: Any) -> Any:
        """Read one prompt on each row of chips, into its pages at the place ``taken``.

        The logits are [1, 1, token, vocabulary / 8] on each chip; those after the end of a prompt
        mean nothing.
        """
        length = -(-max(map(len, prompts)) // place.TILE) * place.TILE
        tokens = np.zeros((len(prompts), length), np.uint32)
        for row, prompt in zip(tokens, prompts, strict=True):
            row[: len(prompt)] = prompt
        angles = [self._first_rows(table, length) for table in self._angles]
        step = Step((angles[0], angles[1]), self._rotation, self._page_table, taken=taken)
        return self.forward(self._by_row(tokens), cfg, self._mesh, step)

    def decode(self, tokens: np.ndarray, positions: np.ndarray, cfg: Any) -> Any:
        """Read one token of each user, given by place and row: [1, 1, place, vocabulary / 8]."""
        every = np.zeros((MESH[0], PLACES), np.uint32)
        every[:, list(TAKEN)] = tokens.T
        where = np.full((MESH[0], PLACES), NOBODY, np.int32)
        where[:, list(TAKEN)] = positions.T
        looked_up = self._by_row(np.maximum(where, 0).astype(np.uint32))
        angles = [self._looked_up(table, looked_up, cfg) for table in self._angles]
        step = Step(
            (angles[0], angles[1]),
            self._rotation_by_place,
            self._page_table,
            positions=self._by_row(where.reshape(-1)),
        )
        return self.forward(self._by_row(every), cfg, self._mesh, step)

    def forward(self, x: Any, cfg: Any, mesh_device: Any, step: Step | None = None) -> Any:
        """Return the logits of tokens, of which each row of chips has a row."""
        hidden = ttnn.unsqueeze_to_4D(ttnn.embedding(x, **cfg["embedding"]))
        for number, (attention, mlp) in enumerate(self._layers):
            layer = cfg["layers"][number]
            normed = self._norm.forward(hidden, layer["attention_norm"], mesh_device)
            attended = attention.forward(normed, layer["attention"], mesh_device, step)
            hidden = ttnn.add(hidden, attended, **layer["add"])
            normed = self._norm.forward(hidden, layer["mlp_norm"], mesh_device)
            hidden = ttnn.add(
                hidden, mlp.forward(normed, layer["mlp"], mesh_device), **layer["add"]
            )
        normed = self._norm.forward(hidden, cfg["norm"], mesh_device)
        return ttnn.linear(ttnn.all_gather(normed, **cfg["gather"]), **cfg["head"])

    def _by_row(self, array: np.ndarray) -> Any:
        """Give each row of chips its part of whole numbers."""
        dtype = {np.dtype(np.int32): ttnn.int32, np.dtype(np.uint32): ttnn.uint32}[array.dtype]
        return place.on_mesh(array, self._mesh, dtype, sharding=BY_ROW)

    def _first_rows(self, table: Any, length: int) -> Any:
        rows = ttnn.slice(table, [0, 0], [length, self._config.qk_rope_head_dim])
        return ttnn.to_layout(ttnn.unsqueeze_to_4D(rows), ttnn.TILE_LAYOUT)

    def _looked_up(self, table: Any, positions: Any, cfg: Any) -> Any:
        """Return a row of angles for each place: [1, place, 1, size]."""
        rows = ttnn.embedding(positions, table, layout=ttnn.TILE_LAYOUT)
        by_place = ttnn.transpose(ttnn.unsqueeze_to_4D(rows), 1, 2)
        return ttnn.to_memory_config(by_place, **cfg["shard_angles"])


def _mlp_of(hf_config: DeepSeekConfig, number: int) -> type[Module]:
    return MLP if number < hf_config.first_k_dense_replace else MixtureOfExperts


def _config(hf_config: DeepSeekConfig, parts: dict[type, Any], memory: Any) -> Any:
    """Return the configuration of all layers: the first ones are dense, the others mixtures."""
    last, dense = hf_config.num_hidden_layers - 1, hf_config.first_k_dense_replace
    hidden, words = hf_config.hidden_size, hf_config.vocab_size
    return {
        "embedding": EmbeddingConfig(
            weight=FromWeight(shape=(words, hidden), sharding=column_sharded()),
            layout=ttnn.TILE_LAYOUT,
            memory_config=memory,
        ),
        "layers": {
            f"0-{last}": {
                "attention_norm": parts[SharedNorm],
                "attention": parts[LatentAttention],
                "add": AddConfig(memory_config=memory),
                "mlp_norm": parts[SharedNorm],
            },
            f"0-{dense - 1}": {"mlp": parts[MLP]},
            f"{dense}-{last}": {"mlp": parts[MixtureOfExperts]},
        },
        "norm": parts[SharedNorm],
        "gather": place.gathered(memory),
        "head": LinearConfig(
            input_tensor_b=FromWeight(shape=(hidden, words), sharding=column_sharded()),
            dtype=ttnn.bfloat16,
            memory_config=ttnn.DRAM_MEMORY_CONFIG,
            compute_kernel_config=place.PRECISE,
        ),
    }


def _rotation() -> np.ndarray:
    """Return the matrix that swaps the numbers of each pair and negates the second one."""
    matrix = np.zeros((1, 1, place.TILE, place.TILE), np.float32)
    even = np.arange(0, place.TILE, 2)
    matrix[..., even, even + 1] = 1
    matrix[..., even + 1, even] = -1
    return matrix
