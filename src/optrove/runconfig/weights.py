"""Weight files and their list: write, check, load, and cache them.

{"format": "optrove-weights", "version": 1, "ttnn": ..., "source": ...,
 "weights": [{"key": ["w1", "input_tensor_b"], "path": ..., "shape": [...], ...}, ...]}
"""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakValueDictionary

from optrove.errors import BadConfig, BadData, Fault, UnusableWeights
from optrove.frameworks.installed import loaded_tables
from optrove.frameworks.tensor_values import content_digest, is_array
from optrove.frameworks.ttnn.weights import SUFFIX, WeightTensors
from optrove.model.values import Struct, TensorSpec, TtnnPlacement
from optrove.runconfig.opconfig import (
    REPLICATED,
    MeshDeviceStub,
    Sharding,
    mesh_shape_of,
    part_shape,
    whole_shape,
)
from optrove.runconfig.ranges import children, is_inner
from optrove.serializer.describe import describe
from optrove.serializer.hashes import canonical_bytes
from optrove.serializer.text import read, write
from optrove.serializer.wire import decode_partly, encode

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from optrove.frameworks.ttnn.weights import Packing
    from optrove.serializer.text import Json


_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight to write: an array of torch or numpy, and its form in ttnn.

    The defaults: bfloat8_b, in tiles, interleaved in DRAM, a copy on every chip.
    """

    tensor: Any
    sharding: Sharding = REPLICATED
    dtype: Any = None
    layout: Any = None
    memory_config: Any = None


@dataclass(frozen=True, slots=True)
class WeightFacts:
    """The properties of the tensor in a weight file; ``shape`` is that of the whole tensor.

    ``spread`` has the number of parts and the dimension, for each axis along which it is split.
    """

    shape: tuple[int, ...]
    dtype: str
    layout: str
    memory: Struct | None
    spread: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SavedWeight(os.PathLike[str]):
    """A weight file as it was written; can be used wherever a path is expected.

    ``source`` is a hash of the numbers of the array, ``recipe`` a hash of these, the form and the
    mesh.
    """

    path: str
    facts: WeightFacts
    mesh_shape: tuple[int, ...]
    size: int
    sha256: str
    source: str
    recipe: str

    def __fspath__(self) -> str:
        """Return the path."""
        return self.path

    def __str__(self) -> str:
        """Return the path."""
        return self.path


def tensor_facts(tensor: Any) -> WeightFacts:
    """Return the facts of a live ttnn tensor; TypeError for anything else."""
    spec = describe(tensor, loaded_tables())
    if not isinstance(spec, TensorSpec) or not isinstance(spec.placement, TtnnPlacement):
        raise TypeError(f"expected a tensor of ttnn, found {type(tensor).__name__}")
    mesh = spec.placement.mesh
    dims = () if mesh is None else mesh.placements
    sizes = () if mesh is None else mesh.distribution_shape
    return WeightFacts(
        whole_shape(spec.shape, dims, sizes),
        spec.dtype,
        spec.placement.layout,
        spec.placement.memory,
        spread(dims, sizes, len(spec.shape)),
    )


def spread(
    dims: Sequence[int | None], mesh_shape: Sequence[int], rank: int
) -> tuple[tuple[int, int], ...]:
    """Return the number of parts and the dimension, for each axis along which it is split."""
    return tuple(
        (size, dim % rank)
        for dim, size in zip(dims, mesh_shape, strict=False)
        if dim is not None and size > 1
    )


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file; OSError if it cannot be read."""
    digest = sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def file_problem(weight: SavedWeight, path: Path, *, verify: bool) -> str | None:
    """Return the problem of a weight file, if it has one; ``verify`` reads all of it."""
    again = "run convert_weights again"
    try:
        size = path.stat().st_size
        if size != weight.size:
            sizes = f"has {size:,} bytes, {weight.size:,} were written"
            return f"{path} {sizes}: it is incomplete; {again}"
        if verify and file_digest(path) != weight.sha256:
            return f"{path} was changed after it was written; {again}"
    except FileNotFoundError:
        return f"there is no file {path}; {again}, or move its folder back"
    except OSError as error:
        return f"{path} cannot be read: {error}"
    return None


