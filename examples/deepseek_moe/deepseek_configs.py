"""Write the configurations of prefill and decode to a JSON file; no board is needed.

python examples/deepseek_moe/deepseek_configs.py deepseek.json
"""

from __future__ import annotations

import sys

from deepseek_model import DeepSeek
from deepseek_weights import MESH, DeepSeekConfig

from optrove.runconfig import MeshDeviceStub, save_configs

if __name__ == "__main__":
    config, mesh = DeepSeekConfig(), MeshDeviceStub(MESH)
    pair = {
        "prefill": DeepSeek.prefill_model_config(config, mesh),
        "decode": DeepSeek.decode_model_config(config, mesh),
    }
    save_configs(pair, sys.argv[1])
