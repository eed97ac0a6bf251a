"""Recreate the tensors of a recorded call from their specs.

Where values do not matter, memory is allocated on the device and never written: that takes
microseconds where filling a cache takes a good part of a second. Where they do, ``InputValues``
makes a host tensor for each chip, from a seed and by the role of its argument, which is moved to
the device.

A tensor that was passed twice is one tensor again, and views share their memory again where ttnn
can make such a view. Whatever cannot be restored is noted.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from math import prod
from operator import ge
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.input_values import TorchInputs
from optrove.frameworks.kept_tensors import KeptValues
from optrove.frameworks.ttnn.probe.patching import SHADOW_ATTRIBUTE
from optrove.frameworks.ttnn.shadow.golden import mirror_layout, torch_dtype
from optrove.frameworks.ttnn.shadow.host_mirrors import HostMirror, HostMirrors
from optrove.frameworks.ttnn.shadow.prepared_weights import HOST, plain_shapes
from optrove.frameworks.ttnn.shadow.shadow import set_shadow_mirror
from optrove.model.ttnn_classes import USUAL_TILE
from optrove.model.values import TensorSpec, TtnnPlacement
from optrove.serializer.build import build

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from optrove.model.values import MeshPlacement, Struct, Value
    from optrove.serializer.tables import Tables

MAX_CONFIGURATIONS: Final = 4096


class MemoryConfigs:
    """The memory configurations that were built already."""

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self._tables = tables
        self._known: dict[Struct, Any] = {}

    def build(self, memory: Struct) -> Any:
        """Return the live configuration; raise BadData if it cannot be built."""
        live = self._known.get(memory)
        if live is None:
            live = build(memory, self._tables())
            if len(self._known) >= MAX_CONFIGURATIONS:
                self._known.clear()
            self._known[memory] = live
        return live


class InputValues:
    """The values of one call's tensors.

    ``names`` are the parameters of arguments that were recorded by place.
    """

    def __init__(
        self,
        ttnn: Any,
        arguments: Mapping[str, Value],
        names: Mapping[str, str],
        *,
        seed: int,
        mirrors: HostMirrors | None = None,
        kept: KeptValues | None = None,
    ) -> None:
        self._ttnn = ttnn
        self._names = names
        self._arguments = {names.get(name, name): value for name, value in arguments.items()}
        self._seed = seed
        self._mirrors = mirrors
        self._kept = kept or KeptValues()
        self._inputs: TorchInputs | None = None

    def shards(
        self, spec: TensorSpec, argument: str, memory: Any = None, *, for_device: bool = True
    ) -> list[Any]:
        """Return a host tensor for each chip that holds a part, in the order of the chips.

        They have the memory configuration ``memory``, if torch is there to make such a tensor, and
        unless they are ``for_device``, the layout of mirrors.
        """
        placement = spec.placement
        if not isinstance(placement, TtnnPlacement):
            raise TypeError("it is not a ttnn tensor")
        kept = self._kept.parts(spec)
        if kept is not None:
            return self._kept_shards(spec, placement, kept, memory, for_device=for_device)
        if placement.mesh is None:
            return [self._packed(spec, argument, memory, for_device=for_device)]
        parts: dict[tuple[int, ...], Any] = {}
        shards = []
        for part in parts_of(placement.mesh):
            if part not in parts:
                parts[part] = self._packed(spec, argument, memory, for_device=for_device)
            shards.append(parts[part])
        return shards

    def _kept_shards(
        self,
        spec: TensorSpec,
        placement: TtnnPlacement,
        parts: list[Any],
        memory: Any,
        *,
        for_device: bool,
    ) -> list[Any]:
        chips = 1 if placement.mesh is None else len(placement.mesh.coordinates)
        shapes = {tuple(part.shape) for part in parts}
        if len(parts) != chips or shapes != {spec.shape}:
            raise ValueError(
                f"the capsule has {len(parts)} parts of {sorted(shapes)}, and the tensor "
                f"{chips} of {spec.shape}"
            )
        made = {
            id(part): self._from_torch(spec, placement, part, memory, for_device=for_device)
            for part in parts
        }
        return [made[id(part)] for part in parts]

    def padded(self, shards: list[Any], shape: tuple[int, ...]) -> list[Any]:
        """Return the host tensors with zeros up to a shape."""
        torch = import_module("torch")
        wider: dict[int, Any] = {}
        for shard in shards:
            if id(shard) not in wider:
                sizes = zip(reversed(shape), reversed(tuple(shard.shape)), strict=True)
                ends = [end for size, own in sizes for end in (0, size - own)]
                values = torch.nn.functional.pad(shard.to_torch(), ends)
                wider[id(shard)] = self._ttnn.from_torch(
                    values, dtype=shard.dtype, layout=shard.layout, tile=shard.tile
                )
        return [wider[id(shard)] for shard in shards]

    def note(self, live: Any, shards: list[Any]) -> None:
        """Set the mirror of a tensor to the values that were put into it."""
        if self._mirrors is not None:
            mirror = HostMirror(tuple(shards))
            self._mirrors.set(live, mirror)
            set_shadow_mirror(self._ttnn, live, mirror)

    def plain_weights(self, op: str) -> dict[str, Any]:
        """Return host tensors of the plain weights behind prepared ones, by recorded argument."""
        recorded = {role: name for name, role in self._names.items()}
        return {
            recorded.get(name, name): self._ttnn.from_torch(
                self._drawing().drawn(shape, name, integers=False), dtype=self._ttnn.float32
            )
            for name, shape in plain_shapes(op, self._arguments).items()
        }

    def foreign(self, spec: TensorSpec, argument: str) -> Any:
        """Return a torch tensor or a numpy array."""
        return self._drawing().make(spec, self._names.get(argument, argument))

    def _packed(self, spec: TensorSpec, argument: str, memory: Any, *, for_device: bool) -> Any:
        ttnn, name, placement = self._ttnn, self._names.get(argument, argument), spec.placement
        assert isinstance(placement, TtnnPlacement)  # noqa: S101 - narrows the type; shards has looked
        dtype = _dtype(ttnn, spec)
        if _own_tile(ttnn, placement) is None and find_spec("torch") is None:
            # Only a mock board works without torch, and its values are never read.
            layout = ttnn.Layout[placement.layout]
            return ttnn.zeros(list(spec.shape), dtype=dtype, layout=layout)
        wanted = torch_dtype(ttnn, import_module("torch"), dtype)
        values = self._drawing().drawn(spec.shape, name, integers=not wanted.is_floating_point)
        return self._from_torch(spec, placement, values.to(wanted), memory, for_device=for_device)

    def _from_torch(
        self,
        spec: TensorSpec,
        placement: TtnnPlacement,
        values: Any,
        memory: Any,
        *,
        for_device: bool,
    ) -> Any:
        """Return a host tensor with these values; not ``for_device``, laid out as mirrors are."""
        ttnn, dtype = self._ttnn, _dtype(self._ttnn, spec)
        tile = _own_tile(ttnn, placement)
        layout = ttnn.Layout[placement.layout]
        if not for_device and mirror_layout(ttnn, dtype) != layout:
            layout, tile = mirror_layout(ttnn, dtype), None
        if dtype == ttnn.bfloat16:  # as ttnn rounds, in a fraction of the time
            values = values.to(import_module("torch").bfloat16)
        return ttnn.from_torch(values, dtype=dtype, layout=layout, tile=tile, memory_config=memory)

    def _drawing(self) -> TorchInputs:
        if self._inputs is None:
            try:
                torch = import_module("torch")
            except ImportError as error:
                raise ValueError(
                    "numbers are drawn by torch, which is not installed; "
                    "pip install 'optrove[torch]'"
                ) from error
            self._inputs = TorchInputs(torch, self._arguments, self._seed, kept=self._kept)
        return self._inputs


class Inputs:
    """The tensors of one call, each made once."""

    def __init__(  # noqa: PLR0913 - where tensors come from, and go to
        self,
        ttnn: ModuleType,
        memory_configs: MemoryConfigs,
        device: Any,
        values: InputValues,
        *,
        filled: bool,
        mirrored: bool,
        known: Mapping[int, Any] | None = None,
        owners: Mapping[int, Any] | None = None,
    ) -> None:
        """Make tensors on ``device``; unless ``filled``, those on the device stay unwritten.

        ``known`` are tensors that exist already, and ``owners`` tensors that have the memory of
        others, both by identity.

        With ``mirrored``, on a mock board, values are in the mirrors only: nothing reads the memory
        of the device.
        """
        self.notes: list[str] = []
        self._ttnn: Any = ttnn
        self._memory_configs = memory_configs
        self._device = device
        self._values = values
        self._filled = filled
        self._mirrored = mirrored
        self.made: dict[int, Any] = dict(known or {})
        self._owners = dict(owners or {})
        self._by_storage: dict[int, Any] = {}

    def make(self, spec: TensorSpec, path: str) -> Any:
        """Return the tensor of a spec, the same one for the same identity."""
        live = self.made.get(spec.identity)
        if live is None:
            live = self.made[spec.identity] = self._make(spec, path)
        self._by_storage.setdefault(spec.storage, live)
        return live

    def _make(self, spec: TensorSpec, path: str) -> Any:
        placement = spec.placement
        if not isinstance(placement, TtnnPlacement):
            return self._values.foreign(spec, path)
        owner = self._by_storage.get(spec.storage, self._owners.get(spec.identity))
        if owner is not None and isinstance(owner, self._ttnn.Tensor):
            view = self._view(owner, spec, placement.layout)
            if view is not None:
                return view
            self.notes.append(f"{path} shared memory with another argument; here it has its own")
        if placement.storage == HOST:
            return self._on_host(spec, placement, path)
        if self._device is None:
            raise ValueError("it is on a device, and none is open")
        return self._on_device(spec, placement, path)

    def _view(self, owner: Any, spec: TensorSpec, layout: str) -> Any:
        """Return a view of another tensor in the shape of ``spec``; None if ttnn makes none."""
        try:
            view = self._ttnn.experimental.view(owner, list(spec.shape))
        except (RuntimeError, TypeError):  # ttnn cannot; the caller says so
            return None
        same = view.dtype == _dtype(self._ttnn, spec) and view.layout.name == layout
        return view if same else None

    def _on_device(self, spec: TensorSpec, placement: TtnnPlacement, path: str) -> Any:
        if placement.memory is None:
            raise ValueError("the recording has no memory configuration for it")
        memory = self._memory_configs.build(placement.memory)
        roomy = _is_roomy(spec, placement)
        shards: list[Any] = []
        if self._filled:
            shards = self._values.shards(spec, path, for_device=not self._mirrored)
        if self._filled and not self._mirrored:
            parts = self._values.padded(shards, placement.padded_shape) if roomy else shards
            live = self._moved(self._for_device(parts, placement), memory)
        else:
            whole = replace(spec, shape=placement.padded_shape) if roomy else spec
            live = self._allocated(whole, placement, memory)
        if roomy:
            shapes = (self._ttnn.Shape(list(each)) for each in (spec.shape, placement.padded_shape))
            live = self._ttnn.reshape(live, *shapes)  # a view: ttnn moves nothing
        live = self._placed(live, placement.mesh, path)
        if self._filled:
            self._values.note(live, shards)
        return live

    def _allocated(self, spec: TensorSpec, placement: TtnnPlacement, memory: Any) -> Any:
        ttnn = self._ttnn
        shape, dtype = ttnn.Shape(list(spec.shape)), _dtype(ttnn, spec)
        layout, tile = ttnn.Layout[placement.layout], _own_tile(ttnn, placement)
        if tile is None:
            return ttnn.allocate_tensor_on_device(shape, dtype, layout, self._device, memory)
        shards = (
            {"shard_spec": memory.shard_spec, "memory_layout": memory.memory_layout}
            if memory.nd_shard_spec is None or memory.shard_spec is not None
            else {"nd_shard_spec": memory.nd_shard_spec}
        )
        known = ttnn.TensorSpec(
            shape, dtype, layout, buffer_type=memory.buffer_type, tile=tile, **shards
        )
        return ttnn.allocate_tensor_on_device(known, self._device)

    def _moved(self, host: Any, memory: Any) -> Any:
        return self._ttnn.to_device(host, self._device, memory_config=memory)

    def _on_host(self, spec: TensorSpec, placement: TtnnPlacement, path: str) -> Any:
        memory = None if placement.memory is None else self._memory_configs.build(placement.memory)
        shards, mesh = self._values.shards(spec, path, memory), placement.mesh
        if mesh is None:
            return self._joined(shards, placement)
        if memory not in (None, shards[0].memory_config()) and self._fits(shards):
            shape, layout = self._ttnn.Shape(list(spec.shape)), shards[0].layout
            live = self._ttnn.allocate_tensor_on_host(
                shape, shards[0].dtype, layout, self._device, memory
            )
        elif self._device is not None and _is_partial(mesh):
            live = self._read_in_part(shards, mesh, memory, path)
        else:
            live = self._joined(shards, placement)
        return self._spread(live, mesh)

    def _fits(self, shards: list[Any]) -> bool:
        """Return whether a host tensor for all chips of the device can replace these."""
        chips = 0 if self._device is None else self._device.get_num_devices()
        return not self._filled and chips == len(shards)

    def _read_in_part(self, shards: list[Any], mesh: MeshPlacement, memory: Any, path: str) -> Any:
        """Return a host tensor for all chips that has the parts of some only.

        ttnn makes such a tensor only by reading those parts from a device.
        """
        whole = self._moved(self._completed(shards, mesh), memory)
        return self._ttnn.from_device(self._on_part(whole, mesh, path))

    def _completed(self, shards: list[Any], mesh: MeshPlacement) -> Any:
        """Return one host tensor of these parts, with any part for the chips that lack one."""
        held = dict(zip(mesh.coordinates, shards, strict=True))
        chips = product(*map(range, self._device.shape))
        whole = [held.get(chip, shards[0]) for chip in chips]
        return self._ttnn.from_host_shards(whole, self._device.shape)

    def _for_device(self, shards: list[Any], placement: TtnnPlacement) -> Any:
        mesh = placement.mesh
        if mesh is not None and _is_partial(mesh):
            return self._completed(shards, mesh)
        return self._joined(shards, placement)

    def _joined(self, shards: list[Any], placement: TtnnPlacement) -> Any:
        """Return one host tensor of the parts of all chips."""
        if len(shards) == 1:
            return shards[0]
        known = placement.mesh_shape or (placement.mesh and _extent(placement.mesh))
        shape = known if known and prod(known) == len(shards) else (1, len(shards))
        return self._ttnn.from_host_shards(shards, self._ttnn.MeshShape(list(shape)))

    def _placed(self, live: Any, mesh: MeshPlacement | None, path: str) -> Any:
        """Return the tensor distributed over the mesh as recorded."""
        if mesh is None:
            return live
        if len(mesh.coordinates) < self._device.get_num_devices():
            live = self._on_part(live, mesh, path)
        return self._spread(live, mesh)

    def _spread(self, live: Any, mesh: MeshPlacement) -> Any:
        """Set the recorded topology of a tensor; a part has the topology of the whole."""
        ttnn, chips, size = self._ttnn, mesh.coordinates, prod(mesh.distribution_shape)
        # With the shadow, a part that is read from one chip is a tensor of its own.
        if len(chips) < size and self._device is not None and not hasattr(ttnn, SHADOW_ATTRIBUTE):
            whole = tuple(product(*map(range, self._device.shape)))
            chips = whole if len(whole) == size else chips
        topology = ttnn.TensorTopology(
            ttnn.MeshShape(list(mesh.distribution_shape)),
            [
                ttnn.PlacementReplicate() if dim is None else ttnn.PlacementShard(dim)
                for dim in mesh.placements
            ],
            [ttnn.MeshCoordinate(list(chip)) for chip in chips],
        )
        if live.tensor_topology() != topology:
            live.update_tensor_topology(topology)
        return live

    def _on_part(self, live: Any, mesh: MeshPlacement, path: str) -> Any:
        """Return the parts of a tensor that are on the recorded chips."""
        wanted = set(mesh.coordinates)
        pairs = zip(live.device_coords(), self._ttnn.get_device_tensors(live), strict=True)
        parts = [part for chip, part in pairs if tuple(chip) in wanted]
        if len(parts) != len(wanted):
            self.notes.append(f"{path} was on chips that are not here; it was put on all chips")
            return live
        return self._ttnn.combine_device_tensors(tensors=parts)


def _dtype(ttnn: Any, spec: TensorSpec) -> Any:
    return ttnn.DataType[spec.dtype.removeprefix("ttnn.").upper()]


def _own_tile(ttnn: Any, placement: TtnnPlacement) -> Any:
    """Return the live tile of a tensor; None for the usual one."""
    tile = placement.tile
    if tile is None or (tile.shape == USUAL_TILE.shape and not tile.transpose_of_faces):
        return None
    return ttnn.Tile(list(tile.shape), tile.transpose_of_faces)


def _extent(mesh: MeshPlacement) -> tuple[int, ...]:
    """Return the shape of the mesh for which a host tensor has parts.

    ttnn ends the process when a tensor for a line of two chips is moved to a mesh of 1x2.
    """
    return tuple(max(places) + 1 for places in zip(*mesh.coordinates, strict=True))


def _is_partial(mesh: MeshPlacement) -> bool:
    """Return whether chips are missing between those of a tensor, or of the whole tensor."""
    return 0 < len(mesh.coordinates) < max(prod(mesh.distribution_shape), prod(_extent(mesh)))


def _is_roomy(spec: TensorSpec, placement: TtnnPlacement) -> bool:
    """Return whether a tiled tensor has more padding than its tiles need."""
    shape, padded, tile = spec.shape, placement.padded_shape, placement.tile
    if tile is None or len(shape) != len(padded) or len(shape) < len(tile.shape):
        return False
    sizes = (*(1,) * (len(shape) - len(tile.shape)), *tile.shape)
    usual = tuple(-(-length // size) * size for length, size in zip(shape, sizes, strict=True))
    return padded != usual and all(map(ge, padded, usual))


def parts_of(mesh: MeshPlacement) -> list[tuple[int, ...]]:
    """Return the part of a tensor that each of its chips holds; equal parts have equal values."""
    shape, count = mesh.distribution_shape, len(mesh.coordinates)
    if prod(shape) != count:
        return [(chip,) for chip in range(count)]
    split = [axis for axis, dim in enumerate(mesh.placements) if dim is not None]
    places = product(*(range(size) for size in shape))
    return [tuple(place[axis] for axis in split) for place in places]
