"""Harvest every op call that real models make, keep each once, replay any of them anywhere."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from optrove.backends.ttnn.mock import mock_board

__all__ = ["__version__", "mock_board"]

# Where each public name lives. Looked up on first use, so that `import optrove` costs nothing.
_HOMES = {
    "mock_board": "optrove.backends.ttnn.mock",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'optrove' has no attribute {name!r}")
    return getattr(import_module(home), name)