NAME: Final = "weight_config.json"
FORMAT: Final = "optrove-weights"
VERSION: Final = 1

_TEXTS: Final = ("path", "dtype", "layout", "sha256", "source", "recipe")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class WeightList:
    """The weights of a folder, by key; ``source`` is the model's name for its checkpoint."""

    weights: Mapping[tuple[str, ...], SavedWeight]
    ttnn: str
    source: str | None


def load_weight_config(folder: Path | str, *, source: str | None = None) -> dict[str, Any]:
    """Return the weight configuration of a folder that ``save_weights`` has written.

    UnusableWeights if the folder has no list, if the list cannot be read, or if it was made from
    another ``source``.
    """
    found = read_list(Path(folder))
    if found is None:
        raise UnusableWeights(
            f"there is no {NAME} in {folder}: its weights were never written, or not to the end; "
            f"run convert_weights"
        )
    if source is not None and source != found.source:
        raise UnusableWeights(
            f"the weights in {folder} were made from {found.source!r}, not from {source!r}; "
            f"run convert_weights again"
        )
    tree: dict[str, Any] = {}
    for key, weight in found.weights.items():
        place = tree
        for part in key[:-1]:
            place = place.setdefault(part, {})
        place[key[-1]] = weight
    return tree


def read_list(folder: Path) -> WeightList | None:
    """Return the list in a folder, None if it has no list; UnusableWeights if it is unreadable."""
    file = folder / NAME
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableWeights(f"{file} cannot be read: {error}") from error
    try:
        data = read(text)
        return _list(data, folder)
    except (BadData, ValueError, KeyError, TypeError) as error:
        raise UnusableWeights(
            f"{file} is not a list of weights that optrove wrote ({error}); choose "
            f"another folder, or delete the file and run convert_weights again"
        ) from error


def write_list(found: WeightList, folder: Path) -> None:
    """Write a list into its folder, whole or not at all; OSError if it cannot be written."""
    root = folder.absolute()
    data = {
        "format": FORMAT,
        "version": VERSION,
        "ttnn": found.ttnn,
        "source": found.source,
        "weights": [
            {"key": list(key), **_data(weight, root)} for key, weight in found.weights.items()
        ],
    }
    write_whole(folder / NAME, (write(data) + "\n").encode())


def write_whole(file: Path, content: bytes) -> None:
    """Write a file atomically; OSError if it cannot be written."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with draft.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def keyed(tree: Any, key: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the ends of nested dictionaries with the keys that lead to them."""
    if not is_inner(tree):
        yield key, tree
        return
    for name, child in children(tree):
        yield from keyed(child, (*key, str(name)))


def _data(weight: SavedWeight, root: Path) -> dict[str, Json]:
    facts = weight.facts
    return {
        "path": Path(weight.path).absolute().relative_to(root).as_posix(),
        "shape": list(facts.shape),
        "dtype": facts.dtype,
        "layout": facts.layout,
        "memory": None if facts.memory is None else encode(facts.memory),
        "spread": [list(pair) for pair in facts.spread],
        "mesh_shape": list(weight.mesh_shape),
        "size": weight.size,
        "sha256": weight.sha256,
        "source": weight.source,
        "recipe": weight.recipe,
    }


def _list(data: Json, folder: Path) -> WeightList:
    if type(data) is not dict or data.get("format") != FORMAT:
        raise ValueError(f'it does not say "format": "{FORMAT}"')
    if data.get("version") != VERSION:
        raise ValueError(f"its version is {data.get('version')!r}, this optrove reads {VERSION}")
    source = data["source"]
    if source is not None and type(source) is not str:
        raise TypeError("its source is not text")
    weights = {_key(entry): _weight(entry, folder) for entry in data["weights"]}
    return WeightList(weights, str(data["ttnn"]), source)


