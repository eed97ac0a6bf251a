"""Notice when a configuration object is changed, so that it can be known by identity until then.

ttnn's configuration classes have properties with setters. Reading all fields of an object anew
for every call would cost more than the rest of the tracing; so the setters are replaced by ones
that also say which object has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optrove.backends.base import Caching, StructConverter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from optrove.backends.base import Tables


def watchable(tables: Tables) -> dict[type, tuple[str, ...]]:
    """Return the classes of ttnn whose changes can be noticed, with the fields to read.

    All of an object's fields must be properties. A class that cannot be patched is left out.
    """
    found = {}
    for kind, converter in tables.by_type.items():
        if not isinstance(converter, StructConverter) or converter.caching is Caching.BY_VALUE:
            continue
        names = (*(converter.names or ()), *converter.optional)
        if not names or not converter.name.startswith("ttnn."):
            continue
        if all(isinstance(getattr(kind, name, None), property) for name in names):
            found[kind] = names
    return {kind: names for kind, names in found.items() if _can_be_patched(kind)}


def patches(
    kinds: dict[type, tuple[str, ...]], changed: Callable[[Any], None]
) -> Iterator[tuple[Any, str, Any]]:
    """Yield what to replace: every setter of these classes and of their bases."""
    owners = {base for kind in kinds for base in kind.__mro__}
    for owner in owners:
        for name, member in list(vars(owner).items()):
            if isinstance(member, property) and member.fset is not None:
                yield owner, name, _watched(member, changed)


def _watched(member: property, changed: Callable[[Any], None]) -> property:
    setter: Any = member.fset

    def change(live: Any, value: Any) -> None:
        setter(live, value)
        changed(live)

    return property(member.fget, change, member.fdel, member.__doc__)


def _can_be_patched(kind: type) -> bool:
    settable = [
        (base, name, member)
        for base in kind.__mro__
        for name, member in vars(base).items()
        if isinstance(member, property) and member.fset is not None
    ]
    try:
        for base, name, member in settable:
            setattr(base, name, member)
    except TypeError:  # a class that Python does not let anybody change
        return False
    return True
