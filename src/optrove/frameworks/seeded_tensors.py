"""Recreate the torch tensors and numpy arrays of a recorded call from their specs.

Tensors that shared a storage share one again, each with its own strides and offset; a tensor
that was passed twice is one tensor again.
"""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module
from typing import TYPE_CHECKING, Any

from optrove.frameworks.value_domains import Drawing, draw
from optrove.model.values import NumpyPlacement, TensorSpec, TorchPlacement, walk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optrove.model.values import Value

STRIDED = "strided"


class TorchInputs:
    """The torch tensors of one call, each made once."""

    def __init__(self, torch: Any, arguments: Mapping[str, Value], seed: int) -> None:
        self._torch = torch
        self._arguments = arguments
        self._generator = torch.Generator().manual_seed(seed)
        self._lengths = _lengths(arguments)
        self._storages: dict[tuple[int, str], Any] = {}
        self._made: dict[int, Any] = {}

    def make(self, spec: TensorSpec, name: str) -> Any:
        """Return the tensor of a spec that belongs to the argument ``name``."""
        if spec.identity not in self._made:
            self._made[spec.identity] = self._make(spec, name)
        return self._made[spec.identity]

    def drawn(self, shape: tuple[int, ...], name: str, *, integers: bool) -> Any:
        """Return numbers for an argument, as float32 or int64."""

        def drawing(below: int) -> Drawing:
            return Drawing(self._torch, self._generator, shape, below)

        return draw(drawing, name, self._arguments, integers=integers)

    def _make(self, spec: TensorSpec, name: str) -> Any:
        match spec.placement:
            case TorchPlacement():
                return self._torch_tensor(spec, spec.placement, name)
            case NumpyPlacement():
                return self._array(spec, name)
        raise ValueError("it is neither a tensor of torch nor an array of numpy")

    def _torch_tensor(self, spec: TensorSpec, placement: TorchPlacement, name: str) -> Any:
        if placement.layout != STRIDED:
            raise ValueError(f"a tensor with the layout {placement.layout} cannot be recreated")
        key = (spec.storage, spec.dtype)
        if key not in self._storages:
            self._storages[key] = self._storage(spec, placement, name)
        base = self._storages[key]
        live = base.as_strided(spec.shape, placement.strides, placement.offset)
        if placement.conjugate:
            live = live.conj()
        if placement.negative:
            live = self._torch._neg_view(live)  # noqa: SLF001 - torch has no public way to make one
        return live

    def _storage(self, spec: TensorSpec, placement: TorchPlacement, name: str) -> Any:
        """Return the numbers that all tensors of a storage lie in, as one row."""
        dtype = getattr(self._torch, spec.dtype.removeprefix("torch."), None)
        if not isinstance(dtype, self._torch.dtype):
            raise TypeError(f"torch has no dtype called {spec.dtype!a}")
        length = self._lengths[spec.storage]
        exact = dtype.is_floating_point or dtype.is_complex
        row = self._row(spec, length, name, integers=not exact).to(dtype).to(placement.device)
        if placement.requires_grad:
            # Not a leaf, for operations in place refuse those.
            row = row.requires_grad_().clone()
        return row

    def _row(self, spec: TensorSpec, length: int, name: str, *, integers: bool) -> Any:
        count = 1
        for size in spec.shape:
            count *= size
        shape = spec.shape if count == length else (length,)
        return self.drawn(shape, name, integers=integers).reshape(length)

    def _array(self, spec: TensorSpec, name: str) -> Any:
        numpy: Any = import_module("numpy")
        dtype = numpy.dtype(spec.dtype.removeprefix("numpy."))
        drawn = self.drawn(spec.shape, name, integers=dtype.kind not in "fc")
        return drawn.numpy().astype(dtype)


def _lengths(arguments: Mapping[str, Value]) -> dict[int, int]:
    """Return how many elements each storage must have."""
    lengths: dict[int, int] = defaultdict(int)
    for value in arguments.values():
        for _, part in walk(value):
            if isinstance(part, TensorSpec) and isinstance(part.placement, TorchPlacement):
                placement = part.placement
                pairs = zip(part.shape, placement.strides, strict=False)
                last = placement.offset + sum((size - 1) * stride for size, stride in pairs)
                length = placement.offset if 0 in part.shape else last + 1
                lengths[part.storage] = max(lengths[part.storage], length)
    return lengths