def _key(entry: Json) -> tuple[str, ...]:
    key = entry["key"]
    if not key or type(key) is not list or not all(type(part) is str for part in key):
        raise TypeError("a key is not a list of names")
    return tuple(key)


def _weight(entry: Json, folder: Path) -> SavedWeight:
    if not all(type(entry[name]) is str for name in _TEXTS):
        wrong = next(name for name in _TEXTS if type(entry[name]) is not str)
        raise TypeError(f"{wrong} is not text")
    relative = PurePosixPath(entry["path"])
    if relative.is_absolute() or ".." in relative.parts or not relative.parts:
        raise ValueError(f"the path {entry['path']!r} leads out of the folder")
    if not _DIGEST.fullmatch(entry["sha256"]):
        raise ValueError("a checksum does not have 64 hexadecimal digits")
    facts = WeightFacts(
        _numbers(entry["shape"]),
        entry["dtype"],
        entry["layout"],
        _memory(entry["memory"]),
        tuple((count, dim) for count, dim in map(_numbers, entry["spread"])),
    )
    (size,) = _numbers([entry["size"]])
    return SavedWeight(
        path=str(folder / relative),
        facts=facts,
        mesh_shape=_numbers(entry["mesh_shape"]),
        size=size,
        sha256=entry["sha256"],
        source=entry["source"],
        recipe=entry["recipe"],
    )


def _numbers(data: Json) -> tuple[int, ...]:
    if type(data) is not list or not all(type(number) is int and number >= 0 for number in data):
        raise TypeError(f"expected a list of whole numbers, found {data!r}")
    return tuple(data)


def _memory(data: Json) -> Struct | None:
    if data is None:
        return None
    value, faults = decode_partly(data)
    if faults or not isinstance(value, Struct):
        raise ValueError("a memory configuration cannot be read")
    return value


_LOG: Final = logging.getLogger(__name__)
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_MIN_KEYS: Final = 2


def save_weights(
    weights: Mapping[str, Any],
    output_path: Path | str,
    mesh_device: Any,
    *,
    source: str | None = None,
) -> dict[str, Any]:
    """Write weights below ``output_path``; return the weight configuration, of the same structure.

    ``weights`` has a Weight for each argument: ``{"w1": {"input_tensor_b": Weight(...)}}`` becomes
    the file ``w1.input_tensor_b.tensorbin``. Keys before the last two are folders. A file that
    exists and was made from the same numbers in the same form is kept. ``source`` names the
    checkpoint; ``load_weight_config`` compares it.

    BadConfig names every unsuitable weight; UnusableWeights if a file cannot be written.
    """
    folder = Path(output_path)
    tensors = WeightTensors()
    writer = _Writer(folder, mesh_device, tensors)
    flat = dict(keyed(dict(weights)))
    writer.refuse_bad(flat)
    before = read_list(folder)
    if before is not None and before.ttnn == tensors.version:
        writer.known = before.weights
    try:
        saved = {key: writer.save(key, weight) for key, weight in flat.items()}
        write_list(WeightList(saved, tensors.version, source), folder)
    except OSError as error:
        raise UnusableWeights(
            f"weights cannot be written to {folder}: {error}; make room or choose another folder"
        ) from error
    _LOG.info("%s: %d weights, %d of them written", folder, len(saved), writer.written)
    return {name: _nested(child, saved, (name,)) for name, child in weights.items()}


def _nested(tree: Any, saved: Mapping[tuple[str, ...], Any], key: tuple[str, ...]) -> Any:
    if key in saved:
        return saved[key]
    return {name: _nested(child, saved, (*key, str(name))) for name, child in tree.items()}


