"""The base of op configurations, and placeholders for weights and devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from optrove.frameworks.installed import loaded_tables
from optrove.frameworks.probe_protocol import CONFIG_UNPACKING
from optrove.model.values import DeviceRef, Handle, Opaque, TensorSpec, walk
from optrove.serializer.describe import describe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class Sharding:
    """The dimension of a tensor that is split along each axis of the mesh; None: copies.

    Axis 0 is the rows of the mesh, axis 1 its columns.
    """

    axis0: int | None = None
    axis1: int | None = None

    @property
    def dims(self) -> tuple[int | None, int | None]:
        """The dimension that is split along each axis."""
        return (self.axis0, self.axis1)


REPLICATED: Final = Sharding()


def replicated() -> Sharding:
    """Put the whole weight on every chip."""
    return REPLICATED


def column_sharded(axis: int = 1) -> Sharding:
    """Split the last dimension along an axis of the mesh, as is usual for projections."""
    return sharded(-1, axis)


def row_sharded(axis: int = 1) -> Sharding:
    """Split the second-to-last dimension along an axis of the mesh, as for down projections."""
    return sharded(-2, axis)


def sharded(dim: int, axis: int = 1) -> Sharding:
    """Split any dimension along an axis of the mesh."""
    if axis not in (0, 1):
        raise ValueError(f"a mesh has the axes 0 and 1, not {axis!r}")
    return Sharding(axis0=dim) if axis == 0 else Sharding(axis1=dim)


def splits(
    dims: Sequence[int | None], mesh_shape: Sequence[int], rank: int
) -> dict[int, int] | str:
    """Return the number of parts of each dimension that is split, or the problem."""
    parts: dict[int, int] = {}
    for axis, dim in enumerate(dims):
        if dim is None:
            continue
        if not -rank <= dim < rank:
            return f"dimension {dim} cannot be split: the array has {rank} dimensions"
        place = dim % rank
        parts[place] = parts.get(place, 1) * (mesh_shape[axis] if axis < len(mesh_shape) else 1)
    return parts


def part_shape(
    shape: Sequence[int], dims: Sequence[int | None], mesh_shape: Sequence[int]
) -> tuple[int, ...] | str:
    """Return the shape of the part that each chip holds, or the problem."""
    parts = splits(dims, mesh_shape, len(shape))
    if isinstance(parts, str):
        return parts
    if len(parts) < sum(dim is not None for dim in dims):
        return (
            "ttnn cannot split one dimension along both axes; "
            "give the array a dimension for each axis"
        )
    for place, count in parts.items():
        if shape[place] % count:
            return f"dimension {place} of {shape[place]} cannot be split into {count} equal parts"
    return tuple(size // parts.get(place, 1) for place, size in enumerate(shape))


def whole_shape(
    part: Sequence[int], dims: Sequence[int | None], mesh_shape: Sequence[int]
) -> tuple[int, ...]:
    """Return the shape of the whole tensor; ``part`` is the shape that each chip holds."""
    parts = splits(dims, mesh_shape, len(part))
    if isinstance(parts, str):
        return tuple(part)
    return tuple(size * parts.get(place, 1) for place, size in enumerate(part))


@dataclass(frozen=True)
class MeshDeviceStub:
    """A placeholder for the mesh device in a model configuration; only its shape is known."""

    mesh_shape: tuple[int, ...]

    def __init__(self, mesh_shape: Iterable[int]) -> None:
        object.__setattr__(self, "mesh_shape", tuple(int(size) for size in mesh_shape))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the mesh, as an open mesh device has it."""
        return self.mesh_shape


@dataclass(frozen=True, kw_only=True)
class FromWeight:
    """A placeholder for a weight; the weight configuration has to name its file.

    Fields that are given here are compared with the file. ``shape`` is that of the whole weight,
    before it is split over the mesh.
    """

    shape: tuple[int, ...] | None = None
    dtype: Any = None
    layout: Any = None
    memory_config: Any = None
    sharding: Sharding | None = None
    mesh_device: MeshDeviceStub | None = None


