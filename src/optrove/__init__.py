"""Record every op call that a model makes, store each distinct call once, replay any of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optrove import metrics
    from optrove.frameworks.ttnn.board.mock import mock_board
    from optrove.frameworks.ttnn.board.simulator import sim_board
    from optrove.replay.replay import replay_op_record
    from optrove.runconfig.jsonable import TensorRef, from_jsonable, to_jsonable
    from optrove.tracing.trace import (
        enable_tensor_value_serialization,
        enable_tracing,
        is_tracing_enabled,
        trace,
    )
    from optrove.version import __version__

__all__ = [
    "TensorRef",
    "__version__",
    "enable_tensor_value_serialization",
    "enable_tracing",
    "from_jsonable",
    "is_tracing_enabled",
    "metrics",
    "mock_board",
    "replay_op_record",
    "sim_board",
    "to_jsonable",
    "trace",
]

# The module of each public name. Imported on first use, so that `import optrove` is cheap.
_HOMES = {
    "__version__": "optrove.version",
    "TensorRef": "optrove.runconfig.jsonable",
    "enable_tensor_value_serialization": "optrove.tracing.trace",
    "enable_tracing": "optrove.tracing.trace",
    "is_tracing_enabled": "optrove.tracing.trace",
    "trace": "optrove.tracing.trace",
    "from_jsonable": "optrove.runconfig.jsonable",
    "mock_board": "optrove.frameworks.ttnn.board.mock",
    "replay_op_record": "optrove.replay.replay",
    "sim_board": "optrove.frameworks.ttnn.board.simulator",
    "to_jsonable": "optrove.runconfig.jsonable",
}


def __getattr__(name: str) -> Any:
    if name == "metrics":
        return import_module("optrove.metrics")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'optrove' has no attribute {name!r}")
    return getattr(import_module(home), name)
