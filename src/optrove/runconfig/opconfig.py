"""The base of op configurations, and placeholders for weights and devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from optrove.frameworks.installed import loaded_tables
from optrove.frameworks.probe_protocol import CONFIG_UNPACKING
from optrove.model.values import DeviceRef, Handle, Opaque, TensorSpec, walk
from optrove.serializer.describe import describe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_COLUMNS: Final = -1
_ROWS: Final = -2


@dataclass(frozen=True)
class Sharding:
    """Which dimension of a tensor is split along each axis of the mesh; None: copies.

    Axis 0 are the rows of the mesh, axis 1 its columns.
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
    """Split the last dimension along an axis of the mesh, as projections usually are."""
    return _along(axis, _COLUMNS)


def row_sharded(axis: int = 1) -> Sharding:
    """Split the last but one dimension along an axis of the mesh, as down projections are."""
    return _along(axis, _ROWS)


def sharded(dim: int, axis: int = 1) -> Sharding:
    """Split any dimension along an axis of the mesh."""
    return _along(axis, dim)


def _along(axis: int, dim: int) -> Sharding:
    if axis not in (0, 1):
        raise ValueError(f"a mesh has the axes 0 and 1, not {axis!r}")
    return Sharding(axis0=dim) if axis == 0 else Sharding(axis1=dim)


def splits(
    dims: Sequence[int | None], mesh_shape: Sequence[int], rank: int
) -> dict[int, int] | str:
    """Return into how many parts each dimension is split, or what is wrong with that."""
    parts: dict[int, int] = {}
    for axis, dim in enumerate(dims):
        if dim is None:
            continue
        if not -rank <= dim < rank:
            return f"dimension {dim} is to be split, of {rank}"
        place = dim % rank
        parts[place] = parts.get(place, 1) * (mesh_shape[axis] if axis < len(mesh_shape) else 1)
    return parts


def part_shape(
    shape: Sequence[int], dims: Sequence[int | None], mesh_shape: Sequence[int]
) -> tuple[int, ...] | str:
    """Return the shape of the part that each chip holds, or what is in the way."""
    parts = splits(dims, mesh_shape, len(shape))
    if isinstance(parts, str):
        return parts
    if len(parts) < sum(dim is not None for dim in dims):
        return (
            "one dimension is to be split along both axes, which ttnn does not do; "
            "give the array a dimension for each axis"
        )
    for place, count in parts.items():
        if shape[place] % count:
            return f"dimension {place} of {shape[place]} cannot be split into {count} equal parts"
    return tuple(size // parts.get(place, 1) for place, size in enumerate(shape))


def whole_shape(
    part: Sequence[int], dims: Sequence[int | None], mesh_shape: Sequence[int]
) -> tuple[int, ...]:
    """Return the shape of a tensor of which each chip holds such a part."""
    parts = splits(dims, mesh_shape, len(part))
    if isinstance(parts, str):
        return tuple(part)
    return tuple(size * parts.get(place, 1) for place, size in enumerate(part))


@dataclass(frozen=True)
class MeshDeviceStub:
    """Stands for the mesh device in a model configuration; only its shape is known."""

    mesh_shape: tuple[int, ...]

    def __init__(self, mesh_shape: Iterable[int]) -> None:
        object.__setattr__(self, "mesh_shape", tuple(int(size) for size in mesh_shape))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the mesh, as an open mesh device has it."""
        return self.mesh_shape


@dataclass(frozen=True, kw_only=True)
class FromWeight:
    """Stands for a weight: the weight configuration has to name a file for it.

    What is given here is held against what the file holds. ``shape`` is that of the whole weight,
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

    Derive a dataclass from it, with one field per argument, None where it is not given: None
    fields are left out when the config is unpacked. ``ops`` are the operations that it is for, by
    their names in ttnn; their signatures tell which fields there can be.
    """

    ops: ClassVar[tuple[str, ...]] = ()

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
        """Return the names of the fields that are given.

        That is how unpacking begins, so whoever records calls learns where their arguments come
        from.
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
        """Tell whether all fields are equal; tensors, devices and handles: the same ones."""
        if type(other) is not type(self):
            return NotImplemented
        return all(
            _is_same(getattr(self, name), getattr(other, name)) for name in names_of(type(self))
        )

    __hash__ = None  # type: ignore[assignment]  # as for any mapping: equal ones may hold lists

    def __repr__(self) -> str:
        """Show what is given; never the numbers of a tensor."""
        shown = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in self._given())
        return f"{type(self).__qualname__}({shown})"

    def unchecked(self) -> frozenset[str]:
        """Return the given fields that no op takes, since the model itself reads them."""
        return frozenset()


def bound(config: Config, path: str, changes: Mapping[str, Any], held: tuple[Any, ...]) -> Config:
    """Return a fresh config that knows its path in the run configuration.

    ``held`` is kept alive as long as the config is.
    """
    fresh = copy(config)
    # Whether or not the dataclass is frozen. What stands beside the fields is no part of its value.
    for name, value in (*changes.items(), (_PATH, path), *([(_HELD, held)] if held else [])):
        object.__setattr__(fresh, name, value)
    return fresh


def path_of(config: OpConfig) -> str | None:
    """Return the path that the config has in its run configuration, None before it is in one."""
    path = vars(config).get(_PATH)
    return path if isinstance(path, str) else None


def is_declared(config: OpConfig) -> bool:
    """Tell whether the class of a config is a dataclass, as it has to be."""
    return is_dataclass(config)


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
