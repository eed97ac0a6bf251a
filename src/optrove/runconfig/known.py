"""The classes of op configurations that files may name."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from optrove.backends.plain import user_table
from optrove.model.rewrite import rewrite
from optrove.model.values import Null, Struct, Value
from optrove.runconfig import attention_ops, ops, routing_ops
from optrove.runconfig.opconfig import OpConfig, names_of
from optrove.runconfig.placeholders import FromWeight, MeshDeviceStub
from optrove.runconfig.sharding import Sharding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.backends.base import ConverterTable

_HOME: Final = "optrove.runconfig"
_PREFIX: Final = f"python.dataclass:{_HOME}:"

OP_CONFIGS: Final[tuple[type[OpConfig], ...]] = tuple(
    kind
    for module in (ops, attention_ops, routing_ops)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, OpConfig) and kind is not OpConfig
)

KNOWN: Final[tuple[type, ...]] = (*OP_CONFIGS, FromWeight, MeshDeviceStub, Sharding)

for _kind in KNOWN:
    # As users import them, and as files name them, wherever they are defined.
    _kind.__module__ = _HOME

_FIELDS: Final[dict[str, frozenset[str]]] = {
    f"{_PREFIX}{kind.__name__}": frozenset(names_of(kind)) for kind in KNOWN
}


@cache
def _known_table() -> ConverterTable:
    return user_table(KNOWN)


def table_with(types: Iterable[type] = ()) -> ConverterTable:
    """Return the converters of these classes and of ours; TypeError for one without a form."""
    added = tuple(types)
    return user_table((*KNOWN, *added)) if added else _known_table()


def complete(value: Value) -> Value:
    """Return a value whose op configurations have all of their fields, None where left out."""
    return rewrite(value, _completed)


def compact(value: Value) -> Value:
    """Return a value whose op configurations have only the fields that are given."""
    return rewrite(value, _compacted)


def _completed(value: Value) -> Value:
    names = _FIELDS.get(value.type) if isinstance(value, Struct) else None
    if names is None or not isinstance(value, Struct):
        return value
    missing = names - {name for name, _ in value.fields}
    return Struct(value.type, (*value.fields, *((name, Null()) for name in missing)))


def _compacted(value: Value) -> Value:
    if not isinstance(value, Struct) or value.type not in _FIELDS:
        return value
    given = [(name, item) for name, item in value.fields if not isinstance(item, Null)]
    return Struct(value.type, tuple(given))


def op_config_class(struct: Struct) -> Any:
    """Return the class of ours that a Struct names, None if it is another's."""
    name = struct.type.removeprefix(_PREFIX)
    return next((kind for kind in OP_CONFIGS if kind.__name__ == name), None)