Config = TypeVar("Config", bound="OpConfig")

_PATH = "_path"
_HELD = "_held"


class OpConfig(Mapping[str, Any]):
    """The arguments of one op call that are known beforehand; ``ttnn.linear(x, **config)``.

    Derive a dataclass with one field per argument and None as the default: fields that are None
    are left out when the config is unpacked. ``ops``, an attribute or an argument of the class,
    names the operations of ttnn that the config is for; its fields are checked against their
    signatures.
    """

    ops: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, ops: tuple[str, ...] | None = None, **others: Any) -> None:
        """Set ``ops``, if they are given as an argument of the class."""
        super().__init_subclass__(**others)
        if ops is not None:
            cls.ops = ops

    def __iter__(self) -> Iterator[str]:
        return iter(self._given())

    def __len__(self) -> int:
        return len(self._given())

    def __getitem__(self, name: str) -> Any:
        value = getattr(self, name) if name in names_of(type(self)) else None
        if value is None:
            raise KeyError(name)
        return value

    def keys(self) -> Any:
        """Return the names of the fields that are not None.

        Unpacking starts with this call, so the recorder learns here where arguments come from.
        """
        on_unpack = CONFIG_UNPACKING.on_unpack
        if on_unpack is not None:
            path = path_of(self)
            if path:
                on_unpack(path, self.ops)
        return self._given()

    def _given(self) -> tuple[str, ...]:
        return tuple([name for name in names_of(type(self)) if getattr(self, name) is not None])

    def __eq__(self, other: object) -> bool:
        """Return whether all fields are equal; tensors, devices and handles: identical."""
        if type(other) is not type(self):
            return NotImplemented
        return all(
            _is_same(getattr(self, name), getattr(other, name)) for name in names_of(type(self))
        )

    __hash__ = None  # type: ignore[assignment]  # as for any mapping: a field may be a list

    def __repr__(self) -> str:
        """Show the fields that are not None; never the numbers of a tensor."""
        shown = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in self._given())
        return f"{type(self).__qualname__}({shown})"

    def unchecked(self) -> frozenset[str]:
        """Return the given fields that no op takes; the model itself reads them."""
        return frozenset()


def bound(config: Config, path: str, changes: Mapping[str, Any], held: tuple[Any, ...]) -> Config:
    """Return a copy of a config that knows its path in the run configuration.

    ``held`` stays alive as long as the copy does.
    """
    fresh = copy(config)
    # The dataclass may be frozen. The path and what is held are not fields: no part of its value.
    for name, value in (*changes.items(), (_PATH, path), *([(_HELD, held)] if held else [])):
        object.__setattr__(fresh, name, value)
    return fresh


def path_of(config: OpConfig) -> str | None:
    """Return the path of a config in its run configuration; None if it is not in one."""
    path = vars(config).get(_PATH)
    return path if isinstance(path, str) else None


def mesh_shape_of(mesh_device: Any) -> tuple[int, ...] | None:
    """Return the shape of an open mesh or of a MeshDeviceStub; None for anything else."""
    if isinstance(mesh_device, MeshDeviceStub):
        return mesh_device.mesh_shape
    device = describe(mesh_device, loaded_tables())
    return device.mesh_shape if isinstance(device, DeviceRef) else None


@lru_cache(maxsize=1024)
def names_of(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass."""
    return tuple(field.name for field in fields(kind))


def _is_same(ours: Any, theirs: Any) -> bool:
    """Compare without ``==``, which runs an operation where tensors are compared."""
    if ours is theirs:
        return True
    tables = loaded_tables()
    value = describe(ours, tables)
    unique = (TensorSpec, DeviceRef, Handle, Opaque)
    if any(isinstance(part, unique) for _, part in walk(value)):
        return False
    return value == describe(theirs, tables)


def _shown(live: Any) -> str:
    value = describe(live, loaded_tables())
    if isinstance(value, TensorSpec):
        return f"<{type(live).__name__} {'x'.join(map(str, value.shape))} {value.dtype}>"
    return repr(live)
