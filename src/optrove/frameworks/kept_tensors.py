"""Read live tensors into safetensors documents, exactly, and make tensors of such documents.

A key names a tensor within its call: ``tensor 0`` for a tensor of ttnn or numpy, by its identity
in the Case, with one document per chip; ``storage 0 torch.float32`` for the elements of a storage
of torch, of which several tensors may be views.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib import import_module
from math import prod
from operator import lt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, Fault, NoNumbers
from optrove.frameworks.tensor_values import parts_on_host
from optrove.journal.capsules import TensorFiles, digest_of, packed
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
    tensors_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from optrove.model.capsules import Capsule
    from optrove.model.case import Case
    from optrove.model.values import Value

_NAME: Final = "values"
_NAME_CHARS: Final = 10


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


@dataclass(frozen=True, slots=True)
class KeptTensor:
    """A tensor of a capsule for a generated file; tensors with equal values have one ``name``."""

    name: str
    capsule: Capsule
    spec: TensorSpec
    as_storage: bool

    def load(self) -> Any:
        """Return the tensor: the parts of all chips as one, or the elements of its storage.

        BadData if a file is missing or was changed, or if its parts are not those of a whole mesh.
        """
        parts = KeptValues((self.capsule,)).parts(self.spec) or []
        try:
            return _whole(parts, self.spec, as_storage=self.as_storage)
        except ValueError as error:
            raise BadData((Fault(tensor_key(self.spec), str(error)),)) from error


def kept_tensor(
    capsules: Sequence[Capsule], spec: TensorSpec, *, as_storage: bool = False
) -> KeptTensor | None:
    """Return a tensor of the first of these capsules; None if its values were not kept.

    ``as_storage`` stands for all elements of the storage of a tensor of torch, in a row.
    """
    digests = dict(capsules[0].inputs).get(tensor_key(spec)) if capsules else None
    if digests is None:
        return None
    placement = spec.placement
    how: object = placement.mesh if isinstance(placement, TtnnPlacement) else placement
    shown = (digests, None) if as_storage else (digests, spec.shape, how)
    name = f"tensor_{sha256(repr(shown).encode()).hexdigest()[:_NAME_CHARS]}"
    return KeptTensor(name, capsules[0], spec, as_storage)


def _whole(parts: Sequence[Any], spec: TensorSpec, *, as_storage: bool) -> Any:
    placement = spec.placement
    if isinstance(placement, TorchPlacement) and not as_storage:
        return parts[0].as_strided(spec.shape, placement.strides, placement.offset)
    mesh = placement.mesh if isinstance(placement, TtnnPlacement) else None
    if mesh is None or len(parts) == 1:
        return parts[0]
    shape = mesh.distribution_shape
    if prod(shape) != len(parts) or len(shape) != len(mesh.placements):
        raise ValueError("its parts are not those of a whole mesh")
    left = list(parts)
    for size, dim in zip(reversed(shape), reversed(mesh.placements), strict=True):
        groups = [left[at : at + size] for at in range(0, len(left), size)]
        left = [_same(each) if dim is None else _torch().cat(each, dim) for each in groups]
    return left[0]


def _same(parts: Sequence[Any]) -> Any:
    """Return a part that several chips have in common; ValueError if it differs."""
    first = parts[0]
    if not all(each is first or _torch().equal(each, first) for each in parts):
        raise ValueError("chips have different values of a tensor that counts as equal on them")
    return first


def save_tensors(tensors: Iterable[KeptTensor], path: Path, about: str) -> None:
    """Write tensors to a safetensors file with a remark in it; OSError if that fails."""
    loaded = {each.name: each.load().contiguous() for each in tensors}
    path.write_bytes(_safetensors().save(loaded, metadata={"about": about}))


def smaller_capsule(
    capsule: Capsule, original: Case, smaller: Case, directory: Path
) -> Capsule | None:
    """Return the capsule of a case that was derived from another one, with the values of that one.

    A tensor that became smaller has the values around the most extreme one. The new files are in
    ``directory``. None if a tensor of the smaller case has no such values.
    """
    kept = KeptValues((capsule,))
    lengths = storage_lengths(dict(smaller.arguments))
    before = {
        (name, place): spec
        for name, value in original.arguments
        for place, spec in enumerate(tensors_in(value))
    }
    found: dict[str, list[Any]] = {}
    for name, value in smaller.arguments:
        for place, spec in enumerate(tensors_in(value)):
            parts = kept.parts(before[name, place])
            if parts is None:
                continue
            try:
                _put_smaller(found, before[name, place], spec, parts, lengths)
            except ValueError:  # it has no tensor to take the values from
                return None
    files = TensorFiles(directory)
    inputs = []
    for key, parts in found.items():
        documents = [document_of(part) for part in parts]
        digests = tuple(map(digest_of, documents))
        for digest, document in zip(digests, documents, strict=True):
            files.write(digest, *packed(document))
        inputs.append((key, digests))
    return replace(capsule, inputs=tuple(inputs), outputs=(), directory=str(directory))


def _put_smaller(
    found: dict[str, list[Any]],
    old: TensorSpec,
    new: TensorSpec,
    parts: Sequence[Any],
    lengths: dict[int, int],
) -> None:
    """Add the values of a tensor that became smaller, by the key of the new one."""
    key = tensor_key(new)
    if not isinstance(new.placement, TorchPlacement) or not isinstance(
        old.placement, TorchPlacement
    ):
        mesh = new.placement.mesh if isinstance(new.placement, TtnnPlacement) else None
        chips = 1 if mesh is None else len(mesh.coordinates)
        found[key] = [_window(part, new.shape) for part in parts[:chips]]
        return
    values = parts[0].as_strided(old.shape, old.placement.strides, old.placement.offset)
    if key not in found:
        found[key] = [_torch().zeros(lengths[new.storage], dtype=values.dtype)]
    values, steps = _window(values, new.shape), new.placement.strides
    # Along expanded dimensions there is one element.
    shape = [1 if step == 0 else size for size, step in zip(new.shape, steps, strict=True)]
    row = found[key][0].as_strided(shape, steps, new.placement.offset)
    row.copy_(values[tuple(slice(size) for size in shape)])


def _window(values: Any, shape: tuple[int, ...]) -> Any:
    """Return the part of a tensor around its most extreme value; ValueError if it is too small.

    Dimensions that the part lacks are the first ones.
    """
    sizes = tuple(values.shape)
    wanted = (*(1,) * (len(sizes) - len(shape)), *shape)
    if len(wanted) != len(sizes) or any(map(lt, sizes, wanted)):
        raise ValueError(f"{sizes} has no part of {shape}")
    if sizes == wanted or values.numel() == 0:
        return values.reshape(shape)
    magnitudes = (values.abs() if values.is_complex() else values.double().abs()).nan_to_num(
        _torch().inf
    )
    extreme = _torch().unravel_index(magnitudes.argmax(), sizes)
    places = zip(extreme, sizes, wanted, strict=True)
    begins = [max(0, min(int(place), own - less)) for place, own, less in places]
    part = tuple(slice(at, at + less) for at, less in zip(begins, wanted, strict=True))
    return values[part].reshape(shape)


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
