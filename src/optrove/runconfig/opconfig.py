"""The base of op configurations: a dataclass that unpacks into the arguments of an op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

from optrove.backends.describe import describe
from optrove.backends.frameworks import loaded_tables
from optrove.backends.watching import UNPACKING
from optrove.model.values import DeviceRef, Handle, Opaque, TensorSpec
from optrove.model.walk import walk

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
        told = UNPACKING.told
        if told is not None:
            path = path_of(self)
            if path:
                told(path, self.ops)
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
