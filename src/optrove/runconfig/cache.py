"""Hold each weight file's tensor once, as long as a run configuration uses it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

from optrove.backends.frameworks import loaded_tables
from optrove.backends.ttnn.weight_tensors import WeightTensors
from optrove.runconfig.weights import tensor_facts

if TYPE_CHECKING:
    from collections.abc import Hashable
    from pathlib import Path

    from optrove.runconfig.weights import WeightFacts

_Key: TypeAlias = "tuple[str, int, int, Hashable]"


class LoadedWeight:
    """A tensor that was loaded from a file. Unlike the tensor itself, it can be held weakly."""

    __slots__ = ("__weakref__", "_mesh_device", "facts", "tensor")

    def __init__(self, tensor: Any, facts: WeightFacts, mesh_device: Any) -> None:
        self.tensor = tensor
        self.facts = facts
        # So that the number of the mesh stays its own.
        self._mesh_device = mesh_device


class WeightCache:
    """The weights that are loaded; give it to each ``create_run_config`` that shares them.

    A tensor goes when the last configuration that holds it does.
    """

    def __init__(self) -> None:
        self.loads = 0
        self._tensors: WeightTensors | None = None
        self._loaded: WeakValueDictionary[_Key, LoadedWeight] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._loaded)

    def load(self, path: Path, mesh_device: Any) -> LoadedWeight:
        """Return the weight of a file on a mesh; OSError or RuntimeError if it cannot be loaded."""
        state = path.stat()
        device = loaded_tables().device_key(mesh_device)
        # The time, so that a file that was written anew is loaded anew.
        key = (os.path.realpath(path), state.st_mtime_ns, state.st_size, device)
        found = self._loaded.get(key)
        if found is None:
            if self._tensors is None:
                self._tensors = WeightTensors()
            tensor = self._tensors.load(path, mesh_device)
            found = LoadedWeight(tensor, tensor_facts(tensor), mesh_device)
            self._loaded[key] = found
            self.loads += 1
        return found