class _Writer:
    """Writes the weights of one folder; ``known`` has those that the folder holds already."""

    def __init__(self, folder: Path, mesh_device: Any, tensors: WeightTensors) -> None:
        self.known: Mapping[tuple[str, ...], SavedWeight] = {}
        self.written = 0
        self._folder = folder
        self._mesh = mesh_device
        self._tensors = tensors
        shape = None if isinstance(mesh_device, MeshDeviceStub) else mesh_shape_of(mesh_device)
        if shape is None:
            found = type(mesh_device).__name__
            raise UnusableWeights(
                f"weights are spread over an open mesh device, not over a {found}; "
                f"open one, a mock board will do: with optrove.mock_board('galaxy'): ..."
            )
        self._mesh_shape = shape

    def refuse_bad(self, weights: Mapping[tuple[str, ...], Any]) -> None:
        """Raise BadConfig if something cannot be a weight, before anything is written."""
        faults = [
            Fault(".".join(key) or "the weights", problem)
            for key, weight in weights.items()
            for problem in [self._problem(key, weight)]
            if problem
        ]
        if faults:
            raise BadConfig(tuple(faults))

    def _problem(self, key: tuple[str, ...], weight: Any) -> str | None:
        if not isinstance(weight, Weight):
            return f"expected a Weight, found {type(weight).__name__}"
        if len(key) < _MIN_KEYS:
            return 'a weight needs the keys of its op and argument: {"w1": {"input_tensor_b": ...}}'
        if not all(_NAME.fullmatch(part) for part in key):
            return "a key cannot be part of a file name: use letters, digits, _ . and -"
        if not is_array(weight.tensor):
            return f"expected an array of torch or numpy, found {type(weight.tensor).__name__}"
        part = part_shape(tuple(weight.tensor.shape), weight.sharding.dims, self._mesh_shape)
        return part if isinstance(part, str) else None

    def save(self, key: tuple[str, ...], weight: Weight) -> SavedWeight:
        """Return the file of a weight; write it unless it exists."""
        packing = self._tensors.packing(
            weight.dtype, weight.layout, weight.memory_config, weight.sharding.dims
        )
        source = content_digest(weight.tensor)
        recipe = _recipe(source, packing, self._mesh_shape)
        known = self.known.get(key)
        if (
            known is not None
            and known.recipe == recipe
            and file_problem(known, Path(known.path), verify=False) is None
        ):
            return known
        folder = self._folder.joinpath(*key[:-2])
        file = folder / f"{'.'.join(key[-2:])}{SUFFIX}"
        folder.mkdir(parents=True, exist_ok=True)
        tensor = self._tensors.pack(weight.tensor, packing, self._mesh)
        facts = tensor_facts(tensor)
        size, digest = self._write(tensor, file)
        self.written += 1
        return SavedWeight(str(file), facts, self._mesh_shape, size, digest, source, recipe)

    def _write(self, tensor: Any, file: Path) -> tuple[int, str]:
        """Write a file atomically; return its size and digest."""
        draft = file.with_name(f".{os.getpid()}.{file.name}")
        try:
            self._tensors.dump(tensor, draft)
            with draft.open("rb") as stream:
                os.fsync(stream.fileno())
                size = os.fstat(stream.fileno()).st_size
            digest = file_digest(draft)
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)
        return size, digest


def _recipe(source: str, packing: Packing, mesh_shape: tuple[int, ...]) -> str:
    form = (packing.dtype, packing.layout, packing.memory_config, packing.dims, mesh_shape)
    digest = sha256(source.encode())
    digest.update(canonical_bytes(describe(form, loaded_tables())))
    return digest.hexdigest()


_Key: TypeAlias = "tuple[str, int, int, Hashable]"


class LoadedWeight:
    """A tensor that was loaded from a file; unlike the tensor, it can be referenced weakly."""

    __slots__ = ("__weakref__", "_mesh_device", "facts", "tensor")

    def __init__(self, tensor: Any, facts: WeightFacts, mesh_device: Any) -> None:
        self.tensor = tensor
        self.facts = facts
        # Keeps the mesh alive, so that no other mesh gets its id.
        self._mesh_device = mesh_device


class WeightCache:
    """The loaded weights; pass it to each ``create_run_config`` that shares them.

    A tensor is freed with the last configuration that holds it.
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
        # With the time of the file, so that a file that was rewritten is loaded again.
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
