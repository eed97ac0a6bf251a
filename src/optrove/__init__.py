"""Harvest every op call that real models make, keep each once, replay any of them anywhere."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from optrove.backends.ttnn.mock import mock_board
    from optrove.flows.serialize import TensorRef, from_jsonable, to_jsonable

__all__ = ["TensorRef", "__version__", "from_jsonable", "mock_board", "to_jsonable"]

# Where each public name lives. Looked up on first use, so that `import optrove` costs nothing.
_HOMES = {
    "TensorRef": "optrove.flows.serialize",
    "from_jsonable": "optrove.flows.serialize",
    "mock_board": "optrove.backends.ttnn.mock",
    "to_jsonable": "optrove.flows.serialize",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'optrove' has no attribute {name!r}")
    return getattr(import_module(home), name)
