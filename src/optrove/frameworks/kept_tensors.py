"""Read live tensors into safetensors documents, exactly, and make tensors of such documents.

A key names a tensor within its call: ``tensor 0`` for a tensor of ttnn or numpy, by its identity
in the Case, with one document per chip; ``storage 0 torch.float32`` for the elements of a storage
of torch, of which several tensors may be views.
"""

from __future__ import annotations

import sys
from importlib import import_module
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, Fault, NoNumbers
from optrove.frameworks.tensor_values import parts_on_host
from optrove.journal.capsules import TensorFiles
from optrove.model.values import (
    List,
    Mapping,
    NumpyPlacement,
    TensorSpec,
    Text,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
    storage_lengths,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.model.capsules import Capsule
    from optrove.model.values import Value

_NAME: Final = "values"


def tensor_key(spec: TensorSpec) -> str:
    """Return the key of a tensor within its call."""
    if isinstance(spec.placement, TorchPlacement):
        return f"storage {spec.storage} {spec.dtype}"
    return f"tensor {spec.identity}"


def read_tensors(described: dict[str, Value], live: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the tensors of a call as torch tensors on the host, by their keys.

    ``described`` are the values of ``live``, by parameter. NoNumbers if one cannot be read.
    """
    lengths = storage_lengths(described)
    found: dict[str, list[Any]] = {}
    for name, value in described.items():
        for tensor, spec in _tensors(live[name], value):
            key = tensor_key(spec)
            if key not in found:
                found[key] = _read(tensor, spec, lengths)
    return found


def _tensors(live: Any, value: Value) -> Iterator[tuple[Any, TensorSpec]]:
    """Yield every tensor of an argument with its description, which bounds the work."""
    match value:
        case TensorSpec():
            yield live, value
        case List(items) | Tuple(items) if isinstance(live, (list, tuple)):
            for each, item in zip(live, items, strict=True):
                yield from _tensors(each, item)
        case Mapping(entries) if isinstance(live, dict):
            for key, item in entries:
                if isinstance(key, Text) and key.value in live:
                    yield from _tensors(live[key.value], item)
        case _:
            return


def _read(live: Any, spec: TensorSpec, lengths: dict[int, int]) -> list[Any]:
    torch = _torch()
    match spec.placement:
        case TtnnPlacement():
            return [part.to_torch() for part in parts_on_host(live)]
        case NumpyPlacement():
            try:
                return [torch.from_numpy(live.copy())]
            except TypeError as error:
                raise NoNumbers(f"torch cannot hold an array of {live.dtype}") from error
        case TorchPlacement(layout="strided"):
            return [_storage(torch, live, lengths[spec.storage])]
        case TorchPlacement(layout=layout):
            raise NoNumbers(f"a {layout} tensor is not kept, only strided ones")
    raise NoNumbers("the placement of the tensor was not recorded")


def _storage(torch: Any, live: Any, length: int) -> Any:
    """Return the first elements of a tensor's storage as one row."""
    if live.is_meta or live.is_quantized:
        raise NoNumbers("a tensor without plain values, on the meta device or quantized")
    try:
        with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001 - has no public name
            row = torch.empty(0, dtype=live.dtype, device=live.device)
            row.set_(live.untyped_storage(), 0, (length,), (1,))
            return row.cpu().clone()
    except (RuntimeError, NotImplementedError) as error:
        raise NoNumbers(f"its storage cannot be read: {error}") from error


def document_of(tensor: Any) -> bytes:
    """Return a torch tensor as a safetensors document."""
    document: bytes = _safetensors().save({_NAME: tensor.contiguous()})
    return document


def tensor_of(document: bytes, key: str) -> Any:
    """Return the torch tensor of a document; BadData if it holds none."""
    library = _safetensors()
    try:
        return library.load(document)[_NAME]
    except (import_module("safetensors").SafetensorError, KeyError) as error:
        problem = f"not a tensor that optrove has kept: {error}"
        raise BadData((Fault(key, problem),)) from error


class KeptValues:
    """The inputs of a call as its capsule has them; none without a capsule."""

    def __init__(self, capsules: Sequence[Capsule] = ()) -> None:
        """Use the first of these capsules."""
        self._digests = dict(capsules[0].inputs) if capsules else {}
        self._files = TensorFiles(Path(capsules[0].directory if capsules else ""))

    def parts(self, spec: TensorSpec) -> list[Any] | None:
        """Return the parts of a tensor as torch tensors; None if they were not kept.

        BadData if a file is missing or was changed.
        """
        key = tensor_key(spec)
        digests = self._digests.get(key)
        if digests is None:
            return None
        loaded = {digest: tensor_of(self._files.read(digest), key) for digest in set(digests)}
        return [loaded[digest] for digest in digests]


def whole_tensor(parts: Sequence[Any], spec: TensorSpec) -> Any:
    """Return the parts of a tensor on all chips as one torch tensor; ValueError if unknown how."""
    mesh = spec.placement.mesh if isinstance(spec.placement, TtnnPlacement) else None
    if mesh is None or len(parts) == 1:
        return parts[0]
    shape = mesh.distribution_shape
    if prod(shape) != len(parts) or len(shape) != len(mesh.placements):
        raise ValueError("its parts are not those of a whole mesh")
    left = list(parts)
    for size, dim in zip(reversed(shape), reversed(mesh.placements), strict=True):
        groups = [left[at : at + size] for at in range(0, len(left), size)]
        left = [each[0] if dim is None else _torch().cat(each, dim) for each in groups]
    return left[0]


def save_tensors(tensors: dict[str, Any], path: Path) -> None:
    """Write torch tensors to a file that torch alone can read; OSError if that fails."""
    _torch().save(tensors, path)


def extremeness(tensors: dict[str, list[Any]]) -> tuple[bool, float]:
    """Return how extreme values are: whether some are not finite, and the largest magnitude."""
    torch = _torch()
    strange, largest = False, 0.0
    for part in (each for parts in tensors.values() for each in parts):
        if part.is_floating_point() and part.numel():
            finite = torch.isfinite(part)
            strange = strange or not bool(finite.all())
            values = torch.where(finite, part, torch.zeros((), dtype=part.dtype)).abs()
            largest = max(largest, float(values.max()))
    return strange, largest


def _torch() -> Any:
    loaded = sys.modules.get("torch")
    if loaded is not None:
        return loaded
    try:
        return import_module("torch")
    except ImportError as error:
        raise NoNumbers(
            "values are read with torch, which is not installed; pip install 'optrove[torch]'"
        ) from error


def _safetensors() -> Any:
    try:
        return import_module("safetensors.torch")
    except ImportError as error:
        raise NoNumbers(
            "values are written with safetensors, which is not installed; "
            "pip install 'optrove[torch]'"
        ) from error
