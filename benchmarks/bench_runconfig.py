"""Measure how long a run configuration takes beyond loading: 61 layers with 256 experts each.

    python benchmarks/bench_runconfig.py

Weights are loaded once, so the rest is expanding ranges, checking arguments against ttnn's
signatures, checking the list entry of each file, and copying every op config. The cost of unpacking
a config per call is printed too.
"""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

import optrove
from optrove.runconfig import (
    FromWeight,
    LinearConfig,
    MulConfig,
    RMSNormConfig,
    Weight,
    WeightCache,
    create_run_config,
    save_weights,
)

LAYERS = 61
EXPERTS = 256
REPEATED = 3
UNPACKED = 100_000


def model_config(memory: Any) -> dict[str, Any]:
    """Return the structure of DeepSeek-V3: three dense layers, then mixtures of experts."""

    def mlp() -> dict[str, Any]:
        linear = LinearConfig(memory_config=memory, input_tensor_b=FromWeight(shape=(64, 64)))
        return {"w1": linear, "w2": linear, "w3": linear, "mul": MulConfig(memory_config=memory)}

    return {
        "model": {
            "layers": {
                f"0-{LAYERS - 1}": {"norm": RMSNormConfig(epsilon=1e-6)},
                "0-2": {"mlp": mlp()},
                f"3-{LAYERS - 1}": {"experts": {f"0-{EXPERTS - 1}": mlp()}},
            }
        }
    }


def weight_config(saved: Any) -> dict[str, Any]:
    """Return weights for all of it, from one file."""
    mlp = {name: {"input_tensor_b": saved} for name in ("w1", "w2", "w3")}
    layers = {"0-2": {"mlp": mlp}, f"3-{LAYERS - 1}": {"experts": {f"0-{EXPERTS - 1}": mlp}}}
    return {"model": {"layers": layers}}


def main() -> None:
    """Print what was measured."""
    with optrove.mock_board("n150"), tempfile.TemporaryDirectory() as folder:
        import ttnn  # the board has to be there first

        device = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))
        array = np.zeros((64, 64), np.float32)
        saved = save_weights({"w": {"input_tensor_b": Weight(array)}}, Path(folder), device)
        model, weights = (
            model_config(ttnn.DRAM_MEMORY_CONFIG),
            weight_config(saved["w"]["input_tensor_b"]),
        )
        cache = WeightCache()
        first = create_run_config(model, weights, device, cache=cache)
        tracemalloc.start()
        second = create_run_config(model, weights, device, cache=cache)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        spent = []
        for _ in range(REPEATED):
            # Of this process only, since other programs may be running.
            begun = time.process_time()
            third = create_run_config(model, weights, device, cache=cache)
            spent.append(time.process_time() - begun)
        seconds = min(spent)
        ops = sum(
            4 * len(layer.get("experts", [0])) + 1 for layer in third["model"]["layers"].values()
        )
        print(f"{LAYERS} layers with {EXPERTS} experts, {ops:,} op configs: {seconds:.2f} s")
        print(f"memory of one more: {held / 1e6:.0f} MB")
        print(f"files loaded for {REPEATED + 2} of them: {cache.loads}")
        config = first["model"]["layers"][3]["experts"][0]["w1"]
        begun = time.process_time()
        for _ in range(UNPACKED):
            dict(**config)
        per_call = (time.process_time() - begun) / UNPACKED
        print(f"unpacking a config: {per_call * 1e6:.2f} us")
        del first, second, third
        ttnn.close_mesh_device(device)


if __name__ == "__main__":
    main()
