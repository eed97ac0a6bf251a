"""The base of modules that separate weights, configurations and execution."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


class Module(ABC):
    """One part of a model, in three stages of which each runs alone.

    ``convert_weights`` writes the weights as files of ttnn. ``prefill_model_config`` and
    ``decode_model_config`` say how each op is called. ``create_run_config`` joins both, and
    ``forward`` unpacks what it gives: ``ttnn.linear(x, **cfg["w1"])``.
    """

    @staticmethod
    @abstractmethod
    def convert_weights(
        hf_config: Any, state_dict: Any, output_path: Path, mesh_device: Any
    ) -> Any:
        """Write the weights below ``output_path``; return their files by op and argument."""

    @staticmethod
    @abstractmethod
    def prefill_model_config(hf_config: Any, mesh_device: Any) -> Any:
        """Return the op configurations of prefill; only what can be written as JSON."""

    @staticmethod
    @abstractmethod
    def decode_model_config(hf_config: Any, mesh_device: Any) -> Any:
        """Return the op configurations of decode, in the same structure."""

    @abstractmethod
    def __init__(self, hf_config: Any, mesh_device: Any) -> None:
        """Prepare what depends on the run: functions for dynamic configurations, caches."""

    @abstractmethod
    def forward(self, x: Any, cfg: Any, mesh_device: Any) -> Any:
        """Execute the module with a run configuration."""
